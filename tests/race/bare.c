/* Two threads of one cache on bare segments, others that allocate, trim, capture and end streams: every byte is its
 * owner's, and a block that was let in has memory.
 *
 * usage: race_bare [pins|captures|pools|plan]...
 *   pins       another thread pins parts of the segments, without the cache's lock, as who makes a handle of them does
 *   captures   captures last while blocks come and go
 *   pools      a thread's segments are a pool that is set back now and then
 *   plan       another thread makes handles ahead and maps them at further addresses, by a plan of other blocks */
/* SPDX-License-Identifier: Apache-2.0 */
#include "race.h"

#include "pool/bare/bare.h"
#include "pool/learnt/ahead.h"
#include "pool/learnt/learn.h"
#include "process/bare.h"
#include "process/state.h"
#include "vpool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Under ThreadSanitizer each takes ten times as long. */
#ifdef __SANITIZE_THREAD__
enum { STEPS = 1000 };
#else
enum { STEPS = 2500 };
#endif
enum { ROUNDS = 4, SEGMENTS = 3, UNITS = 192, BLOCKS = 24, LOOKS = 9, TAKEN = 3 };
/* The first block has the first segment's beginning to itself, and is a run of pages before long. */
enum { OWN_UNITS = 48 };
/* What a block writes of each of its units: blocks share whole units or nothing, so that more would show nothing more,
 * and take the kernel a page each, and ThreadSanitizer a note of each word. */
enum { HEAD = 512 };
static const size_t UNIT = 32 << 10, KIB = 1 << 10;

static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int caches;
static atomic_uint steps; /* of both, in this round */
static unsigned round_no;
static bool with_pins, with_captures, with_pools, with_plan;
/* The caches' segments, for whoever pins some. */
static _Atomic CUdeviceptr known[2 * SEGMENTS];

struct block {
    CUdeviceptr ptr;
    size_t size, first, units;
    int segment;
    unsigned char mark;
};

struct cache {
    CUstream stream;
    CUdeviceptr segment[SEGMENTS];
    bool used[SEGMENTS][UNITS];
    struct block block[BLOCKS];
    unsigned seed, refused;
    _Atomic CUdeviceptr *known;
};

static unsigned pick(unsigned *seed, unsigned n) {
    return (unsigned)rand_r(seed) % n;
}

static struct vp_bare_stream on(CUstream stream) {
    return (struct vp_bare_stream){.handle = stream, .known = true};
}

static size_t units_of(size_t size) {
    return (size + UNIT - 1) / UNIT;
}

static void write_on(CUdeviceptr ptr, size_t size, unsigned char mark, CUstream stream) {
    CU(cuMemsetD2D8Async(ptr, UNIT, mark, HEAD, units_of(size), stream));
}

static void look(CUdeviceptr ptr, size_t size, unsigned char mark) {
    for (size_t i = 0; i < LOOKS; i++) {
        unsigned char seen;
        CU(cuMemcpyDtoH(&seen, ptr + i * (units_of(size) - 1) / (LOOKS - 1) * UNIT + i * (HEAD - 1) / (LOOKS - 1), 1));
        CHECK(seen == mark);
    }
}

static bool place(struct cache *c, struct block *b) {
    for (b->segment = 0; b->segment < SEGMENTS; b->segment++) {
        if (!c->segment[b->segment])
            CU(door_segment(&c->segment[b->segment], UNITS * UNIT, on(c->stream)));
        atomic_store(&c->known[b->segment], c->segment[b->segment]);
        size_t run = 0;
        if (b == c->block) {
            b->first = 0;
            return true;
        }
        for (size_t i = b->segment ? 0 : OWN_UNITS; i < UNITS; i++) {
            run = c->used[b->segment][i] ? 0 : run + 1;
            if (run == b->units) {
                b->first = i + 1 - run;
                return true;
            }
        }
    }
    return false;
}

static void mark_units(struct cache *c, const struct block *b, bool used) {
    for (size_t i = b->first; i < b->first + b->units; i++)
        c->used[b->segment][i] = used;
}

static void use(struct cache *c, struct block *b) {
    b->size = (pick(&c->seed, 4) ? 1 + pick(&c->seed, 40) : 1 + pick(&c->seed, 900)) * 4 * KIB + 512;
    if (b == c->block)
        b->size = OWN_UNITS * UNIT - 512;
    b->units = units_of(b->size);
    pthread_mutex_lock(&cache_lock);
    CUresult res = vp_bare_room(0, b->size, on(c->stream));
    CHECK(res == CUDA_SUCCESS || res == CUDA_ERROR_OUT_OF_MEMORY);
    c->refused += res != CUDA_SUCCESS;
    if (!res && place(c, b)) {
        b->ptr = c->segment[b->segment] + b->first * UNIT;
        mark_units(c, b, true);
        CHECK(vp_bare_used(b->ptr, b->size, on(c->stream)));
    }
    pthread_mutex_unlock(&cache_lock);
    if (b->ptr)
        write_on(b->ptr, b->size, ++b->mark, c->stream);
}

static void unuse(struct cache *c, struct block *b, bool check) {
    if (check) {
        CU(cuStreamSynchronize(c->stream));
        look(b->ptr, b->size, b->mark);
    }
    pthread_mutex_lock(&cache_lock);
    CHECK(vp_bare_unused(b->ptr, b->size, !pick(&c->seed, 16)));
    mark_units(c, b, false);
    pthread_mutex_unlock(&cache_lock);
    b->ptr = 0;
}

/* What lies between blocks is a block for a moment, which is used, or not any more. */
static void tell_of_the_rest(const struct cache *c, int segment, bool uses) {
    for (size_t i = 0, units = 1; i < UNITS; i += units, units = 1) {
        if (c->used[segment][i])
            continue;
        while (i + units < UNITS && !c->used[segment][i + units])
            units++;
        const CUdeviceptr at = c->segment[segment] + i * UNIT;
        CHECK(uses ? vp_bare_used(at, units * UNIT, (struct vp_bare_stream){0})
                   : vp_bare_unused(at, units * UNIT, false));
    }
}

/* All blocks go; then those of each segment come back, with the rest, which goes again. */
static void set_back(struct cache *c) {
    pthread_mutex_lock(&cache_lock);
    for (int i = 0; i < BLOCKS; i++)
        if (c->block[i].ptr)
            CHECK(vp_bare_unused(c->block[i].ptr, c->block[i].size, false));
    for (int s = 0; s < SEGMENTS; s++) {
        if (!c->segment[s])
            continue;
        tell_of_the_rest(c, s, true);
        for (int i = 0; i < BLOCKS; i++)
            if (c->block[i].ptr && c->block[i].segment == s)
                CHECK(vp_bare_used(c->block[i].ptr, c->block[i].size, (struct vp_bare_stream){0}));
        tell_of_the_rest(c, s, false);
    }
    pthread_mutex_unlock(&cache_lock);
}

/* As the cache's empty_cache. */
static void free_segments(struct cache *c) {
    pthread_mutex_lock(&cache_lock);
    for (int s = 0; s < SEGMENTS; s++) {
        bool any = !c->segment[s];
        for (int i = 0; i < UNITS; i++)
            any |= c->used[s][i];
        if (!any) {
            atomic_store(&c->known[s], 0);
            CU(door_free(c->segment[s]));
            c->segment[s] = 0;
        }
    }
    pthread_mutex_unlock(&cache_lock);
}

static void run_cache(int index) {
    struct cache *c = calloc(1, sizeof *c);
    c->seed = round_no * RACERS + (unsigned)index + 1;
    c->known = &known[index * SEGMENTS];
    CU(door_stream_create(&c->stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < STEPS; i++) {
        atomic_fetch_add_explicit(&steps, 1, memory_order_relaxed);
        struct block *b = &c->block[pick(&c->seed, 3) ? pick(&c->seed, BLOCKS) : 0];
        if (with_pools && !pick(&c->seed, 100))
            set_back(c);
        else if (b->ptr)
            unuse(c, b, !pick(&c->seed, 3));
        else if (pick(&c->seed, 60))
            use(c, b);
        else
            free_segments(c);
    }
    for (int i = 0; i < BLOCKS; i++)
        if (c->block[i].ptr)
            unuse(c, &c->block[i], true);
    free_segments(c);
    CU(door_stream_destroy(c->stream));
    free(c);
    atomic_fetch_sub(&caches, 1);
}

/* By cudaMalloc, which the cache's memory serves, and the other way round. */
static void take(void) {
    CUdeviceptr taken[TAKEN] = {0};
    size_t size[TAKEN];
    unsigned seed = 9;
    for (unsigned i = 0; atomic_load(&caches); i++) {
        const unsigned at = pick(&seed, TAKEN);
        const unsigned char mark = (unsigned char)(128 + at);
        if (taken[at]) {
            look(taken[at], size[at], mark);
            CU(door_free(taken[at]));
            taken[at] = 0;
            continue;
        }
        size[at] = (1 + pick(&seed, 100)) * 64 * KIB;
        CUresult res = door_alloc(&taken[at], size[at]);
        CHECK(res == CUDA_SUCCESS || res == CUDA_ERROR_OUT_OF_MEMORY);
        if (res)
            taken[at] = 0;
        else
            CU(cuMemsetD2D8(taken[at], UNIT, mark, HEAD, units_of(size[at])));
    }
    for (int i = 0; i < TAKEN; i++)
        if (taken[i])
            CU(door_free(taken[i]));
}

/* Some times for each step, as it comes to by itself where each thread has a processor: where they share one, to go
 * round and round would keep the caches from theirs, and would find the same again. */
static void meddle(void) {
    enum { EACH_STEP = 4 };
    for (unsigned i = 0; atomic_load(&caches); i++) {
        struct vpool_stats stats = {.size = sizeof stats};
        CUstream stream;
        if (i > EACH_STEP * atomic_load_explicit(&steps, memory_order_relaxed))
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        if (vpool_stats(0, &stats)) /* nobody has asked for memory yet */
            continue;
        if (i % 8 == 0)
            CHECK(vpool_trim(0, stats.live_bytes) >= 0);
        if (i % 50 == 0) {
            CU(door_stream_create(&stream, CU_STREAM_NON_BLOCKING));
            CU(door_begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
            if (with_captures)
                nanosleep(&(struct timespec){.tv_nsec = 200000 * (i % 7)}, NULL);
            CU(door_end_capture(stream, NULL));
            CU(door_stream_destroy(stream));
        }
    }
}

/* What is freed meanwhile is pinned no more, or was another segment's by then. */
static void pin(void) {
    unsigned seed = round_no;
    while (atomic_load(&caches)) {
        const CUdeviceptr segment = atomic_load(&known[pick(&seed, 2 * SEGMENTS)]);
        const size_t first = pick(&seed, UNITS), units = 1 + pick(&seed, UNITS - (unsigned)first) / 8;
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
        if (!segment)
            continue;
        const CUresult res = vp_bare_pin(segment + first * UNIT, units * UNIT);
        CHECK(res == CUDA_SUCCESS || res == CUDA_ERROR_OUT_OF_MEMORY || res == VP_NOT_OURS);
    }
}

/* ---- a plan ---- */

enum { PLANNED = 16, AGAINS = 2 * SEGMENTS - 1 };
static struct vp_learnt_run runs[2];
static struct vp_learnt_again agains[2 * AGAINS];

/* Slots, and pages behind them, at the beginning of the first segment, are mapped again in each of the others. */
static void make_plan(struct vp_learnt_device *d) {
    const size_t page = 64 * KIB, slot = VP_SLOT_PAGES * page, segment = UNITS * UNIT;
    runs[0] = (struct vp_learnt_run){0, slot, PLANNED, 0, VP_ZONE_BARE};
    runs[1] = (struct vp_learnt_run){PLANNED * slot, page, PLANNED, 0, VP_ZONE_BARE};
    for (unsigned i = 0; i < AGAINS; i++) {
        agains[2 * i] = (struct vp_learnt_again){0, (i + 1) * segment, slot, PLANNED, i};
        agains[2 * i + 1] = (struct vp_learnt_again){PLANNED * slot, (i + 1) * segment + PLANNED * slot, page, PLANNED,
                                                     i};
    }
    *d = (struct vp_learnt_device){.granularity = page,
                                   .peak_held = 20 << 20,
                                   .runs = runs,
                                   .run_count = 2,
                                   .agains = agains,
                                   .again_count = 2 * AGAINS};
}

static bool await_builder(struct vp_pool *pool) {
    uint64_t waited = 0;
    while (pool->ahead->under_way)
        vp_wait_pause(waited += 1000);
    return true;
}

static void open_plan(void) {
    struct vp_learnt learnt = {.device_count = 1};
    make_plan(&learnt.device[0]);
    CHECK(vp_enter());
    struct vp_pool *pool = vp_state_pool(0);
    CHECK(pool && (pool->learn = vp_learn_create()) && !vp_ahead_start(pool, &learnt, true));
    pool->config.await_ahead = await_builder;
    vp_leave();
}

/* What was made or skipped is made once more, over and over. */
static void build(void) {
    static struct vp_ahead_batch batch;
    while (atomic_load(&caches)) {
        CHECK(vp_enter());
        struct vp_ahead *ahead = vp_state.pools[0]->ahead;
        if (vp_ahead_begin(ahead, &batch)) {
            vp_step_out();
            vp_ahead_make(&vp_state.drv, &batch);
            vp_step_in();
            vp_ahead_end(ahead, &batch, true);
        } else if (!ahead->under_way && !ahead->held_back) {
            memset(ahead->built, 0, ahead->plan.run_count * sizeof *ahead->built);
            ahead->next = ahead->next_again = ahead->mapped_again = ahead->refusals = 0;
            ahead->ended = false;
        }
        vp_leave();
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
}

static void racer(int index) {
    if (index < 2)
        run_cache(index);
    else
        index == 3 ? meddle() : with_plan ? build() : with_pins ? pin() : take();
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        with_pins |= !strcmp(argv[i], "pins");
        with_captures |= !strcmp(argv[i], "captures");
        with_pools |= !strcmp(argv[i], "pools");
        with_plan |= !strcmp(argv[i], "plan");
    }
    atomic_store(&vp_bare_pools, with_pools);
    /* The simulated driver has few addresses under ThreadSanitizer. */
    setenv("VPOOL_VA", "4G", 1);
    race_open("granularity=64K,capacity=22M,timeout=3000");
    if (with_plan)
        open_plan();
    for (round_no = 0; round_no < ROUNDS; round_no++) {
        atomic_store(&caches, 2);
        atomic_store(&steps, 0);
        race_run(racer);
    }
    CU(cuCtxSynchronize());
    /* Another process that lacks memory may ask this one for what it has idle. */
    CHECK(vp_enter());
    const struct vp_bare *bare = vp_state.pools[0]->bare;
    CHECK(!with_plan || vp_state.pools[0]->ahead->background_calls);
    CHECK(bare && bare->uses_told && !atomic_load(&bare->used) && !atomic_load(&bare->live));
    vp_leave();
    race_close();
    return 0;
}
