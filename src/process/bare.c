/* Bare segments: the functions that the doors call.
 *
 * Uses of a small block on pages that are backed take no lock of ours: the cache holds its own. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/bare.h"

#include "process/state.h"

#include "base/clock.h"
#include "pool/bare/bare.h"
#include "pool/parking.h"

#include <errno.h>

atomic_bool vp_bare_pools, vp_bare_beside;

static struct vp_bare *bare_on(CUdevice dev) {
    return dev >= 0 && dev < VP_DEVICES ? atomic_load_explicit(&vp_state.bares[dev], memory_order_acquire) : NULL;
}

static struct vp_bare *bare_of(CUdeviceptr ptr) {
    for (int dev = 0; dev < atomic_load_explicit(&vp_state.bare_count, memory_order_acquire); dev++) {
        struct vp_bare *bare = bare_on(dev);
        if (bare && ptr - bare->base < bare->size)
            return bare;
    }
    return NULL;
}

/* The segment that a block lies in, with all of it. */
static struct vp_bare_segment *segment_of(const struct vp_bare *bare, CUdeviceptr ptr, size_t size) {
    struct vp_bare_segment *segment = vp_bare_at(bare, ptr);
    return segment && size && size <= vp_region_end(&segment->whole) - ptr ? segment : NULL;
}

struct vp_bare *vp_bare_promised_to_caller(void) {
    for (int dev = 0; dev < atomic_load_explicit(&vp_state.bare_count, memory_order_acquire); dev++) {
        struct vp_bare *bare = bare_on(dev);
        if (bare && vp_bare_promised_here(bare))
            return bare;
    }
    return NULL;
}

void vp_bare_lapsed(void) {
    struct vp_bare *bare = vp_bare_promised_to_caller();
    if (bare)
        vp_bare_promise_end(bare);
}

static void publish(struct vp_pool *pool) {
    CUdevice dev = pool->mem.device;
    if (!pool->bare)
        return;
    atomic_store_explicit(&vp_state.bares[dev], pool->bare, memory_order_release);
    if (atomic_load(&vp_state.bare_count) <= dev)
        atomic_store_explicit(&vp_state.bare_count, dev + 1, memory_order_release);
}

/* The device's pool, if memory may move between ordinary allocations and segments: then it is not zero. */
static VP_LOCKED struct vp_pool *pool_of(CUdevice dev) {
    struct vp_pool *pool = vp_options()->ipc == VP_IPC_NATIVE || vp_options()->zero ? NULL : vp_state_pool(dev);
    return pool && pool->policy == &vp_policy_vpool ? pool : NULL;
}

/* The timeline of a stream; NULL: not known. The handle of a thread's own stream is the same in all threads. */
static VP_LOCKED struct vp_timeline *timeline_of(const struct vp_pool *pool, struct vp_bare_stream stream) {
    struct vp_timeline *timeline;
    if (!stream.known || stream.handle == CU_STREAM_PER_THREAD ||
        vp_timeline_get(&vp_state.timelines, stream.handle, &timeline) < 0 ||
        timeline->context->device != pool->mem.device)
        return NULL;
    return timeline;
}

/* ---- traces: the blocks, each with its number ---- */

struct traced {
    uint64_t addr; /* first: the key of traced_blocks */
    uint64_t serial;
    size_t size;
};

static struct vp_table traced_blocks;
static struct vp_slab traced_slab = VP_SLAB(struct traced);

static void trace_used(struct vp_pool *pool, const struct vp_bare_segment *segment, CUdeviceptr ptr, size_t size) {
    struct traced *block = vp_table_get(&traced_blocks, ptr) || vp_table_reserve(&traced_blocks) < 0
                               ? NULL
                               : vp_slab_alloc(&traced_slab);
    if (!block)
        return;
    *block = (struct traced){ptr, ++pool->mem.serial, size};
    vp_table_add(&traced_blocks, block);
    vp_record('a', pool->mem.device, block->serial, size, segment->timeline ? segment->timeline->number : 0);
}

static void trace_unused(const struct vp_pool *pool, const struct vp_bare_segment *segment, CUdeviceptr ptr) {
    struct traced *block = vp_table_take(&traced_blocks, ptr);
    if (!block)
        return;
    vp_record('f', pool->mem.device, block->serial, block->size, segment->timeline ? segment->timeline->number : 0);
    vp_slab_free(&traced_slab, block);
}

/* ---- segments ---- */

static bool captures(void) {
    return atomic_load_explicit(&vp_state.timelines.captures, memory_order_acquire);
}

CUresult vp_bare_segment(CUdeviceptr *out, size_t size, struct vp_bare_stream stream) {
    CUresult res = VP_NOT_OURS;
    if (!out || !size || size > SIZE_MAX / 4 || !vp_enter_briefly())
        return res;
    struct vp_context *ctx = vp_context_current(&vp_state.timelines);
    struct vp_pool *pool = ctx && !ctx->sick ? pool_of(ctx->device) : NULL;
    if (pool && vp_forbidden()) {
        vp_bare_lapsed(); /* no block comes */
        res = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    } else if (pool) {
        struct vp_bare_segment *segment;
        int err = vp_bare_add(pool, vp_round_up(size, pool->mem.granularity), ctx, timeline_of(pool, stream), &segment);
        publish(pool);
        if (!err) {
            segment->handle = stream.handle;
            *out = segment->whole.addr;
        }
        /* Where there is nothing to keep books with, ordinary memory may do. */
        res = err && !pool->bare ? VP_NOT_OURS : vp_result(err, pool, ctx);
    }
    vp_leave();
    return res;
}

bool vp_bare_is_crowded(CUdevice dev, size_t size) {
    struct vp_bare *bare = bare_on(dev);
    if (!bare || captures() || !vp_enter_briefly())
        return false;
    bool crowded = vp_bare_crowded(bare->pool, vp_round_up(size, bare->pool->mem.granularity));
    vp_leave();
    return crowded;
}

bool vp_bare_may_place(CUdevice dev, size_t size) {
    struct vp_bare *bare = bare_on(dev);
    if (!bare || !vp_enter_briefly())
        return bare;
    bool may = bare->pool->mem.exported || vp_bare_has_place(bare, size);
    vp_leave();
    return may;
}

/* ---- room ---- */

/* With the lock held, which waits let go. */
static VP_LOCKED int make_room(struct vp_pool *pool, size_t size, struct vp_bare_stream stream) {
    uint64_t begin = 0, borrows = 0, serial = 0;
    unsigned held_back = pool->mem.held_back;
    bool relieved = false;
    struct vp_timeline *timeline = timeline_of(pool, stream);
    /* The stream may end in the waits, with its device: then the driver is not to be asked by its handle. */
    const uint64_t id = timeline ? timeline->id : 0;
    for (;; timeline = id ? vp_table_get(&vp_state.timelines.by_id, id) : NULL) {
        int err = vp_bare_make_room(pool, size, timeline, relieved);
        const uint64_t moves = vp_state.timelines.moves;
        publish(pool);
        if (err != -ENOMEM)
            return err;
        if (!relieved) {
            vp_ahead_hold_back(pool); /* until what is being made is there */
            vp_ahead_go_on(pool);
            vp_parking_flush(pool, VP_FLUSH_ALL);
            vp_fit_refresh(&pool->mem);
            relieved = true;
            continue;
        }
        if (vp_borrow_held_back(pool, &held_back) || vp_borrow(pool, size, &borrows))
            continue;
        if (!begin && moves == vp_state.timelines.moves && vp_wait_is_hopeless(pool, size))
            return err;
        serial = begin ? serial : vp_state.timelines.recorded;
        begin = begin ? begin : vp_clock_ns();
        uint64_t from = vp_clock_ns();
        bool gained = vp_wait_pending(pool, size, serial, begin, moves);
        vp_pool_waited(pool, vp_clock_ns() - from, !gained);
        if (!gained)
            return err;
    }
}

static void warn(CUdeviceptr ptr, size_t size, int err) {
    vp_log(VP_LOG_WARN, "%zu bytes at %#llx have no memory behind them: %s", size, (unsigned long long)ptr,
           err == -ENOMEM   ? "the device has no more"
           : err == -EAGAIN ? "queued work on idle memory does not end"
                            : "the driver failed to map it");
}

/* The cache has finished with blocks that no room was requested for. What is certain again may serve them. */
static __attribute__((cold)) void forget_unasked(struct vp_bare *bare) {
    if (!vp_enter_briefly())
        return;
    vp_bare_doubt_anew(bare);
    vp_bare_unasked_retry(bare->pool);
    struct vp_bare_unasked lacking = {0};
    while (bare->unasked_count) {
        const struct vp_bare_unasked block = bare->unasked[--bare->unasked_count];
        if (!block.lacks)
            continue;
        lacking = block;
        vp_bare_give_up(bare, block.addr, block.size);
    }
    vp_leave();
    if (lacking.size)
        warn(lacking.addr, lacking.size, -ENOMEM);
}

__attribute__((noinline)) CUresult vp_bare_room_locked(CUdevice dev, size_t size, struct vp_bare_stream stream) {
    CUresult res = VP_NOT_OURS;
    if (!vp_enter_briefly())
        return res;
    struct vp_pool *pool = pool_of(dev);
    if (pool) {
        int err = make_room(pool, size, stream);
        if (err == -ENOMEM)
            pool->mem.stats.ooms++;
        else if (!err)
            vp_bare_promise(pool->bare);
        res = vp_result(err, pool, NULL);
    }
    vp_leave();
    if (res == CUDA_ERROR_OUT_OF_MEMORY)
        vp_watch.out_of_memory(dev, size, UINT64_MAX);
    return res;
}

void vp_bare_unsplit(CUdeviceptr ptr, size_t size) {
    struct vp_bare *bare = bare_of(ptr);
    struct vp_bare_segment *segment = bare ? segment_of(bare, ptr, size) : NULL;
    const size_t page = bare ? bare->pool->mem.granularity : 1;
    if (segment && segment->whole.addr == ptr && vp_round_up(size, page) == segment->whole.size)
        segment->unsplit = bare->unsplit = true;
}

/* The most that a block may get that takes all of an unused segment. Only PyTorch holds that much there. */
static __attribute__((cold)) size_t size_at_most(const struct vp_bare *bare, size_t size,
                                                 struct vp_bare_stream stream) {
    const struct vp_bare_segment *segment;
    if (!vp_enter_briefly())
        return size;
    vp_list_each(segment, &bare->segments, link)
        if (segment->unsplit && !segment->live && (!stream.known || stream.handle == segment->handle) &&
            segment->whole.size > size)
            size = segment->whole.size;
    vp_leave();
    return size;
}

CUresult vp_bare_room(CUdevice dev, size_t size, struct vp_bare_stream stream) {
    struct vp_bare *bare = bare_on(dev);
    if (bare) {
        bare->asked = size;
        if (__builtin_expect(bare->unsplit, false))
            size = size_at_most(bare, size, stream);
        if (__builtin_expect(bare->unasked_count, 0))
            forget_unasked(bare);
        vp_bare_promise(bare);
        if (vp_bare_roomy(bare, size))
            return CUDA_SUCCESS;
        vp_bare_promise_end(bare);
        if (atomic_load_explicit(&vp_bare_beside, memory_order_relaxed) && !vp_bare_may_place(dev, bare->asked))
            return VP_NOT_OURS;
    }
    return vp_bare_room_locked(dev, size, stream);
}

/* ---- blocks ---- */

/* Backs a block. One without a request for room may get its memory later, or be freed before that. */
static VP_LOCKED int back(struct vp_bare *bare, const struct vp_bare_segment *segment, CUdeviceptr ptr, size_t size) {
    const bool asked = vp_bare_promised_here(bare);
    if (atomic_load(&bare->promised_to) != vp_thread_id())
        vp_bare_doubt_anew(bare);
    const bool is_new = !asked && vp_bare_unasked_is_new(bare, ptr, size);
    const uint64_t serial = segment->whole.serial;
    unsigned held_back = bare->pool->mem.held_back;
    uint64_t begin = 0;
    int err = vp_bare_back_waiting(bare->pool, ptr, size);
    /* Another process took what the device had when room was made. Nobody can refuse the block any more. */
    for (bool more = asked; more && err == -ENOMEM;) {
        more = vp_borrow_held_back(bare->pool, &held_back) || vp_borrow(bare->pool, size, &begin);
        const bool there = segment_of(bare, ptr, size) == segment && segment->whole.serial == serial;
        err = !there ? -ENODEV : more ? vp_bare_back_waiting(bare->pool, ptr, size) : err;
    }
    if (!asked && (is_new || err == -ENOMEM) && err != -ENODEV &&
        vp_bare_unasked_add(bare, ptr, size, is_new, err == -ENOMEM) && err == -ENOMEM)
        err = -EINPROGRESS;
    bare->idle_listed &= asked; /* what is in doubt was passed over */
    return err;
}

/* A block that is used now, and by whom. */
struct use {
    struct vp_bare *bare;
    struct vp_bare_segment *segment;
    CUdeviceptr ptr;
    size_t size;
    size_t asked;             /* what room was asked for last, unless 0 */
    size_t more;              /* pages that are used since, a count */
    bool backed, pins, other; /* its pages have memory; its segment is to be pinned; another stream's it is */
};

/* Counts it. True: nothing else is to be done. */
static inline bool count_use(struct use *u, struct vp_bare_stream stream) {
    const size_t used = atomic_load_explicit(&u->bare->used, memory_order_relaxed);
    u->asked = u->bare->asked;
    u->backed = vp_bare_use(u->bare, u->ptr, u->size);
    u->more = atomic_load_explicit(&u->bare->used, memory_order_relaxed) - used;
    u->pins = captures() && !u->segment->pinned;
    u->other = u->segment->timeline && (captures() || (stream.known && stream.handle != u->segment->handle));
    return u->backed && !u->pins && !u->other && !u->segment->pinned && !vp_state.recording;
}

/* Does the rest, for a block whose segment still exists. */
static VP_LOCKED int settle_use(const struct use *u, struct vp_bare_stream stream) {
    struct vp_pool *pool = u->bare->pool;
    int err = 0;
    /* Not a graph's either, which may be launched on any: one that captures is not known. */
    if (u->other && timeline_of(pool, stream) != u->segment->timeline)
        vp_bare_forget_stream(pool, u->segment);
    if (!u->backed) {
        const size_t need = vp_bare_need(u->bare, u->ptr, u->size);
        const bool came = vp_bare_promised_here(u->bare);
        u->bare->owed += need;
        err = back(u->bare, u->segment, u->ptr, u->size);
        /* Of a pool that splits no blocks it may be larger than what there is memory for: the program uses no more than
         * it has asked for. */
        if (err == -ENOMEM && came && u->asked && u->asked < u->size &&
            !(err = vp_bare_back_waiting(u->bare->pool, u->ptr, u->asked)))
            vp_bare_give_up(u->bare, u->ptr, u->size);
        u->bare->owed -= need;
        if (err && err != -ENODEV && err != -EINPROGRESS)
            vp_bare_give_up(u->bare, u->ptr, u->size);
    } else if (u->segment->pinned) { /* none of it was idle */
        vp_bare_count_held(u->bare, u->more);
    }
    if (u->pins && err != -ENODEV)
        vp_bare_pin_segment(pool, u->segment);
    if (vp_state.recording && err != -ENODEV)
        trace_used(pool, u->segment, u->ptr, u->size);
    return err;
}

/* With VPOOL_CHECK other threads look at all of the pool, under the lock: what is counted page by page is counted under
 * it then. To wait until it is backed lets the lock go, and says so (vp_bare.owed). */
static inline bool counts_locked(const struct vp_bare *bare) {
    return __builtin_expect(bare->pool->config.check, false);
}

/* Does the rest of a use that is more than counted; or, if `later`, that is not counted yet. */
static __attribute__((noinline)) bool use_locked(struct use *u, struct vp_bare_stream stream, bool later) {
    struct vp_bare *bare = u->bare;
    bool done = false;
    /* Others who want memory may have the lock for long, one after the other, and wait for this one no less. */
    atomic_store(&bare->has_come, true);
    if (!vp_enter_briefly()) {
        atomic_store(&bare->has_come, false);
        if (later)
            vp_bare_use(bare, u->ptr, u->size);
        return true;
    }
    int err = segment_of(bare, u->ptr, u->size) == u->segment ? 0 : -ENODEV;
    if (later && !err)
        done = count_use(u, stream);
    if (!done && !err)
        err = settle_use(u, stream);
    vp_bare_promise_end(bare);
    atomic_store(&bare->has_come, false);
    if (!done && !err)
        vp_pool_verify(bare->pool);
    vp_leave();
    if (err && err != -ENODEV && err != -EINPROGRESS) /* -ENODEV: it went with its context, nobody may use it */
        warn(u->ptr, u->size, err);
    return true;
}

bool vp_bare_used(CUdeviceptr ptr, size_t size, struct vp_bare_stream stream) {
    struct vp_bare *bare = bare_of(ptr);
    struct use u = {.bare = bare, .segment = bare ? segment_of(bare, ptr, size) : NULL, .ptr = ptr, .size = size};
    if (!u.segment) { /* the block has come to lie in a segment that has memory */
        vp_bare_lapsed();
        return false;
    }
    const bool later = counts_locked(bare);
    if (stream.known && atomic_load_explicit(&bare->doubted_at, memory_order_relaxed)) /* no pool is being set back */
        vp_bare_proceed(bare);
    if (__builtin_expect(later || !count_use(&u, stream), false))
        return use_locked(&u, stream, later);
    vp_bare_promise_end(bare);
    return true;
}

/* A block is freed, and nothing else has to be noted about it. False: it is large, and something has. */
static inline bool count_unuse(struct vp_bare *bare, const struct vp_bare_segment *segment, CUdeviceptr ptr,
                               size_t size) {
    if (size >= VP_BARE_LARGE)
        return vp_bare_unuse_large(bare, segment, ptr, size);
    vp_bare_unuse(bare, ptr, size);
    return true;
}

static __attribute__((noinline)) bool unuse_locked(struct vp_bare *bare, struct vp_bare_segment *segment,
                                                   CUdeviceptr ptr, size_t size, bool barrier, bool counts) {
    atomic_store(&bare->has_come, true);
    if (!vp_enter_briefly()) {
        atomic_store(&bare->has_come, false);
        vp_bare_unuse(bare, ptr, size);
        return true;
    }
    const bool there = segment_of(bare, ptr, size) == segment;
    if (!(counts && there && count_unuse(bare, segment, ptr, size))) {
        if (barrier)
            vp_bare_others_use(bare);
        const bool later = vp_bare_unuse_locked(bare->pool, ptr, size, barrier);
        if (vp_state.recording && there)
            trace_unused(bare->pool, segment, ptr);
        if (bare->unasked_count)
            vp_bare_unasked_left(bare->pool, ptr, size);
        if (later)
            vp_bare_unasked_add(bare, ptr, size, false, false);
        vp_pool_verify(bare->pool);
    }
    atomic_store(&bare->has_come, false);
    vp_leave();
    return true;
}

bool vp_bare_unused(CUdeviceptr ptr, size_t size, bool barrier) {
    struct vp_bare *bare = bare_of(ptr);
    struct vp_bare_segment *segment = bare ? segment_of(bare, ptr, size) : NULL;
    if (!segment)
        return false;
    if (atomic_load_explicit(&vp_bare_pools, memory_order_relaxed))
        vp_bare_doubt(bare, segment);
    const bool plain = !barrier && !captures() && !segment->pinned && !segment->pins_pages && !vp_state.recording &&
                       !bare->unasked_count;
    const bool later = counts_locked(bare);
    if (__builtin_expect(plain && !later && count_unuse(bare, segment, ptr, size), true))
        return true;
    return unuse_locked(bare, segment, ptr, size, barrier, plain && later);
}

bool vp_bare_refused(CUdevice dev, CUdeviceptr ptr, size_t size) {
    struct vp_bare *bare = bare_of(ptr);
    if (__builtin_expect(!bare || !segment_of(bare, ptr, size) || !vp_bare_lacking(bare, ptr, size), true))
        return false;
    vp_bare_unused(ptr, size, false);
    if (vp_enter_briefly()) {
        bare->pool->mem.stats.ooms++;
        vp_leave();
    }
    vp_watch.out_of_memory(dev, size, UINT64_MAX);
    return true;
}

CUresult vp_bare_pin(CUdeviceptr ptr, size_t size) {
    struct vp_bare *bare = bare_of(ptr);
    if (!bare || !vp_enter())
        return VP_NOT_OURS;
    CUresult res = VP_NOT_OURS;
    const struct vp_bare_segment *segment = vp_bare_at(bare, ptr);
    if (segment) {
        CUdeviceptr begin = size ? ptr : segment->whole.addr, most = vp_region_end(&segment->whole);
        CUdeviceptr end = size && size < most - begin ? begin + size : most;
        int err = vp_bare_pin_range(bare->pool, begin, end - begin);
        res = err == -ENODEV ? VP_NOT_OURS : vp_result(err, bare->pool, NULL); /* it was freed meanwhile */
    }
    vp_leave();
    return res;
}
