/* What allocations cost that nothing cached can serve, in process, on the simulated driver.
 *
 * usage: bench_slow alike       100 GiB alive in 2,000 blocks, one after the other replaced by another of a random
 *                               size: host nanoseconds of an allocation beside the driver's calls, mean and worst
 *        bench_slow varied      the same, with blocks of 1 to 270 MiB, evenly over the orders of magnitude
 *        bench_slow large       100 GiB free in handles of 8 MiB, in pieces with live blocks between, on a device of
 *                               192 GiB; 50 GiB asked for in one: modelled nanoseconds in the driver's calls
 *
 *        bench_slow full        the same on a device that is full, while two other threads allocate: modelled
 *                               nanoseconds in the driver's calls; those that went by during a call that no cache
 *                               serves and that was held up, the median and the most (the thread may lose its
 *                               processor in between, too); and nanoseconds of a pair that the fast path serves,
 *                               before and meanwhile
 *
 * Prints one JSON object. `large` and `full` need VPOOL_HANDLE=8M. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"
#include "check.h"

#include "../common/doors.h"
#include "base/clock.h"
#include "process/process.h"
#include "sim.h"
#include "vpool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const size_t MIB = 1 << 20, GIB = 1 << 30;

/* ---- many blocks alive ---- */

enum { ALIVE = 2000, WARM_UP = 500, MEASURED = 4000 };

/* 51.2 MiB in the middle. */
static size_t alike(uint64_t *state) {
    return 48 * MIB + (size_t)(bench_random(state) % (MIB * 32 / 5));
}

static size_t varied(uint64_t *state) {
    size_t low = (MIB + MIB / 14) << bench_random(state) % 8;
    return low + bench_random(state) % low;
}

static uint64_t in_driver(void) {
    struct vpool_stats stats = {.size = sizeof stats};
    return vpool_stats(0, &stats) ? 0 : stats.driver_ns;
}

static void alive(bench_stream stream, size_t (*draw)(uint64_t *state)) {
    static bench_block blocks[ALIVE];
    uint64_t state = 1, sum = 0, worst = 0;
    for (int i = 0; i < ALIVE; i++)
        blocks[i] = gpu_alloc_on(stream, draw(&state));
    for (int i = -WARM_UP; i < MEASURED; i++) {
        bench_block *block = &blocks[bench_random(&state) % ALIVE];
        size_t size = draw(&state);
        gpu_free_on(stream, *block);
        uint64_t driver = in_driver(), begin = vp_clock_ns();
        *block = gpu_alloc_on(stream, size);
        uint64_t whole = vp_clock_ns() - begin, calls = in_driver() - driver, own = whole > calls ? whole - calls : 0;
        if (i < 0)
            continue;
        sum += own;
        worst = own > worst ? own : worst;
    }
    printf("{\"ok\": true, \"mean\": %.1f, \"worst\": %llu}\n", (double)sum / MEASURED, (unsigned long long)worst);
}

/* ---- one large request ---- */

enum { FREE_RUN = 5 }; /* handles in a piece */

static void fill(bench_stream stream) {
    static bench_block blocks[16384];
    const size_t handle = 8 * MIB, pieces = 100 * GIB / (FREE_RUN * handle);
    for (size_t i = 0; i < pieces * (FREE_RUN + 1); i++)
        blocks[i] = gpu_alloc_on(stream, handle);
    for (size_t i = 0; i < pieces * (FREE_RUN + 1); i++)
        if (i % (FREE_RUN + 1))
            gpu_free_on(stream, blocks[i]);
    gpu_synchronize();
}

static void large(bench_stream stream) {
    fill(stream);
    uint64_t before = vp_sim_cost_ns();
    gpu_alloc_on(stream, 50 * GIB);
    printf("{\"ok\": true, \"modelled\": %llu}\n", (unsigned long long)(vp_sim_cost_ns() - before));
}

/* ---- and what others see of it ---- */

enum { PAIRS = 1000, SPELL_NS = 20000000, CALLS = 4096, HELD_UP_NS = 1000000 };

static atomic_bool building, stop;
static atomic_int ready;

static uint64_t taken[CALLS];
static size_t calls;

static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Another size each time. */
static void *slow_path(void *unused) {
    (void)unused;
    uint64_t state = 7;
    gpu_enter();
    bench_stream stream = gpu_stream_create();
    for (atomic_fetch_add(&ready, 1); !atomic_load(&stop);) {
        bool counts = atomic_load(&building);
        uint64_t begin = vp_sim_cost_ns();
        bench_block block = gpu_alloc_on(stream, MIB + bench_random(&state) % MIB);
        uint64_t took = vp_sim_cost_ns() - begin;
        if (counts && atomic_load(&building) && calls < CALLS && took >= HELD_UP_NS)
            taken[calls++] = took;
        gpu_free_on(stream, block);
    }
    return NULL;
}

/* Nanoseconds of a pair, before the build and during it. */
static void *fast_path(void *pair) {
    uint64_t ns[2] = {0}, pairs[2] = {0};
    gpu_enter();
    bench_stream stream = gpu_stream_create();
    for (atomic_fetch_add(&ready, 1); !atomic_load(&stop);) {
        bool when = atomic_load(&building);
        uint64_t begin = vp_clock_ns();
        for (int i = 0; i < PAIRS; i++)
            gpu_free_on(stream, gpu_alloc_on(stream, 2 * MIB));
        ns[when] += vp_clock_ns() - begin;
        pairs[when] += PAIRS;
    }
    for (int i = 0; i < 2; i++)
        ((double *)pair)[i] = pairs[i] ? (double)ns[i] / (double)pairs[i] : 0;
    return NULL;
}

static void full(bench_stream stream) {
    pthread_t threads[2];
    double pair[2];
    fill(stream);
    if (pthread_create(&threads[0], NULL, slow_path, NULL) || pthread_create(&threads[1], NULL, fast_path, pair))
        exit(1);
    for (uint64_t begin = vp_clock_ns(); atomic_load(&ready) < 2 || vp_clock_ns() - begin < SPELL_NS;)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    uint64_t before = vp_sim_cost_ns();
    atomic_store(&building, true);
    gpu_alloc_on(stream, 50 * GIB);
    atomic_store(&building, false);
    uint64_t took = vp_sim_cost_ns() - before;
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    qsort(taken, calls, sizeof *taken, by_size);
    printf("{\"ok\": true, \"modelled\": %llu, \"calls\": %zu, \"median\": %llu, \"most\": %llu, \"before\": %.1f, "
           "\"meanwhile\": %.1f}\n",
           (unsigned long long)took, calls, (unsigned long long)taken[calls / 2],
           (unsigned long long)taken[calls ? calls - 1 : 0], pair[0], pair[1]);
}

int main(int argc, char **argv) {
    const char *kind = argc == 2 ? argv[1] : "";
    bool is_large = !strcmp(kind, "large"), is_full = !strcmp(kind, "full"), is_varied = !strcmp(kind, "varied");
    if (!is_large && !is_full && !is_varied && strcmp(kind, "alike")) {
        fprintf(stderr, "usage: bench_slow alike|varied|large|full\n");
        return 2;
    }
    bench_capacity = is_large ? "192G" : is_full ? "121G" : "1T";
    gpu_open();
    bench_stream stream = gpu_stream_create();
    if (is_large)
        large(stream);
    else if (is_full)
        full(stream);
    else
        alive(stream, is_varied ? varied : alike);
    vp_api_exit();
    return 0;
}
