/* Stacks told: in the trace, as far as it does not know them yet. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/stacks.h"

#include "watch/trace.h"

/* ---- the trace ---- */

/* How far it has been told of, under its lock; the last looked at without. */
static struct {
    uint32_t modules VP_GUARDED_BY(vp_trace_guard), frames VP_GUARDED_BY(vp_trace_guard);
    atomic_uint_least32_t stacks;
} told;

static VP_REQUIRES(vp_trace_guard) void tell_modules(void) {
    const uint32_t count = vp_module_count();
    while (told.modules < count) {
        const uint32_t n = ++told.modules;
        vp_trace_put('l', VP_TRACE_NUMBER(n), VP_TRACE_TEXT(vp_module_build_id(n)), VP_TRACE_TEXT(vp_module_path(n)));
    }
}

static VP_REQUIRES(vp_trace_guard) void tell_frames(void) {
    const uint32_t count = vp_frame_count();
    while (told.frames < count) {
        const uint32_t n = ++told.frames;
        const char kind[] = {(char)vp_frame_kind(n), 0};
        vp_trace_put('n', VP_TRACE_NUMBER(n), VP_TRACE_TEXT(kind), VP_TRACE_TEXT(vp_frame_label(n)));
    }
}

/* Every stack's parent and frame were there before it. */
void vp_stacks_tell(uint32_t stack) {
    if (stack <= atomic_load_explicit(&told.stacks, memory_order_acquire) || !vp_trace_lock())
        return;
    uint32_t n = atomic_load(&told.stacks);
    tell_modules();
    tell_frames();
    while (n < stack) {
        n++;
        vp_trace_put('s', VP_TRACE_NUMBER(n), VP_TRACE_NUMBER(vp_stack_parent(n)), VP_TRACE_NUMBER(vp_stack_frame(n)));
    }
    atomic_store_explicit(&told.stacks, n, memory_order_release);
    vp_trace_unlock();
}

VP_NOT_ANALYSED /* there is one thread */ void vp_stacks_tell_anew(void) {
    told.modules = told.frames = 0;
    atomic_store(&told.stacks, 0);
}
