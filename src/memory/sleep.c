/* How chunks go to sleep and wake. If a call fails, its step is undone, so that no byte is ever lost: until the first
 * release all contents are still there, and from then on the caller's copy counts. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/sleep.h"

#include <errno.h>

/* Free bytes between live ones that are copied with them: a separate copy would cost more. */
enum { GAP = 256 << 10 };

/* ---- what is free in a chunk ---- */

int vp_chunk_reserve_cuts(struct vp_memory *mem, const struct vp_chunk *chunk) {
    size_t regions = 0;
    for (const struct vp_region *r = vp_region_at(mem, chunk->current->addr); r && r->addr < vp_chunk_end(chunk);
         r = vp_region_next(r))
        regions++;
    /* Each free region may be cut at both ends. */
    return vp_space_reserve(mem, 4 * regions + 4);
}

static void turn(struct vp_memory *mem, const struct vp_chunk *chunk, enum vp_region_state from,
                 enum vp_region_state to) {
    CUdeviceptr at = chunk->current->addr, end = vp_chunk_end(chunk);
    while (at < end) {
        struct vp_region *r = vp_region_at(mem, at);
        CUdeviceptr stop = vp_region_end(r) < end ? vp_region_end(r) : end;
        if (r->state == from)
            vp_region_join(mem, vp_region_turn(mem, at, stop, to));
        at = stop;
    }
}

void vp_chunk_retire_free(struct vp_memory *mem, const struct vp_chunk *chunk) {
    turn(mem, chunk, VP_FREE, VP_RETIRED);
}

/* ---- to sleep ---- */

static size_t live_in(const struct vp_memory *mem, const struct vp_chunk *chunk) {
    const CUdeviceptr begin = chunk->current->addr, end = vp_chunk_end(chunk);
    size_t bytes = 0;
    for (const struct vp_region *r = vp_region_at(mem, begin); r && r->addr < end; r = vp_region_next(r))
        if (r->state == VP_LIVE || r->state == VP_BACKED)
            bytes += vp_lesser(vp_region_end(r), end) - vp_greater(r->addr, begin);
    return bytes;
}

uint64_t vp_sleep_live(const struct vp_memory *mem) {
    const struct vp_chunk *chunk;
    uint64_t bytes = 0;
    vp_list_each(chunk, &mem->chunks, link)
        bytes += chunk->released ? live_in(mem, chunk) : 0;
    return bytes;
}

struct spans {
    struct vp_span *list;
    size_t room, count, bytes;
    struct vp_span last; /* not yet in the list */
};

static void spans_flush(struct spans *s) {
    if (!s->last.size)
        return;
    if (s->count < s->room)
        s->list[s->count] = s->last;
    s->count++;
    s->bytes += s->last.size;
    s->last.size = 0;
}

static void spans_add(struct spans *s, CUdeviceptr addr, CUdeviceptr end) {
    if (s->last.size && addr - (s->last.addr + s->last.size) > GAP)
        spans_flush(s);
    if (!s->last.size)
        s->last.addr = addr;
    s->last.size = end - s->last.addr;
}

static void chunk_spans(const struct vp_memory *mem, const struct vp_chunk *chunk, struct spans *s) {
    CUdeviceptr begin = chunk->current->addr, end = vp_chunk_end(chunk);
    for (const struct vp_region *r = vp_region_at(mem, begin); r && r->addr < end; r = vp_region_next(r))
        if (r->state == VP_LIVE || r->state == VP_BACKED)
            spans_add(s, r->addr < begin ? begin : r->addr, vp_region_end(r) < end ? vp_region_end(r) : end);
    spans_flush(s);
}

static int still(struct vp_memory *mem, struct vp_chunk *chunk) {
    struct vp_mapping *m, *next;
    int err = 0;
    for (m = chunk->mappings; m && !err; m = next) {
        next = m->next;
        if (m != chunk->current)
            err = vp_mapping_unmap(mem, m);
    }
    if (!err)
        err = vp_chunk_reserve_cuts(mem, chunk);
    if (err)
        return err;
    vp_chunk_retire_free(mem, chunk);
    chunk->asleep = true;
    mem->asleep++;
    return 0;
}

int vp_sleep_begin(struct vp_memory *mem, struct vp_span *spans, size_t room, size_t *count, size_t *bytes) {
    struct spans s = {.list = spans, .room = spans ? room : 0};
    struct vp_chunk *chunk;
    int err = 0;
    vp_list_each(chunk, &mem->chunks, link) {
        if (chunk->host) /* it takes nothing of the device, and stays as it is */
            continue;
        if (spans && !err)
            err = still(mem, chunk);
        chunk_spans(mem, chunk, &s);
    }
    if (err)
        vp_sleep_end(mem);
    *count = s.count;
    *bytes = s.bytes;
    return err;
}

int vp_sleep_unmap(struct vp_memory *mem) {
    struct vp_chunk *chunk;
    int err = 0, undone = 0;
    vp_list_each(chunk, &mem->chunks, link)
        if (chunk->asleep && !chunk->unmapped && !err)
            err = vp_chunk_suspend(mem, chunk);
    if (!err)
        return 0;
    vp_list_each(chunk, &mem->chunks, link)
        if (chunk->asleep && chunk->unmapped && vp_chunk_map_again(mem, chunk))
            undone = -ENOTRECOVERABLE;
    return undone ? undone : -EIO;
}

void vp_sleep_release(struct vp_memory *mem) {
    struct vp_chunk *chunk;
    vp_list_each(chunk, &mem->chunks, link)
        if (chunk->unmapped && !chunk->released)
            vp_chunk_let_go(mem, chunk);
}

/* ---- and back ---- */

/* Everything in the chunk was freed meanwhile: its addresses become a hole. */
static void forget(struct vp_memory *mem, struct vp_chunk *chunk) {
    if (vp_mapping_unmap(mem, chunk->current) == 0)
        vp_chunk_destroy(mem, chunk);
}

/* Driver calls take their time by the handle, and memory is created anyway. So chunks side by side become one, for the
 * next pause. But after a block in larger chunks is freed, blocks in its place pin more. So only a block that slept
 * before, and seems to stay, gets them, and no chunk reaches beyond its block. */

/* The chunk that begins at `addr`, if it has no memory and lies wholly under the block; NULL: it must stay as it is. */
static struct vp_chunk *joinable(const struct vp_memory *mem, const struct vp_region *block, CUdeviceptr addr) {
    const CUdeviceptr end = vp_region_end(block);
    const struct vp_mapping *m = addr < end ? vp_mapping_at(mem, addr) : NULL;
    const bool whole = m && m->addr == addr && m->chunk->size <= end - addr;
    return whole && m->chunk->released && !m->chunk->exported ? m->chunk : NULL;
}

static bool alike(const struct vp_chunk *a, const struct vp_chunk *b) {
    return a->stream == b->stream && a->planned == b->planned && a->touched == b->touched;
}

/* A chunk takes over the addresses of those behind it, up to `end`. None has a handle, so nothing can fail. */
static void unite(struct vp_memory *mem, struct vp_chunk *chunk, CUdeviceptr end) {
    const size_t before = chunk->size;
    while (vp_chunk_end(chunk) < end) {
        struct vp_chunk *next = vp_mapping_at(mem, vp_chunk_end(chunk))->chunk;
        chunk->size += next->size;
        next->planned = false; /* it is not given back */
        vp_chunk_unmap(mem, next->current);
        vp_chunk_destroy(mem, next);
    }
    mem->asleep_bytes += chunk->size - before;
    mem->largest = vp_greater(mem->largest, chunk->size);
    vp_mapping_note(mem, chunk->current, true);
}

static void unite_under(struct vp_memory *mem, const struct vp_region *block, size_t largest) {
    for (CUdeviceptr at = block->addr, end; at < vp_region_end(block); at = end) {
        const struct vp_mapping *m = vp_mapping_at(mem, at);
        struct vp_chunk *first = joinable(mem, block, at), *next;
        end = m->addr + m->chunk->size;
        while (first && (next = joinable(mem, block, end)) && alike(first, next) && end - at + next->size <= largest)
            end += next->size;
        if (first && end > vp_chunk_end(first))
            unite(mem, first, end);
    }
}

static void unite_all(struct vp_memory *mem, size_t largest) {
    const struct vp_space *s;
    const struct vp_region *r;
    vp_list_each(s, &mem->spaces, link)
        vp_list_each(r, &s->regions, va)
            if (r->state == VP_LIVE && s->zone == VP_ZONE_LARGE && r->serial <= mem->woken)
                unite_under(mem, r, largest);
}

int vp_sleep_wake(struct vp_memory *mem, size_t largest) {
    struct vp_chunk *chunk, *next;
    int err = 0;
    vp_list_each_safe(chunk, next, &mem->chunks, link)
        if (chunk->unmapped && !live_in(mem, chunk))
            forget(mem, chunk);
    unite_all(mem, largest);
    vp_list_each(chunk, &mem->chunks, link)
        if (chunk->released && !err)
            err = vp_chunk_make_again(mem, chunk);
    vp_list_each(chunk, &mem->chunks, link)
        if (chunk->unmapped && !chunk->released && !err)
            err = vp_chunk_map_again(mem, chunk);
    if (!err)
        return 0;
    vp_list_each(chunk, &mem->chunks, link)
        if (chunk->asleep && !chunk->unmapped)
            vp_chunk_suspend(mem, chunk);
    vp_sleep_release(mem);
    return err;
}

int vp_sleep_end(struct vp_memory *mem) {
    struct vp_chunk *chunk;
    vp_list_each(chunk, &mem->chunks, link) {
        if (!chunk->asleep)
            continue;
        assert(!chunk->unmapped);
        int err = vp_chunk_reserve_cuts(mem, chunk);
        if (err)
            return err;
        turn(mem, chunk, VP_RETIRED, VP_FREE);
        chunk->asleep = false;
        mem->asleep--;
    }
    mem->woken = mem->serial;
    return 0;
}
