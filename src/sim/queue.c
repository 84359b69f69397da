/* Ops, their order, and when they run.
 *
 * An op may run when it is first in its stream's queue, its dependencies are done and the stream is not held.
 * Everything else is built from this: recording an event is an op on which others may depend; an op on the legacy
 * stream depends on the last op of each blocking stream, and an op on a blocking stream on the last op of the legacy
 * stream; a context barrier is an op of no stream that depends on the last op of every stream.
 *
 * Dependencies only point to ops that were queued earlier, so following them ends. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A real device's queues are finite too: beyond this many ops, queueing one more first runs some. */
#define MAX_QUEUED 1024

static struct sim_stream **active; /* streams with something in their queue */
static size_t active_count, active_room;

struct sim_op *sim_op_new(enum sim_op_kind kind) {
    struct sim_op *op = calloc(1, sizeof(*op));
    if (!op)
        abort();
    op->kind = kind;
    op->refs = 1;
    op->when_ns = sim.timed ? sim.clock_ns : 0;
    return op;
}

struct sim_op *sim_op_get(struct sim_op *op) {
    if (op)
        op->refs++;
    return op;
}

static void drop_deps(struct sim_op *op) {
    for (unsigned i = 0; i < op->dep_count; i++)
        sim_op_put(op->deps[i]);
    free(op->deps);
    op->deps = NULL;
    op->dep_count = op->dep_room = 0;
}

void sim_op_put(struct sim_op *op) {
    if (!op || --op->refs)
        return;
    drop_deps(op);
    if (op->kind == SIM_OP_COPY)
        free(op->copy.staged);
    if (op->kind == SIM_OP_GRAPH || op->kind == SIM_OP_CONDITIONAL)
        sim_child_free(op->child);
    sim_graph_put(op->launched);
    free(op);
}

static void add_dep(struct sim_op *op, struct sim_op *on) {
    if (op->dep_count == op->dep_room) {
        op->dep_room = op->dep_room ? 2 * op->dep_room : 2;
        op->deps = realloc(op->deps, op->dep_room * sizeof(*op->deps));
        if (!op->deps)
            abort();
    }
    op->deps[op->dep_count++] = sim_op_get(on);
}

void sim_op_follow(struct sim_op *op, struct sim_op *on) {
    if (on)
        add_dep(op, on);
}

void sim_op_depend(struct sim_op *op, struct sim_op *on) {
    if (on && !sim_op_done(on))
        add_dep(op, on);
}

struct sim_op *sim_op_open_dep(struct sim_op *op) {
    while (op->dep_count) {
        struct sim_op *last = op->deps[op->dep_count - 1];
        if (!sim_op_done(last))
            return last;
        if (sim.timed && op->when_ns < last->when_ns)
            op->when_ns = last->when_ns;
        op->dep_count--;
        sim_op_put(last);
    }
    return NULL;
}

bool sim_op_done(struct sim_op *op) {
    if (!op || op->done)
        return true;
    if (!op->stream && !sim_op_open_dep(op)) {
        op->done = true;
        if (!sim.timed)
            op->when_ns = sim_now_ns();
    }
    return op->done;
}

static struct sim_op *tail(struct sim_stream *stream) {
    return TAILQ_LAST(&stream->queue, sim_op_queue);
}

static void activate(struct sim_stream *stream) {
    if (active_count == active_room) {
        active_room = active_room ? 2 * active_room : 16;
        active = realloc(active, active_room * sizeof(*active));
        if (!active)
            abort();
    }
    stream->active = active_count;
    active[active_count++] = stream;
}

static void deactivate(struct sim_stream *stream) {
    active[stream->active] = active[--active_count];
    active[stream->active]->active = stream->active;
    if (stream->destroyed)
        sim_stream_free(stream);
}

/* ---- host functions ---- */

/* Host functions run on a thread of their own, as with the real driver: the program's threads may hold the
 * very locks that its function takes. While one is queued the thread also moves the streams on, since the
 * program may wait for the function without calling the driver. */
static struct sim_op *host_op; /* the one that the thread shall run now; others wait their turn */
static size_t host_queued;
static bool host_thread_started;
static pthread_cond_t host_wake = PTHREAD_COND_INITIALIZER;

static bool wait_briefly(pthread_cond_t *condition, long milliseconds) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += milliseconds * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return pthread_cond_timedwait(condition, &sim.lock, &until) == 0;
}

void sim_op_finish(struct sim_op *op) {
    struct sim_stream *stream = op->stream;
    op->done = true;
    op->running = false;
    if (!sim.timed)
        op->when_ns = sim_now_ns();
    drop_deps(op);
    TAILQ_REMOVE(&stream->queue, op, next);
    stream->queued--;
    if (sim.timed)
        sim_timed_finished(stream, op);
    if (stream->queued == 0)
        deactivate(stream);
    sim_op_put(op);
}

static void *host_thread(void *arg) {
    (void)arg;
    pthread_mutex_lock(&sim.lock);
    for (;;) {
        struct sim_op *op = host_op;
        if (!op) {
            if (!host_queued)
                pthread_cond_wait(&host_wake, &sim.lock);
            else if (!wait_briefly(&host_wake, 5))
                sim_progress(1);
            continue;
        }
        pthread_mutex_unlock(&sim.lock);
        if (op->host.callback)
            op->host.callback(op->host.handle, CUDA_SUCCESS, op->host.arg);
        else
            op->host.fn(op->host.arg);
        pthread_mutex_lock(&sim.lock);
        host_op = NULL;
        host_queued--;
        sim_op_finish(op);
        pthread_cond_broadcast(&sim.progress);
    }
    return NULL;
}

static void host_expect(void) {
    pthread_t thread;
    host_queued++;
    if (!host_thread_started && pthread_create(&thread, NULL, host_thread, NULL) == 0) {
        pthread_detach(thread);
        host_thread_started = true;
    }
    pthread_cond_signal(&host_wake);
}

static void host_submit(struct sim_op *op) {
    op->running = true;
    host_op = op;
    pthread_cond_signal(&host_wake);
}

/* ---- queueing ---- */

void sim_op_enqueue(struct sim_stream *stream, struct sim_op *op) {
    if (stream->capture) {
        sim_capture_append(stream, op);
        return;
    }
    struct sim_context *context = stream->context;
    sim_op_depend(op, context->awaits);
    /* An allocation orders no other stream, as H200s answered; what it hands out was freed after the others' work. */
    if (stream->kind == SIM_STREAM_LEGACY && op->kind != SIM_OP_ALLOC) {
        struct sim_stream *other;
        LIST_FOREACH(other, &context->streams, link)
        if (other != stream && other->blocking)
            sim_op_depend(op, tail(other));
    } else if (stream->blocking && context->legacy) {
        sim_op_depend(op, tail(context->legacy));
    }
    if (op->kind == SIM_OP_HOST)
        host_expect();
    op->stream = stream;
    TAILQ_INSERT_TAIL(&stream->queue, op, next);
    if (stream->queued++ == 0)
        activate(stream);
    if (sim.timed) {
        if (stream->queued == 1)
            sim_timed_look(stream);
        return;
    }
    for (int tries = 0; stream->queued > MAX_QUEUED && tries < 64; tries++)
        sim_progress(16);
}

static struct sim_op *barrier_over(struct sim_op *barrier, struct sim_context *context) {
    struct sim_stream *stream;
    LIST_FOREACH(stream, &context->streams, link)
    sim_op_depend(barrier, tail(stream));
    return barrier;
}

/* A wait for a blocking stream does not include events there that only the legacy stream holds up (H200). */
struct sim_op *sim_barrier_stream(struct sim_stream *stream) {
    struct sim_op *barrier = sim_op_new(SIM_OP_EVENT), *last = tail(stream);
    while (stream->kind != SIM_STREAM_LEGACY && last && last->kind == SIM_OP_EVENT && sim_op_open_dep(last))
        last = TAILQ_PREV(last, sim_op_queue, next);
    sim_op_depend(barrier, last);
    if (stream->kind == SIM_STREAM_LEGACY) {
        struct sim_stream *other;
        LIST_FOREACH(other, &stream->context->streams, link)
        if (other->blocking)
            sim_op_depend(barrier, tail(other));
    }
    return barrier;
}

struct sim_op *sim_barrier_context(struct sim_context *context) {
    struct sim_op *barrier = barrier_over(sim_op_new(SIM_OP_EVENT), context);
    struct sim_context *other;
    LIST_FOREACH(other, &sim.contexts, link)
    if (other->parent == context && !other->destroyed)
        barrier_over(barrier, other);
    return barrier;
}

struct sim_op *sim_barrier_device(int device) {
    struct sim_op *barrier = sim_op_new(SIM_OP_EVENT);
    struct sim_context *context;
    LIST_FOREACH(context, &sim.contexts, link)
    if (context->device == device)
        barrier_over(barrier, context);
    return barrier;
}

/* ---- running ---- */

static bool value_reached(const struct sim_op *op) {
    if (sim.options.ledger)
        return true;
    if (sim_access_fault(op->value.at, op->value.wide ? 8 : 4, op->stream->context, false, false, SIM_AT_RUN))
        return true; /* runs, and reports when it is done */
    uint64_t have = op->value.wide ? *(volatile uint64_t *)op->value.at : *(volatile uint32_t *)op->value.at;
    uint64_t want = op->value.value;
    switch (op->value.flags & 3) {
    case CU_STREAM_WAIT_VALUE_EQ: return have == want;
    case CU_STREAM_WAIT_VALUE_AND: return (have & want) != 0;
    case CU_STREAM_WAIT_VALUE_NOR: return op->value.wide ? ~(have | want) != 0 : (uint32_t)~(have | want) != 0;
    default: return op->value.wide ? (int64_t)(have - want) >= 0 : (int32_t)((uint32_t)have - (uint32_t)want) >= 0;
    }
}

bool sim_op_try(struct sim_op *op) {
    if (op->running || op->stream->held || sim_op_open_dep(op))
        return false;
    if (op->kind == SIM_OP_WAIT_VALUE && !value_reached(op))
        return false;
    if (op->kind == SIM_OP_HOST) {
        if (host_op)
            return false;
        host_submit(op);
        return true;
    }
    sim_op_execute(op);
    sim_op_finish(op);
    return true;
}

static bool step_random(void) {
    size_t first = active_count ? sim_random((uint32_t)active_count) : 0;
    for (size_t i = 0; i < active_count; i++) {
        struct sim_stream *stream = active[(first + i) % active_count];
        if (sim_op_try(TAILQ_FIRST(&stream->queue)))
            return true;
    }
    return false;
}

/* Runs one op that `op` depends on, or `op` itself. */
static bool step_towards(struct sim_op *op) {
    for (;;) {
        if (op->stream)
            op = TAILQ_FIRST(&op->stream->queue);
        struct sim_op *before = sim_op_open_dep(op);
        if (!before)
            return op->stream && sim_op_try(op);
        op = before;
    }
}

int sim_progress(int n) {
    if (sim.timed)
        return sim_progress_due();
    int ran = 0;
    while (ran < n && step_random())
        ran++;
    if (ran)
        pthread_cond_broadcast(&sim.progress);
    return ran;
}

void sim_progress_query(void) {
    if (sim.timed)
        sim_progress_due();
    else if (sim_random(100) >= (uint32_t)sim.options.lazy || sim_random(20) == 0)
        sim_progress(1 + (int)sim_random(3));
}

void sim_queue_look(void) {
    for (size_t i = 0; i < active_count; i++)
        sim_timed_look(active[i]);
}

size_t sim_pending(void) {
    size_t pending = 0;
    for (size_t i = 0; i < active_count; i++)
        pending += active[i]->queued;
    return pending;
}

/* Advances the device for a thread that waits for an op: mostly that op and nothing more, so that the rest stays late.
 */
static bool step_waiting(struct sim_op *op) {
    /* While a host function runs, the modelled clock stands still, as its duration is unknown. */
    if (sim.timed)
        return !host_op && sim_timed_step();
    bool ran = sim_random(100) < (uint32_t)(100 - sim.options.lazy) / 2 && step_random();
    return ran || step_towards(op) || step_random();
}

/* Gives up only after some hundred naps and so much time: on a busy machine, the thread that must let the work continue
 * is scheduled as seldom as this one. */
static CUresult wait_for(struct sim_op *op) {
    uint64_t deadline = 0;
    int naps = 0;
    unsigned long generation = sim.generation;
    while (!sim_op_done(op)) {
        if (step_waiting(op)) {
            deadline = 0;
            continue;
        }
        uint64_t now = sim_real_ns();
        if (!deadline) {
            deadline = now + (uint64_t)sim.options.timeout_ms * 1000000u;
            naps = 0;
        } else if (++naps >= sim.options.timeout_ms / 4 && now > deadline) {
            fprintf(stderr,
                    "[sim] a wait gave up after %d ms: the work is held, or waits for a value that nobody "
                    "writes\n",
                    sim.options.timeout_ms);
            return CUDA_ERROR_LAUNCH_TIMEOUT;
        }
        wait_briefly(&sim.progress, 1);
        sim_may_be_cancelled(op);
        if (sim.generation != generation)
            return CUDA_ERROR_DEINITIALIZED;
    }
    pthread_cond_broadcast(&sim.progress);
    return CUDA_SUCCESS;
}

CUresult sim_op_wait_put(struct sim_op *op) {
    CUresult result = wait_for(op);
    sim_op_put(op);
    return result;
}

/* ---- what queued work still needs ---- */

static bool touches(const struct sim_op *op, uintptr_t start, uintptr_t end) {
    uintptr_t at[2] = {0}, size[2] = {0};
    switch (op->kind) {
    case SIM_OP_FILL:
        at[0] = op->fill.dst;
        size[0] = (op->fill.height - 1) * op->fill.pitch + op->fill.width * op->fill.element;
        break;
    case SIM_OP_KERNEL:
        at[0] = op->kernel.at;
        size[0] = op->kernel.bytes;
        break;
    case SIM_OP_COPY:
        at[0] = op->copy.dst;
        size[0] = (op->copy.height - 1) * op->copy.dst_pitch + op->copy.width;
        at[1] = op->copy.staged ? 0 : op->copy.src;
        size[1] = op->copy.staged ? 0 : (op->copy.height - 1) * op->copy.src_pitch + op->copy.width;
        break;
    case SIM_OP_WAIT_VALUE:
    case SIM_OP_WRITE_VALUE:
        at[0] = op->value.at;
        size[0] = op->value.wide ? 8 : 4;
        break;
    default: return false;
    }
    return (at[0] < end && start < at[0] + size[0]) || (at[1] < end && start < at[1] + size[1]);
}

void sim_check_unused(uintptr_t start, uintptr_t end, const char *what) {
    struct sim_op *op;
    for (size_t i = 0; i < active_count; i++)
        TAILQ_FOREACH(op, &active[i]->queue, next)
    if (touches(op, start, end)) {
        sim_violation("%s of [%#lx, %#lx) while queued work of stream %llu refers to it", what, (unsigned long)start,
                      (unsigned long)end, (unsigned long long)active[i]->id);
        return;
    }
}

void sim_queue_discard(struct sim_stream *stream) {
    /* Emptying the queue of a destroyed stream frees the stream. */
    for (size_t left = stream->queued; left; left--) {
        struct sim_op *op = sim_op_get(TAILQ_FIRST(&stream->queue));
        while (op->running)
            wait_briefly(&sim.progress, 1);
        if (!op->done) {
            if (op->kind == SIM_OP_HOST)
                host_queued--;
            sim_op_finish(op);
        }
        sim_op_put(op);
    }
}

void sim_queue_reset(void) {
    while (active_count)
        sim_queue_discard(active[0]);
    free(active);
    active = NULL;
    active_room = 0;
}
