/* What the tests of ends share. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "fixture.h"

#include "process/state.h"

static const char SIM[] = "capacity=64M,granularity=64K,lazy=0,timeout=300";

static inline int captures(void) {
    return atomic_load(&vp_state.timelines.captures);
}

static inline size_t length(const struct vp_list *list) {
    size_t n = 0;
    for (const struct vp_list *at = list->next; at != list; at = at->next)
        n++;
    return n;
}

/* Synchronous memory comes back: twice what the device has is allocated and freed. */
static inline void nothing_is_held_up(void) {
    for (int i = 0; i < 16; i++)
        cu_ok(door_free(door_malloc(8 * MiB)));
    cr_assert(vp_state.pools[0]->mem.stats.held_bytes <= 64 * MiB);
}
