/* What this folder is called by: the table that process/ calls through. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/watch.h"

#include "watch/dump.h"

/* Wrong words are told at the start. */
static void opening(void) {
    vp_dump_plan();
}

static void fork_child(void) {
    vp_trace_fork_child();
    vp_shared_stats_leave_to_parent();
    vp_dump_fork_child();
}

static void end(void) {
    vp_shared_stats_remove();
    vp_dump_end();
    vp_oom_end();
    vp_stats_write();
    vp_trace_end();
}

void vp_dump_begin(void) {
    pthread_mutex_lock(&vp_state.lock);
    vp_shared_stats_take_dumps();
    pthread_mutex_unlock(&vp_state.lock);
}

const struct vp_watch vp_watch = {
    .opening = opening,
    .pool_opened = vp_shared_stats_open_device,
    .publish = vp_shared_stats_publish,
    .event = vp_trace_event,
    .mark = vp_trace_mark,
    .out_of_memory = vp_oom_explain,
    .dump = vp_dump_to,
    .fork_prepare = vp_trace_fork_prepare,
    .fork_parent = vp_trace_fork_parent,
    .fork_child = fork_child,
    .end = end,
};
