/* The streams of the program: they come and go, wait for each other, capture; and something outside may keep
 * one from getting on, which the library is told of (a host function) or not (a kernel that spins). Whoever
 * does not wait for such a stream by the program's own doing must get on all the same. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/state.h"
#include "cache.h"
#include "sim.h"

void make_current(int device) {
    MUST(cuCtxSetCurrent(world.context[device]));
}

/* The legacy stream and the blocking ones wait for each other. */
static void note_order(int number) {
    int legacy = number / STREAMS_EACH * STREAMS_EACH;
    struct stream *s = &run.streams[number];
    if (number != legacy && s->blocking)
        s->behind |= run.streams[legacy].behind;
    for (int i = legacy; number == legacy && i < legacy + STREAMS_EACH; i++)
        if (run.streams[i].blocking)
            s->behind |= run.streams[i].behind;
    if (number == legacy)
        s->behind |= run.left_behind[s->device];
}

struct stream *enter(int number) {
    make_current(run.streams[number].device);
    if (run.held)
        note_order(number);
    return &run.streams[number];
}

bool usable(int number) {
    const struct stream *s = &run.streams[number];
    if (s->capturing)
        return false;
    for (int i = 0; i < STREAMS && run.capturing && s->handle == CU_STREAM_LEGACY; i++)
        if (run.streams[i].capturing && run.streams[i].blocking)
            return false;
    return true;
}

int any_stream(void) {
    return (int)(fuzz_byte(&run.in) % (unsigned)(world.devices * STREAMS_EACH));
}

void make_stream(int number) {
    struct stream *s = &run.streams[number];
    *s = (struct stream){
        .device = number / STREAMS_EACH, .plain = true, .blocking = number % 3 == 0, .lives = s->lives + 1};
    make_current(s->device);
    MUST(door_stream_create(&s->handle, s->blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
}

void open_streams(void) {
    for (int i = 0; i < world.devices * STREAMS_EACH; i++)
        if (i % STREAMS_EACH > 1)
            make_stream(i);
        else
            run.streams[i] = (struct stream){.handle = i % STREAMS_EACH ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY,
                                             .device = i / STREAMS_EACH,
                                             .blocking = true};
}

void wait_for(int from, int to) {
    CUevent event;
    struct stream *s = enter(from);
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventRecord(event, s->handle));
    s = enter(to);
    MUST(cuStreamWaitEvent(s->handle, event, 0));
    MUST(cuEventDestroy(event));
    s->behind |= run.streams[from].behind;
}

void hand_over_all(int from, int to) {
    wait_for(from, to);
    for (unsigned i = 0; i < run.count; i++) {
        struct block *b = &run.blocks[i];
        if (!b->sync && b->home == from)
            b->home = to;
        if (b->used >> from & 1)
            b->used = (b->used & ~(1u << from)) | 1u << to;
    }
    cache_hand_over(from, to);
}

int other_stream(int number) {
    for (int i = number / STREAMS_EACH * STREAMS_EACH, n = 0; n < STREAMS_EACH; n++, i++)
        if (i != number && usable(i))
            return i;
    return -1;
}

/* ---- what keeps streams from getting on ---- */

uint64_t streams_waited(void) {
    uint64_t waits = 0;
    for (int d = 0; d < world.devices; d++)
        waits += vp_state.pools[d] ? vp_state.pools[d]->mem.stats.waits_gpu : 0;
    return waits;
}

static void forget_hold(int number) {
    run.streams[number].held = false;
    run.held--;
    for (int i = 0; i < STREAMS; i++)
        run.streams[i].behind &= ~(1u << number);
    for (int d = 0; d < DEVICES; d++)
        run.left_behind[d] &= ~(1u << number);
}

void run_dry(void) {
    while (vp_sim_step(64))
        continue;
}

/* Streams that the program has not put behind a held one are through with everything. */
static void check_others(void) {
    /* On old drivers events on the legacy stream stand for barriers; and a stream may have been made to wait
     * where the rules let it. */
    if (!run.held || run.capturing || world.old_driver || cache_on_legacy() || streams_waited() != run.waited_before)
        return;
    run_dry();
    for (int i = 0; i < world.devices * STREAMS_EACH; i++)
        if (!run.streams[i].behind && i % STREAMS_EACH && cuStreamQuery(enter(i)->handle) && !run.streams[i].behind) {
            run_dry();
            if (cuStreamQuery(run.streams[i].handle))
                fuzz_fail("stream %d hangs, which does not wait for one that is held", i);
        }
}

static void let_one_go(int number) {
    enter(number);
    vp_sim_release(run.streams[number].handle);
    forget_hold(number);
}

void let_all_go(void) {
    check_others();
    for (int i = 0; i < STREAMS && run.held; i++)
        if (run.streams[i].held)
            let_one_go(i);
}

void let_go(void) {
    unsigned which = fuzz_byte(&run.in);
    check_others();
    for (int i = 0; i < STREAMS && run.held; i++)
        if (run.streams[(which + (unsigned)i) % STREAMS].held) {
            let_one_go((int)((which + (unsigned)i) % STREAMS));
            return;
        }
}

/* Not where the driver itself would have to wait for it, in calls of its own. */
void hold(void) {
    unsigned how = fuzz_byte(&run.in);
    int number = any_stream();
    struct stream *s = &run.streams[number];
    if (run.held == 2 || !s->plain || s->held || !usable(number) || world.small_are_native || world.no_holds)
        return;
    /* What it has been given so far runs: others may wait for that. */
    enter(number);
    if (s->behind)
        return;
    if (!run.held && !run.capturing)
        MUST(cuStreamSynchronize(s->handle));
    run_dry(); /* events behind the legacy stream, too, for which that does not wait */
    vp_sim_hold(s->handle);
    if (how & 1)
        vp_api_host_function(s->handle);
    if (!run.held++)
        run.waited_before = streams_waited();
    s->held = true;
    s->behind |= 1u << number;
}

/* ---- captures and ends ---- */

static void end_capture(int number) {
    CUgraph graph = NULL;
    CUdeviceptr at = 0;
    if (!run.streams[number].capturing)
        return;
    struct stream *s = enter(number);
    if (number & 1) {
        /* A node of the graph; it may find the device full. */
        CUresult res = door_alloc_async(&at, 4096, NULL, s->handle);
        if (!res) {
            MUST(cuMemsetD32Async(at, 0, 1024, s->handle));
            MUST(door_free_async(at, s->handle));
        } else if (res != CUDA_ERROR_OUT_OF_MEMORY) {
            must(res, "an allocation on a capturing stream");
        }
    }
    MUST(door_end_capture(s->handle, &graph));
    cache_captured(number, graph);
    MUST(cuGraphDestroy(graph));
    s->capturing = false;
    run.capturing--;
}

void end_captures(void) {
    for (int i = 0; i < STREAMS; i++)
        end_capture(i);
}

void synchronize(void) {
    unsigned how = fuzz_byte(&run.in);
    int stream = any_stream();
    struct stream *s = enter(stream);
    if (how >= 128 && !run.capturing)
        let_all_go();
    if (how < 128)
        vp_sim_step(how % 16);
    else if (!run.capturing && how < 224)
        MUST(cuStreamSynchronize(s->handle));
    else if (!run.capturing)
        MUST(cuCtxSynchronize());
}

void renew_stream(void) {
    int number = any_stream(), to = other_stream(number);
    struct stream *s = &run.streams[number];
    const bool captured = s->capturing;
    /* On old drivers no event tells of what is let go of at the end of a stream that captures. */
    if (!s->plain || to < 0 || cache_uses(number) || (captured && target.bare && world.old_driver))
        return;
    /* A capturing stream has nothing on it, and its capture ends with it. */
    if (captured)
        run.capturing--;
    else
        hand_over_all(number, to);
    make_current(s->device);
    MUST(door_stream_destroy(s->handle));
    /* The driver lets a stream that was destroyed run out. */
    if (s->held)
        forget_hold(number);
    if (s->blocking)
        run.left_behind[s->device] |= s->behind;
    if (captured)
        cache_captured(number, NULL);
    make_stream(number);
}

void begin_capture(void) {
    static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                                CU_STREAM_CAPTURE_MODE_GLOBAL};
    int number = any_stream(), to = other_stream(number);
    unsigned mode = fuzz_byte(&run.in) % 3;
    size_t live = 0;
    if (!run.streams[number].plain || run.capturing == 2 || !world.captures || !usable(number) || to < 0 ||
        cache_uses(number) || run.tries_on || cache.promised)
        return;
    for (unsigned i = 0; i < run.count && !run.capturing; i++)
        live += run.blocks[i].size;
    if (live > world.limit / 2)
        return;
    hand_over_all(number, to);
    struct stream *s = enter(number);
    MUST(door_begin_capture(s->handle, modes[mode]));
    say("stream %d captures", number);
    s->capturing = true;
    cache.pins = true;
    if (!run.capturing++)
        run.kept_back = 0;
}

void capture(void) {
    for (int i = 0; i < STREAMS; i++)
        if (run.streams[i].capturing) {
            end_capture(i);
            return;
        }
    begin_capture();
}
