/* Stream-ordered memory pools, and those of them that processes share. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "sim_private.h"

struct sim_pool {
    CUmemoryPool handle;
    int device;
    bool is_default, destroyed;
    bool exportable, decompresses;
    CUmemLocationType located; /* where its memory is */
    bool managed;
    bool exported; /* it has been: before, none of its pointers can be */
    bool imported; /* another process's, or of this one's own by way of a descriptor: it hands nothing out */
    int memfd;     /* the bytes of an exportable or imported one; 0: there is none yet */
    off_t next;    /* where its next block's begin */
    uint64_t most; /* bytes reserved at once; 0: no limit */
    size_t live;   /* blocks handed out */
    uint64_t threshold, used, used_high, reserved_high, reserved;
    int reuse[3];                 /* follow events, opportunistic, internal dependencies */
    unsigned access;              /* devices that may touch it */
    LIST_HEAD(, sim_block) cache; /* sim_block.link: freed, physical memory kept */
};

struct sim_pool *sim_pool_new(int device, bool is_default);
/* A new block has its bytes where other processes can map them, if its pool is one for that; such a pool's end. */
void sim_shared_pool_back(struct sim_block *block);
void sim_shared_pool_close(struct sim_pool *pool);
/* A device's default pool, and the current one. */
struct sim_pool *sim_pool_default(int device);
struct sim_pool *sim_pool_current(int device);
/* One with these properties, if there may be. One that ends is nobody's current one any more. */
CUresult sim_pool_of(const CUmemPoolProps *props, struct sim_pool **out);
void sim_places_forget(const struct sim_pool *pool);
void sim_places_reset(void);

static inline bool sim_pool_is_hosts(const struct sim_pool *pool) {
    return pool->located != CU_MEM_LOCATION_TYPE_DEVICE && !pool->managed;
}
