/* A cache such as PyTorch's on bare segments, one for each device and all threads: segments of a stream, blocks cut out
 * of them, which other streams use, too; segments that go back; pools that are set back; parts that are pinned. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "soak.h"

#include "process/bare.h"

enum { SEGMENTS = 32, ENTRIES = 1024, LEAST = 512, MIB = 1 << 20 };

struct segment {
    CUdeviceptr ptr; /* 0: there is none */
    size_t size;
    struct stream *stream; /* whose blocks it has */
};

/* A block, or where one was that other streams have yet to be done with. */
struct entry {
    CUdeviceptr ptr;
    size_t size;
    int segment;
    bool live;
    CUevent over; /* not live: its addresses are not used again before that */
};

static struct cache {
    pthread_mutex_t lock; /* around all that is told of the device; before the library's own */
    struct segment segments[SEGMENTS];
    struct entry entries[ENTRIES];
    size_t count;
    bool other_uses; /* a block was used by another stream than its segment's */
} caches[DEVICES_MOST];

void caches_lock(void) {
    for (int d = 0; d < soak.devices; d++)
        pthread_mutex_lock(&caches[d].lock);
}

void caches_unlock(void) {
    for (int d = soak.devices - 1; d >= 0; d--)
        pthread_mutex_unlock(&caches[d].lock);
}

void caches_open(void) {
    for (int d = 0; d < soak.devices; d++)
        pthread_mutex_init(&caches[d].lock, NULL);
    atomic_store(&vp_bare_pools, soak.pools);
}

static struct vp_bare_stream on(const struct stream *s) {
    return (struct vp_bare_stream){s->handle, true};
}

/* ---- places ---- */

static const struct entry *entry_in(const struct cache *c, CUdeviceptr ptr, size_t size) {
    for (size_t i = 0; i < c->count; i++)
        if (c->entries[i].ptr < ptr + size && ptr < c->entries[i].ptr + c->entries[i].size)
            return &c->entries[i];
    return NULL;
}

/* The first that is long enough in a segment of the stream. */
static bool place(const struct cache *c, struct entry *e, const struct stream *s) {
    for (e->segment = 0; e->segment < SEGMENTS; e->segment++) {
        const struct segment *segment = &c->segments[e->segment];
        const struct entry *other;
        if (!segment->ptr || segment->stream != s || (segment->size <= 2 * MIB) != (e->size <= MIB))
            continue;
        for (e->ptr = segment->ptr; (other = entry_in(c, e->ptr, e->size)); e->ptr = other->ptr + other->size)
            continue;
        if (e->ptr + e->size <= segment->ptr + segment->size)
            return true;
    }
    return false;
}

/* Forgets where other streams are done; `waits` for them. */
static void process(struct worker *w, struct cache *c, bool waits) {
    for (size_t i = 0; i < c->count;) {
        struct entry *e = &c->entries[i];
        CUresult res = e->live ? CUDA_ERROR_NOT_READY : waits ? cuEventSynchronize(e->over) : cuEventQuery(e->over);
        if (res == CUDA_ERROR_NOT_READY) {
            i++;
            continue;
        }
        MUST(w, NULL, res);
        MUST(w, NULL, cuEventDestroy(e->over));
        *e = c->entries[--c->count];
    }
}

static void empty(struct worker *w, struct cache *c, bool waits) {
    process(w, c, waits);
    for (int i = 0; i < SEGMENTS; i++) {
        struct segment *s = &c->segments[i];
        if (!s->ptr || entry_in(c, s->ptr, s->size))
            continue;
        MUST(w, NULL, door_free(s->ptr));
        stream_put(s->stream);
        *s = (struct segment){0};
    }
}

static bool grow(struct worker *w, struct cache *c, int device, size_t size, struct stream *s) {
    struct segment *segment = NULL;
    const size_t bytes = size <= MIB ? 2 * MIB : size < 10 * MIB ? 20 * MIB : (size / (2 * MIB) + 1) * 2 * MIB;
    if (!soak.pools && vp_bare_is_crowded(device, bytes))
        empty(w, c, true);
    for (int i = 0; i < SEGMENTS && !segment; i++)
        segment = c->segments[i].ptr ? NULL : &c->segments[i];
    if (!segment) {
        empty(w, c, false);
        return false;
    }
    CUresult res = door_segment(&segment->ptr, bytes, on(s));
    if (res == CUDA_ERROR_OUT_OF_MEMORY) {
        empty(w, c, true);
        res = door_segment(&segment->ptr, bytes, on(s));
    }
    if (res)
        return false;
    segment->size = bytes;
    segment->stream = s;
    stream_get(s);
    return true;
}

/* ---- blocks ---- */

/* Memory for a block, with the cache's lock held. */
static bool get(struct worker *w, struct cache *c, struct block *b, struct stream *s) {
    struct entry e = {.size = b->size, .live = true};
    process(w, c, false);
    if (c->count == ENTRIES)
        return false;
    CUresult res = vp_bare_room(b->device, b->size, on(s));
    if (res == VP_NOT_OURS)
        return false;
    if (res == CUDA_ERROR_OUT_OF_MEMORY) {
        atomic_fetch_add(&soak.ooms, 1);
        return false;
    }
    MUST(w, b, res);
    if (!place(c, &e, s) && !(grow(w, c, b->device, e.size, s) && place(c, &e, s)))
        return false;
    if (!vp_bare_used(e.ptr, e.size, on(s)))
        soak_fail(w, b, "no bare segment is known at %#llx", (unsigned long long)e.ptr);
    b->ptr = e.ptr;
    c->entries[c->count++] = e;
    return true;
}

static bool alloc(struct worker *w, size_t size) {
    struct block b = {.device = (int)soak_random(w, (uint32_t)soak.devices), .served = true};
    b.size = (size + LEAST - 1) / LEAST * LEAST;
    if (w->cached_count == CACHED_MOST || atomic_load(&soak.live[b.device]) + b.size > soak.capacity)
        return false;
    struct stream *s = stream_pick(w, b.device);
    struct cache *c = &caches[b.device];
    bool good = s->kind != PER_THREAD && s->device == b.device;
    if (good) {
        pthread_mutex_lock(&c->lock);
        good = get(w, c, &b, s);
        pthread_mutex_unlock(&c->lock);
    }
    if (good) {
        stream_get(b.home = s);
        history_add(w, USE, &b, s->handle);
        block_fill(w, &b);
        atomic_fetch_add(&soak.live[b.device], b.size);
        atomic_fetch_add(&soak.allocs, 1);
        atomic_fetch_add(&soak.cached, 1);
        w->cached[w->cached_count++] = b;
    }
    stream_leave(s);
    return good;
}

void cache_free(struct worker *w, size_t index) {
    struct block b = w->cached[index];
    struct cache *c = &caches[b.device];
    w->cached[index] = w->cached[--w->cached_count];
    struct stream *s = block_enter(w, &b);
    block_inspect(w, &b);
    CUevent over = stream_mark(w, s);
    pthread_mutex_lock(&c->lock);
    struct entry *e = c->entries;
    while (e->ptr != b.ptr || !e->live)
        e++;
    const bool others = s != c->segments[e->segment].stream;
    c->other_uses |= others;
    history_add(w, UNUSE, &b, s->handle);
    if (!vp_bare_unused(b.ptr, b.size, others || (soak.pools && c->other_uses)))
        soak_fail(w, &b, "no bare segment is known there any more");
    e->live = false;
    e->over = over;
    if (!others) {
        MUST(w, &b, cuEventDestroy(over));
        *e = c->entries[--c->count];
    }
    pthread_mutex_unlock(&c->lock);
    stream_leave(s);
    stream_put(b.home);
    atomic_fetch_sub(&soak.live[b.device], b.size);
}

/* Another stream works on it from now on. */
static void record(struct worker *w, struct block *b) {
    struct stream *s = stream_pick(w, b->device);
    if (s->device == b->device) {
        block_move(w, b, s);
        block_inspect(w, b);
        block_fill(w, b);
    }
    stream_leave(s);
}

/* ---- all of it ---- */

/* A segment's stretches are told of one by one: those of blocks, and what lies between. */
static void tell_of_segment(const struct cache *c, const struct segment *s, bool used) {
    for (CUdeviceptr at = s->ptr, end = s->ptr + s->size; at < end;) {
        const struct entry *here = NULL;
        CUdeviceptr next = end;
        for (const struct entry *e = c->entries; e < c->entries + c->count; e++) {
            here = e->live && e->ptr == at ? e : here;
            next = e->live && e->ptr > at && e->ptr < next ? e->ptr : next;
        }
        const size_t size = here ? here->size : next - at;
        if (used)
            vp_bare_used(at, size, (struct vp_bare_stream){0});
        else if (!here)
            vp_bare_unused(at, size, c->other_uses);
        at += size;
    }
}

/* A pool, of any segments: all its blocks are used no more, and then again. */
static void set_back(struct worker *w) {
    struct cache *c = &caches[soak_random(w, (uint32_t)soak.devices)];
    const uint32_t which = soak_random(w, UINT32_MAX) & soak_random(w, UINT32_MAX);
    if (!soak.pools)
        return;
    pthread_mutex_lock(&c->lock);
    for (const struct entry *e = c->entries; e < c->entries + c->count; e++)
        if (e->live && which >> e->segment & 1)
            vp_bare_unused(e->ptr, e->size, c->other_uses);
    for (int i = 0; i < SEGMENTS; i++) {
        if (!c->segments[i].ptr || !(which >> i & 1))
            continue;
        tell_of_segment(c, &c->segments[i], true);
        tell_of_segment(c, &c->segments[i], false);
    }
    pthread_mutex_unlock(&c->lock);
    atomic_fetch_add(&soak.set_back, 1);
}

/* Somebody is shown a part of a segment, and holds no lock meanwhile: it may have been freed. */
static void pin(struct worker *w) {
    struct cache *c = &caches[soak_random(w, (uint32_t)soak.devices)];
    pthread_mutex_lock(&c->lock);
    const struct segment s = c->segments[soak_random(w, SEGMENTS)];
    pthread_mutex_unlock(&c->lock);
    if (!s.ptr)
        return;
    const size_t from = soak_random(w, (uint32_t)s.size), size = 1 + soak_random(w, MIB);
    CUresult res = vp_bare_pin(s.ptr + from, size);
    if (res != VP_NOT_OURS && res != CUDA_ERROR_OUT_OF_MEMORY)
        MUST(w, NULL, res);
}

static void give_back(struct worker *w) {
    struct cache *c = &caches[soak_random(w, (uint32_t)soak.devices)];
    pthread_mutex_lock(&c->lock);
    empty(w, c, soak_random(w, 2));
    pthread_mutex_unlock(&c->lock);
}

void cache_step(struct worker *w) {
    const uint32_t dice = soak_random(w, 1000);
    const size_t size = soak_size(w);
    if (dice < 500) {
        if (!alloc(w, size) && w->cached_count)
            cache_free(w, soak_random(w, (uint32_t)w->cached_count));
    } else if (dice < 560) { /* a temporary one, again and again */
        for (int i = 0; i < 4 && alloc(w, size); i++)
            cache_free(w, w->cached_count - 1);
    } else if (dice < 580) {
        give_back(w);
    } else if (dice < 585) {
        set_back(w);
    } else if (dice < 587) {
        pin(w);
    } else if (w->cached_count) {
        const size_t which = soak_random(w, (uint32_t)w->cached_count);
        if (dice < 720)
            record(w, &w->cached[which]);
        else
            cache_free(w, which);
    }
}

void caches_close(struct worker *w) {
    for (int d = 0; d < soak.devices; d++) {
        soak_device(w, d);
        empty(w, &caches[d], true);
        if (caches[d].count)
            soak_fail(w, NULL, "%zu blocks of the cache are left", caches[d].count);
    }
}
