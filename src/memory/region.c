/* Regions. Each space has an address-ordered list of them, and a table with an entry for each granule. By it an address
 * finds its region (the first that begins in the granule, or in the last granule before in which one begins) and its
 * mapping. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/region.h"

#include "base/os_memory.h"

#include <errno.h>
#include <string.h>

/* Points enough for all pieces that one operation may reasonably copy: one span of the slab. */
enum { SPARE_POINTS = 4096 };

int vp_space_reserve(struct vp_memory *mem, size_t n) {
    if (vp_slab_reserve(&mem->region_slab, n) < 0 || vp_slab_reserve(&mem->piece_slab, n + mem->live.used) < 0 ||
        vp_slab_reserve(&mem->timelines->point_slab, SPARE_POINTS) < 0)
        return -ENOMEM;
    return 0;
}

struct vp_space *vp_space_of(const struct vp_memory *mem, CUdeviceptr addr) {
    size_t low = 0, high = mem->space_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        struct vp_space *s = mem->by_base[middle];
        if (addr - s->base < s->size)
            return s;
        if (addr < s->base)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

struct vp_region *vp_region_next(const struct vp_region *r) {
    return r->va.next == &r->space->regions ? NULL : vp_container_of(r->va.next, struct vp_region, va);
}

struct vp_region *vp_region_prev(const struct vp_region *r) {
    return r->va.prev == &r->space->regions ? NULL : vp_container_of(r->va.prev, struct vp_region, va);
}

struct vp_region *vp_region_at(const struct vp_memory *mem, CUdeviceptr addr) {
    const struct vp_space *s = vp_space_of(mem, addr);
    return s ? vp_region_in(mem, s, addr) : NULL;
}

struct vp_region *vp_region_in(const struct vp_memory *mem, const struct vp_space *s, CUdeviceptr addr) {
    size_t granule = (addr - s->base) >> mem->granularity_shift;
    struct vp_region *r = s->granules[granule].first;
    if (r && r->addr > addr) /* faster than a walk through the granule before, which may have thousands */
        return vp_region_prev(r);
    if (!r)
        r = s->granules[vp_bits_at_most(&s->begins, granule - 1)].first;
    while (vp_region_end(r) <= addr)
        r = vp_region_next(r);
    return r;
}

/* ---- keeping the granule table and the list ---- */

static void region_enter(struct vp_memory *mem, struct vp_region *r, struct vp_list *after) {
    struct vp_granule *granule = vp_space_granule(mem, r->space, r->addr);
    vp_list_insert(after, &r->va);
    if (!granule->first)
        vp_bits_add(&r->space->begins, (size_t)(granule - r->space->granules));
    if (!granule->first || granule->first->addr > r->addr)
        granule->first = r;
}

static void region_leave(struct vp_memory *mem, struct vp_region *r) {
    struct vp_granule *granule = vp_space_granule(mem, r->space, r->addr);
    if (granule->first == r) {
        struct vp_region *next = vp_region_next(r);
        granule->first = next && vp_space_granule(mem, r->space, next->addr) == granule ? next : NULL;
        if (!granule->first)
            vp_bits_remove(&r->space->begins, (size_t)(granule - r->space->granules));
    }
    vp_list_remove(&r->va);
    vp_slab_free(&mem->region_slab, r);
}

/* Makes room in the table for one more space. 0 or -ENOMEM. */
static int reserve_base(struct vp_memory *mem) {
    size_t room = mem->space_room ? mem->space_room * 2 : 4096 / sizeof *mem->by_base;
    if (mem->space_count < mem->space_room)
        return 0;
    struct vp_space **all = vp_os_take(room * sizeof *all);
    if (!all)
        return -ENOMEM;
    if (mem->by_base) {
        memcpy(all, mem->by_base, mem->space_count * sizeof *all);
        vp_os_give(mem->by_base, mem->space_room * sizeof *all);
    }
    mem->by_base = all;
    mem->space_room = room;
    return 0;
}

static void file_by_base(struct vp_memory *mem, struct vp_space *s) {
    size_t at = mem->space_count++;
    for (; at && mem->by_base[at - 1]->base > s->base; at--)
        mem->by_base[at] = mem->by_base[at - 1];
    mem->by_base[at] = s;
}

_Atomic CUdeviceptr vp_spaces_low = UINT64_MAX, vp_spaces_high;

void vp_spaces_widen(CUdeviceptr base, size_t size) {
    vp_spaces_low = vp_lesser(vp_spaces_low, base);
    vp_spaces_high = base + size > vp_spaces_high ? base + size : vp_spaces_high;
}

int vp_space_carve(struct vp_memory *mem, enum vp_zone_name zone, CUdeviceptr base, size_t size, size_t reserved_size) {
    int err = vp_slab_reserve(&mem->region_slab, 2);
    if (!err)
        err = reserve_base(mem);
    if (err)
        return err;
    size_t count = size >> mem->granularity_shift, granules = count * sizeof(struct vp_granule);
    size_t table = vp_round_up(granules + vp_bits_bytes(count) + sizeof(struct vp_space), 4096);
    char *bytes = vp_os_take_sparse(table);
    if (!bytes)
        return -ENOMEM;
    struct vp_space *s = (struct vp_space *)(void *)(bytes + table - sizeof(struct vp_space));
    *s = (struct vp_space){.base = base,
                           .size = size,
                           .zone = zone,
                           .granules = (struct vp_granule *)(void *)bytes,
                           .mem_bytes = table,
                           .reserved = reserved_size > 0,
                           .reserved_size = reserved_size};
    vp_bits_init(&s->begins, count, (uint64_t *)(void *)(bytes + granules));
    vp_list_init(&s->regions);
    vp_list_append(&mem->spaces, &s->link);
    file_by_base(mem, s);
    vp_spaces_widen(base, size);
    mem->space_bytes += size;
    struct vp_region *r = vp_slab_alloc(&mem->region_slab);
    r->addr = base;
    r->size = size;
    r->space = s;
    region_enter(mem, r, &s->regions);
    vp_index_add(mem, &mem->holes[zone], r);
    return 0;
}

void vp_space_forget(struct vp_memory *mem, struct vp_space *space) {
    struct vp_region *hole = vp_container_of(space->regions.next, struct vp_region, va);
    size_t at = 0;
    vp_region_unfile(hole);
    vp_slab_free(&mem->region_slab, hole);
    while (mem->by_base[at] != space)
        at++;
    for (mem->space_count--; at < mem->space_count; at++)
        mem->by_base[at] = mem->by_base[at + 1];
    mem->space_bytes -= space->size;
    vp_list_remove(&space->link);
    vp_os_give(space->granules, space->mem_bytes);
}

void vp_spaces_free(struct vp_memory *mem) {
    struct vp_space *s, *next;
    vp_list_each_safe(s, next, &mem->spaces, link)
        vp_os_give(s->granules, s->mem_bytes);
    vp_list_init(&mem->spaces);
    if (mem->by_base)
        vp_os_give(mem->by_base, mem->space_room * sizeof *mem->by_base);
    mem->by_base = NULL;
    mem->space_count = mem->space_room = 0;
}

/* ---- pieces ---- */

static void piece_free(struct vp_memory *mem, struct vp_piece *p) {
    vp_fence_clear(mem->timelines, &p->fence);
    vp_slab_free(&mem->piece_slab, p);
}

void vp_region_clear_pieces(struct vp_memory *mem, struct vp_region *r) {
    for (struct vp_piece *p = r->pieces, *next; p; p = next) {
        next = p->next;
        piece_free(mem, p);
    }
    r->pieces = NULL;
}

void vp_region_one_piece(struct vp_memory *mem, struct vp_region *r, struct vp_fence *fence, uint64_t age) {
    struct vp_piece *p = vp_slab_alloc_raw(&mem->piece_slab);
    p->end = vp_region_end(r);
    p->age = age;
    p->stream = fence->first.timeline ? fence->first.timeline->id : 0;
    p->next = NULL;
    vp_fence_pass(&p->fence, fence);
    r->pieces = p;
}

struct vp_piece *vp_piece_at(const struct vp_region *r, CUdeviceptr addr) {
    struct vp_piece *p = r->pieces;
    while (p->end <= addr)
        p = p->next;
    return p;
}

/* Two frees of one stream without events of their own: the later covers both, and neither may be waited for. */
static bool both_eventless(const struct vp_point *a, const struct vp_point *b) {
    return a->timeline && a->timeline == b->timeline && !a->waitable && !b->waitable && !a->next && !b->next;
}

/* True if neighbours' fences differ in nothing that matters; `p` then has the stricter one. */
static bool merge_fences(struct vp_piece *p, const struct vp_piece *q) {
    bool eventless = both_eventless(&p->fence.first, &q->fence.first);
    if (eventless && q->fence.first.seq > p->fence.first.seq)
        p->fence.first.seq = q->fence.first.seq;
    return eventless || vp_fence_same(&p->fence, &q->fence);
}

/* Unites a piece with the next one, under its own fence. Its age becomes the older one's. */
static void piece_absorb(struct vp_memory *mem, struct vp_piece *p) {
    struct vp_piece *q = p->next;
    if (q->age < p->age)
        p->age = q->age;
    p->end = q->end;
    p->next = q->next;
    piece_free(mem, q);
}

__attribute__((noinline)) bool vp_piece_synchronized(const struct vp_memory *mem, const struct vp_piece *p) {
    if (p->age <= mem->synchronized)
        return true;
    const struct vp_timeline *timeline = vp_table_get(&mem->timelines->by_id, p->stream);
    return timeline && timeline->store && timeline->context->device == mem->device &&
           p->age <= timeline->store->synchronized;
}

/* Unites neighbouring pieces that differ in nothing that matters. */
static void pieces_tidy(struct vp_memory *mem, struct vp_region *r) {
    for (struct vp_piece *p = r->pieces; p; p = p->next)
        if (vp_fence_settle(mem->timelines, &p->fence) && __builtin_expect(mem->by_stream, false) &&
            vp_piece_synchronized(mem, p))
            p->stream = 0;
    for (struct vp_piece *p = r->pieces; p->next;) {
        bool apart = mem->by_stream && p->stream != p->next->stream;
        if (apart || !merge_fences(p, p->next))
            p = p->next;
        else
            piece_absorb(mem, p);
    }
}

/* A sliver has at most this share of its neighbour's size. */
enum { SLIVER_SHARE = 16 };

void vp_region_coarsen(struct vp_memory *mem, struct vp_region *r) {
    CUdeviceptr begin = r->addr;
    if (mem->by_stream)
        return;
    for (struct vp_piece *p = r->pieces; p->next;) {
        struct vp_piece *q = p->next;
        size_t size_p = p->end - begin, size_q = q->end - p->end;
        if (vp_fence_empty(&p->fence) && !vp_fence_empty(&q->fence) && size_p <= size_q / SLIVER_SHARE) {
            p->fence = q->fence;
            p->stream = q->stream;
            q->fence = (struct vp_fence){0};
            piece_absorb(mem, p);
        } else if (!vp_fence_empty(&p->fence) && vp_fence_empty(&q->fence) && size_q <= size_p / SLIVER_SHARE) {
            piece_absorb(mem, p);
        } else {
            begin = p->end;
            p = q;
        }
    }
}

/* ---- filing: the index of a free region, the hole list ---- */

static __attribute__((noinline)) struct vp_stream_store *new_store(struct vp_memory *mem,
                                                                   struct vp_timeline *timeline) {
    struct vp_stream_store *store = vp_slab_alloc(&mem->store_slab);
    for (int z = 0; store && z < VP_ZONES; z++)
        if (vp_index_init(mem, &store->index[z], timeline, z) < 0) {
            while (z-- > 0)
                vp_index_finish(mem, &store->index[z]);
            vp_slab_free(&mem->store_slab, store);
            return NULL;
        }
    return timeline->store = store;
}

struct vp_stream_store *vp_stream_store_of(struct vp_memory *mem, struct vp_timeline *timeline) {
    if (timeline->context->device != mem->device)
        return NULL;
    return timeline->store ? timeline->store : new_store(mem, timeline);
}

void vp_stream_store_drop(struct vp_memory *mem, struct vp_timeline *timeline) {
    struct vp_stream_store *store = timeline->store;
    if (!store)
        return;
    assert(!store->cache);
    for (int z = 0; z < VP_ZONES; z++)
        vp_index_finish(mem, &store->index[z]);
    vp_slab_free(&mem->store_slab, store);
    timeline->store = NULL;
}

static struct vp_index *classify(struct vp_memory *mem, const struct vp_region *r) {
    enum vp_zone_name zone = r->space->zone;
    struct vp_timeline *only = NULL;
    for (const struct vp_piece *p = r->pieces; p; p = p->next) {
        if (vp_fence_empty(&p->fence))
            continue;
        if (p->fence.first.next || (only && only != p->fence.first.timeline))
            return &mem->mixed[zone];
        only = p->fence.first.timeline;
    }
    if (!only)
        return &mem->met[zone];
    struct vp_stream_store *store = vp_stream_store_of(mem, only);
    return store ? &store->index[zone] : &mem->mixed[zone];
}

void vp_region_unfile(struct vp_region *r) {
    if ((r->state == VP_FREE || r->state == VP_HOLE) && r->index)
        vp_index_remove(r);
}

static void region_file(struct vp_memory *mem, struct vp_region *r) {
    if (r->state == VP_FREE) {
        vp_index_add(mem, classify(mem, r), r);
    } else if (r->state == VP_HOLE) {
        r->hole_serial = mem->hole_serial++;
        vp_index_add(mem, &mem->holes[r->space->zone], r);
    }
}

void vp_region_refile(struct vp_memory *mem, struct vp_region *r) {
    pieces_tidy(mem, r);
    if (r->state == VP_FREE && r->index != classify(mem, r)) {
        vp_region_unfile(r);
        region_file(mem, r);
    }
}

/* ---- cut and join ---- */

/* Splits a region that is in no index; the right part has no pieces yet. */
static struct vp_region *split(struct vp_memory *mem, struct vp_region *r, CUdeviceptr at) {
    struct vp_region *right = vp_slab_alloc(&mem->region_slab);
    right->addr = at;
    right->size = vp_region_end(r) - at;
    right->state = r->state;
    right->planned = r->planned;
    right->space = r->space;
    r->size = at - r->addr;
    region_enter(mem, right, &r->va);
    return right;
}

/* Splits `r` at `at` (inside it, or at an edge), and returns the region that begins there. `r` is the left part. */
static struct vp_region *cut(struct vp_memory *mem, struct vp_region *r, CUdeviceptr at) {
    if (at == r->addr)
        return r;
    if (at == vp_region_end(r))
        return vp_region_next(r);
    assert(at > r->addr && at < vp_region_end(r) && (r->state < VP_LIVE || r->state == VP_BUILDING));
    vp_region_unfile(r);
    struct vp_region *right = split(mem, r, at);
    if (vp_region_has_pieces(r)) {
        struct vp_piece *p = vp_piece_at(r, at - 1);
        if (p->end == at) {
            right->pieces = p->next;
        } else {
            struct vp_piece *rest = vp_slab_alloc(&mem->piece_slab);
            *rest = (struct vp_piece){.end = p->end, .age = p->age, .stream = p->stream, .next = p->next};
            vp_fence_unite(mem->timelines, &rest->fence, &p->fence);
            p->end = at;
            right->pieces = rest;
        }
        p->next = NULL;
    }
    region_file(mem, r);
    region_file(mem, right);
    return right;
}

struct vp_region *vp_region_take(struct vp_memory *mem, struct vp_region *r, CUdeviceptr addr, CUdeviceptr end) {
    r = cut(mem, r, addr);
    vp_region_unfile(r);
    if (end < vp_region_end(r)) {
        struct vp_region *right = split(mem, r, end);
        while (r->pieces->end <= end) {
            struct vp_piece *p = r->pieces;
            r->pieces = p->next;
            piece_free(mem, p);
        }
        right->pieces = r->pieces;
        r->pieces = NULL;
        region_file(mem, right);
    }
    vp_region_clear_pieces(mem, r);
    return r;
}

struct vp_region *vp_region_carve(struct vp_memory *mem, CUdeviceptr addr, CUdeviceptr end) {
    struct vp_region *r = vp_region_at(mem, addr);
    assert(end <= vp_region_end(r));
    r = cut(mem, r, addr);
    cut(mem, r, end);
    return r;
}

struct vp_region *vp_region_turn(struct vp_memory *mem, CUdeviceptr addr, CUdeviceptr end, enum vp_region_state state) {
    struct vp_region *r = vp_region_carve(mem, addr, end);
    vp_region_unfile(r);
    r->state = state;
    return r;
}

static void absorb(struct vp_memory *mem, struct vp_region *left, struct vp_region *right) {
    vp_region_unfile(right);
    if (vp_region_has_pieces(left)) {
        struct vp_piece *last = left->pieces;
        while (last->next)
            last = last->next;
        last->next = right->pieces;
    }
    left->size += right->size;
    region_leave(mem, right);
}

static bool joinable(const struct vp_region *left, const struct vp_region *right) {
    return left && right && left->state == right->state && left->state < VP_LIVE;
}

struct vp_region *vp_region_join(struct vp_memory *mem, struct vp_region *r) {
    struct vp_region *prev = vp_region_prev(r), *next = vp_region_next(r);
    bool with_prev = joinable(prev, r), with_next = joinable(r, next);
    vp_region_unfile(r);
    if (with_next)
        absorb(mem, r, next);
    if (with_prev) {
        vp_region_unfile(prev);
        absorb(mem, prev, r);
        r = prev;
    }
    if (vp_region_has_pieces(r))
        pieces_tidy(mem, r);
    region_file(mem, r);
    return r;
}
