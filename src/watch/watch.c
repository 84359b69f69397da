/* The table through which process/ calls this folder. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/watch.h"

#include "watch/dump.h"
#include "watch/holders.h"
#include "watch/marks.h"
#include "watch/stack_peak.h"
#include "watch/stack_walk.h"
#include "watch/stacks.h"
#include "watch/trace.h"
#include "watch/lend.h"

/* Options are parsed, and invalid ones are logged, at the start. */
static void opening(void) {
    vp_dump_open();
    vp_stacks_open();
}

static bool wants_events(void) {
    return *vp_options()->trace || vp_stacks_wanted() || vp_marks_want_events();
}

/* A process that records is also called each time that the lock was released: see `published`. */
static void pool_opened(struct vp_pool *pool) {
    vp_lock_is_held();
    vp_plans_open(pool);
    vp_shared_stats_open_device(pool);
    vp_lend_start();
    vp_state.published |= *vp_options()->trace != 0;
}

static void publish(void) {
    vp_lock_is_held();
    vp_shared_stats_publish();
    if (*vp_options()->trace)
        vp_trace_held();
}

static void event(char op, CUdevice device, uint64_t serial, size_t size, uint32_t stream) {
    const bool stacks = vp_stacks_wanted();
    uint32_t stack = 0;
    if (!vp_process_is_marked())
        return;
    vp_marks_tell_early();
    /* On the fast path, what the pools hold does not change. */
    if (vp_thread.inside && !vp_thread.tells && *vp_options()->trace) {
        vp_lock_is_held();
        vp_trace_held();
    }
    if (op == 'x') {
        vp_trace_failure(device, size, stream);
        return;
    }
    const bool marks = vp_marks_want_events();
    if (stacks || marks)
        vp_cancel_hold(); /* they may read files */
    if (stacks)
        stack = vp_stacks_event(op, device, serial, size);
    if (marks)
        vp_marks_event(op, size);
    vp_trace_event(op, device, serial, size, stream, stacks && op == 'a' ? &stack : NULL);
}

/* What these two locks guard must be consistent in the child of a fork, so they are held around it. */
VP_NOT_ANALYSED /* fork_parent() releases them */ static void fork_prepare(void) {
    vp_lock_take(&vp_trace_guard);
    vp_lock_take(&vp_marks_guard);
}

VP_NOT_ANALYSED static void fork_parent(void) {
    vp_lock_release(&vp_marks_guard);
    vp_lock_release(&vp_trace_guard);
}

/* Frees all locks in the child. The others guard data of blocks; a child of a parent with blocks is not served. */
static void fork_child(void) {
    static struct vp_lock *const locks[] = {&vp_trace_guard,  &vp_marks_guard,       &vp_stack_peak_guard,
                                            &vp_python_guard, &vp_stack_table_guard, &vp_dump_guard,
                                            &vp_lend_guard};
    for (size_t i = 0; i < sizeof locks / sizeof *locks; i++)
        vp_lock_reset(locks[i]);
    vp_marks_fork_child();
    vp_trace_fork_child();
    vp_stacks_fork_child();
    vp_oom_leave_to_parent();
    vp_shared_stats_leave_to_parent();
}

static void end(void) {
    vp_plans_stop();
    vp_lend_end();
    vp_shared_stats_remove();
    vp_dump_end();
    vp_oom_end();
    vp_stats_write();
    vp_plans_write();
    vp_trace_end();
}

const struct vp_watch vp_watch = {
    .opening = opening,
    .wants_events = wants_events,
    .pool_opened = pool_opened,
    .publish = publish,
    .event = event,
    .stack_of = vp_stacks_of,
    .tell_stack = vp_holders_log,
    .out_of_memory = vp_oom_explain,
    .fork_prepare = fork_prepare,
    .fork_parent = fork_parent,
    .borrow = vp_lend_borrow,
    .spare = vp_lend_spare,
    .may_grow = vp_hold_may_grow,
    .fork_child = fork_child,
    .end = end,
};
