/* The processes under the library, as their shared statistics show them at one moment. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "tool/top/pages.h"

#include <stdint.h>

/* One device of one process. */
struct vp_row {
    struct vp_shared_stats_figures now;
    uint64_t device;
    uint64_t total, place;                   /* as in the page: the device's memory, and where it is; 0: not known */
    unsigned process;                        /* place in vp_sample.processes */
    double allocs_per_s, driver_calls_per_s; /* since the sample before; negative: there was none */
};

enum { VP_USER_TEXT = 33 };

struct vp_watched {
    struct vp_page page; /* with a copy of its own; the texts below are without control characters */
    char program[VP_SHARED_STATS_TEXT], policy[VP_SHARED_STATS_TEXT], release[VP_SHARED_STATS_TEXT];
    char rank[VP_SHARED_STATS_RANK], user[VP_USER_TEXT];
    char command[256]; /* the command line, as far as it fits */
};

struct vp_sample {
    uint64_t ns; /* when */
    struct vp_watched *processes;
    struct vp_row *rows;
    unsigned process_count, row_count;
};

/* Takes a sample of this user's processes, for root of all users' in all containers; of those in `pids` alone, if
 * `pid_count` is not 0. Statistics of this user whose process is gone are removed. `before` (may be NULL) gives the
 * rates. Each process is asked to count all it does by the next sample. 0, or a negative errno. */
int vp_sample_take(struct vp_sample *sample, const struct vp_sample *before, const int *pids, unsigned pid_count);
void vp_sample_drop(struct vp_sample *sample);

/* What the pools hold beyond what is live, some of which may lie in the host's memory or sleep. Bytes. */
static inline uint64_t vp_row_free(const struct vp_row *row) {
    const uint64_t awake = row->now.held_bytes + row->now.spilled_bytes, has = awake + row->now.asleep_bytes;
    const uint64_t more = has > row->now.live_bytes ? has - row->now.live_bytes : 0;
    return more < awake ? more : awake;
}
/* Peak live bytes by peak held bytes and what is spilled, at most 1; 1 where nothing is held. */
static inline double vp_row_efficiency(const struct vp_row *row) {
    double held = (double)(row->now.peak_held_bytes + row->now.spilled_bytes), live = (double)row->now.peak_live_bytes;
    return held > 0 && live < held ? live / held : 1;
}
