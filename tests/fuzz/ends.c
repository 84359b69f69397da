/* What ends, and when: contexts of all kinds by all calls, with captures in them and work left behind;
 * threads with their own streams; primary contexts that are reset; and any of this, and more, while a call of
 * the library waits. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/state.h"
#include "base/clock.h"
#include "base/process.h"
#include "cache.h"
#include "sim.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A context of its own: its synchronous blocks end with it, the stream-ordered ones stay. */
void context(void) {
    int device = (int)(fuzz_byte(&run.in) % (unsigned)world.devices);
    unsigned blocks = fuzz_byte(&run.in) % 4;
    CUcontext ctx;
    CUstream stream;
    if (run.capturing || run.count + blocks > BLOCKS)
        return;
    let_all_go();
    make_current(device);
    MUST(door_context_create(&ctx, device));
    MUST(door_stream_create(&stream, CU_STREAM_NON_BLOCKING));
    struct owner *dying[4];
    size_t dying_count = 0;
    for (unsigned i = 0; i < blocks; i++) {
        struct block b = {.size = any_size(), .device = device, .home = device * STREAMS_EACH};
        b.sync = fuzz_byte(&run.in) & 1;
        CUresult res = b.sync ? door_alloc(&b.at, b.size) : door_alloc_async(&b.at, b.size, NULL, stream);
        run.pool_operations++;
        if (res == CUDA_ERROR_OUT_OF_MEMORY)
            continue;
        must(res, "an allocation in a context of its own");
        if ((b.owner = owner_new(b.at, b.size))) {
            size_t words = b.size / 4;
            MUST(cuMemsetD32Async(b.at, owner_word(b.owner, false), words + !words, stream));
        }
        if (!b.sync) {
            run.blocks[run.count++] = b;
        } else if (b.owner) {
            owner_begin(b.owner);
            dying[dying_count++] = b.owner;
        }
    }
    /* A program's duty, if it goes on with memory of a context that ends. */
    MUST(cuStreamSynchronize(stream));
    for (size_t i = 0; i < dying_count; i++) {
        owner_ending(dying[i]);
        owner_ended(dying[i]);
    }
    MUST(door_context_destroy(ctx));
    make_current(device);
}

/* ---- in the middle of something ---- */

enum { MADE, DETACHED, GREEN, UNSEEN };

struct ending {
    int kind, device;
    CUcontext ctx;
    CUgreenCtx green;
    CUstream stream[2]; /* one works, one captures */
};

static void begin_ending(struct ending *e) {
    make_current(e->device);
#if CUDA_VERSION >= 12050
    if (e->kind == GREEN) {
        MUST(door_green_create(&e->green, &e->ctx, e->device));
        MUST(cuCtxSetCurrent(e->ctx));
        for (int i = 0; i < 2; i++)
            MUST(door_green_stream(&e->stream[i], e->green));
        return;
    }
#endif
    MUST(door_context_create(&e->ctx, e->device));
    for (int i = 0; i < 2; i++)
        MUST(door_stream_create(&e->stream[i], i ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
}

static void end_ending(struct ending *e) {
    switch (e->kind) {
#if CUDA_VERSION >= 12050
    case GREEN: MUST(door_green_destroy(e->green, e->ctx)); break;
#endif
    case DETACHED: MUST(door_context_detach(e->ctx)); break;
    case UNSEEN: MUST(cuCtxDestroy(e->ctx)); break;
    default: MUST(door_context_destroy(e->ctx));
    }
    make_current(e->device);
}

/* A context that ends as it is: a stream captures, blocks have been freed behind work that has not run, and
 * synchronous ones have not been freed at all. The driver lets the work run first. */
void context_ends(void) {
    unsigned how = fuzz_byte(&run.in), blocks = 1 + how / 8 % 4;
    struct ending e = {.kind = (int)(how % 4), .device = (int)(how / 4 % 2 % (unsigned)world.devices)};
    static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_GLOBAL};
    /* Whoever finds out has to ask for what is no more. */
    if (e.kind == UNSEEN && !world.unseen)
        e.kind = MADE;
    if (run.capturing || run.count + blocks > BLOCKS || (e.kind == GREEN && (world.old_driver || CUDA_VERSION < 12050)))
        return;
    let_all_go();
    begin_ending(&e);
    const bool captures = how & 32 && !run.tries_on && world.captures && !world.small_are_native;
    if (captures)
        MUST(door_begin_capture(e.stream[1], modes[how >> 6 & 1]));
    for (unsigned i = 0; i < blocks; i++) {
        unsigned what = fuzz_byte(&run.in);
        struct block b = {.size = any_size(), .device = e.device, .sync = what & 1 && e.kind != UNSEEN};
        CUresult res = b.sync ? door_alloc(&b.at, b.size) : door_alloc_async(&b.at, b.size, NULL, e.stream[0]);
        run.pool_operations++;
        /* What is left to CUDA, as the driver refuses to map memory, cannot be allocated meanwhile. */
        if (res == CUDA_ERROR_OUT_OF_MEMORY ||
            (res == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && captures && !vp_state.pools[e.device]))
            continue;
        must(res, "an allocation in a context of its own");
        size_t words = b.size / 4 + !(b.size / 4);
        if ((b.owner = owner_new(b.at, b.size))) {
            owner_ending(b.owner);
            MUST(cuMemsetD32Async(b.at, owner_word(b.owner, true), words, e.stream[0]));
            owner_ended(b.owner);
        }
        /* Memory of the driver's own that is not freed here goes, or stays, with nobody to tell. */
        if (!b.sync || what & 2 || !b.owner)
            MUST(b.sync ? door_free(b.at) : door_free_async(b.at, e.stream[0]));
    }
    end_ending(&e);
}

/* ---- threads ---- */

struct visitor {
    uint64_t host;  /* the thread that waits for its end */
    int device, to; /* whose stream goes on with what is left */
    unsigned how;
    struct block left[4];
    size_t count, operations;
};

static void *visit(void *arg) {
    struct visitor *v = arg;
    CUevent event;
    /* The library looks at other threads that it waits for: this is to be the same in each run. */
    while (vp_thread_is_ready(v->host))
        syscall(SYS_sched_yield);
    MUST(cuCtxSetCurrent(world.context[v->device]));
    for (unsigned i = 0; i < 1 + v->how % 4; i++) {
        struct block b = {.size = any_size(), .device = v->device, .home = v->to};
        CUresult res = door_alloc_async(&b.at, b.size, NULL, CU_STREAM_PER_THREAD);
        v->operations++;
        if (res == CUDA_ERROR_OUT_OF_MEMORY)
            continue;
        must(res, "an allocation of a thread");
        bool stays = v->how >> (2 + i) & 1;
        if ((b.owner = owner_new(b.at, b.size))) {
            size_t words = b.size / 4 + !(b.size / 4);
            if (!stays)
                owner_ending(b.owner);
            MUST(cuMemsetD32Async(b.at, owner_word(b.owner, !stays), words, CU_STREAM_PER_THREAD));
            if (!stays)
                owner_ended(b.owner);
        }
        if (stays)
            v->left[v->count++] = b;
        else
            MUST(door_free_async(b.at, CU_STREAM_PER_THREAD));
    }
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventRecord(event, CU_STREAM_PER_THREAD));
    MUST(cuStreamWaitEvent(run.streams[v->to].handle, event, 0));
    MUST(cuEventDestroy(event));
    /* It is left as it is. */
    if (v->how & 64 && world.captures)
        MUST(door_begin_capture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
    return NULL;
}

/* A thread's own stream ends with it, busy or capturing; what it has allocated is another stream's to free. */
void thread_ends(void) {
    pthread_t thread;
    struct visitor v = {.host = vp_thread_id(), .how = fuzz_byte(&run.in), .to = any_stream()};
    struct stream *s = &run.streams[v.to];
    if (run.capturing || !s->plain || !usable(v.to) || run.count + 4 > BLOCKS)
        return;
    v.device = s->device;
    enter(v.to);
    /* The thread's stream is a blocking one. */
    s->behind |= run.streams[v.device * STREAMS_EACH].behind;
    if (pthread_create(&thread, NULL, visit, &v) || pthread_join(thread, NULL))
        fuzz_fail("no thread");
    run.left_behind[v.device] |= s->behind;
    run.pool_operations += v.operations;
    for (size_t i = 0; i < v.count; i++)
        run.blocks[run.count++] = v.left[i];
}

/* ---- resets ---- */

/* Who ends a context waits for those who wait in it: here that is this same thread. */
static bool waited_in(int device) {
    const struct vp_context *ctx;
    vp_list_each(ctx, &vp_state.timelines.contexts, link)
        if (ctx->device == device && ctx->waiters)
            return true;
    return false;
}

/* A device's primary context ends with all that is synchronous, whatever captures there; and begins again. */
void reset(void) {
    unsigned how = fuzz_byte(&run.in);
    int device = (int)(how % (unsigned)world.devices), first = device * STREAMS_EACH;
    if (run.peers || world.small_are_native || (how & 6) || world.no_holds || waited_in(device))
        return;
    let_all_go();
    run_dry();
    for (unsigned i = 0; i < run.count;) {
        struct block *b = &run.blocks[i];
        b->used &= ~(((1u << STREAMS_EACH) - 1) << first);
        if (!b->sync || b->device != device) {
            i++;
            continue;
        }
        if (b->owner) {
            owner_ending(b->owner);
            owner_ended(b->owner);
        }
        *b = run.blocks[--run.count];
    }
    for (int i = 0; i < OTHERS; i++)
        if (run.others[i].kind != DOOR_HANDLE && run.other_device[i] == device)
            run.others[i].kind = DOOR_NONE;
    cache_reset(device);
    for (int i = first; i < first + STREAMS_EACH; i++)
        if (run.streams[i].capturing)
            run.capturing--;
    MUST(door_primary_reset(device));
    MUST(door_primary(&world.context[device], device));
    for (int i = first; i < first + STREAMS_EACH; i++)
        if (run.streams[i].plain)
            make_stream(i);
        else
            run.streams[i].lives++;
    make_current(device);
}

/* ---- while the library waits ---- */

static struct {
    bool open, inside;
    unsigned random, pauses;
} waiting;

static unsigned next_random(void) {
    waiting.random = waiting.random * 1103515245 + 12345;
    return waiting.random >> 16 & 255;
}

/* Who finds no memory waits for the range that is being built: here by this same thread. */
static bool builds(void) {
    for (int i = 0; i < world.devices; i++)
        if (vp_state.pools[i] && vp_state.pools[i]->bound.under_way)
            return true;
    return false;
}

/* Others let go of what they hold. */
static void let_others_go(void) {
    CUcontext current;
    MUST(cuCtxGetCurrent(&current));
    let_all_go();
    MUST(cuCtxSetCurrent(current));
}

/* Another thread's turn. */
static void meanwhile(void) {
    static void (*const cached[])(void) = {cache_alloc, cache_alloc, cache_free, cache_free, cache_record, cache_empty};
    static void (*const operations[])(void) = {
        renew_stream, renew_stream, capture, context, context_ends, thread_ends, reset,         free_async,  free_last,
        free_sync,    let_go,       let_go,  hold,    memory_pool,  alloc_async, begin_capture, context_ends};
    uint8_t bytes[24];
    CUcontext current;
    if (waiting.pauses && !--waiting.pauses)
        let_others_go();
    if (waiting.inside || !waiting.open || !run.meanwhile || run.count > BLOCKS - 16 || builds())
        return;
    run.meanwhile--;
    uint64_t began = vp_clock_ns();
    struct fuzz_input in = run.in;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)next_random();
    run.in = (struct fuzz_input){bytes, sizeof bytes, 0};
    MUST(cuCtxGetCurrent(&current));
    waiting.open = false;
    waiting.inside = true;
    const unsigned kind = next_random();
    if (target.bare && !cache.busy && kind >= 128)
        cached[kind % (sizeof cached / sizeof *cached)]();
    else
        operations[kind % (sizeof operations / sizeof *operations)]();
    waiting.inside = false;
    waiting.open = true;
    MUST(cuCtxSetCurrent(current));
    run.in = in;
    run.meanwhile_ns += vp_clock_ns() - began;
}

void during_waits(void) {
    unsigned what = fuzz_byte(&run.in);
    run.meanwhile = 1 + what % 8;
    waiting.random = what * 40503 + run.count;
    world_meanwhile = meanwhile;
}

void hold_for(unsigned pauses) {
    world_meanwhile = meanwhile;
    waiting.pauses = pauses;
}

void waits_begin(void) {
    waiting.open = true;
}

void waits_end(void) {
    waiting.open = false;
}
