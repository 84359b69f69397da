/* Captures: when they begin and end. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/state.h"

#include "pool/bare/bare.h"
#include "pool/stream_cache.h"

/* True while this thread holds the lock and the driver begins its capture. */
static __thread bool begins __attribute__((tls_model("initial-exec")));

/* No capture may begin between a thread's question whether a stream captures and the event that it then records there:
 * the capture would take the event or, if it is on a blocking stream, be ended by an event on the legacy stream. So no
 * other thread is in the library until the capture has begun.
 *
 * Not analysed, like the next function: this one takes the lock, and that one releases it. */
VP_NOT_ANALYSED void vp_api_capture_beginning(CUstream stream, bool adopted) {
    struct vp_timeline *timeline;
    if (!vp_enter())
        return;
    begins = true;
    vp_state.adopted = adopted;
    /* Of what a block was promised not all can be had in a capture. While one is waited for, another may be promised.
     */
    for (bool waited = true; waited;) {
        waited = false;
        vp_pools_each(pool) waited |= vp_bare_await(pool);
    }
    if (!vp_timeline_get(&vp_state.timelines, stream, &timeline) && vp_list_empty(&timeline->capturing)) {
        /* What is idle gets the events that it needs while they are to be had. */
        vp_pools_each(pool) vp_bare_flush(pool);
        vp_timelines_poll(&vp_state.timelines, true);
        vp_timeline_capture(&vp_state.timelines, timeline);
        vp_pools_each(pool) vp_stream_caches_await_calls(&pool->caches);
    }
}

bool vp_api_captures(void) {
    return atomic_load_explicit(&vp_state.timelines.captures, memory_order_relaxed) > 0;
}

void vp_captures_over(void) {
    if (!atomic_load(&vp_state.timelines.captures))
        vp_timelines_poll(&vp_state.timelines, true);
}

static VP_LOCKED void capture_ended(CUstream stream) {
    unsigned long long id;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    /* A refused end may leave it running. The legacy stream tells nothing of others, nor must it be asked more. */
    const CUresult asked = vp_state.drv.cuStreamIsCapturing(stream, &status);
    if (asked == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT || (!asked && status != CU_STREAM_CAPTURE_STATUS_NONE) ||
        vp_state.drv.cuStreamGetId(stream, &id))
        return;
    struct vp_timeline *timeline = vp_table_get(&vp_state.timelines.by_id, id + 1);
    if (timeline)
        vp_timeline_capture_over(&vp_state.timelines, timeline);
    vp_captures_over();
}

VP_NOT_ANALYSED void vp_api_capture_began(CUstream stream, bool ok) {
    if (!begins)
        return;
    begins = false;
    if (!ok)
        capture_ended(stream);
    vp_leave();
}

void vp_api_capture_ended(CUstream stream) {
    if (!vp_enter())
        return;
    capture_ended(stream);
    vp_leave();
}
