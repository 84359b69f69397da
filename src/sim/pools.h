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
    bool exported; /* it was exported: before that, none of its pointers can be */
    bool imported; /* from another process, or from this one by way of a descriptor: it hands nothing out */
    int memfd;     /* the bytes of an exportable or imported one; 0: there is none yet */
    off_t next;    /* where its next block's bytes begin */
    uint64_t most; /* bytes reserved at once; 0: no limit */
    size_t live;   /* blocks handed out */
    uint64_t threshold, used, used_high, reserved_high, reserved;
    int reuse[3];                 /* follow events, opportunistic, internal dependencies */
    unsigned access;              /* devices that may touch it */
    LIST_HEAD(, sim_block) cache; /* sim_block.link: freed, physical memory kept */
};

struct sim_pool *sim_pool_new(int device, bool is_default);
/* Gives a new block bytes that other processes can map, if its pool is for that; and ends such a pool. */
void sim_shared_pool_back(struct sim_block *block);
void sim_shared_pool_close(struct sim_pool *pool);
/* Return a device's default pool, and its current one. */
struct sim_pool *sim_pool_default(int device);
struct sim_pool *sim_pool_current(int device);
/* Makes a pool with these properties, if they are allowed; and forgets a pool that is destroyed as the current one. */
CUresult sim_pool_of(const CUmemPoolProps *props, struct sim_pool **out);
void sim_places_forget(const struct sim_pool *pool);
void sim_places_reset(void);

static inline bool sim_pool_is_hosts(const struct sim_pool *pool) {
    return pool->located != CU_MEM_LOCATION_TYPE_DEVICE && !pool->managed;
}
