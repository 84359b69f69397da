/* Options, threads, progress and the verdict. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "soak.h"

#include "process/state.h"
#include "sim.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct soak soak = {
    .threads = 4,
    .streams = 8,
    .ops = 200000,
    .seed = 1,
    .check_every = 2000,
    .pressure = 100,
    .sync = 40,
    .largest = 8 << 20,
    .ring = 32 << 20,
    .table_lock = PTHREAD_MUTEX_INITIALIZER,
    .shelf_lock = PTHREAD_MUTEX_INITIALIZER,
    .legacy = PTHREAD_RWLOCK_INITIALIZER,
};

/* No operation lasts as long as this many seconds, unless it hangs. */
enum { HANG = 60, PROGRESS = 10 };

void soak_check(const struct worker *w) {
    if (vp_sim_violations())
        soak_fail(w, NULL, "the simulated device saw %lu violations", vp_sim_violations());
    caches_lock();
    if (!doors_direct || !vp_enter()) {
        caches_unlock();
        return;
    }
    for (int d = 0; d < soak.devices; d++)
        if (vp_state.pools[d] && !vp_pool_check(vp_state.pools[d], stderr))
            soak_fail(w, NULL, "vp_pool_check of device %d", d);
    vp_leave();
    caches_unlock();
}

/* ---- what the run must have seen ---- */

struct seen {
    uint64_t stitches, reactivations, reaps, waits_gpu, waits_host, ooms, captures, contexts, lent, given, cached,
        set_back;
};

/* What the pools counted is missing while somebody holds their lock: whoever hangs must not hang this thread
 * too. */
static struct seen seen(void) {
    struct seen s = {.ooms = soak.ooms,
                     .captures = soak.captures,
                     .contexts = soak.contexts,
                     .cached = soak.cached,
                     .set_back = soak.set_back};
    if (!doors_direct || !vp_lock_try(&vp_library_lock))
        return s;
    for (int d = 0; d < soak.devices; d++) {
        const struct vp_pool *pool = vp_state.pools[d];
        if (!pool)
            continue;
        s.stitches += pool->mem.stats.stitches;
        s.reactivations += pool->mem.stats.reactivations;
        s.reaps += pool->mem.stats.reaps;
        s.waits_gpu += pool->mem.stats.waits_gpu;
        s.waits_host += pool->mem.stats.waits_host;
        s.lent += pool->mem.stats.lent_bytes;
        s.given += pool->mem.stats.given_back;
    }
    vp_lock_release(&vp_library_lock);
    return s;
}

/* `names`: comma-separated members of struct seen. */
static void expect(const char *names, const struct seen *s) {
    const struct {
        const char *name;
        uint64_t count;
    } all[] = {
        {"stitches", s->stitches},   {"reactivations", s->reactivations},
        {"reaps", s->reaps},         {"slept", atomic_load(&soak.slept)},
        {"waits_gpu", s->waits_gpu}, {"waits_host", s->waits_host},
        {"ooms", s->ooms},           {"captures", s->captures},
        {"contexts", s->contexts},   {"lent", s->lent},
        {"given", s->given},         {"cached", s->cached},
        {"set_back", s->set_back},
    };
    char *copy = strdup(names), *rest = copy, *name;
    while ((name = strsep(&rest, ",")) != NULL) {
        size_t i = 0, n = sizeof all / sizeof *all;
        while (i < n && strcmp(all[i].name, name))
            i++;
        if (i == n || !all[i].count)
            soak_fail(NULL, NULL, i == n ? "--expect %s: no such thing" : "there were no %s in this run", name);
    }
    free(copy);
}

/* ---- setting up ---- */

static uint64_t number(const char *text) {
    char *end;
    unsigned long long n = strtoull(text, &end, 0);
    if (end == text || *end) {
        fprintf(stderr, "soak: '%s' is no number\n", text);
        exit(2);
    }
    return n;
}

static const char usage[] =
    "usage: soak [OPTION]...\n"
    "  --ops N              operations in all (200000)\n"
    "  --threads N          that share them (4)\n"
    "  --streams N          plain ones in use at a time, beside the default streams (8)\n"
    "  --seed N             of all that is random (1); VPOOL_SIM has a seed of its own\n"
    "  --seconds N          end after that time, whatever is left to do\n"
    "  --check-every N      prove the pools' invariants after so many operations (2000)\n"
    "  --pressure PERCENT   how full the devices get (100 is more than full now and then)\n"
    "  --sync PERCENT       of the allocations and frees that name no stream (40)\n"
    "  --largest BYTES      block (8 MiB)\n"
    "  --expect THING,...   fail unless the run has seen: stitches, reactivations, reaps, slept, waits_gpu, "
    "waits_host,\n"
    "                       ooms, captures, contexts, lent, given, cached, set_back\n"
    "  --cache              beside it all the threads have a cache such as PyTorch's on bare segments; --pools: some of\n"
    "                       its segments are pools, which are set back\n"
    "  --without OPERATION  leave one out, to find out what a failure needs; may be given several times\n"
    "  --preload            plain CUDA calls: for a run under LD_PRELOAD=libvpool.so\n";

/* clang-format off */
static const struct option options[] = {
    { "ops", required_argument, NULL, 'n' },
    { "threads", required_argument, NULL, 't' },
    { "streams", required_argument, NULL, 's' },
    { "seed", required_argument, NULL, 'r' },
    { "seconds", required_argument, NULL, 'T' },
    { "check-every", required_argument, NULL, 'c' },
    { "pressure", required_argument, NULL, 'p' },
    { "sync", required_argument, NULL, 'S' },
    { "largest", required_argument, NULL, 'l' },
    { "expect", required_argument, NULL, 'e' },
    { "without", required_argument, NULL, 'w' },
    { "preload", no_argument, NULL, 'P' },
    { "cache", no_argument, NULL, 'C' },
    { "pools", no_argument, NULL, 'B' },
    { NULL, 0, NULL, 0 },
};
/* clang-format on */

/* Returns what --expect named, or NULL. */
static const char *parse(int argc, char **argv) {
    const char *expected = NULL;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
        switch (c) {
        case 'n': soak.ops = number(optarg); break;
        case 't': soak.threads = (int)number(optarg); break;
        case 's': soak.streams = (int)number(optarg); break;
        case 'r': soak.seed = number(optarg); break;
        case 'T': soak.seconds = (unsigned)number(optarg); break;
        case 'c': soak.check_every = (unsigned)number(optarg); break;
        case 'p': soak.pressure = (unsigned)number(optarg); break;
        case 'S': soak.sync = (unsigned)number(optarg); break;
        case 'l': soak.largest = number(optarg); break;
        case 'e': expected = optarg; break;
        case 'w':
            if (mix_without(optarg))
                break;
            fprintf(stderr, "soak: there is no operation '%s'\n", optarg);
            exit(2);
        case 'P': doors_direct = false; break;
        case 'C': mix_with_cache(); break;
        case 'B':
            mix_with_cache();
            soak.pools = true;
            break;
        default: fputs(usage, stderr); exit(2);
        }
    if (soak.threads < 1 || soak.threads > THREADS_MOST || soak.streams < 1 || soak.streams > STREAMS_MOST ||
        !soak.check_every || !soak.largest || soak.largest > soak.ring / 4) {
        fprintf(stderr, "soak: 1 to %d threads, 1 to %d streams, and no block above %zu bytes\n", THREADS_MOST,
                STREAMS_MOST, soak.ring / 4);
        exit(2);
    }
    return expected;
}

static void open_devices(void) {
    size_t free_bytes;
    MUST(NULL, NULL, cuInit(0));
    MUST(NULL, NULL, cuDeviceGetCount(&soak.devices));
    if (soak.streams < soak.devices)
        soak.streams = soak.devices;
    for (int d = 0; d < soak.devices; d++) {
        MUST(NULL, NULL, door_primary(&soak.context[d], d));
        MUST(NULL, NULL, cuCtxSetCurrent(soak.context[d]));
        MUST(NULL, NULL, door_mem_info(&free_bytes, &soak.capacity));
        MUST(NULL, NULL, door_pool_create(&soak.pool[d], d));
    }
    /* The order of the devices must not matter; and now and then they stay strangers, or have to (peers=0). */
    int can = 0;
    if (soak.devices > 1)
        MUST(NULL, NULL, cuDeviceCanAccessPeer(&can, 0, 1));
    soak.peers = can && soak.seed % 4 != 0;
    for (int d = 0; soak.peers && d < soak.devices; d++) {
        MUST(NULL, NULL, cuCtxSetCurrent(soak.context[d]));
        for (int other = 0; other < soak.devices; other++)
            if (other != d)
                MUST(NULL, NULL, door_enable_peer(soak.context[other]));
    }
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    MUST(NULL, NULL, cuMemGetAllocationGranularity(&soak.granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    const char *policy = getenv("VPOOL_POLICY");
    soak.pages_only = policy && !strcmp(policy, "vpmm");
}

static void open_workers(void) {
    pthread_rwlockattr_t attr;
    /* Who wants the world to stand still must not wait for ever. */
    pthread_rwlockattr_init(&attr);
    pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&soak.world, &attr);
    soak.workers = calloc((size_t)soak.threads, sizeof *soak.workers);
    for (int i = 0; soak.workers && i < soak.threads; i++) {
        struct worker *w = &soak.workers[i];
        w->index = i;
        w->device = -1;
        w->random = soak.seed * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)i * UINT64_C(0xbf58476d1ce4e5b9) + 1;
        w->quota = soak.ops / (uint64_t)soak.threads + ((uint64_t)i < soak.ops % (uint64_t)soak.threads);
        w->history = calloc(HISTORY, sizeof *w->history);
        if (!w->history)
            abort();
        soak_device(w, 0);
        MUST(w, NULL, cuMemAllocHost((void **)&w->ring, soak.ring));
        for (int k = 0; k < REPEATED; k++)
            w->repeated[k] = ((size_t)1 << (10 + soak_random(w, 13))) + 512 * soak_random(w, 100);
    }
}

/* ---- running ---- */

static double seconds_since(const struct timespec *begin) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - begin->tv_sec) + (double)(now.tv_nsec - begin->tv_nsec) / 1e9;
}

static void say(const char *when, double seconds) {
    const struct seen s = seen();
    uint64_t done = atomic_load(&soak.done), live = 0, held = 0;
    for (int d = 0; d < soak.devices; d++) {
        live += atomic_load(&soak.live[d]);
        held += vp_sim_used(d);
    }
    printf("soak: %s %.0f s, %llu operations (%.0f/s), live %llu MiB of %llu MiB held; stitched %llu, taken "
           "back %llu, reaped %llu; "
           "waits %llu GPU, %llu host; %llu out of memory; %llu captures, %llu contexts, %llu streams\n",
           when, seconds, (unsigned long long)done, (double)done / seconds, (unsigned long long)live >> 20,
           (unsigned long long)held >> 20, (unsigned long long)s.stitches, (unsigned long long)s.reactivations,
           (unsigned long long)s.reaps, (unsigned long long)s.waits_gpu, (unsigned long long)s.waits_host,
           (unsigned long long)s.ooms, (unsigned long long)s.captures, (unsigned long long)s.contexts,
           (unsigned long long)soak.streams_made);
    fflush(stdout);
}

/* Looks on until the worker's thread ends. */
static void watch(struct worker *w, const struct timespec *begin, double *said) {
    static uint64_t last;
    static double moved;
    for (struct timespec until;;) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 100000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (!pthread_timedjoin_np(w->thread, NULL, &until))
            return;
        double now = seconds_since(begin);
        uint64_t done = atomic_load(&soak.done);
        if (done != last) {
            last = done;
            moved = now;
        } else if (now - moved > HANG) {
            fprintf(stderr, "soak: FAILED (seed %llu): nothing has moved for %d s\n", (unsigned long long)soak.seed,
                    HANG);
            abort();
        }
        if (now - *said >= PROGRESS) {
            say("after", now);
            *said = now;
        }
        if (soak.seconds && now >= soak.seconds)
            atomic_store(&soak.stop, true);
    }
}

static void run(const struct timespec *begin) {
    double said = 0;
    bool more = true;
    for (int i = 0; i < soak.threads; i++)
        pthread_create(&soak.workers[i].thread, NULL, worker_run, &soak.workers[i]);
    /* A thread that has ended makes place for another, until the worker's quota is done. */
    while (more) {
        more = false;
        for (int i = 0; i < soak.threads; i++) {
            struct worker *w = &soak.workers[i];
            if (!w->thread)
                continue;
            watch(w, begin, &said);
            w->thread = 0;
            if (w->ops < w->quota && !atomic_load(&soak.stop)) {
                pthread_create(&w->thread, NULL, worker_run, w);
                more = true;
            }
        }
        for (int i = 0; i < soak.threads; i++)
            more |= soak.workers[i].thread != 0;
    }
}

/* ---- the end ---- */

/* Gives everything back; nothing may be left at the driver. */
static void close_all(void) {
    struct worker *first = &soak.workers[0];
    first->device = -1;
    for (int i = 0; i < soak.threads; i++)
        worker_release_all(&soak.workers[i]);
    while (soak.shelved) {
        first->blocks[first->count++] = soak.shelf[--soak.shelved];
        worker_release_all(first);
    }
    caches_close(first);
    for (int d = 0; d < soak.devices; d++) {
        soak_device(first, d);
        MUST(first, NULL, cuCtxSynchronize());
    }
    soak_check(NULL);
    for (int d = 0; d < soak.devices; d++) {
        CUmemoryPool standard;
        struct vp_pool *pool = doors_direct ? vp_state.pools[d] : NULL;
        uint64_t live = pool ? vp_pool_stats(pool).live_bytes : 0;
        soak_device(first, d);
        if (live)
            soak_fail(NULL, NULL, "%llu bytes are left live on device %d", (unsigned long long)live, d);
        MUST(first, NULL, cuDeviceGetDefaultMemPool(&standard, d));
        /* The first trim may find that some frees still lack their event: it records them, and a lazy device
         * takes its time. */
        for (int round = 0; round < 3 && vp_sim_used_vmm(d); round++) {
            MUST(first, NULL, door_pool_trim(soak.pool[d], 0));
            MUST(first, NULL, door_pool_trim(standard, 0));
            MUST(first, NULL, cuCtxSynchronize());
        }
        if (vp_sim_used_vmm(d))
            soak_fail(NULL, NULL, "%zu bytes of device %d were not given back", vp_sim_used_vmm(d), d);
        MUST(first, NULL, door_pool_destroy(soak.pool[d]));
    }
    for (int i = 0; i < soak.streams; i++) {
        soak_device(first, soak.table[i]->device);
        MUST(first, NULL, door_stream_destroy(soak.table[i]->handle));
    }
    soak_check(NULL);
}

int main(int argc, char **argv) {
    struct timespec begin;
    const char *expected = parse(argc, argv);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    if (doors_open() < 0)
        soak_fail(NULL, NULL, "the driver lacks what a pool needs");
    open_devices();
    streams_open();
    caches_open();
    open_workers();
    run(&begin);
    close_all();
    say("in all", seconds_since(&begin));
    const struct seen s = seen();
    if (expected)
        expect(expected, &s);
    printf("soak: %llu operations, %llu allocations, checks clean\n", (unsigned long long)soak.done,
           (unsigned long long)soak.allocs);
    return 0;
}
