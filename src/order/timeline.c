#include "order/order.h"

#include "base/cancel.h"
#include "base/clock.h"

#include <errno.h>

void vp_lines_init(struct vp_lines *ls, const struct vp_driver *drv) {
    *ls = (struct vp_lines){ .drv = drv, .barriers = drv->cuCtxRecordEvent != NULL };
    vp_list_init(&ls->contexts);
    vp_list_init(&ls->pending);
    vp_list_init(&ls->ended);
    vp_list_init(&ls->capturing);
    vp_slab_init(&ls->line_slab, sizeof(struct vp_line));
    vp_slab_init(&ls->event_slab, sizeof(struct vp_event));
    vp_slab_init(&ls->context_slab, sizeof(struct vp_context));
    vp_slab_init(&ls->point_slab, sizeof(struct vp_point));
}

void vp_lines_finish(struct vp_lines *ls) {
    struct vp_context *ctx;
    struct vp_line *line;
    vp_list_each(ctx, &ls->contexts, link)
        vp_list_each(line, &ctx->lines, of_context)
            vp_list_remove(&line->of_thread);
    vp_slab_finish(&ls->line_slab);
    vp_slab_finish(&ls->event_slab);
    vp_slab_finish(&ls->context_slab);
    vp_slab_finish(&ls->point_slab);
    vp_table_finish(&ls->by_id);
    vp_table_finish(&ls->by_handle);
}

CUstreamCaptureMode vp_capture_relax(const struct vp_lines *ls) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    ls->drv->cuThreadExchangeStreamCaptureMode(&mode);
    return mode;
}

void vp_capture_restore(const struct vp_lines *ls, CUstreamCaptureMode mode) {
    ls->drv->cuThreadExchangeStreamCaptureMode(&mode);
}

/* ---- time spent in calls ---- */

/* A look at the clock takes a third as long as the calls that are timed here: one call in so many counts for all. */
enum { TIMED = 16 };

static uint64_t timer_begin(struct vp_lines *ls) {
    return ls->calls++ % TIMED ? 0 : vp_clock_ns();
}

static void timer_end(struct vp_context *ctx, uint64_t begin) {
    if (begin)
        ctx->stats.ns += TIMED * (vp_clock_ns() - begin);
}

/* ---- events ---- */

/* Legacy and per-thread are names relative to the current context. */
static bool stream_enter(const struct vp_lines *ls, const struct vp_context *ctx, CUstream stream) {
    return (uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD && vp_context_enter(ls, ctx);
}

static struct vp_event *event_take(struct vp_lines *ls, struct vp_context *ctx) {
    if (!vp_list_empty(&ctx->spare)) {
        struct vp_event *ev = vp_container_of(ctx->spare.next, struct vp_event, link);
        vp_list_remove(&ev->link);
        ev->dropped = false;
        return ev;
    }
    struct vp_event *ev = vp_slab_alloc(&ls->event_slab);
    if (!ev)
        return NULL;
    vp_list_init(&ev->link);
    ev->context = ctx;
    vp_cancel_hold();
    bool entered = vp_context_enter(ls, ctx);
    CUresult res = ls->drv->cuEventCreate(&ev->handle, CU_EVENT_DISABLE_TIMING);
    vp_context_leave(ls, entered);
    if (res) {
        vp_slab_free(&ls->event_slab, ev);
        return NULL;
    }
    return ev;
}

void vp_event_recycle(struct vp_lines *ls, struct vp_event *ev) {
    vp_list_remove(&ev->link);
    if (ev->refs)
        ev->dropped = true;
    else if (ev->context->gone)
        vp_slab_free(&ls->event_slab, ev);
    else
        vp_list_insert(&ev->context->spare, &ev->link);
}

void vp_event_put(struct vp_lines *ls, struct vp_event *ev) {
    if (--ev->refs == 0 && ev->dropped)
        vp_event_recycle(ls, ev);
}

static void line_pend(struct vp_lines *ls, struct vp_line *line) {
    if (vp_list_empty(&line->pending))
        vp_list_append(&ls->pending, &line->pending);
}

void vp_line_met(struct vp_line *line, uint64_t seq) {
    if (seq > line->met)
        line->met = seq;
    if (line->host_func && line->met >= line->host_func) {
        line->host_func = 0;
        line->context->registry->host_funcs--;
    }
    if (vp_line_covered(line) && line->met >= line->context->cover)
        line->context->cover = 0;
}

bool vp_stream_captures(const struct vp_lines *ls, CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    /* The legacy stream answers 906 while a blocking stream captures: an event there would destroy that capture. */
    return ls->drv->cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool vp_line_captures(struct vp_lines *ls, CUstream stream) {
    return atomic_load_explicit(&ls->captures, memory_order_acquire) > 0 && vp_stream_captures(ls, stream);
}

/* How many of the lines that ended a sweep looks at: more than end between two of them. */
enum { SWEPT = 16 };

/* Lines that are gone and no longer named. Freed only here, so that no free index vanishes while a region is being refiled. */
static void sweep(struct vp_lines *ls) {
    for (int i = 0; i < SWEPT && !vp_list_empty(&ls->ended); i++) {
        struct vp_line *line = vp_container_of(ls->ended.next, struct vp_line, pending);
        vp_list_remove(&line->pending);
        if (line->refs) {
            vp_list_append(&ls->ended, &line->pending);
            continue;
        }
        if (ls->retire)
            ls->retire(ls->user, line);
        vp_list_remove(&line->of_context);
        vp_slab_free(&ls->line_slab, line);
        ls->lingering--;
    }
}

/* Takes a line off the pending list if there is nothing left to ask. */
void vp_line_quiet(struct vp_lines *ls, struct vp_line *line) {
    if (!vp_list_empty(&line->events) || line->open || vp_line_covered(line))
        return;
    vp_list_remove(&line->pending);
    if (line->gone)
        vp_list_append(&ls->ended, &line->pending);
}

bool vp_lines_linger(struct vp_lines *ls) {
    /* Twice as many as were left the last time: what cannot come free yet is not looked at again and again. */
    if (ls->lingering < ls->tidy_at)
        return false;
    ls->tidy_at = 2 * ls->lingering;
    return true;
}

/* Can the calling thread name this line's stream? Of per-thread streams it can name its own only; the id tells, a thread's handle may come back. */
bool vp_line_nameable(const struct vp_lines *ls, const struct vp_line *line) {
    if (line->kind != VP_LINE_STREAM || line->gone || line->lost || !line->per_thread)
        return line->kind == VP_LINE_STREAM && !line->gone && !line->lost;
    unsigned long long id = 0;
    bool entered = vp_context_enter(ls, line->context);
    CUresult res = ls->drv->cuStreamGetId(CU_STREAM_PER_THREAD, &id);
    vp_context_leave(ls, entered);
    return !res && id + 1 == line->id;
}

static bool event_done(struct vp_lines *ls, struct vp_event *ev) {
    ev->context->stats.queries++;
    CUresult res = ls->drv->cuEventQuery(ev->handle);
    if (res && res != CUDA_ERROR_NOT_READY)
        vp_context_failed(ev->context, res);
    return res == CUDA_SUCCESS;
}

/* Asks the line's events, oldest first, until one has not completed. Where the oldest has, often all have: the newest tells. */
static bool line_poll(struct vp_lines *ls, struct vp_line *line) {
    uint64_t before = line->met, begin = timer_begin(ls);
    bool all = false;
    while (!vp_list_empty(&line->events) && !line->context->ending) {
        struct vp_event *ev = vp_container_of(line->events.next, struct vp_event, link);
        struct vp_event *newest = vp_container_of(line->events.prev, struct vp_event, link);
        if (!all && !event_done(ls, ev))
            break;
        if (!all && line->met == before && newest != ev)
            all = event_done(ls, newest);
        vp_line_met(line, ev->seq);
        line->event_count--;
        vp_event_recycle(ls, ev);
    }
    timer_end(line->context, begin);
    ls->moves += line->met != before;
    return line->met != before;
}

/* Events that a line may have pending before it asks whether some are done, though nobody wants to know: each costs the driver some memory. */
enum { EVENTS_SPARE = 64 };

/* Of the two handles that a call was given, is it the stream's that is none? Where contexts have no ids this must not pass for the end of the event's context. */
static bool stream_lost(const struct vp_lines *ls, const struct vp_event *ev, CUresult res) {
    return res == CUDA_ERROR_INVALID_HANDLE && ls->drv->cuEventQuery(ev->handle) != CUDA_ERROR_INVALID_HANDLE;
}

/* The context may have ended, or the stream, by a route without a door: then never again, or over the context the next time. */
static void record_failed(struct vp_lines *ls, struct vp_line *line, struct vp_event *ev, CUresult res) {
    bool lost = stream_lost(ls, ev, res);
    if ((!lost || line->context->id) && vp_context_died(line->context, res))
        return;
    if (lost && line->kind == VP_LINE_STREAM && !line->gone && (uintptr_t)line->stream > (uintptr_t)CU_STREAM_PER_THREAD)
        line->lost = true;
}

/*
 * Records the line's next event, after everything that it has queued so far: on its stream, or over the whole context where this thread cannot name
 * the stream (another thread's per-thread stream, a destroyed one). Drivers without context barriers have the legacy stream for that, which covers all but the
 * non-blocking ones. Fails while a capture forbids it; the points then stay open.
 *
 * `late`: not within a call of the program's on that stream. An event on the legacy stream makes later work of blocking streams wait for earlier work of others, which may in turn
 * wait for it: the program has not asked for that, and could hang by it. A barrier holds nothing up.
 */
static int record(struct vp_lines *ls, struct vp_line *line, bool late) {
    struct vp_context *ctx = line->context;
    if (ctx->ending)
        return -EBUSY;
    CUstream stream = line->stream;
    bool over_context = false;
    if (!vp_line_nameable(ls, line)) {
        if (!ls->barriers && line->kind == VP_LINE_STREAM && line->nonblocking)
            return -EBUSY;
        over_context = ls->barriers;
        stream = CU_STREAM_LEGACY;
    }
    bool capturing = atomic_load_explicit(&ls->captures, memory_order_acquire) > 0, joins = late && line->stream == CU_STREAM_LEGACY;
    if (joins && !capturing)
        over_context |= ls->barriers;
    else if (joins && !vp_lines_blocking_idle(ls, ctx))
        return -EBUSY;
    bool entered = !over_context && stream_enter(ls, ctx, stream);
    struct vp_event *ev = NULL;
    int err = capturing && (over_context || vp_stream_captures(ls, stream)) ? -EBUSY : 0;
    if (!err && !(ev = event_take(ls, ctx)))
        err = -ENOMEM;
    if (!err) {
        uint64_t begin = timer_begin(ls);
        CUresult res = over_context ? ls->drv->cuCtxRecordEvent(ctx->handle, ev->handle) : ls->drv->cuEventRecord(ev->handle, stream);
        timer_end(ctx, begin);
        ctx->stats.barriers += over_context;
        ctx->stats.records += !over_context;
        err = res ? -EIO : 0;
        if (res)
            record_failed(ls, line, ev, res);
    }
    vp_context_leave(ls, entered);
    if (err) {
        if (ev)
            vp_event_recycle(ls, ev);
        return err;
    }
    ev->seq = line->next++;
    ev->serial = ++ls->recorded;
    line->open = false;
    vp_list_append(&line->events, &ev->link);
    line_pend(ls, line);
    if (++line->event_count > line->ask_at) {
        line_poll(ls, line);
        line->ask_at = 2 * line->event_count + EVENTS_SPARE;
    }
    return 0;
}

int vp_line_record(struct vp_lines *ls, struct vp_line *line) {
    return record(ls, line, false);
}

void vp_line_host_func(struct vp_lines *ls, struct vp_line *line) {
    if (!line->host_func && !ls->host_funcs++)
        ls->host_funcs_from = ls->recorded;
    line->host_func = line->next;
    line->open = true;
    line_pend(ls, line);
}

bool vp_lines_waiting(const struct vp_lines *ls, uint64_t serial) {
    const struct vp_line *line;
    vp_list_each(line, &ls->pending, pending)
        if (!vp_list_empty(&line->events) && !line->context->sick && !line->context->lost &&
            vp_container_of(line->events.next, struct vp_event, link)->serial <= serial)
            return true;
    return false;
}

bool vp_lines_open(const struct vp_lines *ls) {
    const struct vp_line *line;
    vp_list_each(line, &ls->pending, pending)
        if (line->open || vp_line_covered(line))
            return true;
    return false;
}

void vp_lines_settle(struct vp_lines *ls, uint64_t ns) {
    uint64_t begin = vp_clock_ns();
    do
        vp_lines_poll(ls, true);
    while (vp_lines_waiting(ls, ls->recorded) && vp_clock_ns() - begin < ns);
}

bool vp_lines_poll(struct vp_lines *ls, bool flush) {
    bool moved = false;
    struct vp_line *line, *tmp;
    int mode = vp_lines_relax(ls);
    sweep(ls);
    vp_list_each_safe(line, tmp, &ls->pending, pending) {
        if (flush && (line->open || (vp_line_covered(line) && vp_list_empty(&line->events))))
            record(ls, line, line->kind == VP_LINE_STREAM);
        moved |= line_poll(ls, line);
        vp_line_quiet(ls, line);
    }
    vp_lines_restore(ls, mode);
    return moved;
}

/* ---- streams ---- */

/* Lines of streams that ended in a way nobody told us of go when their context does. */
int vp_line_get(struct vp_lines *ls, CUstream stream, struct vp_line **out) {
    unsigned long long id;
    if (vp_line_captures(ls, stream))
        return -EBUSY;
    if (ls->drv->cuStreamGetId(stream, &id))
        return -ENODEV;
    struct vp_line *line = vp_table_get(&ls->by_id, id + 1);
    if (line) {
        *out = line;
        return 0;
    }
    CUcontext handle;
    unsigned flags = 0;
    vp_cancel_hold();
    if (ls->drv->cuStreamGetCtx(stream, &handle))
        return -ENODEV;
    struct vp_context *ctx = vp_context_get(ls, handle);
    /* What is queued in a new context must not hang on one that ended unseen, and had its handle: with that one's points it would count as done. */
    if (ctx)
        vp_context_check(ls, ctx);
    if (ctx && ctx->lost)
        ctx = vp_context_get(ls, handle);
    if (!ctx)
        return -ENODEV;
    ls->drv->cuStreamGetFlags(stream, &flags);
    if (vp_table_reserve(&ls->by_id) < 0 || !(line = vp_line_new(ls, ctx, VP_LINE_STREAM, id + 1)))
        return -ENOMEM;
    line->stream = stream ? stream : CU_STREAM_LEGACY;
    line->per_thread = stream == CU_STREAM_PER_THREAD;
    line->nonblocking = flags & CU_STREAM_NON_BLOCKING;
    line->number = ++ls->streams_seen;
    struct vp_list *own = line->per_thread && ls->of_thread ? ls->of_thread(ls->user) : NULL;
    if (own)
        vp_list_append(own, &line->of_thread);
    vp_table_add(&ls->by_id, line);
    *out = line;
    return 0;
}

struct vp_line *vp_line_capturing(const struct vp_lines *ls, CUstream stream) {
    struct vp_line *line;
    vp_list_each(line, &ls->capturing, capturing)
        if (line->stream == stream && !line->per_thread && !line->context->ending)
            return line;
    return NULL;
}

void vp_line_capture_over(struct vp_lines *ls, struct vp_line *line) {
    line->rest = 0;
    if (vp_list_empty(&line->capturing))
        return;
    vp_list_remove(&line->capturing);
    atomic_fetch_sub(&ls->captures, 1);
}

void vp_line_capture(struct vp_lines *ls, struct vp_line *line, bool begins) {
    if (!begins) {
        vp_line_capture_over(ls, line);
        return;
    }
    /* Another stream may be capturing already. */
    int mode = vp_lines_relax(ls);
    line->rest = vp_line_record(ls, line) == 0 ? line->next - 1 : 0;
    vp_lines_restore(ls, mode);
    vp_list_append(&ls->capturing, &line->capturing);
    atomic_fetch_add(&ls->captures, 1);
}

/* ---- ends ---- */

/* Lines that are gone, from which on the first look is taken whether they might come free. */
enum { LINGER = 64 };

void vp_line_gone(struct vp_lines *ls, struct vp_line *line) {
    struct vp_context *ctx = line->context;
    line->gone = true;
    vp_list_remove(&line->of_thread);
    if (line->kind == VP_LINE_STREAM)
        vp_table_take(&ls->by_id, line->id);
    vp_line_capture_over(ls, line);
    /* What it has still queued, the barrier alone tells. */
    if (line->kind == VP_LINE_STREAM)
        ctx->uncovered = ctx->barrier->next;
    if (!ls->lingering++ && ls->tidy_at < LINGER)
        ls->tidy_at = LINGER;
}

void vp_line_destroying(struct vp_lines *ls, struct vp_line *line) {
    if (ls->closing)
        ls->closing(ls->user, line);
    int mode = vp_lines_relax(ls);
    if (line->open)
        vp_line_record(ls, line);
    vp_lines_restore(ls, mode);
    vp_line_gone(ls, line);
    sweep(ls);
    vp_line_quiet(ls, line);
}

void vp_lines_thread_ended(struct vp_lines *ls, struct vp_list *own) {
    struct vp_line *line, *next;
    vp_list_each_safe(line, next, own, of_thread) {
        if (ls->closing)
            ls->closing(ls->user, line);
        vp_line_gone(ls, line);
        vp_line_quiet(ls, line);
    }
    sweep(ls);
}

/* ---- conditions ---- */

static bool point_met(const struct vp_point *p) {
    return p->seq <= p->line->met;
}

static void point_drop(struct vp_point *p) {
    p->line->refs--;
}

void vp_line_drop_points(struct vp_line *line, size_t n) {
    line->refs -= n;
}

/* Adds a point, replacing one of the same line that it covers. Needs a spare point in the slab. */
static void cond_add(struct vp_lines *ls, vp_cond *cond, struct vp_line *line, uint64_t seq, bool own) {
    if (!cond->line) {
        *cond = (vp_cond){ .line = line, .seq = seq, .own = own };
        line->refs++;
        return;
    }
    struct vp_point *p = cond;
    for (; p; p = p->next) {
        if (p->line != line)
            continue;
        /* The union of two points of one line is the later; its event is late for the bytes of the earlier, unless that is met. */
        bool both = p->seq == seq;
        bool clean = both ? p->own && own : point_met(p) ? own : false;
        if (seq >= p->seq) {
            p->seq = seq;
            p->own = clean;
        } else {
            p->own = 0;
        }
        return;
    }
    p = vp_slab_alloc(&ls->point_slab);
    if (!p) {
        /* Never laxer for want of memory: the first point becomes one that only the end of its context reaches. */
        cond->seq = UINT64_MAX >> 2;
        cond->own = 0;
        return;
    }
    *p = (struct vp_point){ .line = line, .seq = seq, .own = own, .next = cond->next };
    cond->next = p;
    line->refs++;
}

static int cond_reserve(struct vp_lines *ls, const vp_cond *more) {
    size_t n = 0;
    for (const struct vp_point *p = more; p && p->line; p = p->next)
        n++;
    return n ? vp_slab_reserve(&ls->point_slab, n) : 0;
}

int vp_cond_free(struct vp_lines *ls, vp_cond *cond, struct vp_line *line, bool record) {
    if (vp_slab_reserve(&ls->point_slab, 1) < 0)
        return -ENOMEM;
    if (record) {
        int mode = vp_lines_relax(ls);
        int err = vp_line_record(ls, line);
        vp_lines_restore(ls, mode);
        if (!err) {
            cond_add(ls, cond, line, line->next - 1, true);
            return 0;
        }
    }
    line->open = true;
    line_pend(ls, line);
    cond_add(ls, cond, line, line->next, false);
    return 0;
}

void vp_cond_late(struct vp_lines *ls, vp_cond *cond, struct vp_line *line) {
    if (line->context->gone)
        return;
    line->open = true;
    line_pend(ls, line);
    cond_add(ls, cond, line, line->next, false);
}

/* The point behind all real work of a stream that captures. */
static int cond_at_rest(struct vp_lines *ls, vp_cond *cond, struct vp_line *line) {
    int err = vp_slab_reserve(&ls->point_slab, 1);
    if (!err)
        cond_add(ls, cond, line, line->rest, false);
    return err;
}

/* Without context barriers, the barrier line is the legacy stream; each non-blocking stream needs its own event beside it. */
int vp_cond_barrier(struct vp_lines *ls, vp_cond *cond, struct vp_context *ctx, bool record) {
    struct vp_line *line;
    int err = vp_cond_free(ls, cond, ctx->barrier, record);
    if (!ls->barriers)
        vp_list_each(line, &ctx->lines, of_context)
            if (!err && line->nonblocking && !line->gone)
                err = line->rest ? cond_at_rest(ls, cond, line) : vp_cond_free(ls, cond, line, record);
    return err;
}

int vp_cond_unite(struct vp_lines *ls, vp_cond *to, const vp_cond *from) {
    int err = cond_reserve(ls, from);
    if (err)
        return err;
    for (const struct vp_point *p = from; p && p->line; p = p->next)
        cond_add(ls, to, p->line, p->seq, p->own);
    return 0;
}

int vp_cond_copy(struct vp_lines *ls, vp_cond *to, const vp_cond *from) {
    *to = (vp_cond){ 0 };
    return vp_cond_unite(ls, to, from);
}

void vp_cond_clear(struct vp_lines *ls, vp_cond *cond) {
    if (!cond->line)
        return;
    for (struct vp_point *p = cond->next, *next; p; p = next) {
        next = p->next;
        point_drop(p);
        vp_slab_free(&ls->point_slab, p);
    }
    cond->next = NULL;
    point_drop(cond);
    cond->line = NULL;
}

bool vp_cond_same(const vp_cond *a, const vp_cond *b) {
    if (!a->line || !b->line)
        return a->line == b->line;
    return a->line == b->line && a->seq == b->seq && a->own == b->own && !a->next && !b->next;
}

bool vp_cond_settle(struct vp_lines *ls, vp_cond *cond) {
    if (!cond->line)
        return true;
    for (struct vp_point **link = &cond->next; *link;) {
        struct vp_point *p = *link;
        if (point_met(p)) {
            *link = p->next;
            point_drop(p);
            vp_slab_free(&ls->point_slab, p);
        } else {
            link = &p->next;
        }
    }
    if (!point_met(cond))
        return false;
    point_drop(cond);
    struct vp_point *p = cond->next;
    if (!p) {
        cond->line = NULL;
        return true;
    }
    *cond = *p;
    vp_slab_free(&ls->point_slab, p);
    return false;
}

/* Does work of `line` come after the point by itself: on the same stream, or with the point met? */
static bool line_behind(const struct vp_line *line, const struct vp_point *p) {
    return p->line == line || point_met(p);
}

/*
 * Did `line` wait for the point, or a later one, before? Saves a wait, and no more: what a request may use must not hang on a cache that forgets, nor on a late
 * point that unites with a later one before the block is taken.
 */
static bool line_waited(const struct vp_line *line, const struct vp_point *p) {
    for (unsigned i = 0; i < VP_SEEN; i++)
        if (line->seen[i].birth == p->line->birth && line->seen[i].seq >= p->seq)
            return true;
    return false;
}

bool vp_cond_ready(const vp_cond *cond, const struct vp_line *line) {
    for (const struct vp_point *p = cond; p && p->line; p = p->next)
        if (!line_behind(line, p))
            return false;
    return true;
}

/* The event of exactly that point: mostly of the last ones. */
static struct vp_event *point_event(const struct vp_point *p) {
    for (const struct vp_list *at = p->line->events.prev; at != &p->line->events; at = at->prev) {
        struct vp_event *ev = vp_container_of(at, struct vp_event, link);
        if (ev->seq <= p->seq)
            return ev->seq == p->seq ? ev : NULL;
    }
    return NULL;
}

/* May the point hang on a host function? That of another stream will do, if its own stream waits for that one. */
static bool point_held_up(const struct vp_point *p) {
    const struct vp_lines *ls = p->line->context->registry;
    const struct vp_event *ev = ls->host_funcs ? point_event(p) : NULL;
    return ls->host_funcs && (!ev || ev->serial > ls->host_funcs_from);
}

bool vp_cond_waitable(const vp_cond *cond, const struct vp_line *line, bool early) {
    for (const struct vp_point *p = cond; p && p->line; p = p->next)
        if (!line_behind(line, p) && (!p->own || p->line->context->ending || (early && point_held_up(p))))
            return false;
    return line != NULL;
}

bool vp_cond_host_waitable(const vp_cond *cond) {
    for (const struct vp_point *p = cond; p && p->line; p = p->next)
        if (!point_met(p) && !(p->own && p->line->kind == VP_LINE_BARRIER && !p->line->context->ending))
            return false;
    return true;
}

int vp_cond_wait(struct vp_lines *ls, const vp_cond *cond, struct vp_line *line) {
    for (const struct vp_point *p = cond; p && p->line; p = p->next) {
        if (line_behind(line, p) || line_waited(line, p))
            continue;
        struct vp_event *ev = point_event(p);
        if (!ev || !p->own)
            return -EBUSY;
        uint64_t begin = timer_begin(ls);
        bool entered = stream_enter(ls, line->context, line->stream);
        /* Its capture may have begun while memory was waited for without the lock; a wait for work outside would destroy it. */
        bool captures = vp_line_captures(ls, line->stream);
        CUresult res = captures ? CUDA_SUCCESS : ls->drv->cuStreamWaitEvent(line->stream, ev->handle, 0);
        vp_context_leave(ls, entered);
        timer_end(line->context, begin);
        if (captures)
            return -EBUSY;
        line->context->stats.waits++;
        /* What ended unseen is over, and nothing is left to wait for. */
        if (res && vp_context_died(p->line->context, res))
            continue;
        if (res) {
            /* It may be the other side that fails: a request of this one goes on without it. */
            vp_context_failed(p->line->context, res);
            return p->line->context == line->context ? -EIO : -EBUSY;
        }
        line->seen[line->seen_at].birth = p->line->birth;
        line->seen[line->seen_at].seq = p->seq;
        line->seen_at = (line->seen_at + 1) % VP_SEEN;
    }
    return 0;
}

struct vp_event *vp_cond_event(const vp_cond *cond) {
    for (const struct vp_point *p = cond; p && p->line; p = p->next) {
        struct vp_event *ev = point_met(p) || !p->own ? NULL : point_event(p);
        if (ev) {
            ev->refs++;
            return ev;
        }
    }
    return NULL;
}
