/* What the files of this folder share beside dumps, and pass on to process/watch.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "process/state.h"
#include "base/json.h"
#include "pool/slack.h"

/* Calls of the driver that were made for a pool. */
static inline uint64_t vp_stats_calls(const struct vp_memory_stats *s, const struct vp_timeline_stats *timelines) {
    uint64_t calls = timelines->records + timelines->barriers + timelines->queries + timelines->waits;
#define ADD(field, name) calls += s->calls.field;
    VP_MEMORY_CALLS(ADD)
#undef ADD
    return calls;
}

/* ---- stats.c ---- */

void vp_stats_write(void);
/* This is the library that serves the process, if there are two; and the process is the first of a run: where it makes
 * no use of CUDA, that is said. */
void vp_stats_serves(bool is_first);
/* What statistics and dumps both tell of a device. */
void vp_stats_json_blocks(struct vp_json *j, const struct vp_memory_stats *s);
void vp_stats_json_waits(struct vp_json *j, const struct vp_memory_stats *s, const struct vp_timeline_stats *timelines,
                         const struct vp_slack_state *slack);
void vp_stats_json_passed(struct vp_json *j);
/* Calls that went on to CUDA. */
uint64_t vp_stats_passed(void);
/* Has this process seen CUDA at all? Where it has not, its children may have, which then tell for themselves. */
bool vp_stats_has_used_cuda(void) VP_LOCKED;

/* ---- hold.c ---- */

/* False: another process of the user is about to be brought back, and needs the memory; for half a minute at most. */
bool vp_hold_may_grow(CUdevice device);

/* ---- shared_stats.c ---- */

void vp_shared_stats_open_device(struct vp_pool *pool) VP_LOCKED;
void vp_shared_stats_publish(void) VP_LOCKED;
/* From here on somebody answers who asks for a dump. */
void vp_shared_stats_take_dumps(void) VP_UNLOCKED;
void vp_shared_stats_leave_to_parent(void);
void vp_shared_stats_remove(void);
