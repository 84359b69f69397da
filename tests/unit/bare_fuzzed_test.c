/* Bare segments: what programs of random bytes found. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bare_test.h"

#include <pthread.h>
#include <unistd.h>

static bool is_backed(CUdeviceptr at, size_t size) {
    return !vp_bare_lacking(pool_of(0)->bare, at, size);
}

/* It was left in doubt, and came back, and went again: what is noted of it goes all at once. */
Test(bare, a_block_told_of_twice_is_looked_after_no_more) {
    door_open(SIM);
    atomic_store(&vp_bare_pools, true);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(96 * MiB, s), other = segment(96 * MiB, s);
    use(seg, 80 * MiB, s);
    for (int round = 0; round < 2; round++) {
        cr_assert(vp_bare_used(other, 60 * MiB, (struct vp_bare_stream){0}));
        cr_assert(vp_bare_unused(other, 60 * MiB, true));
    }
    const struct vp_bare *bare = pool_of(0)->bare;
    for (unsigned i = 0; i < bare->unasked_count; i++)
        cr_assert(!bare->unasked[i].lacks);
    use(other, MiB, s);
    door_close();
}

/* While a blocking stream captures nothing is seen over that was freed since. */
Test(bare, a_segment_beside_a_capture_lies_where_nothing_is_waited_for) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), c = door_stream(CU_STREAM_DEFAULT);
    CUdeviceptr seg = segment(8 * MiB, s);
    use(seg, MiB, s);
    unuse(seg, MiB);
    cu_ok(door_begin_capture(c, CU_STREAM_CAPTURE_MODE_RELAXED));
    cu_ok(door_free(seg));
    CUdeviceptr next = segment(8 * MiB, s);
    cr_assert_neq(next, seg);
    use(next, MiB, s);
    cr_assert(is_backed(next, MiB));
    cu_ok(door_end_capture(c, NULL));
    door_close();
}

/* No call told of it, and no event is asked for: a look at the context does. */
Test(bare, a_block_waits_for_no_context_that_ended_unseen) {
    door_open(SIM);
    CUcontext primary, ctx;
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING), own;
    CUdeviceptr ptr, seg = segment(96 * MiB, s);
    cu_ok(cuCtxGetCurrent(&primary));
    cu_ok(door_context_create(&ctx, 0));
    cu_ok(door_stream_create(&own, CU_STREAM_NON_BLOCKING));
    cu_ok(door_alloc_async(&ptr, 60 * MiB, NULL, own));
    cu_ok(cuMemsetD8Async(ptr, 1, 60 * MiB, own));
    cu_ok(door_free_async(ptr, own));
    cu_ok(cuCtxDestroy(ctx));
    cu_ok(cuCtxSetCurrent(primary));
    cu_ok(vp_bare_room(0, 70 * MiB, on(s)));
    cr_assert(vp_bare_used(seg, 70 * MiB, on(s)));
    cr_assert(is_backed(seg, 70 * MiB));
    door_close();
}

/* It counted as in use. */
Test(bare, what_a_block_never_had_is_no_room_when_it_goes) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(160 * MiB, s);
    use(seg, 70 * MiB, s);
    cr_assert(vp_bare_used(seg + 80 * MiB, 40 * MiB, (struct vp_bare_stream){0}));
    use(seg + 72 * MiB, PAGE, s);
    cr_assert(!is_backed(seg + 80 * MiB, 40 * MiB));
    unuse(seg + 80 * MiB, 40 * MiB);
    cr_assert_eq(vp_bare_room(0, 30 * MiB, on(s)), CUDA_ERROR_OUT_OF_MEMORY);
    door_close();
}

/* ---- a segment that ends while its block waits for memory ---- */

static CUstream stream;
static CUcontext context;

static void *use_a_page(void *segment_at) {
    cu_ok(cuCtxSetCurrent(context));
    cu_ok(vp_bare_room(0, 512, on(stream)));
    vp_bare_used(*(CUdeviceptr *)segment_at, 512, on(stream));
    return NULL;
}

/* Waits until a block waits; and is all in order then? */
static bool is_sound_meanwhile(void) {
    for (;;) {
        cr_assert(vp_enter());
        const bool waits = pool_of(0)->bare->owed, sound = vp_pool_check(pool_of(0), stderr);
        vp_leave();
        if (waits || !sound)
            return sound;
        usleep(1000);
    }
}

/* What lies there is a chunk of four pages, work on which is not over. */
Test(bare, a_block_that_waits_is_counted_right_when_its_segment_ends) {
    pthread_t thread;
    door_open(SIM);
    stream = door_stream(CU_STREAM_NON_BLOCKING);
    cu_ok(cuCtxGetCurrent(&context));
    CUdeviceptr first = segment(8 * MiB, stream), seg;
    use(first, 4 * PAGE, stream);
    busy(first, stream);
    unuse(first, 4 * PAGE);
    cu_ok(door_free(first));
    cr_assert_eq(seg = segment(8 * MiB, stream), first);
    cr_assert(!pthread_create(&thread, NULL, use_a_page, &seg));
    cr_assert(is_sound_meanwhile());
    cu_ok(door_free(seg));
    vp_sim_release(stream);
    pthread_join(thread, NULL);
    cu_ok(vp_bare_room(0, 60 * MiB, on(stream))); /* counts anew */
    cr_assert_eq(pool_of(0)->bare->used, 0);
    cr_assert(vp_pool_check(pool_of(0), stderr));
    door_close();
}

/* A thread may be promised memory of several devices, where no block came. */
Test(bare, a_thread_waits_for_no_promise_of_its_own) {
    door_open("capacity=96M,granularity=64K,devices=2,lazy=0,timeout=3000");
    CUcontext ctx[2];
    for (int dev = 0; dev < 2; dev++) {
        cu_ok(door_primary(&ctx[dev], dev));
        cu_ok(cuCtxSetCurrent(ctx[dev]));
        cu_ok(vp_bare_room(dev, MiB, (struct vp_bare_stream){0}));
    }
    cu_ok(cuCtxSetCurrent(ctx[0]));
    door_malloc(MiB);
    cr_assert(vp_bare_promised(pool_of(0)->bare)); /* who has waited in vain takes it back */
    door_close();
}
