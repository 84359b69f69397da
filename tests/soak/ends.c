/* What ends in the middle of its work, beside all that goes on elsewhere: contexts of all kinds, with a
 * capture in them and with frees that nothing has waited for; threads with streams of their own, which may
 * capture, and which may be cancelled; and streams that wait for the program, which goes on allocating
 * meanwhile. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "soak.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

/* ---- contexts ---- */

enum { OWN = 4 };
enum ending { DESTROYED, DETACHED, GREEN, ENDINGS };

struct guest {
    enum ending how;
    int device;
    CUcontext ctx;
    CUgreenCtx green;
    CUstream stream[2]; /* one works, one captures */
    struct block block[OWN];
    void *copy[OWN]; /* what was in the block when it was freed, or left */
    size_t count;
};

static void guest_begin(struct worker *w, struct guest *g) {
#if CUDA_VERSION >= 12050
    if (g->how == GREEN) {
        MUST(w, NULL, door_green_create(&g->green, &g->ctx, g->device));
        MUST(w, NULL, cuCtxSetCurrent(g->ctx));
        for (int i = 0; i < 2; i++)
            MUST(w, NULL, door_green_stream(&g->stream[i], g->green));
        return;
    }
#endif
    MUST(w, NULL, door_context_create(&g->ctx, g->device));
    for (int i = 0; i < 2; i++)
        MUST(w, NULL, door_stream_create(&g->stream[i], CU_STREAM_NON_BLOCKING));
}

static void guest_end(struct worker *w, struct guest *g) {
#if CUDA_VERSION >= 12050
    if (g->how == GREEN)
        MUST(w, NULL, door_green_destroy(g->green, g->ctx));
#endif
    if (g->how == DETACHED)
        MUST(w, NULL, door_context_detach(g->ctx));
    if (g->how == DESTROYED)
        MUST(w, NULL, door_context_destroy(g->ctx));
}

/* A block that is filled and read; freed behind that, or left for its context's end to take. */
static void guest_block(struct worker *w, struct guest *g, struct stream *home) {
    bool sync = soak_random(w, 2);
    struct block b = {.size = 1 + soak_random(w, 1 << 20), .device = g->device, .home = home, .served = true};
    if (soak.pages_only)
        b.size += soak.granularity;
    CUresult res = sync ? door_alloc(&b.ptr, b.size) : door_alloc_async(&b.ptr, b.size, NULL, g->stream[0]);
    if (res == CUDA_ERROR_OUT_OF_MEMORY)
        return;
    MUST(w, &b, res);
    history_add(w, sync ? ALLOC : ALLOC_ASYNC, &b, g->stream[0]);
    atomic_fetch_add(&soak.allocs, 1);
    block_fill(w, &b);
    void *copy = malloc(b.size);
    if (!copy)
        abort();
    MUST(w, &b, cuMemcpyAsync((CUdeviceptr)(uintptr_t)copy, b.ptr, b.size, g->stream[0]));
    g->block[g->count] = b;
    g->copy[g->count++] = copy;
    if (sync && soak_random(w, 2)) {
        history_add(w, LOST, &b, NULL);
        return;
    }
    history_add(w, sync ? FREE : FREE_ASYNC, &b, g->stream[0]);
    MUST(w, &b, sync ? door_free(b.ptr) : door_free_async(b.ptr, g->stream[0]));
}

void episode_ending(struct worker *w) {
    struct guest g = {.how = soak_random(w, ENDINGS), .device = (int)soak_random(w, (uint32_t)soak.devices)};
    int version = 0;
    cuDriverGetVersion(&version);
    if (g.how == GREEN && (version < 12050 || CUDA_VERSION < 12050))
        g.how = DETACHED;
    /* Only by asking for it does the door find out whether it was the last reference: the simulated driver
     * has that for a violation. */
    if (g.how == DETACHED && !doors_direct)
        g.how = DESTROYED;
    guest_begin(w, &g);
    if (soak_random(w, 2)) {
        MUST(w, NULL, door_begin_capture(g.stream[1], CU_STREAM_CAPTURE_MODE_RELAXED));
        atomic_fetch_add(&soak.captures, 1);
    }
    struct stream *home = stream_new(PLAIN, g.stream[0], g.device);
    for (int i = 0; i < OWN; i++)
        guest_block(w, &g, home);
    stream_put(home);
    guest_end(w, &g);
    /* The driver has let its work run before it was gone. */
    for (size_t i = 0; i < g.count; i++) {
        block_compare(w, &g.block[i], g.copy[i]);
        free(g.copy[i]);
    }
    w->device = -1;
    soak_device(w, g.device);
    atomic_fetch_add(&soak.contexts, 1);
}

/* ---- threads ---- */

struct visitor {
    struct worker *host;
    int device;
    bool captures;
    uint32_t frees; /* which blocks, by bit */
    struct block block[OWN];
    CUresult result[OWN];
    size_t count;
};

/* While it may be cancelled, which is only inside the library's calls, and between them. */
static void cancellable(bool may) {
    pthread_setcancelstate(may ? PTHREAD_CANCEL_ENABLE : PTHREAD_CANCEL_DISABLE, NULL);
}

/* Runs at its end, of whichever kind: what it leaves may be used behind its stream's work. */
static void visitor_leaves(void *arg) {
    struct visitor *v = arg;
    struct worker *w = v->host;
    for (size_t i = 0; i < v->count; i++) {
        struct block *b = &v->block[i];
        if (b->ptr) {
            MUST(w, b, cuEventCreate(&b->ready, CU_EVENT_DISABLE_TIMING));
            MUST(w, b, cuEventRecord(b->ready, CU_STREAM_PER_THREAD));
        }
    }
    if (v->captures)
        MUST(w, NULL, door_begin_capture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
}

static void visit(struct visitor *v, struct stream *own) {
    struct worker *w = v->host;
    for (size_t i = 0; i < v->count; i++) {
        struct block *b = &v->block[i];
        cancellable(true);
        v->result[i] = door_alloc_async(&b->ptr, b->size, NULL, CU_STREAM_PER_THREAD);
        cancellable(false);
        if (v->result[i] == CUDA_ERROR_OUT_OF_MEMORY)
            continue;
        MUST(w, b, v->result[i]);
        b->home = own;
        history_add(w, ALLOC_ASYNC, b, CU_STREAM_PER_THREAD);
        block_fill(w, b);
        b->home = NULL;
        if (!(v->frees >> i & 1))
            continue;
        /* It is nobody's from here on, if it is cancelled or not. */
        CUdeviceptr ptr = b->ptr;
        b->ptr = 0;
        history_add(w, FREE_ASYNC, b, CU_STREAM_PER_THREAD);
        MUST(w, b, door_free_async(ptr, CU_STREAM_PER_THREAD));
        cancellable(true);
        pthread_testcancel();
        cancellable(false);
    }
}

static void *visitor_run(void *arg) {
    struct visitor *v = arg;
    struct stream *own = stream_new(PER_THREAD, CU_STREAM_PER_THREAD, v->device);
    cancellable(false);
    MUST(v->host, NULL, cuCtxSetCurrent(soak.context[v->device]));
    pthread_cleanup_push(visitor_leaves, v);
    visit(v, own);
    pthread_cleanup_pop(1);
    return NULL;
}

/* What a thread has left is this one's from now on. */
static void inherit(struct worker *w, struct visitor *v) {
    for (size_t i = 0; i < v->count; i++) {
        struct block b = v->block[i];
        if (!b.ptr)
            continue;
        atomic_fetch_add(&soak.live[b.device], b.size);
        atomic_fetch_add(&soak.allocs, 1);
        w->blocks[w->count++] = b;
    }
}

void episode_thread(struct worker *w) {
    struct visitor v = {.host = w, .device = (int)soak_random(w, (uint32_t)soak.devices), .frees = soak_random(w, 16)};
    pthread_t thread;
    if (w->count + OWN > BLOCKS_MOST)
        return;
    /* Its stream is a blocking one. */
    v.captures = soak_random(w, 3) == 0 && pthread_rwlock_trywrlock(&soak.legacy) == 0;
    v.count = 1 + soak_random(w, OWN);
    for (size_t i = 0; i < v.count; i++)
        v.block[i] = (struct block){
            .size = soak.granularity + soak_random(w, 1 << 20), .device = v.device, .served = true};
    if (pthread_create(&thread, NULL, visitor_run, &v))
        soak_fail(w, NULL, "no thread");
    if (soak_random(w, 2)) {
        nanosleep(&(struct timespec){.tv_nsec = (long)soak_random(w, 200000)}, NULL);
        pthread_cancel(thread);
    }
    pthread_join(thread, NULL);
    if (v.captures)
        pthread_rwlock_unlock(&soak.legacy);
    inherit(w, &v);
}

/* ---- streams that wait for the program ---- */

static void wait_at_gate(void *open) {
    while (!atomic_load((atomic_bool *)open))
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

/* A host function waits for what this thread does later, which is to allocate on other streams: they may have
 * to take what others have freed behind the function. Nothing of it may wait for long, if the device is not
 * full. No call of the driver's own that waits for the device: it would wait for ever. */
void episode_gate(struct worker *w) {
    static atomic_bool used;
    atomic_bool open = false;
    bool before = atomic_exchange(&used, true);
    int device = (int)soak_random(w, (uint32_t)soak.devices);
    CUstream gated, free_stream;
    struct timespec begin, end;
    if (before)
        return;
    if (atomic_load(&soak.live[device]) > soak.capacity / 2) {
        atomic_store(&used, false);
        return;
    }
    soak_device(w, device);
    MUST(w, NULL, door_stream_create(&gated, CU_STREAM_NON_BLOCKING));
    MUST(w, NULL, door_stream_create(&free_stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr behind[OWN] = {0}, taken[OWN] = {0};
    size_t size = soak.granularity + soak_random(w, 1 << 21);
    bool good = true;
    for (int i = 0; i < OWN && good; i++) {
        good = door_alloc_async(&behind[i], size, NULL, gated) == CUDA_SUCCESS;
        atomic_fetch_add(&soak.allocs, good);
    }
    MUST(w, NULL, door_host_function(gated, wait_at_gate, &open));
    for (int i = 0; i < OWN && behind[i]; i++)
        MUST(w, NULL, door_free_async(behind[i], gated));
    clock_gettime(CLOCK_MONOTONIC, &begin);
    end = begin;
    for (int i = 0; i < OWN && good && end.tv_sec - begin.tv_sec < 2; i++) {
        good = door_alloc_async(&taken[i], size, NULL, free_stream) == CUDA_SUCCESS;
        atomic_fetch_add(&soak.allocs, good);
        clock_gettime(CLOCK_MONOTONIC, &end);
    }
    atomic_store(&open, true);
    if (end.tv_sec - begin.tv_sec > 20)
        soak_fail(w, NULL, "allocations beside a stream that waits took %ld s", (long)(end.tv_sec - begin.tv_sec));
    for (int i = 0; i < OWN && taken[i]; i++)
        MUST(w, NULL, door_free_async(taken[i], free_stream));
    /* `open` is this function's. */
    MUST(w, NULL, cuStreamSynchronize(gated));
    MUST(w, NULL, door_stream_destroy(gated));
    MUST(w, NULL, door_stream_destroy(free_stream));
    atomic_store(&used, false);
}
