/* Streams, events and host functions. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "doors.h"

#include <stdatomic.h>
#include <string.h>

static void create_stream(void) {
    int at = -1;
    for (int i = OWN + 1; i < STREAMS && at < 0; i++)
        if (!world.streams[i].handle)
            at = i;
    CUstream handle = NULL;
    CUevent event = NULL;
    unsigned flags = one_in(20) ? below(8) : below(2);
    if (at < 0)
        return;
    int res = one_in(2) ? CALL(cuStreamCreate, &handle, flags)
                        : CALL(cuStreamCreateWithPriority, &handle, flags, -(int)below(6));
    if (res)
        return;
    CALL(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    world.streams[at] = (struct stream){.handle = handle, .event = event, .context = current_context()};
    say(" s%d", at);
}

static void destroy_stream(void) {
    int i = pick_made_stream();
    if (i < 0 || (world.captures && !one_in(30)))
        return;
    struct stream *s = &world.streams[i];
    say(" s%d", i);
    if (one_in(2))
        CALL(cuStreamSynchronize, s->handle);
    if (CALL(cuStreamDestroy, s->handle))
        return;
    CALL(cuEventDestroy, s->event);
    for (int b = 0; b < BLOCKS; b++)
        if (world.blocks[b].last.stream == i)
            world.blocks[b].last = (struct use){-2, s->context, -1};
    if (s->capture)
        capture_over(s->capture - 1, s->capture - 1 == i ? NULL : s->handle);
    memset(s, 0, sizeof(*s));
}

static void synchronize(void) {
    int i = pick_stream();
    if (world.captures && !one_in(20))
        return;
    say(" s%d", i);
    if (one_in(4) && !world.captures)
        drain_context(pick_context());
    else
        CALLS(cuStreamSynchronize, handle_of(i));
}

static void stream_questions(void) {
    int i = pick_stream();
    unsigned flags = 77;
    int priority = 77;
    CUcontext context = NULL;
    CUstreamCaptureStatus status = (CUstreamCaptureStatus)77;
    unsigned long long id = 0;
    if (world.captures && !one_in(10))
        return;
    say(" s%d", i);
    CALLS(cuStreamGetFlags, handle_of(i), &flags);
    CALLS(cuStreamGetPriority, handle_of(i), &priority);
    if (CALLS(cuStreamGetCtx, handle_of(i), &context) == 0)
        say_context(context);
    CALLS(cuStreamIsCapturing, handle_of(i), &status);
    say(" %u %d %d", flags, priority, (int)status);
    if (!world.captures) {
        CALL(cuStreamGetId, handle_of(i), &id);
        CALL_SOON(cuStreamQuery, handle_of(i));
    }
}

/* ---- events ---- */

static int pick_event(void) {
    int at = (int)below(EVENTS);
    for (int i = 0; i < EVENTS; i++, at = (at + 1) % EVENTS)
        if (world.events[at])
            return at;
    return -1;
}

static void create_event(void) {
    int at = (int)below(EVENTS);
    if (world.events[at]) {
        CALL(cuEventDestroy, world.events[at]);
        world.events[at] = NULL;
    }
    CUevent event = NULL;
    if (CALL(cuEventCreate, one_in(20) ? NULL : &event, one_in(10) ? below(9) : below(3)) == 0) {
        world.events[at] = event;
        world.event_contexts[at] = current_context();
    }
}

static void use_event(void) {
    int e = pick_event(), s = pick_stream();
    if (e < 0 || (world.captures && !one_in(10)))
        return;
    say(" e%d s%d", e, s);
    switch (below(5)) {
    case 0:
    case 1: CALLS(cuEventRecord, world.events[e], handle_of(s)); break;
    case 2: CALLS(cuStreamWaitEvent, handle_of(s), world.events[e], one_in(10)); break;
    case 3: CALL_SOON(cuEventQuery, world.events[e]); break;
    default: CALL(cuEventSynchronize, world.events[e]);
    }
}

/* All of a context at once. */
static void context_event(void) {
    int e = pick_event(), c = pick_context();
    if (e < 0 || c < 0 || world.captures)
        return;
    say(" e%d c%d", e, c);
    if (one_in(2))
        CALL(cuCtxRecordEvent, world.contexts[c].handle, world.events[e]);
    else
        CALL(cuCtxWaitEvent, world.contexts[c].handle, world.events[e]);
}

/* ---- the host in the order of a stream ---- */

static atomic_uint host_calls;

unsigned host_count(void) {
    return atomic_load(&host_calls);
}

void CUDA_CB host_counts(void *arg) {
    (void)arg;
    atomic_fetch_add(&host_calls, 1);
}

static void CUDA_CB count_stream(CUstream stream, CUresult result, void *arg) {
    (void)stream, (void)result, (void)arg;
    atomic_fetch_add(&host_calls, 1);
}

static void host_function(void) {
    int s = pick_stream();
    if (capturing(s) && !one_in(4))
        return;
    say(" s%d", s);
    if (one_in(4))
        CALL(cuStreamAddCallback, handle_of(s), count_stream, NULL, one_in(10));
    else
        CALLS(cuLaunchHostFunc, handle_of(s), one_in(20) ? NULL : host_counts, NULL);
}

/* A value written in the order of a stream, which nobody need wait for. */
static void values(void) {
    int i = pick_block_of(1u << DEVICE), s = pick_made_stream();
    struct block *b = &world.blocks[i < 0 ? 0 : i];
    if (i < 0 || s < 0 || b->size < 8 || capturing(s) || b->device != world.contexts[context_of(s)].device ||
        !ordered(b, s))
        return;
    say(" b%d kind %d s%d", i, (int)b->kind, s);
    if (CALL(cuStreamWriteValue32, world.streams[s].handle, b->at, below(1u << 30), 0) == 0) {
        used(b, s);
        if (one_in(4))
            CALL(cuStreamWaitValue32, world.streams[s].handle, b->at, 0, CU_STREAM_WAIT_VALUE_GEQ);
    }
}

static void verify_step(void) {
    verify();
}

const struct step stream_steps[] = {
    {"create_stream", 5, create_stream},
    {"destroy_stream", 2, destroy_stream},
    {"synchronize", 4, synchronize},
    {"stream_questions", 3, stream_questions},
    {"create_event", 3, create_event},
    {"use_event", 5, use_event},
    {"context_event", 1, context_event},
    {"host_function", 2, host_function},
    {"values", 1, values},
    {"verify", 4, verify_step},
    {0},
};
