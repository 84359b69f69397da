/* What the files of this folder share besides dumps, and offer to process/watch.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "process/state.h"
#include "base/json.h"
#include "pool/slack.h"

/* The number of driver calls that were made for a pool. */
static inline uint64_t vp_stats_calls(const struct vp_memory_stats *s, const struct vp_timeline_stats *timelines) {
    uint64_t calls = timelines->records + timelines->barriers + timelines->queries + timelines->waits;
#define ADD(field, name) calls += s->calls.field;
    VP_MEMORY_CALLS(ADD)
#undef ADD
    return calls;
}

/* ---- stats.c ---- */

void vp_stats_write(void);
/* This copy of the library serves the process, if there are two. `is_first`: this is the first process of a run, which
 * reports if it makes no use of CUDA. */
void vp_stats_serves(bool is_first);
/* Parts of the JSON of a device, for statistics and dumps. */
void vp_stats_json_blocks(struct vp_json *j, const struct vp_memory_stats *s);
void vp_stats_json_waits(struct vp_json *j, const struct vp_memory_stats *s, const struct vp_timeline_stats *timelines,
                         const struct vp_slack_state *slack);
void vp_stats_json_passed(struct vp_json *j);
/* The number of calls that went on to CUDA. */
uint64_t vp_stats_passed(void);
/* Has this process used CUDA? If not, its children may have, which then report it themselves. */
bool vp_stats_has_used_cuda(void) VP_LOCKED;

/* ---- hold.c ---- */

/* False: another process of the user is being woken and needs the memory; for half a minute at most. */
bool vp_hold_may_grow(CUdevice device);

/* ---- shared_stats.c ---- */

void vp_shared_stats_open_device(struct vp_pool *pool) VP_LOCKED;
void vp_shared_stats_publish(void) VP_LOCKED;
/* From here on requests for dumps are answered. */
void vp_shared_stats_take_dumps(void) VP_UNLOCKED;
void vp_shared_stats_leave_to_parent(void);
void vp_shared_stats_remove(void);
