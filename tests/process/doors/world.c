/* What the made-up program has: blocks, streams, contexts; the order of its work; and what its memory holds. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "doors.h"

#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

void say_address(CUdeviceptr at) {
    if (!at) {
        say(" 0");
        return;
    }
    for (int i = 0; i < BLOCKS; i++) {
        const struct block *b = &world.blocks[i];
        if (b->kind && at >= b->at && at - b->at < b->size) {
            say(" b%d+%zu", i, (size_t)(at - b->at));
            return;
        }
    }
    say(" other");
}

void say_context(CUcontext context) {
    for (int i = 0; i < CONTEXTS; i++)
        if (context && world.contexts[i].handle == context) {
            say(" c%d", i);
            return;
        }
    say(context ? " other" : " none");
}

uint64_t hash(const void *data, size_t bytes) {
    const unsigned char *at = data;
    uint64_t h = 0xcbf29ce484222325u;
    while (bytes) {
        uint64_t word = 0;
        size_t n = bytes < 8 ? bytes : 8;
        memcpy(&word, at, n);
        h = (h ^ word) * 0x100000001b3u;
        h ^= h >> 29;
        at += n;
        bytes -= n;
    }
    return h;
}

/* ---- what there is ---- */

void world_start(void) {
    CUcontext primary;
    cuInit(0);
    for (int i = 0; world.thread == 0 && i < DEVICES; i++) {
        struct context *c = &world.contexts[i];
        c->device = world.pools[i].device = i;
        world.pools[i].access = 1u << i;
        c->alive = cuDevicePrimaryCtxRetain(&c->handle, i) == CUDA_SUCCESS;
        world.pools[i].alive = world.pools[i].current = cuDeviceGetDefaultMemPool(&world.pools[i].handle, i) ==
                                                        CUDA_SUCCESS;
    }
    primary = world.contexts[0].handle;
    cuCtxSetCurrent(primary);
}

int current_context(void) {
    CUcontext now = NULL;
    if (cuCtxGetCurrent(&now) || !now)
        return -1;
    for (int i = 0; i < CONTEXTS; i++)
        if (world.contexts[i].alive && world.contexts[i].handle == now)
            return i;
    return -1;
}

bool current_has_ended(void) {
    CUcontext now = NULL;
    return !cuCtxGetCurrent(&now) && now && current_context() < 0;
}

int current_device(void) {
    int c = current_context();
    return c < 0 ? -1 : world.contexts[c].device;
}

int pick_block_of(unsigned kinds) {
    int at = (int)below(BLOCKS);
    for (int i = 0; i < BLOCKS; i++, at = (at + 1) % BLOCKS)
        if (world.blocks[at].kind && kinds & (1u << world.blocks[at].kind))
            return at;
    return -1;
}

int pick_block(void) {
    return pick_block_of(~(1u << GRAPH));
}

int free_block(void) {
    int at = (int)below(BLOCKS);
    for (int i = 0; i < BLOCKS; i++, at = (at + 1) % BLOCKS)
        if (!world.blocks[at].kind)
            return at;
    return -1;
}

int pick_made_stream(void) {
    int at = (int)below(STREAMS);
    for (int i = 0; i < STREAMS; i++, at = (at + 1) % STREAMS)
        if (at > OWN && world.streams[at].handle)
            return at;
    return -1;
}

int pick_stream(void) {
    if (one_in(4))
        return (int)below(2);
    int made = pick_made_stream();
    return made < 0 ? (int)below(2) : made;
}

int pick_context(void) {
    int at = (int)below(CONTEXTS);
    for (int i = 0; i < CONTEXTS; i++, at = (at + 1) % CONTEXTS)
        if (world.contexts[at].alive)
            return at;
    return -1;
}

int pick_pool(void) {
    int at = (int)below(POOLS);
    for (int i = 0; i < POOLS; i++, at = (at + 1) % POOLS)
        if (world.pools[at].alive)
            return at;
    return -1;
}

bool capturing(int stream) {
    return world.streams[stream].capture != 0;
}

CUstream handle_of(int stream) {
    if (stream == LEGACY)
        return world.ptsz || one_in(3) ? CU_STREAM_LEGACY : NULL;
    if (stream == OWN)
        return world.ptsz && one_in(2) ? NULL : CU_STREAM_PER_THREAD;
    return world.streams[stream].handle;
}

int context_of(int stream) {
    return stream <= OWN ? current_context() : world.streams[stream].context;
}

/* ---- order ---- */

static struct use use_of(int stream) {
    return (struct use){stream, stream <= OWN ? current_context() : -1, stream == OWN ? world.thread : -1};
}

bool drain_context(int context) {
    if (context < 0 || !world.contexts[context].alive)
        return context >= 0;
    CUcontext unused;
    cuCtxPushCurrent(world.contexts[context].handle);
    bool done = CALL(cuCtxSynchronize) == 0;
    cuCtxPopCurrent(&unused);
    for (int i = 0; done && i < BLOCKS; i++) {
        struct use *last = &world.blocks[i].last;
        if (last->stream != -1 && (last->stream > OWN ? world.streams[last->stream].context : last->context) == context)
            last->stream = -1;
    }
    return done;
}

bool drained(struct block *block) {
    struct use last = block->last;
    if (last.stream == -1)
        return true;
    return drain_context(last.stream > OWN ? world.streams[last.stream].context : last.context);
}

bool ordered(struct block *block, int stream) {
    struct use last = block->last, now = use_of(stream);
    if (last.stream == -1 || memcmp(&last, &now, sizeof(now)) == 0)
        return true;
    if (last.stream <= OWN || capturing(last.stream))
        return world.captures && !one_in(10) ? false : drained(block);
    struct stream *s = &world.streams[last.stream];
    if (one_in(3)) {
        bool done = CALL(cuStreamSynchronize, s->handle) == 0;
        for (int i = 0; done && i < BLOCKS; i++)
            if (world.blocks[i].last.stream == last.stream)
                world.blocks[i].last.stream = -1;
        return done;
    }
    return CALL(cuEventRecord, s->event, s->handle) == 0 &&
           CALLS(cuStreamWaitEvent, handle_of(stream), s->event, 0) == 0;
}

void used(struct block *block, int stream) {
    block->last = use_of(stream);
}

bool drain_all(void) {
    if (world.captures)
        return false;
    bool done = true;
    for (int i = 0; i < CONTEXTS; i++)
        if (world.contexts[i].alive)
            done = drain_context(i) && done;
    return done;
}

/* ---- ends ---- */

bool graphs_about(void) {
    for (int i = 0; i < GRAPHS; i++)
        if (world.graphs[i].taken)
            return true;
    return world.captures > 0;
}

void forget_block(struct block *block) {
    if (block->kind != HOST && block->kind != REGISTERED)
        world.alive -= block->size;
    if (block->kind == REGISTERED)
        free((void *)(uintptr_t)block->at);
    else
        world.stale[world.stale_next++ % STALE] = block->at;
    memset(block, 0, sizeof(*block));
}

static void forget_stream(int i) {
    struct stream *s = &world.streams[i];
    if (s->capture == i + 1)
        world.captures--;
    for (int b = 0; b < BLOCKS; b++)
        if (world.blocks[b].last.stream == i)
            world.blocks[b].last.stream = -1;
    memset(s, 0, sizeof(*s));
}

void forget_context(int context) {
    for (int i = 0; i < BLOCKS; i++) {
        struct block *b = &world.blocks[i];
        bool dies = b->kind == DEVICE || b->kind == MANAGED || b->kind == HOST || b->kind == REGISTERED;
        if (dies && b->context == context)
            forget_block(b);
        else if (b->kind && b->last.stream <= OWN && b->last.context == context)
            b->last.stream = -1;
    }
    for (int i = OWN + 1; i < STREAMS; i++)
        if (world.streams[i].handle && world.streams[i].context == context)
            forget_stream(i);
    for (int i = 0; i < EVENTS; i++)
        if (world.events[i] && world.event_contexts[i] == context)
            world.events[i] = NULL;
    world.contexts[context].alive = false;
    world.contexts[context].fill = NULL;
    world.contexts[context].peers = 0;
    const int device = world.contexts[context].device;
    for (int i = 0; i < CONTEXTS; i++)
        if (world.contexts[i].peers & 1u << device && world.contexts[i].peer_of[device] == context)
            world.contexts[i].peers &= ~(1u << device);
}

void look_at_primary(int device) {
    unsigned flags;
    int active = 0;
    cuDevicePrimaryCtxGetState(device, &flags, &active);
    if (!active && world.contexts[device].alive)
        forget_context(device);
    else if (active)
        world.contexts[device].alive = true;
}

/* ---- who may ---- */

bool may_copy(int context, const struct block *block) {
    /* docs/limits.md: between devices that cannot reach each other a copy needs a context of each. */
    if (block->kind == ASYNC && !world.contexts[block->device].alive)
        return false;
    /* And of stream-ordered memory they need leave in CUDA, which looks at the current context, in batches at the
     * stream's, and none here. */
    const int now = current_device();
    const unsigned access = block->kind == ASYNC ? world.pools[block->pool].access : block->access;
    if (block->kind != ASYNC && block->kind != MAPPED)
        return true;
    return (block->kind == ASYNC || context >= 0) && (now < 0 || access & (1u << now)) &&
           (context < 0 || access & (1u << world.contexts[context].device));
}

/* docs/limits.md: in a graph a copy is made by one context, which reaches both ends. */
bool may_copy_in_graph(int context, const struct block *to, const struct block *from) {
    const struct block *ends[] = {to, from};
    int can = 0;
    if (context < 0 || (cuDeviceCanAccessPeer(&can, 0, 1) == CUDA_SUCCESS && can))
        return true;
    for (int i = 0; i < 2; i++)
        if ((ends[i]->kind == DEVICE || ends[i]->kind == ASYNC) && ends[i]->device != world.contexts[context].device)
            return false;
    return true;
}

bool may_touch(int context, const struct block *block) {
    if (context < 0)
        return true; /* the call will fail */
    const struct context *c = &world.contexts[context];
    switch (block->kind) {
    case MAPPED: return block->access & (1u << c->device);
    case DEVICE:
        /* Peer access is given from context to context; here it holds for the device. */
        return block->device == c->device ||
               (c->peers & (1u << block->device) && c->peer_of[block->device] == block->context);
    case ASYNC: return block->device == c->device || world.pools[block->pool].access & (1u << c->device);
    case HOST:
    case REGISTERED:
    case MANAGED: return true;
    default: return false;
    }
}

/* ---- contents ---- */

size_t some_size(void) {
    static const size_t typical[] = {1, 16, 512, 513, 4096, 100000, 1 << 20, (1 << 20) + 1, 2 << 20, 3 << 20, 8 << 20};
    if (one_in(3))
        return typical[below(sizeof(typical) / sizeof(typical[0]))];
    return 1 + (size_t)(any() >> 20) % ((size_t)1 << (4 + below(20)));
}

struct block *new_block(enum kind kind, CUdeviceptr at, size_t size, int device, int stream) {
    int slot = free_block();
    if (slot < 0)
        abort();
    struct block *b = &world.blocks[slot];
    *b = (struct block){.kind = kind,
                        .at = at,
                        .size = size,
                        .device = device,
                        .context = current_context(),
                        .last = stream < 0 ? (struct use){-1, -1, -1} : use_of(stream)};
    if (kind != HOST && kind != REGISTERED)
        world.alive += size;
    say(" is b%d", slot);
    if (at % 256 && kind != REGISTERED)
        say(" misaligned");
    return b;
}

static void verify_block(int i, const struct block *b, unsigned char *buffer) {
    CUcontext unused;
    int c = b->device;
    const void *from = buffer;
    if (b->kind == HOST || b->kind == REGISTERED || b->kind == MANAGED) {
        from = (const void *)(uintptr_t)b->at;
    } else {
        if (b->kind == MAPPED && b->access && !(b->access & (1u << c)))
            c = __builtin_ctz(b->access);
        if (!world.contexts[c].alive || (b->kind == MAPPED && !b->access))
            return;
        cuCtxPushCurrent(world.contexts[c].handle);
        int res = (int)cuMemcpyDtoH(buffer, b->at, b->size);
        cuCtxPopCurrent(&unused);
        if (res) {
            say(" b%d unread %d", i, res);
            return;
        }
    }
    say(" b%d=%llx", i, (unsigned long long)hash(from, b->size));
}

void verify(void) {
    if (!drain_all())
        return;
    unsigned char *buffer = malloc(16 << 20);
    say(" host %u", host_count());
    for (int i = 0; i < BLOCKS; i++)
        if (world.blocks[i].kind && world.blocks[i].kind != GRAPH && world.blocks[i].known)
            verify_block(i, &world.blocks[i], buffer);
    free(buffer);
}
