/* Streams: when they are created, destroyed, or end with their thread.
 *
 * No call reports the end of a thread's own default streams (CU_STREAM_PER_THREAD, one in each context): a destructor
 * of a thread-specific value does. It may run at odd times. In a thread that is inside the library already, or in a
 * process whose CUDA is not ours, vp_enter() refuses. If another destructor uses CUDA after it, the stream is known
 * again, and so is this value, and the destructor runs again, a few times at most. A stream that is known after that,
 * or when no key is available, stays until its context ends: longer than the thread, so the list of a thread's streams
 * is not in the thread's own memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/state.h"

/* Timelines that are gone and linger. */
static VP_LOCKED void tidy(void) {
    if (!vp_timelines_linger(&vp_state.timelines))
        return;
    vp_timelines_poll(&vp_state.timelines, true);
    vp_pools_each(pool) if (pool->mem.moves != vp_state.timelines.moves) vp_memory_refile(&pool->mem);
    vp_context_tidy(&vp_state.timelines);
}

void vp_api_note_work(unsigned kind) {
    if (!vp_api_ready())
        return;
    if (kind != VP_WORK_NAMED)
        vp_state.timelines.joins |= kind == VP_WORK_OWN ? VP_JOINS_BLOCKING | VP_JOINS_NAMELESS : VP_JOINS_LEGACY;
    vp_worked |= kind;
}

void vp_api_stream_created(CUstream stream) {
    struct vp_timeline *timeline;
    if (!vp_enter())
        return;
    /* Where there is no barrier, or while captures forbid it, every stream is needed by name. */
    if (vp_timeline_get(&vp_state.timelines, stream, &timeline))
        vp_state.timelines.joins |= VP_JOINS_BLOCKING | VP_JOINS_NAMELESS;
    vp_leave();
}

void vp_api_stream_destroying(CUstream stream) {
    /* The default streams are nobody's to destroy. */
    if ((uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD || !vp_enter())
        return;
    /* One that captures, or has joined a capture, cannot be asked for its id. */
    struct vp_timeline *timeline;
    if (vp_timeline_get(&vp_state.timelines, stream, &timeline))
        timeline = vp_timeline_named(&vp_state.timelines, stream);
    if (timeline)
        vp_timeline_destroying(&vp_state.timelines, timeline);
    tidy();
    vp_leave();
}

void vp_api_host_function(CUstream stream) {
    struct vp_timeline *timeline;
    if (!vp_enter())
        return;
    if (!vp_timeline_get(&vp_state.timelines, stream, &timeline))
        vp_timeline_host_func(&vp_state.timelines, timeline);
    vp_leave();
}

/* ---- the end of a thread ---- */

static struct {
    bool made;
    pthread_key_t key;
    struct vp_slab lists; /* of struct vp_list; with the lock held */
} ends;

static __thread struct {
    struct vp_list *streams; /* of vp_timeline.of_thread; NULL: none since its last end. With the lock held */
    bool told;               /* the destructor will run */
} own __attribute__((tls_model("initial-exec")));

static void thread_ends(void *unused) {
    own.told = false;
    if (!vp_enter())
        return;
    if (own.streams) {
        vp_timelines_thread_ended(&vp_state.timelines, own.streams);
        vp_slab_free(&ends.lists, own.streams);
        own.streams = NULL;
    }
    tidy();
    vp_leave();
}

void vp_threads_init(void) {
    ends.made = ends.made || !pthread_key_create(&ends.key, thread_ends);
    vp_slab_init(&ends.lists, sizeof(struct vp_list));
}

struct vp_list *vp_thread_streams(void *user) {
    if (!ends.made)
        return NULL;
    if (!own.streams) {
        if (!(own.streams = vp_slab_alloc(&ends.lists)))
            return NULL;
        vp_list_init(own.streams);
    }
    vp_thread.tells_end = true;
    return own.streams;
}

/* Setting the value may call malloc, which is the program's. */
void vp_thread_left(void) {
    vp_thread.tells_end = false;
    if (!own.told)
        own.told = !pthread_setspecific(ends.key, &own);
}
