/* The modelled clock: device work takes time, the same time on every machine.
 *
 * The device is simulated from one completion to the next. Streams whose next op is a kernel that nothing holds up are
 * at work, and share the device equally: each has had `share` of it since the beginning, and its kernel ends when that
 * reaches a value known since the kernel began. So the kernel at the top of a heap of these values ends next, however
 * many come and go meanwhile. The device is idle only while no stream is at work. All other ops take no time.
 *
 * A stream that is not at work is checked only when something happened that it may have waited for: an op that heads a
 * queue and waits for another is noted there. The clock moves in driver calls, in waits of the host, and by explicit
 * calls. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_private.h"
#include "sim.h"

#include <stdlib.h>

TAILQ_HEAD(sim_streams, sim_stream);

static struct {
    uint64_t now;             /* the device was advanced to this time */
    uint64_t share;           /* what a stream that ran all the time has got, in ns */
    uint64_t spare;           /* ns not yet distributed: fewer than there are streams at work */
    uint64_t left;            /* ns of work queued and not yet distributed */
    struct sim_stream **heap; /* running streams, in a heap by through_at */
    size_t working, room;
    struct sim_streams look;  /* streams whose next op may continue */
    struct sim_streams again; /* streams that wait without notice: for a value in memory, a host function */
} device = {.look = TAILQ_HEAD_INITIALIZER(device.look), .again = TAILQ_HEAD_INITIALIZER(device.again)};

/* ---- streams at work ---- */

static void place(struct sim_stream *stream, size_t at) {
    device.heap[at] = stream;
    stream->work_place = at + 1;
}

/* Moves a stream into a gap of the heap. */
static void settle(struct sim_stream *stream, size_t gap) {
    for (size_t up; gap && device.heap[up = (gap - 1) / 2]->through_at > stream->through_at; gap = up)
        place(device.heap[up], gap);
    for (size_t down; (down = 2 * gap + 1) < device.working; gap = down) {
        if (down + 1 < device.working && device.heap[down + 1]->through_at < device.heap[down]->through_at)
            down++;
        if (device.heap[down]->through_at >= stream->through_at)
            break;
        place(device.heap[down], gap);
    }
    place(stream, gap);
}

static void start_work(struct sim_stream *stream, struct sim_op *op) {
    if (device.working == device.room) {
        device.room = device.room ? 2 * device.room : 16;
        device.heap = realloc(device.heap, device.room * sizeof(*device.heap));
        if (!device.heap)
            abort();
    }
    stream->through_at = device.share + op->work_ns;
    op->work_ns = 0;
    settle(stream, device.working++);
}

/* Stops a stream's kernel. Returns the work that was left. */
static uint64_t stop_work(struct sim_stream *stream) {
    if (!stream->work_place)
        return 0;
    size_t gap = stream->work_place - 1;
    struct sim_stream *last = device.heap[--device.working];
    stream->work_place = 0;
    if (last != stream)
        settle(last, gap);
    return stream->through_at - device.share;
}

/* ---- streams that may get on ---- */

static void list_add(struct sim_streams *list, struct sim_stream *stream) {
    stream->listed = list;
    TAILQ_INSERT_TAIL(list, stream, look);
}

static void list_remove(struct sim_stream *stream) {
    if (stream->listed)
        TAILQ_REMOVE(stream->listed, stream, look);
    stream->listed = NULL;
}

void sim_timed_look(struct sim_stream *stream) {
    if (sim.timed && stream->queued && !stream->listed)
        list_add(&device.look, stream);
}

/* Notes that an op may continue when another, unfinished one is done. One that is in no stream then waits for its own
 * dependencies. */
static void await(struct sim_op *op, struct sim_op *before) {
    for (; before && !op->waits; op = before, before = before->stream ? NULL : sim_op_open_dep(before)) {
        op->waits = true;
        op->next_waiter = before->waiters;
        before->waiters = sim_op_get(op);
    }
}

static void wake(struct sim_op *over) {
    for (struct sim_op *op; (op = over->waiters);) {
        over->waiters = op->next_waiter;
        op->waits = false;
        if (op->stream && !op->done)
            sim_timed_look(op->stream);
        else if (sim_op_done(op))
            wake(op);
        else
            await(op, sim_op_open_dep(op));
        sim_op_put(op);
    }
}

void sim_timed_finished(struct sim_stream *stream, struct sim_op *op) {
    uint64_t then = device.now - device.spare;
    if (op->when_ns < then)
        op->when_ns = then;
    device.left -= op->work_ns + stop_work(stream);
    wake(op);
    list_remove(stream);
    sim_timed_look(stream);
}

void sim_timed_hold(struct sim_stream *stream) {
    sim_progress_due();
    if (stream->work_place)
        TAILQ_FIRST(&stream->queue)->work_ns = stop_work(stream);
}

/* Runs the op at the head of a queue, starts its kernel, or finds what it waits for. */
static bool get_on(struct sim_stream *stream) {
    struct sim_op *op = TAILQ_FIRST(&stream->queue), *before;
    if (stream->held || stream->work_place || op->running)
        return false;
    if ((before = sim_op_open_dep(op)))
        await(op, before);
    else if (op->work_ns)
        start_work(stream, op);
    else if (sim_op_try(op))
        return true;
    else
        list_add(&device.again, stream);
    return false;
}

static int run_at_once(void) {
    int ran = 0, before;
    do {
        before = ran;
        for (struct sim_stream *stream; (stream = TAILQ_FIRST(&device.look));) {
            list_remove(stream);
            ran += get_on(stream);
        }
        for (struct sim_stream *stream; (stream = TAILQ_FIRST(&device.again));) {
            list_remove(stream);
            list_add(&device.look, stream);
        }
    } while (ran != before);
    return ran;
}

/* ---- time ---- */

/* Returns how much of the device's time passes until the next stream's kernel is done, if nothing changes. */
static uint64_t next_through(void) {
    uint64_t need;
    bool never = __builtin_mul_overflow(device.heap[0]->through_at - device.share, device.working, &need);
    return never ? UINT64_MAX : need;
}

static void deal_out(uint64_t each) {
    uint64_t all = each * device.working;
    device.share += each;
    device.spare -= all;
    device.left -= all;
}

int sim_progress_due(void) {
    int ran = run_at_once();
    device.spare += sim.clock_ns - device.now;
    device.now = sim.clock_ns;
    while (device.working && next_through() <= device.spare) {
        deal_out(device.heap[0]->through_at - device.share);
        sim_op_finish(TAILQ_FIRST(&device.heap[0]->queue));
        ran += 1 + run_at_once();
    }
    if (device.working)
        deal_out(device.spare / device.working);
    else
        device.spare = 0;
    if (ran)
        pthread_cond_broadcast(&sim.progress);
    return ran;
}

static uint64_t next_completion(void) {
    uint64_t need = device.working ? next_through() : UINT64_MAX;
    return need == UINT64_MAX ? need : sim.clock_ns + need - device.spare;
}

bool sim_timed_step(void) {
    if (sim_progress_due())
        return true;
    uint64_t next = next_completion();
    if (next == UINT64_MAX)
        return false;
    sim.clock_ns = next;
    return sim_progress_due() > 0;
}

void sim_timed_reset(void) {
    free(device.heap);
    device.heap = NULL;
    device.working = device.room = 0;
    device.now = device.share = device.spare = device.left = 0;
    TAILQ_INIT(&device.look);
    TAILQ_INIT(&device.again);
}

void sim_queue_kernel(struct sim_stream *stream, uint64_t nanoseconds) {
    struct sim_op *op = sim_op_new(SIM_OP_NOP);
    op->work_ns = nanoseconds;
    device.left += nanoseconds;
    sim_op_enqueue(stream, op);
}

/* ---- for who tests with it ---- */

SIM_EXPORT void vp_sim_time_start(void) {
    pthread_mutex_lock(&sim.lock);
    sim.timed = true;
    sim.clock_ns = 0;
    sim_timed_reset();
    sim_queue_look();
    pthread_mutex_unlock(&sim.lock);
}

SIM_EXPORT uint64_t vp_sim_now(void) {
    pthread_mutex_lock(&sim.lock);
    uint64_t now = sim.clock_ns;
    pthread_mutex_unlock(&sim.lock);
    return now;
}

SIM_EXPORT void vp_sim_advance(uint64_t nanoseconds) {
    pthread_mutex_lock(&sim.lock);
    if (sim.timed)
        sim_progress_due();
    sim.clock_ns += nanoseconds;
    if (sim.timed)
        sim_progress_due();
    pthread_mutex_unlock(&sim.lock);
}

SIM_EXPORT uint64_t vp_sim_next_completion(void) {
    pthread_mutex_lock(&sim.lock);
    if (sim.timed)
        sim_progress_due();
    uint64_t next = next_completion();
    pthread_mutex_unlock(&sim.lock);
    return next;
}

SIM_EXPORT uint64_t vp_sim_idle_at(void) {
    pthread_mutex_lock(&sim.lock);
    if (sim.timed)
        sim_progress_due();
    uint64_t idle = sim.clock_ns + device.left - device.spare;
    pthread_mutex_unlock(&sim.lock);
    return idle;
}

/* Finds a stream that may get work here. */
static CUresult stream_for_test(CUstream handle, struct sim_stream **stream) {
    CUresult result = sim.timed && sim.initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
    if (!result) {
        sim_self();
        sim_progress_due();
        result = sim_stream_for_work(handle, stream);
    }
    return !result && (*stream)->capture ? CUDA_ERROR_NOT_SUPPORTED : result;
}

SIM_EXPORT CUresult vp_sim_kernel(CUstream handle, uint64_t nanoseconds) {
    struct sim_stream *stream;
    pthread_mutex_lock(&sim.lock);
    CUresult result = stream_for_test(handle, &stream);
    if (!result)
        sim_queue_kernel(stream, nanoseconds);
    pthread_mutex_unlock(&sim.lock);
    return result;
}

SIM_EXPORT CUresult vp_sim_follow(CUstream handle, CUstream other_handle) {
    struct sim_stream *stream, *other;
    pthread_mutex_lock(&sim.lock);
    CUresult result = stream_for_test(handle, &stream);
    if (!result)
        result = stream_for_test(other_handle, &other);
    if (!result) {
        struct sim_op *op = sim_op_new(SIM_OP_NOP);
        sim_op_depend(op, TAILQ_LAST(&other->queue, sim_op_queue));
        sim_op_enqueue(stream, op);
    }
    pthread_mutex_unlock(&sim.lock);
    return result;
}
