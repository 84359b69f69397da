/* Bare segments: blocks that room was made for, and that never come. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bare_test.h"

#include "base/clock.h"
#include "pool/giving.h"
#include "process/spill.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>
#include <vpool.h>

static CUcontext made_current;
static CUstream stream;
static CUdeviceptr block;
static atomic_bool is_promised, is_through;

/* A cache that refuses each block itself, for a limit of its own, say. */
static void *refuse_again_and_again(void *unused) {
    (void)unused;
    cu_ok(cuCtxSetCurrent(made_current));
    while (!atomic_load(&is_through)) {
        cu_ok(vp_bare_room(0, MiB, on(stream)));
        atomic_store(&is_promised, true);
        usleep(30000);
    }
    return NULL;
}

/* The suite's limits of time are all the same: Criterion loses one, and LeakSanitizer finds it, where a test with a
   shorter one begins beside a test with a longer one. */
Test(bare, blocks_that_never_come_are_waited_for_no_longer_than_one, .timeout = 60) {
    pthread_t thread;
    CUdeviceptr other;
    made_current = door_open(SIM);
    stream = door_stream(CU_STREAM_NON_BLOCKING);
    segment(32 * MiB, stream);
    cr_assert(!pthread_create(&thread, NULL, refuse_again_and_again, NULL));
    while (!atomic_load(&is_promised))
        usleep(100);
    const uint64_t begin = vp_clock_ns();
    cu_ok(door_alloc(&other, MiB));
    cr_assert_leq(vp_clock_ns() - begin, 2 * (uint64_t)VP_BARE_BUSY_NS);
    atomic_store(&is_through, true);
    pthread_join(thread, NULL);
    door_close();
}

static uint64_t ms;
static unsigned pauses;

static uint64_t by_then(void) {
    return ms * 1000000;
}

/* The next one is promised a block, in the place of the last one's that has not come. */
static void refuse_one(uint64_t waited) {
    struct vp_bare *bare = pool_of(0)->bare;
    (void)waited;
    ms += 30;
    atomic_fetch_add(&bare->promises, ++pauses < 1000 ? 2 : 1);
    atomic_fetch_add(&bare->lapsed, 1);
}

Test(bare, blocks_that_never_come_share_a_wait, .timeout = 60) {
    door_open(SIM);
    segment(32 * MiB, NULL);
    struct vp_pool *pool = pool_of(0);
    pool->config.now = by_then;
    pool->config.pause = refuse_one;
    ms = 1000;
    atomic_store(&pool->bare->promised_to, 1);
    atomic_store(&pool->bare->promises, 1);
    cr_assert(vp_bare_await_block(pool));
    cr_assert_leq(pauses, VP_BARE_BUSY_NS / 30000000 + 2, "%u pauses", pauses);
    pool->config.now = vp_clock_ns;
    pool->config.pause = NULL;
    door_close();
}

/* ---- what goes back to the device between room and the block: another process has it at once ---- */

static void *pause_device(void *unused) {
    (void)unused;
    cr_assert_eq(vpool_pause(0), 0);
    vp_sim_others(0, 96 * MiB - held());
    return NULL;
}

static void *synchronize(void *unused) {
    cuuint64_t least = 0;
    CUmemoryPool pool;
    (void)unused;
    cu_ok(cuCtxSetCurrent(made_current));
    cu_ok(cuDeviceGetDefaultMemPool(&pool, 0));
    cu_ok(door_pool_set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &least));
    cu_ok(door_synchronize());
    vp_sim_others(0, 96 * MiB - held());
    return NULL;
}

/* The cache of another device asks for more than that has. */
static void *ask_elsewhere(void *context) {
    cu_ok(cuCtxSetCurrent(context));
    segment(MiB, NULL);
    cr_assert_eq(vp_bare_room(1, 200 * MiB, (struct vp_bare_stream){0}), CUDA_ERROR_OUT_OF_MEMORY);
    vp_sim_others(0, 96 * MiB - held());
    return NULL;
}

static void room_stays(void *(*taker)(void *), bool elsewhere) {
    pthread_t thread;
    made_current = door_open("capacity=96M,granularity=64K,lazy=0,timeout=3000,devices=2");
    stream = door_stream(CU_STREAM_NON_BLOCKING);
    block = segment(128 * MiB, stream);
    use(block, 90 * MiB, stream);
    unuse(block, 90 * MiB);
    vp_bare_flush(pool_of(0));
    cu_ok(vp_bare_room(0, 80 * MiB, on(stream)));
    cr_assert(!pthread_create(&thread, NULL, taker, elsewhere ? door_context(1) : NULL));
    usleep(30000);
    cr_assert(vp_bare_used(block + 10 * MiB, 80 * MiB, on(stream)));

    pthread_join(thread, NULL);
    vp_sim_others(0, 0);
    vpool_resume(0);
    cu_ok(cuMemsetD8Async(block + 10 * MiB, 1, 80 * MiB, stream));
    door_close();
}

Test(bare, what_was_made_room_for_a_pause_lets_come) {
    room_stays(pause_device, false);
}

Test(bare, what_was_made_room_for_is_no_idle_memory_beyond_a_threshold) {
    room_stays(synchronize, false);
}

Test(bare, what_was_made_room_for_does_not_go_back_for_another_device) {
    room_stays(ask_elsewhere, true);
}

/* ---- blocks that wait for memory ---- */

static CUstream held_up;
static size_t block_size;
static bool asks = true; /* for room */
static atomic_bool comes;

/* The block's memory is another stream's until what that has queued is over. Another process has the rest. */
static void *use_what_is_not_ready(void *touches) {
    cu_ok(cuCtxSetCurrent(made_current));
    if (asks) {
        vp_sim_others(0, 96 * MiB - held());
        cu_ok(vp_bare_room(0, block_size, on(stream)));
    }
    atomic_store(&comes, true);
    cr_assert(vp_bare_used(block, block_size, on(stream)));
    if (touches)
        cu_ok(cuMemsetD8Async(block, 1, block_size, stream));
    return NULL;
}

static void open_for_a_block(void) {
    made_current = door_open(SIM);
    stream = door_stream(CU_STREAM_NON_BLOCKING);
    held_up = door_stream(CU_STREAM_NON_BLOCKING);
    block = segment(64 * MiB, stream);
    door_malloc(4 * KiB);
}

/* Bytes that are idle behind a stream that is held up, and at once. A block comes, and its thread waits. */
static pthread_t let_a_block_wait(size_t size, size_t freed, size_t ready, void *touches) {
    pthread_t thread;
    const CUdeviceptr taken = segment(freed, held_up), other = door_malloc(ready);
    block_size = size;
    use(taken, freed, held_up);
    cu_ok(door_free(other));
    vp_sim_hold(held_up);
    cu_ok(cuMemsetD8Async(taken, 1, freed, held_up));
    unuse(taken, freed);
    cr_assert(!pthread_create(&thread, NULL, use_what_is_not_ready, touches));
    while (!atomic_load(&comes))
        usleep(100);
    usleep(100000);
    return thread;
}

static void let_it_have_its_memory(pthread_t thread) {
    vp_sim_release(held_up);
    pthread_join(thread, NULL);
    cr_assert(vp_pool_check(pool_of(0), stderr));
    door_close();
}

/* What it waits for is this thread's to let go on. */
Test(bare, who_allocates_is_not_held_up_for_long_by_a_block_that_waits, .timeout = 60) {
    CUdeviceptr other;
    open_for_a_block();
    pthread_t thread = let_a_block_wait(40 * MiB, 60 * MiB, MiB, &held_up);
    for (int i = 0; i < 2; i++) {
        const uint64_t begin = vp_clock_ns();
        cu_ok(door_alloc(&other, 4 * KiB)); /* beside what is alive */
        cr_assert_leq(vp_clock_ns() - begin, i ? 500000000 : 2 * (uint64_t)VP_BARE_BUSY_NS);
        cr_assert(vp_pool_check(pool_of(0), stderr));
    }
    let_it_have_its_memory(thread);
}

/* Nor is anything given away that it will take. */
Test(bare, what_a_block_waits_for_others_do_not_take, .timeout = 60) {
    CUdeviceptr other;
    setenv("VPOOL_SPILL", "1G", 1);
    open_for_a_block();
    pthread_t thread = let_a_block_wait(50 * MiB, 40 * MiB, 20 * MiB, &held_up);
    cu_ok(door_alloc(&other, 4 * KiB));
    cr_assert_eq(vp_bare_pin(block + 52 * MiB, 11 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
    cr_assert(!door_relieve());
    cr_assert(vp_enter());
    cr_assert_eq(vp_giving_lend(pool_of(0), 90 * MiB), 0);
    cr_assert_eq(vp_pool_trim(pool_of(0), 0), 0);
    struct vp_request req = {.asked = 16 * MiB, .context = vp_context_current(&vp_state.timelines)};
    struct vp_region *r;
    cr_assert_eq(vp_pool_alloc(pool_of(0), &req, &r), -ENOMEM);
    req = (struct vp_request){.asked = MiB, .context = req.context};
    cr_assert_eq(vp_pool_alloc(pool_of(0), &req, &r), 0); /* so much is left */
    req = (struct vp_request){.asked = 33 * MiB, .context = req.context};
    cr_assert_eq(vp_spill(pool_of(0), &req, true, &r), 0);
    cr_assert_geq(pool_of(0)->mem.stats.spilled_bytes, 33 * MiB);
    /* This thread is the first to see that the work is over. */
    vp_sim_release(held_up);
    cu_ok(cuStreamSynchronize(held_up));
    req = (struct vp_request){.asked = 16 * MiB, .context = req.context};
    cr_assert_eq(vp_pool_alloc(pool_of(0), &req, &r), -ENOMEM);
    vp_leave();
    let_it_have_its_memory(thread);
}

/* The device is asked that the block is on, whichever is current where somebody else allocates. */
Test(bare, what_a_block_waits_for_is_not_taken_while_another_device_is_current) {
    CUdeviceptr other, seg;
    CUcontext first = door_open("capacity=96M,granularity=64K,lazy=0,timeout=3000,devices=2");
    cu_ok(cuCtxSetCurrent(door_context(1)));
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    cu_ok(vp_bare_segment(&seg, 64 * MiB, on(s)));
    cu_ok(vp_bare_room(1, MiB, on(s)));
    cr_assert(vp_bare_used(seg, MiB, on(s)));
    vp_sim_others(1, 96 * MiB - vp_sim_used_vmm(1) - 20 * MiB);
    cu_ok(cuCtxSetCurrent(first));
    pool_of(1)->bare->owed = 18 * MiB / PAGE; /* as it waits */
    cr_assert_eq(door_alloc_async(&other, 16 * MiB, NULL, s), CUDA_ERROR_OUT_OF_MEMORY);
    pool_of(1)->bare->owed = 0;
    cu_ok(door_alloc_async(&other, 16 * MiB, NULL, s));
    door_close();
}

static uint64_t clock_at_leisure(void) {
    return vp_clock_ns() / 100;
}

/* It is only patient. */
Test(bare, what_the_device_has_beside_a_block_that_waits_is_anyones, .timeout = 60) {
    CUdeviceptr other;
    open_for_a_block();
    pool_of(0)->config.now = clock_at_leisure;
    asks = false;
    pthread_t thread = let_a_block_wait(10 * MiB, 11 * MiB, MiB, &held_up);
    cr_assert_gt(pool_of(0)->bare->owed, 0);
    cu_ok(door_alloc(&other, 8 * MiB));
    cr_assert_gt(pool_of(0)->bare->owed, 0);
    let_it_have_its_memory(thread);
}

static uint64_t clock_in_haste(void) {
    return 50 * vp_clock_ns();
}

/* After a minute the block is used as it is. */
Test(bare, a_block_that_is_given_up_is_known_to_have_no_memory, .timeout = 60) {
    CUdeviceptr other;
    setenv("VPOOL_CHECK", "1", 1);
    open_for_a_block();
    pool_of(0)->config.now = clock_in_haste;
    pthread_t thread = let_a_block_wait(40 * MiB, 60 * MiB, MiB, NULL);
    pthread_join(thread, NULL);
    pool_of(0)->config.now = vp_clock_ns;
    cr_assert(vp_pool_check(pool_of(0), stderr));
    cr_assert(pool_of(0)->bare->gave_up);
    cu_ok(door_alloc(&other, 4 * KiB));
    vp_sim_release(held_up);
    cu_ok(cuCtxSynchronize());
    unuse(block, 40 * MiB);
    use(block + MiB, 30 * MiB, stream);
    cr_assert(!pool_of(0)->bare->gave_up, "each block would be looked after under the lock");
    cu_ok(cuMemsetD8Async(block + MiB, 1, 30 * MiB, stream));
    door_close();
}

/* ---- blocks that come, and want more than bytes ---- */

/* What would be left of a large block stays with it, up to a MiB. */
Test(bare, room_is_for_what_is_left_of_a_large_block_too) {
    door_open("capacity=2G,granularity=2M,lazy=0,timeout=3000");
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(160 * MiB, s);
    for (size_t size = 2 * MiB; size < 64 * MiB; size *= 2) {
        cu_ok(vp_bare_room(0, size, on(s)));
        vp_sim_others(0, 2 * GiB - held());
        cr_assert(vp_bare_used(seg + 2 * MiB - 512, size + MiB, on(s)));
        cu_ok(cuMemsetD8Async(seg + 2 * MiB - 512, 1, size + MiB, s));
        cu_ok(cuStreamSynchronize(s));
        unuse(seg + 2 * MiB - 512, size + MiB);
        vp_sim_others(0, 0);
        seg += size + 4 * MiB;
    }
    door_close();
}

/* ---- memory that goes back to be had again in other pieces ---- */

static CUresult (*release)(CUmemGenericAllocationHandle);

/* Another process has at once what goes back: it waits for nothing else. */
static CUresult release_to_others(CUmemGenericAllocationHandle handle) {
    const CUresult res = release(handle);
    vp_sim_others(0, 96 * MiB - held());
    return res;
}

/* A page of another block keeps a slot from having a chunk of its own, and all that is idle are such chunks. */
static CUresult come_between(size_t size, bool others_wait, bool *has_memory) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr large = segment(96 * MiB, s), seg = segment(16 * MiB, s);
    use(seg, PAGE, s);
    use(large, 90 * MiB, s);
    unuse(large, 90 * MiB);
    vp_chunk_release_spares(&pool_of(0)->mem, SIZE_MAX);
    vp_bare_forget_bounds(pool_of(0));
    vp_sim_others(0, 96 * MiB - held());
    release = vp_state.drv.cuMemRelease;
    if (others_wait)
        vp_state.drv.cuMemRelease = release_to_others;
    const CUresult res = vp_bare_room(0, size, on(s));
    if (!res) {
        cr_assert(vp_bare_used(seg + PAGE, size, on(s)));
        *has_memory = !cuMemsetD8Async(seg + PAGE, 1, size, s);
        cr_assert(vp_pool_check(pool_of(0), stderr));
        unuse(seg + PAGE, size);
    }
    cr_assert(vp_pool_check(pool_of(0), stderr));
    vp_state.drv.cuMemRelease = release;
    vp_sim_others(0, 0);
    door_close();
    return res;
}

Test(bare, a_chunk_goes_back_for_pages_in_its_stead) {
    bool has_memory = false;
    cu_ok(come_between(3 * PAGE, false, &has_memory));
    cr_assert(has_memory);
}

/* It goes before room is promised: another process may have it first. */
Test(bare, a_chunk_that_another_process_has_first_was_promised_nobody) {
    for (size_t pages = 1; pages <= 16; pages *= 2) {
        bool has_memory = false;
        const CUresult res = come_between(pages * PAGE, true, &has_memory);
        cr_assert(res == CUDA_ERROR_OUT_OF_MEMORY || has_memory, "%zu pages", pages);
    }
}

/* All that is idle is what the block takes, and a page; one chunk lies where it would be pinned for a page. That makes
 * way for a single one, and stays held. */
Test(bare, what_makes_way_for_single_pages_serves_the_block_elsewhere) {
    enum { SINGLE = 9, OWN = 16 };
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(32 * PAGE, s), body = segment(MiB, s), pages = segment(MiB, s);
    use(seg, VP_SLOT_PAGES * PAGE, s);
    use(body, VP_SLOT_PAGES * PAGE, s);
    for (size_t i = 0; i < SINGLE; i++)
        use(pages + i * PAGE, PAGE, s);
    unuse(seg, VP_SLOT_PAGES * PAGE);
    unuse(body, VP_SLOT_PAGES * PAGE);
    for (size_t i = 0; i < SINGLE; i++)
        unuse(pages + i * PAGE, PAGE);
    vp_chunk_release_spares(&pool_of(0)->mem, SIZE_MAX);
    vp_bare_forget_bounds(pool_of(0));
    cr_assert_eq(held(), (2 * VP_SLOT_PAGES + SINGLE) * PAGE);
    vp_sim_others(0, 96 * MiB - held());
    release = vp_state.drv.cuMemRelease;
    vp_state.drv.cuMemRelease = release_to_others;
    cu_ok(vp_bare_room(0, OWN * PAGE, on(s)));
    cr_assert(vp_bare_used(seg + 3 * PAGE, OWN * PAGE, on(s)));
    cu_ok(cuMemsetD8Async(seg + 3 * PAGE, 1, OWN * PAGE, s));
    cr_assert(vp_pool_check(pool_of(0), stderr));
    vp_state.drv.cuMemRelease = release;
    door_close();
}

/* A look at all that is held, for each of the small blocks that come by the thousand, would take longer than they do.
 */
Test(bare, on_a_full_device_room_that_is_known_costs_no_call) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(64 * MiB, s), small = segment(2 * MiB, s);
    use(small, KiB, s);
    use(seg, 60 * MiB, s);
    vp_sim_others(0, 96 * MiB - held());
    usleep(20000); /* what was counted on the device is not any more */
    use(seg + 60 * MiB, 4 * PAGE, s);
    use(small + 2 * KiB, KiB, s);
    unuse(small + 2 * KiB, KiB);
    const unsigned long before = vp_sim_calls(NULL);
    for (int i = 0; i < 10; i++) {
        use(small + 2 * KiB, KiB, s);
        unuse(small + 2 * KiB, KiB);
    }
    cr_assert_eq(vp_sim_calls(NULL), before);
    /* Nor is there more than there is. */
    cr_assert_eq(vp_bare_room(0, 20 * MiB, on(s)), CUDA_ERROR_OUT_OF_MEMORY);
    vp_sim_others(0, 0);
    use(seg + 61 * MiB, 2 * MiB, s);
    door_close();
}

/* PyTorch frees segments while it makes a block, as it collects garbage: what is idle is that block's, and not given
 * back. */
Test(bare, what_was_made_room_for_stays_as_the_cache_collects_garbage) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    const CUdeviceptr seg = segment(64 * MiB, s), garbage = segment(20 * MiB, s);
    use(seg, 60 * MiB, s);
    unuse(seg, 60 * MiB);
    cu_ok(vp_bare_room(0, 50 * MiB, on(s)));
    cu_ok(door_free(garbage));
    cu_ok(door_synchronize());
    vp_sim_others(0, 96 * MiB - held());
    cr_assert(vp_bare_used(seg, 50 * MiB, on(s)));
    cu_ok(cuMemsetD8Async(seg, 1, 50 * MiB, s));
    vp_sim_others(0, 0);
    unuse(seg, 50 * MiB);
    cu_ok(door_free(seg)); /* and is, if it is emptied */
    cu_ok(door_synchronize());
    cr_assert_eq(held(), 0);
    door_close();
}

/* ---- blocks of pools that split none ---- */

/* Whatever is asked for, what comes may be all of a segment that is not in use. */
Test(bare, room_is_for_all_of_a_segment_that_is_not_split) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), other = door_stream(CU_STREAM_NON_BLOCKING);
    const CUdeviceptr seg = segment(60 * MiB, s), split = segment(96 * MiB, s);
    use(seg, 60 * MiB, s);
    vp_bare_unsplit(seg, 60 * MiB);
    use(split, 30 * MiB, s); /* beside a block that is there, any */
    vp_bare_unsplit(split, 30 * MiB);
    unuse(seg, 60 * MiB);
    use(split + 30 * MiB, 20 * MiB, other);
    cr_assert_eq(vp_bare_room(0, 10 * MiB, on(s)), CUDA_ERROR_OUT_OF_MEMORY);
    unuse(split, 30 * MiB);
    cu_ok(vp_bare_room(0, 10 * MiB, on(s)));
    cr_assert(vp_bare_used(seg, 60 * MiB, on(s)));
    cu_ok(cuMemsetD8Async(seg, 1, 60 * MiB, s));
    cu_ok(vp_bare_room(0, 10 * MiB, on(s)));
    door_close();
}
