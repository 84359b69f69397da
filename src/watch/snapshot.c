/* Snapshots: the state of a pool, copied under the lock and read without it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/snapshot.h"

#include "watch/stacks.h"
#include "base/os_memory.h"
#include "base/sort.h"
#include "pool/bare/bare.h"

#include <errno.h>
#include <string.h>

/* ---- arrays ---- */

/* Adds an item, not filled in. If the system has no more memory, the array has failed, and the item is a dummy. */
static void *add(struct vp_snap_array *array, size_t size) {
    static _Alignas(8) char nowhere[sizeof(struct vp_snap_region)]; /* guarded by the library's lock */
    size_t used = array->count * size;
    if (!array->failed && used + size > array->bytes) {
        size_t more = array->bytes ? 2 * array->bytes : 65536;
        void *items = array->items ? vp_os_lengthen(array->items, array->bytes, more) : vp_os_take(more);
        array->failed = !items;
        if (items) {
            array->items = items;
            array->bytes = more;
        }
    }
    if (array->failed)
        return nowhere;
    array->count++;
    return (char *)array->items + used;
}

static void array_finish(struct vp_snap_array *array) {
    if (array->items)
        vp_os_give(array->items, array->bytes);
    *array = (struct vp_snap_array){0};
}

void vp_snapshot_finish(struct vp_snapshot *snap) {
    array_finish(&snap->spaces);
    array_finish(&snap->regions);
    array_finish(&snap->chunks);
    array_finish(&snap->waits);
}

/* ---- taking ---- */

uint64_t vp_snapshot_stream(uint64_t timeline_id) {
    bool barrier = timeline_id >> 63;
    return timeline_id && !barrier ? timeline_id - 1 : 0;
}

static void add_waits(struct vp_snapshot *snap, struct vp_snap_region *r, const struct vp_fence *fence) {
    r->wait = (uint32_t)snap->waits.count;
    vp_fence_each(p, fence) {
        if (p->seq <= p->timeline->met)
            continue;
        uint64_t *wait = add(&snap->waits, sizeof *wait);
        *wait = vp_snapshot_stream(p->timeline->id);
        r->waits++;
    }
}

/* Adds the pieces of a free, zombie or retired region. Neighbours may differ only in what they wait for. */
static void add_pieces(struct vp_snapshot *snap, const struct vp_pool *pool, const struct vp_region *r) {
    CUdeviceptr at = r->addr;
    for (const struct vp_piece *p = r->pieces; p; at = p->end, p = p->next) {
        struct vp_snap_region *out = add(&snap->regions, sizeof *out);
        *out = (struct vp_snap_region){.addr = at,
                                       .size = p->end - at,
                                       .state = r->state,
                                       .fresh = !p->stream,
                                       .stream = vp_snapshot_stream(p->stream),
                                       .age = pool->mem.age - p->age};
        add_waits(snap, out, &p->fence);
    }
}

static void add_region(struct vp_snapshot *snap, const struct vp_pool *pool, const struct vp_region *r) {
    if (vp_region_has_pieces(r)) {
        add_pieces(snap, pool, r);
        return;
    }
    struct vp_snap_region *out = add(&snap->regions, sizeof *out);
    *out = (struct vp_snap_region){.addr = r->addr, .size = r->size, .state = r->state};
    if (r->state == VP_LIVE) {
        out->asked = r->asked;
        out->spilled = r->spilled;
        out->stream = vp_snapshot_stream(r->stream);
        out->stack = vp_stacks_of(pool->mem.device, r->serial);
    }
}

/* Adds chunks that begin in the region. Live, free, retired and built bytes lie in their chunk's current mapping. */
static VP_LOCKED void add_chunks(struct vp_snapshot *snap, const struct vp_pool *pool, const struct vp_region *r) {
    vp_mappings_each(m, &pool->mem, r->addr, vp_region_end(r))
        if (m->addr >= r->addr && !m->chunk->host) { /* host chunks do not count as held */
            struct vp_snap_chunk *chunk = add(&snap->chunks, sizeof *chunk);
            *chunk = (struct vp_snap_chunk){.addr = m->addr, .size = m->chunk->size};
        }
}

static VP_LOCKED void add_space(struct vp_snapshot *snap, const struct vp_pool *pool, const struct vp_space *space) {
    const struct vp_region *r;
    struct vp_snap_space *out = add(&snap->spaces, sizeof *out);
    *out = (struct vp_snap_space){space->base, space->size, space->zone};
    vp_list_each(r, &space->regions, va) {
        add_region(snap, pool, r);
        if (r->state == VP_LIVE || r->state == VP_BACKED || r->state == VP_FREE || r->state == VP_RETIRED ||
            (r->state == VP_BUILDING && r->pieces))
            add_chunks(snap, pool, r);
    }
}

/* The first space that begins behind `addr`. */
static const struct vp_space *space_behind(const struct vp_pool *pool, CUdeviceptr addr) {
    const struct vp_space *s, *next = NULL;
    vp_list_each(s, &pool->mem.spaces, link)
        if (s->base > addr && (!next || s->base < next->base))
            next = s;
    return next;
}

int vp_snapshot_take(struct vp_pool *pool, struct vp_snapshot *out) {
    const struct vp_chunk *spare;
    *out = (struct vp_snapshot){.device = pool->mem.device, .granularity = pool->mem.granularity};
    out->stats = vp_pool_stats(pool);
    out->timelines = pool->mem.timelines->stats[pool->mem.device];
    out->slack = vp_slack_state(pool);
    out->asleep = pool->mem.asleep_bytes;
    out->leaving = out->stats.spilled_bytes - pool->mem.spilled_live;
    if (pool->bare) {
        out->bare_live = pool->mem.bare_live;
        out->addressed = pool->bare->addressed;
        out->peak_addressed = pool->bare->peak_addressed;
    }
    for (const struct vp_space *s = space_behind(pool, 0); s; s = space_behind(pool, s->base))
        add_space(out, pool, s);
    /* Spare chunks belong to no region; they come after all others. */
    vp_list_each(spare, &pool->mem.spares, link) {
        struct vp_snap_chunk *chunk = add(&out->chunks, sizeof *chunk);
        *chunk = (struct vp_snap_chunk){.size = spare->size};
        out->spares++;
    }
    if (!out->spaces.failed && !out->regions.failed && !out->chunks.failed && !out->waits.failed)
        return 0;
    vp_snapshot_finish(out);
    return -ENOMEM;
}

/* ---- adding up ---- */

static bool waits(const struct vp_snapshot *snap, const struct vp_snap_region *r, uint64_t stream) {
    const uint64_t *ids = snap->waits.items;
    for (uint32_t i = 0; i < r->waits; i++)
        if (ids[r->wait + i] != stream)
            return true;
    return false;
}

static struct vp_snap_sizes *sizes_of(struct vp_digest *d, size_t size) {
    return &d->sizes[63 - __builtin_clzll(size)];
}

static void count_free(struct vp_digest *d, size_t size) {
    struct vp_snap_sizes *sizes = size ? sizes_of(d, size) : NULL;
    if (sizes) {
        sizes->free++;
        sizes->free_bytes += size;
    }
    d->free_bytes += size;
}

/* Counts each region by itself; a run of free neighbours is counted when it ends. */
static void count_regions(const struct vp_snapshot *snap, uint64_t stream, struct vp_digest *d) {
    const struct vp_snap_region *r = snap->regions.items, *end = r + snap->regions.count;
    const struct vp_snap_space *space = snap->spaces.items, *last = space + snap->spaces.count;
    size_t run = 0, ready = 0;
    for (; r < end; r++) {
        bool border = space < last && r->addr == space->base;
        space += border;
        if (r->state != VP_FREE || border) {
            count_free(d, run);
            run = ready = 0;
        }
        if (r->state == VP_LIVE) {
            struct vp_snap_sizes *sizes = sizes_of(d, r->asked);
            sizes->live++;
            sizes->live_bytes += r->asked;
            d->live_blocks++;
            d->internal += r->size - r->asked;
        }
        if (r->state == VP_BACKED)
            d->cached += r->size;
        if (r->state != VP_FREE)
            continue;
        run += r->size;
        ready = waits(snap, r, stream) ? 0 : ready + r->size;
        d->largest_free = ready > d->largest_free ? ready : d->largest_free;
        size_t block = space[-1].zone == VP_ZONE_SMALL && ready >= VP_SMALL_BELOW ? VP_SMALL_BELOW - VP_QUANTUM : ready;
        d->largest_block = block > d->largest_block ? block : d->largest_block;
    }
    count_free(d, run);
    d->cached -= snap->bare_live < d->cached ? snap->bare_live : d->cached;
    /* A cache's blocks in bare segments are no regions. */
    if (snap->peak_addressed)
        d->live_blocks = snap->stats.allocs - snap->stats.frees;
}

static void keep_worst(struct vp_digest *d, const struct vp_snap_chunk *chunk) {
    struct vp_snap_chunk worse = *chunk;
    for (int i = 0; i < VP_SNAP_WORST; i++)
        if (worse.free > d->worst[i].free) {
            struct vp_snap_chunk other = d->worst[i];
            d->worst[i] = worse;
            worse = other;
        }
}

/* Counts chunks by the regions in them; both are in address order. */
static void count_chunks(const struct vp_snapshot *snap, uint64_t stream, struct vp_digest *d) {
    if (!snap->chunks.count)
        return;
    struct vp_snap_chunk *c = snap->chunks.items, *last = c + snap->chunks.count - snap->spares;
    const struct vp_snap_region *r = snap->regions.items, *end = r + snap->regions.count;
    for (; c < last; c++) {
        CUdeviceptr stop = c->addr + c->size;
        bool pending = false;
        size_t live = 0;
        while (r->addr + r->size <= c->addr)
            r++;
        for (const struct vp_snap_region *in = r; in < end && in->addr < stop; in++) {
            CUdeviceptr from = in->addr > c->addr ? in->addr : c->addr;
            CUdeviceptr to = in->addr + in->size < stop ? in->addr + in->size : stop;
            if (in->state == VP_LIVE || in->state == VP_BACKED) {
                live += to - from;
                c->blocks++;
            } else {
                pending |= in->state == VP_BUILDING || waits(snap, in, stream);
            }
        }
        c->free = c->size - live;
        if (live) {
            d->pinned += c->free;
            d->pinned_chunks += c->free > 0;
            keep_worst(d, c);
        } else if (pending) {
            d->pending += c->free;
        } else {
            d->idle += c->free;
        }
    }
    for (last += snap->spares; c < last; c++) {
        c->free = c->size;
        d->idle += c->free;
    }
}

/* ---- which streams most bytes wait for ---- */

/* How many streams are counted. If there are more, those that come late in address order are left out. */
enum { STREAMS = 64 };

static void count_wait(struct vp_snap_waited *all, uint64_t stream, uint64_t bytes) {
    for (int i = 0; i < STREAMS; i++)
        if (!all[i].bytes || all[i].stream == stream) {
            all[i].stream = stream;
            all[i].bytes += bytes;
            return;
        }
}

static void count_waits(const struct vp_snapshot *snap, uint64_t stream, struct vp_digest *d) {
    const struct vp_snap_region *r = snap->regions.items, *end = r + snap->regions.count;
    const uint64_t *ids = snap->waits.items;
    struct vp_snap_waited all[STREAMS] = {{0}};
    for (; r < end; r++)
        for (uint32_t i = 0; r->state == VP_FREE && i < r->waits; i++)
            if (ids[r->wait + i] != stream)
                count_wait(all, ids[r->wait + i], r->size);
    for (int n = 0; n < VP_SNAP_WORST; n++) {
        struct vp_snap_waited *most = all;
        for (int i = 1; i < STREAMS; i++)
            if (all[i].bytes > most->bytes)
                most = &all[i];
        d->waited[n] = *most;
        most->bytes = 0;
    }
}

/* ---- chunks by size ---- */

static bool is_larger(const void *a, const void *b, const void *ctx) {
    return ((const struct vp_snap_chunk *)a)->size > ((const struct vp_snap_chunk *)b)->size;
}

bool vp_snapshot_kind(const struct vp_snapshot *snap, size_t *at, struct vp_snap_kind *out) {
    const struct vp_snap_chunk *c = snap->chunks.items;
    if (*at == snap->chunks.count)
        return false;
    *out = (struct vp_snap_kind){.size = c[*at].size};
    for (; *at < snap->chunks.count && c[*at].size == out->size; ++*at) {
        out->count++;
        out->wholly_free += !c[*at].blocks;
    }
    return true;
}

void vp_snapshot_digest(struct vp_snapshot *snap, uint64_t stream, struct vp_digest *out) {
    memset(out, 0, sizeof *out);
    count_regions(snap, stream, out);
    count_chunks(snap, stream, out);
    out->pending += snap->leaving;
    count_waits(snap, stream, out);
    vp_sort(snap->chunks.items, sizeof(struct vp_snap_chunk), snap->chunks.count, is_larger, NULL);
}
