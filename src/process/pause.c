/* A device's memory goes to the host and comes back, to the same addresses: vpool_pause() and vpool_resume().
 *
 * By contract the program queues no work on the device meanwhile. Its allocations get new memory then, and what it
 * frees is free once the device resumes.
 *
 *   drain     an event over every context that may touch the memory, asked until it is over or the time is up
 *   still     idle memory goes back, caches forget their blocks, every mapping but the current ones is unmapped
 *   copy      what is live goes to the host
 *   unmap     all of it; if one fails, those before it are mapped again
 *   release   from here on the copy counts
 *
 * Until the release each failure leaves all as it was. Resuming makes and maps everything, or nothing; then it copies
 * back, and a failure there unmaps and releases again: the copy is still there. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/ipc.h"

#include "base/clock.h"
#include "base/os_memory.h"
#include "pool/learnt/ahead.h"
#include "pool/bound.h"
#include "process/carrier.h"

#include <errno.h>
#include <vpool.h>

/* How long the device may take to be done with what is queued, unless the caller says otherwise. */
enum { WAIT_MS = 10000 };

static struct paused {
    bool paused, kept; /* and its contents are in the arena */
    struct vp_span *spans;
    size_t count, bytes, spans_bytes;
    struct vp_arena arena;
} pauses[VP_DEVICES];

/* ---- may it? ---- */

static void note(CUdeviceptr ptr, uint64_t *devices) {
    if (!ptr || !vp_enter())
        return;
    /* The block may begin behind it, where that was rounded down. */
    vp_pools_each(pool) if (vp_space_of(&pool->mem, ptr)) *devices |= UINT64_C(1) << pool->mem.device;
    vp_leave();
}

void vp_api_registered(CUdeviceptr ptr) {
    note(ptr, &vp_state.registered);
    vp_api_tied(VP_TIE_REGISTERED);
}

void vp_api_multicast(CUdeviceptr ptr) {
    note(ptr, &vp_state.multicast);
    vp_api_tied(VP_TIE_MULTICAST);
}

static const char *const OPEN_CAPTURE = "a stream captures";

/* Why not; NULL: it may. */
static VP_LOCKED const char *refusal(const struct vp_pool *pool) {
    const struct vp_import *import;
    if (atomic_load(&vp_state.timelines.captures))
        return OPEN_CAPTURE;
    if (vp_state.ranks)
        return "an NCCL communicator of several ranks was made: its peers may reach this memory at any time";
    if (pool->mem.exported)
        return "memory was exported to another process (cudaIpcGetMemHandle)";
    vp_list_each(import, &vp_state.imports, link)
        if (import->ctx->device == pool->mem.device)
            return "memory of another process is open here (cudaIpcOpenMemHandle)";
    if (vp_state.registered >> pool->mem.device & 1)
        return "memory was registered with a network or another library, or shown to it as a file";
    if (vp_state.multicast >> pool->mem.device & 1)
        return "memory was bound to a multicast object";
    return NULL;
}

static int refuse_with(CUdevice dev, int err, const char *why, const char **reason) {
    *reason = why;
    vp_log(VP_LOG_WARN, "device %d is not paused: %s", (int)dev, why);
    return err;
}

static int refuse(CUdevice dev, const char *why, const char **reason) {
    return refuse_with(dev, why == OPEN_CAPTURE ? -EBUSY : -ENOTSUP, why, reason);
}

/* ---- all is over, and lies still ---- */

static VP_LOCKED int drain(struct vp_pool *pool, uint64_t most_ns) {
    struct vp_fence fence = {0};
    const uint64_t begin = vp_clock_ns();
    int err = vp_barrier_of_all(pool, !vp_timelines_all_named(&vp_state.timelines), &fence);
    while (!err && !vp_fence_settle(&vp_state.timelines, &fence)) {
        uint64_t waited = vp_clock_ns() - begin;
        if (atomic_load(&vp_state.timelines.captures))
            err = -EBUSY;
        else if (waited > most_ns)
            err = -ETIMEDOUT;
        else if (!vp_timelines_poll(&vp_state.timelines, true))
            vp_wait_pause(waited);
    }
    vp_fence_clear(&vp_state.timelines, &fence);
    return err;
}

/* What a cache knows it would hand out, and take back, without the lock. */
static void recall_all(struct vp_pool *pool) {
    const struct vp_space *s;
    struct vp_region *r;
    vp_list_each(s, &pool->mem.spaces, link)
        vp_list_each(r, &s->regions, va)
            if (r->state == VP_LIVE && r->cache)
                vp_stream_cache_recall(r);
}

static VP_LOCKED int list_spans(struct vp_pool *pool, struct paused *p) {
    int err = vp_sleep_begin(&pool->mem, NULL, 0, &p->count, &p->bytes);
    if (err)
        return err;
    p->spans_bytes = vp_round_up((p->count + 1) * sizeof *p->spans, 4096);
    p->spans = vp_os_take(p->spans_bytes);
    return p->spans ? 0 : -ENOMEM;
}

static void forget(struct paused *p) {
    if (p->spans)
        vp_os_give(p->spans, p->spans_bytes);
    vp_arena_ease(&p->arena);
    const struct vp_arena arena = p->arena;
    *p = (struct paused){.arena = arena};
}

static VP_LOCKED int carry(struct vp_pool *pool, struct paused *p, bool out) {
    struct vp_carrier carrier;
    const struct vp_context *ctx = vp_context_on(&vp_state.timelines, pool->mem.device);
    if (!p->bytes)
        return 0;
    if (!ctx)
        return -ENODEV;
    const CUstreamCaptureMode mode = vp_capture_relax(&vp_state.timelines);
    int err = vp_carrier_open(&carrier, &vp_state.drv, ctx, p->bytes);
    if (!err) {
        err = vp_carrier_run(&carrier, p->spans, p->count, p->arena.at, out);
        vp_carrier_close(&carrier);
    }
    vp_capture_restore(&vp_state.timelines, mode);
    return err;
}

/* ---- there ---- */

static VP_LOCKED int go_to_sleep(struct vp_pool *pool, struct paused *p, const struct vpool_pause *how) {
    const char *file = how->contents == VPOOL_FILE ? how->file : NULL;
    vp_bare_forget_bounds(pool);
    int err = list_spans(pool, p);
    p->kept = how->contents != VPOOL_DROP;
    if (!err && p->kept)
        err = vp_arena_take(&p->arena, p->bytes, file);
    if (!err)
        err = vp_sleep_begin(&pool->mem, p->spans, p->count, &p->count, &p->bytes);
    if (err)
        return err;
    if (p->kept)
        err = carry(pool, p, true);
    if (!err)
        err = vp_sleep_unmap(&pool->mem);
    /* Some is unmapped, and cannot be mapped again now: it sleeps, with all that it has. */
    p->paused = !err || err == -ENOTRECOVERABLE;
    if (!err)
        vp_sleep_release(&pool->mem);
    else if (!p->paused)
        vp_sleep_end(&pool->mem);
    return err;
}

static VP_LOCKED int pause_held(struct vp_pool *pool, const struct vpool_pause *how, const char **reason) {
    struct paused *p = &pauses[pool->mem.device];
    const char *why = refusal(pool);
    if (p->paused)
        return -EALREADY;
    if (why)
        return refuse(pool->mem.device, why, reason);
    const uint64_t begin = vp_clock_ns(), most = (how->wait_ms ? how->wait_ms : WAIT_MS) * UINT64_C(1000000);
    int err;
    /* Another thread may be half way through a build, or about to use what its block was promised; and may have begun
     * to while the lock was let go. One that goes on and on is not waited for longer than the device. */
    do {
        const uint64_t gone = vp_clock_ns() - begin;
        err = gone > most ? -ETIMEDOUT : drain(pool, most - gone);
    } while (!err && (vp_bound_wait(pool) || vp_bare_await_all(pool)));
    if (!err && p->paused)
        err = -EALREADY;
    if (err == -EBUSY || (!err && (why = refusal(pool))))
        return refuse(pool->mem.device, why ? why : OPEN_CAPTURE, reason);
    if (err == -ETIMEDOUT)
        return refuse_with(pool->mem.device, err, "its queued work is not done in time", reason);
    if (err)
        return err;
    vp_pool_trim(pool, 0);
    recall_all(pool);
    err = go_to_sleep(pool, p, how);
    if (err == -ENOMEM && !p->paused)
        refuse_with(pool->mem.device, err, "the host has not so much memory", reason);
    if (!p->paused)
        forget(p);
    else
        vp_log(VP_LOG_INFO, "device %d: paused, %.1f MiB of contents %s", (int)pool->mem.device,
               (double)p->bytes / 1048576, p->kept ? "kept" : "dropped");
    return err;
}

/* What a plan's builder has in its hands would stay on the device, and nothing is made as long as the pause lasts. */
static VP_LOCKED int pause_locked(struct vp_pool *pool, const struct vpool_pause *how, const char **reason) {
    vp_ahead_hold_back(pool);
    const int err = pause_held(pool, how, reason);
    if (err == -EALREADY || !pauses[pool->mem.device].paused)
        vp_ahead_go_on(pool);
    return err;
}

/* The first version of the struct ends here. */
static const size_t PAUSE_LEAST = offsetof(struct vpool_pause, reason) + sizeof(const char *);

VP_PUBLIC int vpool_pause_with(int device, struct vpool_pause *how) {
    const char *reason = NULL;
    if (device < 0 || device >= VP_DEVICES || !how || how->size < PAUSE_LEAST || how->contents < VPOOL_KEEP ||
        how->contents > VPOOL_FILE || (how->contents == VPOOL_FILE) != (how->file != NULL))
        return -EINVAL;
    if (!vp_enter())
        return -ENODEV;
    struct vp_pool *pool = vp_state.pools[device];
    const int err = pool ? pause_locked(pool, how, &reason) : -ENODEV;
    vp_leave();
    how->reason = reason;
    return err;
}

VP_PUBLIC int vpool_pause(int device) {
    struct vpool_pause how = {.size = sizeof how};
    return vpool_pause_with(device, &how);
}

/* ---- and back ---- */

/* What was freed meanwhile keeps its place in the arena, and has none on the device. */
static VP_LOCKED void pass_over_freed(const struct vp_pool *pool, struct paused *p) {
    for (size_t i = 0; i < p->count; i++) {
        const struct vp_mapping *m = p->spans[i].addr ? vp_mapping_at(&pool->mem, p->spans[i].addr) : NULL;
        if (!m || !m->chunk->asleep)
            p->spans[i].addr = 0;
    }
}

/* Above that a gibibyte takes the driver's calls as long. */
enum { LARGEST = 128 << 20 };

static VP_LOCKED int wake(struct vp_pool *pool, struct paused *p) {
    const size_t bound = pool->config.handle < LARGEST ? pool->config.handle : LARGEST;
    /* The published policies have sizes of their own. */
    const size_t largest = pool->policy == &vp_policy_vpool ? bound : 0;
    unsigned held_back = pool->mem.held_back;
    int err = vp_sleep_wake(&pool->mem, largest);
    if (err == -ENOMEM && vp_pool_trim(pool, 0) > 0)
        err = vp_sleep_wake(&pool->mem, largest);
    uint64_t begin = 0;
    while (err == -ENOMEM && (vp_borrow_held_back(pool, &held_back) || vp_borrow(pool, pool->mem.asleep_bytes, &begin)))
        err = p->paused ? vp_sleep_wake(&pool->mem, largest) : -EALREADY; /* another thread's may be over */
    if (err)
        return err;
    pass_over_freed(pool, p);
    err = p->kept ? carry(pool, p, false) : 0;
    if (!err)
        err = vp_sleep_end(&pool->mem);
    else if (!vp_sleep_unmap(&pool->mem))
        vp_sleep_release(&pool->mem);
    return err;
}

VP_PUBLIC int vpool_resume(int device) {
    int err = -ENODEV;
    if (device < 0 || device >= VP_DEVICES)
        return -EINVAL;
    if (!vp_enter())
        return err;
    struct vp_pool *pool = vp_state.pools[device];
    struct paused *p = &pauses[device];
    if (pool && !(err = p->paused ? wake(pool, p) : -EALREADY)) {
        forget(p);
        vp_ahead_go_on(pool);
    }
    vp_leave();
    return err;
}
