/* What the tests of the rules share: owners who fill their block and read it back, and streams that are held. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "fixture.h"

#include "../common/owners.h"

/* Plenty of memory, so that nobody is forced to share; waits that can never end are given up after 300 ms. */
static const char SIM[] = "capacity=64M,granularity=64K,lazy=0,timeout=300";

enum { SIZE = 2 << 20 };

/* ---- owners ---- */

struct holder {
    CUdeviceptr ptr;
    uint32_t mark;
    void *seen; /* pinned: what the last read found */
};

static inline struct holder holder_of(CUdeviceptr ptr, CUstream stream) {
    static uint32_t marks;
    struct holder o = {.ptr = ptr, .mark = owner_mark(++marks)};
    cu_ok(cuMemAllocHost(&o.seen, SIZE));
    for (size_t i = 0; i < SIZE / 4; i++)
        ((uint32_t *)o.seen)[i] = o.mark;
    cu_ok(cuMemsetD32Async(ptr, o.mark, SIZE / 4, stream));
    cu_ok(cuMemcpyDtoHAsync(o.seen, ptr, SIZE, stream));
    return o;
}

/* A stream-ordered owner, and one by cudaMalloc whose work is on that stream. */
static inline struct holder take(CUstream stream) {
    return holder_of(door_take(SIZE, stream), stream);
}

static inline struct holder take_sync(CUstream stream) {
    return holder_of(door_malloc(SIZE), stream);
}

static inline void give(const struct holder *o, CUstream stream) {
    cu_ok(door_free_async(o->ptr, stream));
    cr_assert(door_served);
}

static inline void give_sync(const struct holder *o) {
    cu_ok(door_free(o->ptr));
    cr_assert(door_served);
}

static inline bool apart(const struct holder *a, const struct holder *b) {
    return a->ptr + SIZE <= b->ptr || b->ptr + SIZE <= a->ptr;
}

/* Its work is over: what it has read were its own bytes. */
static inline void check(const struct holder *o) {
    size_t at = owner_intruder(o->seen, SIZE, o->mark);
    cr_assert_eq(at, SIZE, "the owner of %#llx, mark %08x, saw another's byte at %zu", o->ptr, o->mark, at);
}

/* It is live still: nobody has written to its bytes since. */
static inline void check_live(const struct holder *o) {
    check(o);
    cu_ok(cuMemcpyDtoH(o->seen, o->ptr, SIZE));
    check(o);
}

/* Runs all that may run beside the held stream, then that, and checks both. */
static inline void duel(const struct holder *old, const struct holder *new, CUstream held) {
    vp_sim_step(1000);
    vp_sim_release(held);
    cu_ok(cuStreamSynchronize(held));
    cu_ok(cuCtxSynchronize());
    check(old);
    check_live(new);
    door_close();
}

/* A stream held from now on. */
static inline CUstream held_stream(unsigned flags) {
    CUstream stream = door_stream(flags);
    vp_sim_hold(stream);
    return stream;
}

static inline unsigned long waits(void) {
    return vp_sim_calls("cuStreamWaitEvent");
}

/* From the second stream that frees large blocks on, these have events of their own. */
static inline void two_streams_free(CUstream one, CUstream two) {
    cu_ok(door_free_async(door_take(MiB, one), one));
    cu_ok(door_free_async(door_take(MiB, two), two));
}
