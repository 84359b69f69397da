/* The life of a block: allocated, filled, moved between streams, inspected, freed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "soak.h"

#include <stdlib.h>
#include <string.h>

uint32_t block_new_word(void) {
    uint32_t number;
    do
        number = atomic_fetch_add(&soak.next_word, 1) + 1;
    while (!number);
    return owner_mark(number);
}

bool block_reaches(const struct block *b, int device) {
    return b->device == device || (soak.peers && b->served);
}

/* ---- which stream ---- */

static void set_home(struct block *b, struct stream *to) {
    stream_get(to);
    stream_put(b->home);
    b->home = to;
}

struct stream *block_enter(struct worker *w, struct block *b) {
    struct stream *s = b->home;
    CUevent behind = b->ready;
    if (s && stream_enter(w, s)) {
        if (!behind)
            return s;
    } else {
        behind = behind ? behind : s ? s->last : NULL;
        for (;;) {
            s = stream_pick(w, b->device);
            if (block_reaches(b, s->device))
                break;
            stream_leave(s);
        }
    }
    if (behind)
        MUST(w, b, cuStreamWaitEvent(s->handle, behind, 0));
    if (b->ready)
        MUST(w, b, cuEventDestroy(b->ready));
    b->ready = NULL;
    set_home(b, s);
    return s;
}

void block_move(struct worker *w, struct block *b, struct stream *to) {
    struct stream *from = b->home;
    if (from == to && !b->ready)
        return;
    /* Two locks for use at once are no danger: who wants to destroy a stream only tries. */
    if (!b->ready && from && stream_enter(w, from)) {
        b->ready = stream_mark(w, from);
        stream_leave(from);
    }
    CUevent behind = b->ready ? b->ready : from ? from->last : NULL;
    soak_device(w, to->device);
    if (behind)
        MUST(w, b, cuStreamWaitEvent(to->handle, behind, 0));
    if (b->ready)
        MUST(w, b, cuEventDestroy(b->ready));
    b->ready = NULL;
    set_home(b, to);
    history_add(w, MOVE, b, to->handle);
}

/* ---- data ---- */

void block_fill(struct worker *w, struct block *b) {
    size_t words = b->size / 4, rest = b->size % 4;
    b->word = block_new_word();
    history_add(w, FILL, b, b->home->handle);
    if (words)
        MUST(w, b, cuMemsetD32Async(b->ptr, b->word, words, b->home->handle));
    if (rest)
        MUST(w, b, cuMemsetD8Async(b->ptr + 4 * words, (unsigned char)b->word, rest, b->home->handle));
}

void block_compare(struct worker *w, const struct block *b, const void *copy) {
    size_t at = owner_intruder(copy, b->size, b->word);
    uint32_t found = 0;
    if (at == b->size)
        return;
    memcpy(&found, (const char *)copy + at, b->size - at < 4 ? 1 : 4);
    history_print(b, found);
    soak_fail(w, b, "byte %zu of %zu was overwritten: word %08x, not %08x", at, b->size, found, b->word);
}

static bool arrived(struct worker *w, struct inspection *i, bool wait) {
    CUresult res = wait ? cuEventSynchronize(i->copied) : cuEventQuery(i->copied);
    if (res == CUDA_ERROR_NOT_READY)
        return false;
    MUST(w, &i->block, res);
    block_compare(w, &i->block, w->ring + i->at);
    MUST(w, &i->block, cuEventDestroy(i->copied));
    stream_put(i->block.home);
    return true;
}

static bool finish_first(struct worker *w, bool wait) {
    struct inspection *i = &w->inspections[w->first_inspection];
    if (!w->inspecting || !arrived(w, i, wait))
        return false;
    w->first_inspection = (w->first_inspection + 1) % INSPECTIONS;
    w->inspecting--;
    w->ring_used -= i->bytes;
    return true;
}

void inspections_finish(struct worker *w, bool all) {
    while (finish_first(w, all))
        continue;
}

/* Room in the ring, made by waiting for the oldest if need be. */
static struct inspection *inspection_new(struct worker *w, size_t size) {
    size_t bytes = (size + 63) / 64 * 64;
    for (;;) {
        bool wrap = w->ring_head + bytes > soak.ring;
        size_t at = wrap ? 0 : w->ring_head, padding = wrap ? soak.ring - w->ring_head : 0;
        if (w->inspecting < INSPECTIONS && w->ring_used + padding + bytes <= soak.ring) {
            struct inspection *i = &w->inspections[(w->first_inspection + w->inspecting++) % INSPECTIONS];
            i->at = at;
            i->bytes = bytes + padding;
            w->ring_head = at + bytes;
            w->ring_used += i->bytes;
            return i;
        }
        finish_first(w, true);
    }
}

void block_inspect(struct worker *w, struct block *b) {
    if (!b->word)
        return;
    struct inspection *i = inspection_new(w, b->size);
    i->block = *b;
    stream_get(b->home);
    history_add(w, INSPECT, b, b->home->handle);
    MUST(w, b, cuMemcpyAsync((CUdeviceptr)(uintptr_t)(w->ring + i->at), b->ptr, b->size, b->home->handle));
    i->copied = stream_mark(w, b->home);
}

void block_inspect_now(struct worker *w, const struct block *b) {
    void *copy = malloc(b->size);
    if (!copy)
        abort();
    MUST(w, b, cuMemcpyAsync((CUdeviceptr)(uintptr_t)copy, b->ptr, b->size, b->home->handle));
    MUST(w, b, cuStreamSynchronize(b->home->handle));
    block_compare(w, b, copy);
    free(copy);
}

/* ---- allocation and release ---- */

static bool alloc_sync(struct worker *w, struct block *b) {
    soak_device(w, b->device);
    CUresult res = door_alloc(&b->ptr, b->size);
    if (res == CUDA_ERROR_OUT_OF_MEMORY)
        return false;
    MUST(w, b, res);
    history_add(w, ALLOC, b, NULL);
    return true;
}

static bool alloc_async(struct worker *w, struct block *b) {
    struct stream *s = stream_pick(w, b->device);
    if (s->device != b->device && !b->served) {
        stream_leave(s);
        return alloc_sync(w, b);
    }
    CUmemoryPool pool = s->device != b->device || soak_random(w, 3) == 0 ? soak.pool[b->device] : NULL;
    CUresult res = door_alloc_async(&b->ptr, b->size, pool, s->handle);
    if (!res) {
        set_home(b, s);
        history_add(w, ALLOC_ASYNC, b, s->handle);
    }
    stream_leave(s);
    if (res != CUDA_ERROR_OUT_OF_MEMORY)
        MUST(w, b, res);
    return !res;
}

bool block_alloc(struct worker *w, size_t size, int device) {
    struct block b = {.size = size, .device = device, .served = !soak.pages_only || size >= soak.granularity};
    if (w->count == BLOCKS_MOST)
        return false;
    if (!(soak_random(w, 100) < soak.sync ? alloc_sync(w, &b) : alloc_async(w, &b))) {
        atomic_fetch_add(&soak.ooms, 1);
        return false;
    }
    if (b.ptr % 256)
        soak_fail(w, &b, "an address that is not aligned");
    atomic_fetch_add(&soak.live[device], size);
    atomic_fetch_add(&soak.allocs, 1);
    struct stream *s = block_enter(w, &b);
    block_fill(w, &b);
    stream_leave(s);
    w->blocks[w->count++] = b;
    return true;
}

bool block_scratch(struct worker *w, struct block *b) {
    struct stream *s = block_enter(w, b);
    if (s->device != b->device) {
        stream_leave(s);
        return true;
    }
    CUresult res = door_alloc_async(&b->ptr, b->size, NULL, s->handle);
    if (!res) {
        history_add(w, ALLOC_ASYNC, b, s->handle);
        block_fill(w, b);
        history_add(w, FREE_ASYNC, b, s->handle);
        MUST(w, b, door_free_async(b->ptr, s->handle));
        atomic_fetch_add(&soak.allocs, 1);
    } else if (res != CUDA_ERROR_OUT_OF_MEMORY) {
        MUST(w, b, res);
    }
    stream_leave(s);
    return !res;
}

void block_remove(struct worker *w, size_t index) {
    w->blocks[index] = w->blocks[--w->count];
}

void block_free(struct worker *w, size_t index) {
    struct block b = w->blocks[index];
    uint32_t dice = soak_random(w, 100);
    block_remove(w, index);
    struct stream *s = block_enter(w, &b);
    block_inspect(w, &b);
    if (dice < soak.sync) {
        /* cudaFree: by any thread, with no order but that of the host. */
        stream_leave(s);
        if (soak_random(w, 2))
            soak_device(w, (int)soak_random(w, (uint32_t)soak.devices));
        history_add(w, FREE, &b, NULL);
        MUST(w, &b, door_free(b.ptr));
    } else {
        if (soak_random(w, 3) == 0) {
            stream_leave(s);
            s = stream_pick(w, b.device);
            if (block_reaches(&b, s->device))
                block_move(w, &b, s);
            else {
                stream_leave(s);
                s = block_enter(w, &b);
            }
        }
        history_add(w, FREE_ASYNC, &b, s->handle);
        MUST(w, &b, door_free_async(b.ptr, s->handle));
        stream_leave(s);
    }
    atomic_fetch_sub(&soak.live[b.device], b.size);
    stream_put(b.home);
}

/* ---- between blocks ---- */

/* Between devices without leave, which a copy does not need: the other block's home stays on its own device. */
static void copy_far(struct worker *w, struct block *from, struct block *to) {
    struct stream *s = block_enter(w, to), *t;
    block_move(w, from, s);
    block_inspect(w, to);
    MUST(w, to, door_copy(to->ptr, from->ptr, from->size, s->handle));
    struct block copied = *to;
    copied.size = from->size;
    copied.word = from->word;
    block_inspect(w, &copied);
    block_fill(w, to);
    t = stream_pick(w, from->device);
    block_move(w, from, t);
    stream_leave(t);
    stream_leave(s);
}

void block_copy(struct worker *w, struct block *from, struct block *to) {
    if (from == to || from->size > to->size)
        return;
    if (!block_reaches(to, from->device)) {
        if (from->served && to->served)
            copy_far(w, from, to);
        return;
    }
    struct stream *s = block_enter(w, to);
    if (block_reaches(from, s->device)) {
        /* What this stream reads has its home there from now on. */
        block_move(w, from, s);
        block_inspect(w, to);
        MUST(w, to, door_copy(to->ptr, from->ptr, from->size, s->handle));
        struct block copied = *to;
        copied.size = from->size;
        copied.word = from->word;
        block_inspect(w, &copied);
        block_fill(w, to);
    }
    stream_leave(s);
}
