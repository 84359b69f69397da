/* What the tests of lines share. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "fixture.h"

static const char SIM[] = "capacity=64M,granularity=64K,lazy=0";

static inline struct vp_timeline *timeline_of(CUstream stream) {
    struct vp_timeline *timeline = NULL;
    cr_assert(!vp_timeline_get(&fx.timelines, stream, &timeline));
    return timeline;
}

static inline struct vp_timeline *timeline(int stream) {
    return timeline_of(fx.stream[stream]);
}

static inline struct vp_fence freed(struct vp_timeline *on, bool record) {
    struct vp_fence fence = {0};
    cr_assert(!vp_fence_add_free(&fx.timelines, &fence, on, record));
    return fence;
}

static inline struct vp_fence freed_by_all(bool record) {
    struct vp_fence fence = {0};
    cr_assert(!vp_fence_add_barrier(&fx.timelines, &fence, fx.context, record));
    return fence;
}

/* Over, as far as the driver says when asked? */
static inline bool over(struct vp_fence *fence) {
    vp_timelines_poll(&fx.timelines, true);
    return vp_fence_settle(&fx.timelines, fence);
}

static inline unsigned long records(void) {
    return vp_sim_calls("cuEventRecord");
}

static inline unsigned long barriers(void) {
    return vp_sim_calls("cuCtxRecordEvent");
}
