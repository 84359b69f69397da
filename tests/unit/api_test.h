/* What the tests of the api share. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "fixture.h"

#include "process/state.h"

static const char SIM[] = "capacity=64M,granularity=64K,lazy=0,timeout=300";

static inline struct vp_pool *pool_of(int dev) {
    cr_assert(vp_state.pools[dev], "device %d has no pool", dev);
    return vp_state.pools[dev];
}

static inline CUmemoryPool default_pool(int dev) {
    CUmemoryPool pool;
    cu_ok(cuDeviceGetDefaultMemPool(&pool, dev));
    return pool;
}
