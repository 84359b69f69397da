/* What takes several steps that belong together: captures and their graphs, contexts that come and go, work
 * with the world stopped. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "soak.h"

#include <string.h>
#include <vpool.h>

enum { FILLS = 3 };

/* A capture of fills on blocks of the worker, with other work going on beside it in this thread too. */
struct capture {
    CUstream stream;
    CUgraph graph;
    size_t chosen[FILLS], count;
    uint32_t words[FILLS];
    bool memory; /* the graph allocates memory of its own */
};

/* The blocks must be reached by the device of the stream, and no two may be the same. */
static void choose(struct worker *w, struct capture *c) {
    for (int i = 0; i < FILLS && w->count; i++) {
        size_t at = soak_random(w, (uint32_t)w->count);
        bool good = w->blocks[at].device == w->device && w->blocks[at].size >= 4;
        for (size_t k = 0; k < c->count; k++)
            good &= c->chosen[k] != at;
        if (good)
            c->chosen[c->count++] = at;
    }
}

static void capture_fills(struct worker *w, struct capture *c) {
    for (size_t i = 0; i < c->count; i++) {
        struct block copy = w->blocks[c->chosen[i]];
        c->words[i] = block_new_word();
        MUST(w, &copy,
             cuMemsetD8Async(copy.ptr + copy.size / 4 * 4 - 4, (unsigned char)c->words[i], copy.size % 4 + 4,
                             c->stream));
        MUST(w, &copy, cuMemsetD32Async(copy.ptr, c->words[i], copy.size / 4, c->stream));
    }
}

/* An allocation on a capturing stream is a node of the graph; a block of the pool is not freed there. */
static void capture_memory(struct worker *w, struct capture *c) {
    CUdeviceptr ptr = 0;
    CUresult res = door_alloc_async(&ptr, 4096 + soak_random(w, 65536), NULL, c->stream);
    if (res == CUDA_ERROR_OUT_OF_MEMORY)
        return;
    MUST(w, NULL, res);
    MUST(w, NULL, cuMemsetD8Async(ptr, 1, 4096, c->stream));
    MUST(w, NULL, door_free_async(ptr, c->stream));
    c->memory = true;
}

/* Ordinary calls of the thread while its stream captures. */
static void meanwhile(struct worker *w) {
    size_t free_bytes, total, keep = w->count;
    MUST(w, NULL, door_mem_info(&free_bytes, &total));
    for (int i = 0; i < 4; i++) {
        size_t size = soak.granularity + soak_random(w, 1 << 18);
        if (!block_alloc(w, size, (int)soak_random(w, (uint32_t)soak.devices)))
            break;
    }
    while (w->count > keep && soak_random(w, 3))
        block_free(w, w->count - 1);
}

static void launch(struct worker *w, struct capture *c, int device) {
    CUgraphExec exec;
    MUST(w, NULL, cuGraphInstantiateWithFlags(&exec, c->graph, 0));
    struct stream *s;
    while ((s = stream_pick(w, device))->device != device)
        stream_leave(s);
    for (size_t i = 0; i < c->count; i++) {
        struct block *b = &w->blocks[c->chosen[i]];
        block_move(w, b, s);
        block_inspect(w, b);
        b->word = c->words[i];
        history_add(w, FILL, b, s->handle);
    }
    soak_device(w, device);
    MUST(w, NULL, cuGraphLaunch(exec, s->handle));
    if (c->memory)
        MUST(w, NULL, cuStreamSynchronize(s->handle));
    stream_leave(s);
    MUST(w, NULL, cuGraphExecDestroy(exec));
}

/* While a blocking stream captures, work on the legacy stream would destroy the capture. */
static void capture(struct worker *w, CUstreamCaptureMode mode, bool blocking) {
    struct capture c = {0};
    if (blocking && pthread_rwlock_trywrlock(&soak.legacy) != 0)
        return;
    w->no_legacy = blocking;
    int device = (int)soak_random(w, (uint32_t)soak.devices);
    /* To wait for an event is not allowed during a capture: there must be room for what is inspected. */
    inspections_finish(w, true);
    soak_device(w, device);
    choose(w, &c);
    MUST(w, NULL, door_stream_create(&c.stream, blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    MUST(w, NULL, door_begin_capture(c.stream, mode));
    capture_fills(w, &c);
    meanwhile(w);
    soak_device(w, device);
    if (soak_random(w, 3) == 0)
        capture_memory(w, &c);
    /* A capturing stream may be destroyed, and its capture with it. */
    bool abandoned = soak_random(w, 8) == 0;
    CUresult res = abandoned ? door_stream_destroy(c.stream) : door_end_capture(c.stream, &c.graph);
    if (res)
        soak_fail(w, NULL, "the %s capture (mode %d) of a %sblocking stream was destroyed: %d",
                  c.memory ? "allocating" : "plain", (int)mode, blocking ? "" : "non-", (int)res);
    w->no_legacy = false;
    if (blocking)
        pthread_rwlock_unlock(&soak.legacy);
    atomic_fetch_add(&soak.captures, 1);
    if (abandoned)
        return;
    launch(w, &c, device);
    soak_device(w, device);
    MUST(w, NULL, cuGraphDestroy(c.graph));
    MUST(w, NULL, door_stream_destroy(c.stream));
}

void episode_capture(struct worker *w) {
    capture(w, soak_random(w, 2) ? CU_STREAM_CAPTURE_MODE_RELAXED : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            soak_random(w, 3) == 0);
}

/* A context of its own: its synchronous blocks end with it, the stream-ordered ones stay. */
void episode_context(struct worker *w) {
    enum { OWN = 4 };
    int device = (int)soak_random(w, (uint32_t)soak.devices);
    struct block dying[OWN], b;
    size_t count = 0, kept = 0;
    CUcontext ctx;
    CUstream stream;
    MUST(w, NULL, door_context_create(&ctx, device));
    MUST(w, NULL, door_stream_create(&stream, CU_STREAM_NON_BLOCKING));
    struct stream *home = stream_new(PLAIN, stream, device);
    for (int i = 0; i < OWN && w->count < BLOCKS_MOST; i++) {
        bool sync = soak_random(w, 2);
        b = (struct block){.size = 1 + soak_random(w, 1 << 20), .device = device, .home = home};
        b.served = !soak.pages_only || b.size >= soak.granularity;
        if (!b.served && sync)
            continue;
        CUresult res = sync ? door_alloc(&b.ptr, b.size) : door_alloc_async(&b.ptr, b.size, NULL, stream);
        if (res == CUDA_ERROR_OUT_OF_MEMORY)
            continue;
        MUST(w, &b, res);
        history_add(w, sync ? ALLOC : ALLOC_ASYNC, &b, stream);
        block_fill(w, &b);
        if (sync) {
            dying[count++] = b;
        } else {
            atomic_fetch_add(&soak.live[device], b.size);
            w->blocks[w->count++] = b;
            kept++;
        }
        atomic_fetch_add(&soak.allocs, 1);
    }
    /* The program's duty before it destroys a context whose memory it will go on using. */
    MUST(w, NULL, cuStreamSynchronize(stream));
    for (size_t i = 0; i < count; i++) {
        block_inspect_now(w, &dying[i]);
        history_add(w, LOST, &dying[i], NULL);
    }
    for (size_t i = 0; i < kept; i++)
        w->blocks[w->count - 1 - i].home = NULL;
    stream_put(home);
    MUST(w, NULL, door_context_destroy(ctx));
    w->device = -1;
    soak_device(w, device);
    atomic_fetch_add(&soak.contexts, 1);
}

/* A device's memory goes to the host and back. A call of it may be the one that is to fail, and to the others that is
 * no loss: the next try does it. */
static void sleep_and_wake(struct worker *w) {
    int device = (int)soak_random(w, (uint32_t)soak.devices), err = vpool_pause(device);
    if (err)
        return;
    for (int tries = 0; tries < 8 && (err = vpool_resume(device)) != 0; tries++)
        continue;
    if (err)
        soak_fail(w, NULL, "device %d sleeps on: %s", device, strerror(-err));
    atomic_fetch_add(&soak.slept, 1);
}

/* What would disturb other threads: they stand still meanwhile. */
void episode_alone(struct worker *w) {
    pthread_rwlock_wrlock(&soak.world);
    if (soak_random(w, 4) == 0) {
        sleep_and_wake(w);
    } else if (soak_random(w, 2)) {
        capture(w, CU_STREAM_CAPTURE_MODE_GLOBAL, soak_random(w, 2));
    } else {
        soak_device(w, (int)soak_random(w, (uint32_t)soak.devices));
        MUST(w, NULL, door_synchronize());
    }
    pthread_rwlock_unlock(&soak.world);
}
