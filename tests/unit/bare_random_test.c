/* Bare segments under a cache that uses and frees blocks at random, on several streams: every byte is what its owner
 * wrote, whatever fails. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bare_test.h"

#include "pool/learnt/ahead.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <vpool.h>

static void *release(void *stream) {
    usleep(20000);
    vp_sim_release(stream);
    return NULL;
}

void leave_no_more(CUdeviceptr at, CUstream stream) {
    vp_sim_others(0, 96 * MiB - held());
    usleep(20000);
    for (; !vp_list_empty(&pool_of(0)->mem.spares); at += VP_SLOT_PAGES * PAGE)
        use(at, PAGE, stream);
}

void release_soon(CUstream stream) {
    pthread_t thread;
    cr_assert(!pthread_create(&thread, NULL, release, stream));
    pthread_detach(thread);
}

enum { STREAMS = 3, SEGMENTS = 9, UNITS = 256, BLOCKS = 64, MALLOCS = 6 };
static const size_t UNIT = 32 * KiB;

struct held_block {
    CUdeviceptr ptr;
    size_t size, first, units;
    int segment;
    uint8_t mark;
    bool asleep, fresh; /* nobody may touch it; nobody has */
};

/* The first block of each stream has a place of its own, and is a run before long. */
enum { OWN_UNITS = 48 };

static struct {
    CUstream stream[STREAMS];
    CUdeviceptr segment[SEGMENTS]; /* of stream i % STREAMS; 0: none */
    bool used[SEGMENTS][UNITS];
    struct held_block block[BLOCKS]; /* ptr 0: none */
    CUdeviceptr malloced[MALLOCS];
    uint8_t next;
    unsigned seed;
    bool faults, sleeps, asleep; /* the device is paused now and then; it is */
    bool captures;               /* captures last for a while */
    bool plans;                  /* plans are followed, one after the other */
    CUstream captured;           /* one that does; NULL: none */
    unsigned few; /* blocks at a time, most of a few sizes that drift; 0: as many as there are, of any size */
    size_t drifts[4];
    unsigned runs; /* that were taken */
    size_t beside; /* another process takes what it can get of so many bytes; 0: there is none */
    bool counts;   /* room was made, and a part of it counted on the device for a moment */
    unsigned let_in, refused, counted;
} cache;

static unsigned pick(unsigned n) {
    return (unsigned)rand_r(&cache.seed) % n;
}

static CUstream stream_of(int segment) {
    return cache.stream[segment % STREAMS];
}

static void fill(struct held_block *b) {
    b->mark = ++cache.next;
    cu_ok(cuMemsetD8Async(b->ptr, b->mark, b->size, stream_of(b->segment)));
}

/* What the stream has there when it gets so far. */
static void look(const struct held_block *b) {
    cu_ok(cuStreamSynchronize(stream_of(b->segment)));
    uint8_t *bytes = malloc(b->size);
    cu_ok(cuMemcpyDtoH(bytes, b->ptr, b->size));
    const bool same = bytes[0] == b->mark && !memcmp(bytes, bytes + 1, b->size - 1);
    for (size_t i = 0; i < b->size && !same; i++)
        cr_assert_eq(bytes[i], b->mark, "byte %zu of a block of %zu", i, b->size);
    free(bytes);
}

/* The first run of free units in a segment of the stream's that is long enough. */
static bool place(struct held_block *b, int stream) {
    for (b->segment = stream; b->segment < SEGMENTS; b->segment += STREAMS) {
        size_t run = 0, own = b->segment == stream ? OWN_UNITS : 0;
        if (!cache.segment[b->segment]) {
            cu_ok(vp_bare_segment(&cache.segment[b->segment], UNITS * UNIT, on(stream_of(b->segment))));
            memset(cache.used[b->segment], 0, sizeof cache.used[b->segment]);
        }
        if (b - cache.block == stream) {
            b->first = 0;
            return true;
        }
        for (size_t i = own; i < UNITS; i++) {
            run = cache.used[b->segment][i] ? 0 : run + 1;
            if (run == b->units) {
                b->first = i + 1 - run;
                return true;
            }
        }
    }
    return false;
}

/* One of these fails at a time: what the driver keeps after a second failure is lost for good. */
enum { CALLS = 5 };
static const char *const failing[CALLS] = {"cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemCreate", "cuMemRelease"};

static void forget_faults(void) {
    for (int i = 0; i < CALLS; i++)
        vp_sim_fail(failing[i], 0, CUDA_SUCCESS);
}

/* ---- another process, which has at once whatever the device has ---- */

static CUresult (*release_handle)(CUmemGenericAllocationHandle);

static void others_take_all(void) {
    if (!cache.counts)
        vp_sim_others(0, cache.beside - held());
}

/* While memory is not short single pages may be counted on the device, as are those that a block pins. */
static bool counts_on_device(size_t size) {
    const struct vp_bare *bare = pool_of(0)->bare;
    const size_t touched = vp_bare_touched(bare, size), ends = touched < bare->singles ? touched : bare->singles;
    return bare->bounds && vp_bare_single_of(bare->used) + ends > vp_bare_single_of(bare->bounds);
}

static CUresult release_to_others(CUmemGenericAllocationHandle handle) {
    const CUresult res = release_handle(handle);
    if (pick(4))
        others_take_all();
    return res;
}

/* ---- */

static void use_one(struct held_block *b) {
    const bool own = b < cache.block + STREAMS;
    int stream = own ? (int)(b - cache.block) : (int)pick(STREAMS);
    b->size = own ? OWN_UNITS * UNIT - 512 : (pick(4) ? pick(64) + 1 : pick(900) + 1) * 4 * KiB + 512 * pick(3);
    if (cache.few && !own && pick(10)) {
        size_t *drift = &cache.drifts[pick(4)];
        b->size = *drift += pick(2) * 4 * KiB;
    }
    b->units = vp_round_up(b->size, UNIT) / UNIT;
    const bool refused = vp_bare_room(0, b->size, on(cache.stream[stream]));
    cache.refused += refused;
    cache.let_in += !refused;
    if (refused || !place(b, stream))
        return;
    cache.counts = cache.beside && counts_on_device(b->size);
    cache.counted += cache.counts;
    if (cache.beside && pick(4))
        others_take_all();
    b->ptr = cache.segment[b->segment] + b->first * UNIT;
    b->asleep = b->fresh = cache.asleep; /* a page of it may be another's, who sleeps */
    memset(&cache.used[b->segment][b->first], 1, b->units);
    if (cache.faults && !pick(3)) {
        forget_faults();
        vp_sim_fail(failing[pick(CALLS)], 1 + (long)pick(3), pick(2) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN);
    }
    cr_assert(vp_bare_used(b->ptr, b->size, on(stream_of(b->segment))));
    cache.counts = false;
    const struct vp_bare *bare = pool_of(0)->bare;
    cache.runs += (atomic_load(&bare->runs[vp_bare_page(bare, b->ptr)].word) & VP_RUN_USED) != 0;
    if (!b->asleep)
        fill(b);
}

static void unuse_one(struct held_block *b) {
    bool barrier = !b->asleep && !pick(8);
    if (!b->asleep && !pick(3))
        look(b);
    if (barrier) { /* a side stream reads it on */
        CUstream side = cache.stream[(b->segment + 1) % STREAMS];
        CUevent ready;
        cu_ok(cuEventCreate(&ready, CU_EVENT_DISABLE_TIMING));
        cu_ok(cuEventRecord(ready, stream_of(b->segment)));
        cu_ok(cuStreamWaitEvent(side, ready, 0));
        cu_ok(cuMemsetD8Async(b->ptr, b->mark, b->size, side));
        /* As the cache does: the address is not used again until that is over. */
        cu_ok(cuEventRecord(ready, side));
        cr_assert(vp_bare_unused(b->ptr, b->size, true));
        if (pick(2))
            cu_ok(cuEventSynchronize(ready));
        cu_ok(cuStreamWaitEvent(stream_of(b->segment), ready, 0));
        cu_ok(cuEventDestroy(ready));
    } else {
        cr_assert(vp_bare_unused(b->ptr, b->size, false));
    }
    memset(&cache.used[b->segment][b->first], 0, b->units);
    b->ptr = 0;
}

/* A segment without blocks goes. */
static void free_segment(int segment) {
    bool any = !cache.segment[segment];
    for (int i = 0; i < UNITS; i++)
        any |= cache.used[segment][i];
    if (any)
        return;
    cu_ok(door_free(cache.segment[segment]));
    cache.segment[segment] = 0;
}

/* Some segments are a pool that is set back: all blocks there go, and come back one by one, with what was free. */
static void set_back(void) {
    const unsigned pool = pick(1 << SEGMENTS);
    const struct vp_bare_stream unknown = {0};
    for (struct held_block *b = cache.block; b < cache.block + BLOCKS; b++)
        if (b->ptr && pool >> b->segment & 1)
            cr_assert(vp_bare_unused(b->ptr, b->size, false));
    for (int segment = 0; segment < SEGMENTS; segment++) {
        struct held_block *at[UNITS] = {0};
        size_t dead[UNITS] = {0};
        if (!(pool >> segment & 1) || !cache.segment[segment])
            continue;
        for (struct held_block *b = cache.block; b < cache.block + BLOCKS; b++)
            if (b->ptr && b->segment == segment)
                at[b->first] = b;
        for (size_t i = 0, units; i < UNITS; i += units) {
            units = at[i] ? at[i]->units : 1;
            while (!at[i] && i + units < UNITS && !at[i + units] && pick(64))
                units++;
            dead[i] = at[i] ? 0 : units * UNIT;
            vp_bare_used(cache.segment[segment] + i * UNIT, at[i] ? at[i]->size : dead[i], unknown);
        }
        for (size_t i = 0; i < UNITS; i++)
            if (dead[i])
                vp_bare_unused(cache.segment[segment] + i * UNIT, dead[i], false);
    }
}

/* Others in the process. */
static void malloc_one(CUdeviceptr *ptr) {
    if (*ptr) {
        cu_ok(door_free(*ptr));
        *ptr = 0;
    } else if (door_alloc(ptr, (pick(30) + 1) * 128 * KiB) == CUDA_SUCCESS) {
        cu_ok(cuMemsetD8Async(*ptr, 0xee, 64 * KiB, cache.stream[pick(STREAMS)]));
    } else {
        *ptr = 0;
    }
}

/* What is alive then is not there until it wakes, for which there may be too little memory by then. */
static void turn_over(void) {
    int err = cache.asleep ? vpool_resume(0) : vpool_pause(0);
    if (cache.asleep && err == -ENOMEM)
        return;
    cr_assert_eq(err, 0, "%d", err);
    cache.asleep = !cache.asleep;
    for (struct held_block *b = cache.block; b < cache.block + BLOCKS; b++) {
        b->asleep = cache.asleep && b->ptr;
        if (!b->ptr || b->asleep)
            continue;
        if (b->fresh)
            fill(b);
        b->fresh = false;
        look(b);
    }
}

/* What is left meanwhile is the graph's, perhaps, and is pinned. */
static void turn_capture(void) {
    CUgraph graph;
    if (!cache.captured) {
        cache.captured = door_stream(CU_STREAM_NON_BLOCKING);
        cu_ok(door_begin_capture(cache.captured, CU_STREAM_CAPTURE_MODE_RELAXED));
        return;
    }
    cu_ok(door_end_capture(cache.captured, &graph));
    cu_ok(cuGraphDestroy(graph));
    cu_ok(cuStreamDestroy(cache.captured));
    cache.captured = NULL;
}

/* ---- plans, of handles anywhere ---- */

enum { RUNS = 40, AGAINS = 200 };
static struct vp_learnt_run runs[RUNS];
static struct vp_learnt_again agains[AGAINS];

static struct {
    struct vp_ahead_batch batch;
    bool made; /* the batch */
    uint64_t mapped_again;
} builder;

/* Some lie across slots. */
static uint64_t pick_place(size_t size) {
    const uint64_t at = pick(SEGMENTS * UNITS / 2) * PAGE;
    return pick(16) ? at / size * size : at;
}

static void begin_plan(struct vp_pool *pool) {
    static struct vp_learnt_slot no_slot;
    static uint32_t no_request;
    struct vp_learnt learnt = {.device_count = 1};
    for (uint32_t i = 0; i < RUNS; i++) {
        const size_t size = pick(2) ? PAGE : VP_SLOT_PAGES * PAGE;
        runs[i] = (struct vp_learnt_run){pick_place(size), size, pick(6) + 1, 5 * i, VP_ZONE_BARE};
    }
    for (uint32_t i = 0; i < AGAINS; i++) {
        const struct vp_learnt_run *from = &runs[pick(i / 5 + 1)];
        const CUdeviceptr base = pool->bare ? pool->bare->base : 0;
        const struct vp_mapping *m = vp_mapping_at(&pool->mem, base + pick_place(PAGE));
        agains[i] = m ? (struct vp_learnt_again){m->addr - base, pick_place(m->chunk->size), m->chunk->size, 1, i / 40}
                      : (struct vp_learnt_again){from->offset, pick_place(from->size), from->size, from->count, i / 40};
    }
    learnt.device[0] = (struct vp_learnt_device){.granularity = PAGE,
                                                 .peak_live = 1 * GiB,
                                                 .peak_held = 1 * GiB,
                                                 .runs = runs,
                                                 .slots = &no_slot,
                                                 .requests = &no_request,
                                                 .agains = agains,
                                                 .run_count = RUNS,
                                                 .again_count = AGAINS};
    cr_assert_eq(vp_ahead_start(pool, &learnt, true), 0);
}

static void make_batch(void) {
    if (cache.faults && !pick(8)) {
        forget_faults();
        vp_sim_fail(failing[pick(2)], 1 + (long)pick(3), pick(2) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN);
    }
    vp_ahead_make(pool_of(0)->mem.drv, &builder.batch);
    builder.made = true;
}

static bool hand_over(struct vp_pool *pool) {
    if (!pool->ahead->under_way)
        return false;
    if (!builder.made)
        make_batch();
    vp_ahead_end(pool->ahead, &builder.batch, true);
    builder.mapped_again += builder.batch.again;
    return true;
}

/* The builder does something, or nothing. */
static void build(void) {
    struct vp_pool *pool = vp_state.pools[0];
    if (!cache.plans || !pool || pick(2))
        return;
    pool->config.await_ahead = hand_over;
    if (!pool->ahead) {
        begin_plan(pool);
    } else if (!pool->ahead->under_way) {
        builder.made = false;
        if (!vp_ahead_begin(pool->ahead, &builder.batch) && (pool->ahead->ended || !pick(3))) {
            vp_ahead_finish(pool->ahead);
            pool->ahead = NULL;
        }
    } else if (!builder.made) {
        make_batch();
    } else {
        hand_over(pool);
    }
}

/* Nothing is made from now on. */
static void end_plans(void) {
    vp_ahead_hold_back(pool_of(0));
    cr_assert(!cache.plans || builder.mapped_again > VP_FEWER(24), "%lu", builder.mapped_again);
}

/* All that is idle goes. */
static void trim_all(void) {
    for (int i = 0; i < 2; i++) { /* what is let go of may be behind an event of that moment */
        cu_ok(cuCtxSynchronize());
        vp_pool_trim(pool_of(0), 0);
    }
}

static void run(unsigned seed, const char *sim, int steps, bool faults) {
    door_open(sim);
    cache.seed = seed;
    cache.faults = faults;
    for (size_t i = 0; i < sizeof cache.drifts / sizeof *cache.drifts; i++)
        cache.drifts[i] = (pick(3) ? pick(12) + 1 : pick(40) + 1) * 64 * KiB;
    release_handle = vp_state.drv.cuMemRelease;
    if (cache.beside)
        vp_state.drv.cuMemRelease = release_to_others;
    for (int i = 0; i < STREAMS; i++)
        cache.stream[i] = door_stream(CU_STREAM_NON_BLOCKING);
    for (int step = 0; step < steps; step++) {
        build();
        struct held_block *b = &cache.block[pick(pick(3) ? cache.few ? cache.few : BLOCKS : STREAMS)];
        if (cache.beside && !pick(4))
            vp_sim_others(0, pick((unsigned)(cache.beside - held())));
        if (!pick(20))
            malloc_one(&cache.malloced[pick(MALLOCS)]);
        else if (!pick(40))
            free_segment((int)pick(SEGMENTS));
        else if (!pick(200))
            door_relieve();
        else if (cache.sleeps && vp_state.pools[0] && !pick(50))
            turn_over();
        else if (cache.captures && vp_state.pools[0] && !pick(100))
            turn_capture();
        else if (atomic_load(&vp_bare_pools) && !pick(30))
            set_back();
        else if (b->ptr)
            unuse_one(b);
        else
            use_one(b);
        cr_assert(!vp_state.pools[0] || vp_pool_check(pool_of(0), stderr), "step %d", step);
    }
    forget_faults();
    end_plans();
    if (cache.captured)
        turn_capture();
    if (cache.asleep)
        turn_over();
    cr_assert_geq(cache.runs,
                  VP_FEWER(cache.beside || cache.plans ? 4 : 16)); /* as many as a busy machine lets it take, or none */
    for (int i = 0; i < BLOCKS; i++)
        if (cache.block[i].ptr)
            unuse_one(&cache.block[i]);
    cu_ok(cuCtxSynchronize());
    for (int i = 0; i < MALLOCS; i++)
        if (cache.malloced[i])
            cu_ok(door_free(cache.malloced[i]));
    if (cache.asleep)
        cr_assert_eq(vpool_resume(0), 0);
    for (int i = 0; i < SEGMENTS; i++)
        free_segment(i);
    trim_all();
    vp_state.drv.cuMemRelease = release_handle;
    if (!faults) /* a handle that the driver did not release is lost */
        cr_assert_eq(vp_sim_used_vmm(0), 0);
    cr_assert_eq(vp_pool_stats(pool_of(0)).live_bytes, 0);
    door_close();
}

Test(bare, bytes_are_their_owners_while_the_gpu_keeps_up) {
    run(1, "capacity=48M,granularity=64K,lazy=10,timeout=3000", VP_FEWER(3000), false);
}

Test(bare, bytes_are_their_owners_while_the_gpu_lags) {
    run(2, "capacity=48M,granularity=64K,lazy=95,timeout=3000", VP_FEWER(2000), false);
}

Test(bare, bytes_are_their_owners_with_plenty_of_memory) {
    run(3, "capacity=200M,granularity=64K,lazy=50,timeout=3000", VP_FEWER(2000), false);
}

Test(bare, a_driver_that_fails_once_in_a_while_costs_no_byte) {
    run(4, "capacity=64M,granularity=64K,lazy=30,timeout=3000", VP_FEWER(2000), true);
}

static void run_small(unsigned seed, const char *sim, unsigned few, int steps, bool captures) {
    cache.few = few;
    cache.captures = captures;
    run(seed, sim, steps, false);
}

Test(bare, bytes_are_their_owners_in_a_small_program) {
    run_small(13, "capacity=200M,granularity=64K,lazy=10,timeout=3000", 8, VP_FEWER(2000), false);
}

Test(bare, bytes_are_their_owners_in_a_small_program_that_captures) {
    run_small(14, "capacity=200M,granularity=64K,lazy=10,timeout=3000", 12, VP_FEWER(2000), true);
}

Test(bare, bytes_are_their_owners_beside_captures) {
    run_small(15, "capacity=64M,granularity=64K,lazy=50,timeout=3000", 0, VP_FEWER(1000), true);
}

static void run_asleep(unsigned seed, const char *sim, int steps) {
    cache.sleeps = true;
    run(seed, sim, steps, false);
}

Test(bare, bytes_are_their_owners_through_sleep) {
    run_asleep(10, "capacity=48M,granularity=64K,lazy=10,timeout=3000", VP_FEWER(2000));
}

Test(bare, bytes_are_their_owners_through_sleep_with_plenty_of_memory) {
    run_asleep(11, "capacity=200M,granularity=64K,lazy=50,timeout=3000", VP_FEWER(1000));
}

/* Who was let in has memory, whatever another process takes. */
static void run_beside_others(unsigned seed, const char *sim, size_t capacity, int steps) {
    cache.beside = capacity;
    run(seed, sim, steps, false);
    cr_assert_gt(cache.let_in, VP_FEWER(200));
    cr_assert_gt(cache.refused, VP_FEWER(20));
    cr_assert_lt(10 * cache.counted, cache.let_in);
}

Test(bare, room_is_had_whatever_another_process_takes) {
    run_beside_others(8, "capacity=48M,granularity=64K,lazy=10,timeout=3000", 48 * MiB, VP_FEWER(2000));
}

Test(bare, room_is_had_whatever_another_process_takes_while_the_gpu_lags) {
    run_beside_others(9, "capacity=48M,granularity=64K,lazy=95,timeout=3000", 48 * MiB, VP_FEWER(1000));
}

static void run_with_pools(unsigned seed, const char *sim, int steps, bool faults) {
    atomic_store(&vp_bare_pools, true);
    run(seed, sim, steps, faults);
}

Test(bare, bytes_are_their_owners_in_pools_that_are_set_back) {
    run_with_pools(5, "capacity=48M,granularity=64K,lazy=10,timeout=3000", VP_FEWER(2000), false);
}

Test(bare, bytes_are_their_owners_in_pools_that_are_set_back_while_the_gpu_lags) {
    run_with_pools(6, "capacity=48M,granularity=64K,lazy=95,timeout=3000", VP_FEWER(1000), false);
}

Test(bare, bytes_are_their_owners_in_pools_that_are_set_back_through_sleep) {
    cache.sleeps = true;
    run_with_pools(12, "capacity=48M,granularity=64K,lazy=10,timeout=3000", VP_FEWER(500), false);
}

Test(bare, bytes_are_their_owners_in_pools_that_are_set_back_by_a_driver_that_fails) {
    run_with_pools(7, "capacity=64M,granularity=64K,lazy=30,timeout=3000", VP_FEWER(1000), true);
}

/* ---- */

static void run_with_plans(unsigned seed, const char *sim, int steps, bool faults) {
    cache.plans = true;
    run(seed, sim, steps, faults);
}

Test(bare, bytes_are_their_owners_by_any_plan) {
    run_with_plans(16, "capacity=64M,granularity=64K,lazy=10,timeout=3000", VP_FEWER(2000), false);
}

Test(bare, bytes_are_their_owners_by_any_plan_while_the_gpu_lags) {
    run_with_plans(17, "capacity=64M,granularity=64K,lazy=95,timeout=3000", VP_FEWER(1000), false);
}

Test(bare, bytes_are_their_owners_by_any_plan_with_plenty_of_memory) {
    run_with_plans(18, "capacity=200M,granularity=64K,lazy=50,timeout=3000", VP_FEWER(1000), false);
}

Test(bare, bytes_are_their_owners_by_any_plan_through_sleep) {
    cache.sleeps = true;
    run_with_plans(19, "capacity=64M,granularity=64K,lazy=10,timeout=3000", VP_FEWER(1000), false);
}

Test(bare, bytes_are_their_owners_by_any_plan_beside_captures) {
    cache.captures = true;
    run_with_plans(20, "capacity=64M,granularity=64K,lazy=50,timeout=3000", VP_FEWER(1000), false);
}

Test(bare, bytes_are_their_owners_by_any_plan_of_a_driver_that_fails) {
    run_with_plans(21, "capacity=64M,granularity=64K,lazy=30,timeout=3000", VP_FEWER(1000), true);
}

Test(bare, bytes_are_their_owners_by_any_plan_in_pools_that_are_set_back) {
    cache.plans = true;
    run_with_pools(22, "capacity=64M,granularity=64K,lazy=50,timeout=3000", VP_FEWER(500), false);
}
