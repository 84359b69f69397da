/* What the tests of bare segments share: a cache in a few words. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "fixture.h"

#include "pool/bare/bare.h"
#include "process/bare.h"
#include "process/state.h"

static const char SIM[] = "capacity=96M,granularity=64K,lazy=0,timeout=3000";
static const size_t PAGE = 64 * KiB;

static inline struct vp_pool *pool_of(int dev) {
    cr_assert(vp_state.pools[dev], "device %d has no pool", dev);
    return vp_state.pools[dev];
}

static inline size_t held(void) {
    return vp_sim_used_vmm(0);
}

/* Calls that map, or take away. */
static inline unsigned long maps(void) {
    return vp_sim_calls("cuMemMap") + vp_sim_calls("cuMemUnmap");
}

static inline struct vp_bare_stream on(CUstream stream) {
    return (struct vp_bare_stream){.handle = stream, .known = true};
}

static inline CUdeviceptr segment(size_t size, CUstream stream) {
    CUdeviceptr ptr;
    cu_ok(vp_bare_segment(&ptr, size, on(stream)));
    return ptr;
}

static inline void use(CUdeviceptr ptr, size_t size, CUstream stream) {
    cu_ok(vp_bare_room(0, size, on(stream)));
    cr_assert(vp_bare_used(ptr, size, on(stream)));
    cr_assert(vp_pool_check(pool_of(0), stderr));
}

static inline void unuse(CUdeviceptr ptr, size_t size) {
    cr_assert(vp_bare_unused(ptr, size, false));
    cr_assert(vp_pool_check(pool_of(0), stderr));
}

/* Work on the memory that does not run until vp_sim_release(). */
static inline void busy(CUdeviceptr ptr, CUstream stream) {
    vp_sim_hold(stream);
    cu_ok(cuMemsetD8Async(ptr, 1, 64 * KiB, stream));
}

/* Lets it run in a moment, by another thread. */
void release_soon(CUstream stream);

/* Others have all that the device had, and nothing is counted on it any more; what is spare goes under blocks of a
 * page, from there on. */
void leave_no_more(CUdeviceptr at, CUstream stream);
