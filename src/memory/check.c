/* The invariants, each with its name. Walks everything; for tests, debug runs and dumps. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/chunk.h"

struct walk {
    const struct vp_memory *mem;
    FILE *out;
    bool ok;
    size_t live, free_regions, holes, spilled, rounded;
    uint64_t asked;
};

/* Holes may be terabytes: only this many granules at each end are looked at. One in between is found by its chunk. */
enum { HOLE_EDGE = 64 };

void vp_memory_breach(FILE *out, const char *what, const struct vp_region *r) {
    if (out)
        fprintf(out, "vpool: invariant broken: %s at %#llx+%#zx (state %d)\n", what,
                r ? (unsigned long long)r->addr : 0, r ? r->size : 0, r ? (int)r->state : -1);
}

static void breach(struct walk *w, const char *what, const struct vp_region *r) {
    w->ok = false;
    vp_memory_breach(w->out, what, r);
}

static void check_pieces(struct walk *w, const struct vp_region *r) {
    CUdeviceptr at = r->addr;
    for (const struct vp_piece *p = r->pieces; p; p = p->next) {
        if (p->end <= at)
            breach(w, "pieces are in address order and not empty", r);
        at = p->end;
        vp_fence_each(c, &p->fence)
            if (!c->timeline->id || !c->timeline->refs || !c->seq || (c->waitable && c->seq >= c->timeline->next))
                breach(w, "a condition names timelines that live and events that were recorded", r);
    }
    if (at != vp_region_end(r))
        breach(w, "the pieces of a region cover it", r);
}

static void check_mapped(struct walk *w, const struct vp_region *r) {
    const size_t g = w->mem->granularity;
    bool zombie = r->state == VP_ZOMBIE, hole = r->state == VP_HOLE || (r->state == VP_BUILDING && !r->pieces);
    const struct vp_mapping *first = vp_space_granule(w->mem, r->space, r->addr)->mapping;
    for (CUdeviceptr at = r->addr / g * g; at < vp_region_end(r); at += g) {
        if (hole && at == r->addr + HOLE_EDGE * g && r->size > 2 * HOLE_EDGE * g)
            at = vp_region_end(r) - HOLE_EDGE * g;
        const struct vp_mapping *m = vp_space_granule(w->mem, r->space, at < r->addr ? r->addr : at)->mapping;
        if (hole ? m != NULL : !m)
            breach(w, hole ? "a hole has no mapping" : "live, free, zombie and retired bytes are mapped", r);
        else if (m && (m->chunk->current == m) == zombie)
            breach(w,
                   zombie ? "a zombie is no current mapping"
                          : "live and free bytes lie in the current mapping of their chunk",
                   r);
        else if (m && w->mem->per_stream && first && m->chunk->stream != first->chunk->stream)
            breach(w, "a region's chunks serve one stream", r);
    }
    if ((zombie || hole) && (r->addr % g || r->size % g))
        breach(w, "holes and zombies are whole granules", r);
}

/* A chunk of host memory belongs to one live block; nothing in it is ever free. */
static void check_spilled(struct walk *w, const struct vp_region *r) {
    size_t host = 0;
    vp_mappings_each(m, w->mem, r->addr, vp_region_end(r)) /* a gap is told of by check_mapped() */
        if (m->chunk->host) {
            host += m->chunk->size;
            if (m->addr < r->addr || vp_mapping_end(m) > vp_region_end(r))
                breach(w, "a chunk of the host's belongs to one block", r);
        }
    w->spilled += host;
    if (host ? r->state != VP_LIVE || !r->spilled : r->state == VP_LIVE && r->spilled)
        breach(w, "what lies in the host's memory is live, and known to", r);
}

static void check_region(struct walk *w, const struct vp_region *r) {
    const struct vp_region *prev = vp_region_prev(r);
    if (prev && vp_region_end(prev) != r->addr)
        breach(w, "regions partition the space", r);
    if (prev && prev->state == r->state && r->state < VP_LIVE)
        breach(w, "free, zombie, retired and hole neighbours are united", r);
    if (!r->size || r->addr % VP_QUANTUM || r->size % VP_QUANTUM)
        breach(w, "regions are whole quanta and not empty", r);
    const struct vp_granule *page = vp_space_granule(w->mem, r->space, r->addr);
    if (!page->first || page->first->addr > r->addr || vp_space_granule(w->mem, r->space, page->first->addr) != page)
        breach(w, "the page table finds the first region of a page", r);
    if (page->first != r && (!prev || vp_space_granule(w->mem, r->space, prev->addr) != page))
        breach(w, "a page's first region is the first", r);
    check_mapped(w, r);
    if (r->state != VP_LIVE && r->state != VP_FREE && r->state != VP_HOLE && r->index)
        breach(w, "what is neither free nor a hole is in no index", r);
    switch (r->state) {
    case VP_LIVE:
        w->live++;
        w->asked += r->asked;
        w->rounded += r->size - r->asked;
        check_spilled(w, r);
        if (vp_table_get(&w->mem->live, r->addr) != r || r->asked > r->size || !r->asked)
            breach(w, "a live block is found by its address and holds what was asked", r);
        break;
    case VP_FREE:
        w->free_regions++;
        check_spilled(w, r);
        check_pieces(w, r);
        if (!r->index || r->index->zone != r->space->zone)
            breach(w, "a free region is filed", r);
        else
            for (const struct vp_piece *p = r->pieces; p; p = p->next)
                if (!vp_fence_empty(&p->fence) && r->index != &w->mem->mixed[r->space->zone] &&
                    (r->index->timeline != p->fence.first.timeline || p->fence.first.next))
                    breach(w, "a region of one timeline's index waits for that timeline alone", r);
        break;
    case VP_RETIRED:
        if (!vp_mapping_at(w->mem, r->addr) ||
            !(vp_mapping_at(w->mem, r->addr)->chunk->exported || vp_mapping_at(w->mem, r->addr)->chunk->asleep ||
              vp_mapping_at(w->mem, r->addr)->chunk->host))
            breach(w, "what is retired lies in a chunk that is exported, asleep or the host's", r);
        check_pieces(w, r);
        break;
    case VP_BACKED: {
        const struct vp_mapping *m = vp_mapping_at(w->mem, r->addr);
        if (!m || m->addr != r->addr || m->chunk->size != r->size || r->space->zone != VP_ZONE_BARE)
            breach(w, "what is backed is one mapping in a bare segment", r);
        break;
    }
    case VP_ZOMBIE: check_pieces(w, r); break;
    case VP_BUILDING:
        if (r->pieces)
            check_pieces(w, r);
        break;
    case VP_HOLE: w->holes++; break;
    }
}

static void check_tree(struct walk *w, const struct vp_index *index, enum vp_region_state state, size_t *count) {
    size_t last = 0;
    for (const struct vp_region *r = vp_index_first(index, 0); r; r = vp_index_next(index, r)) {
        if (r->index != index || r->state != state)
            breach(w, "an index holds regions of its own and of its kind", r);
        if (r->size < last)
            breach(w, "an index is in order", r);
        last = r->size;
        ++*count;
    }
}

static void check_spaces(struct walk *w) {
    const struct vp_space *s;
    size_t spaces = 0;
    for (size_t i = 1; i < w->mem->space_count; i++)
        if (w->mem->by_base[i]->base < w->mem->by_base[i - 1]->base + w->mem->by_base[i - 1]->size)
            breach(w, "spaces lie apart, and are in address order", NULL);
    vp_list_each(s, &w->mem->spaces, link) {
        const struct vp_region *r, *last = NULL;
        vp_list_each(r, &s->regions, va) {
            if (!last && r->addr != s->base)
                breach(w, "the first region begins the space", r);
            check_region(w, r);
            last = r;
        }
        if (!last || vp_region_end(last) != s->base + s->size)
            breach(w, "the last region ends the space", last);
        if (vp_space_of(w->mem, s->base) != s || vp_space_of(w->mem, s->base + s->size - 1) != s)
            breach(w, "a space is found by its addresses", NULL);
        spaces++;
    }
    if (spaces != w->mem->space_count)
        breach(w, "every space is found by its addresses", NULL);
}

/* All mappings that may be reaped are listed, so that no old mapping is ever out of reach. */
static void check_zombies(struct walk *w, size_t count) {
    const struct vp_mapping *m;
    vp_list_each(m, &w->mem->zombies, zombie) {
        if (m == m->chunk->current || m == m->chunk->home)
            breach(w, "a mapping that may be reaped is neither current nor a home", NULL);
        count--;
    }
    if (count)
        breach(w, "every mapping that may be reaped is listed once", NULL);
}

static void check_chunks(struct walk *w) {
    const struct vp_chunk *c;
    const struct vp_mapping *m;
    size_t held = 0, host = 0, mappings = 0, away = 0, exported = 0, zombies = 0, asleep = 0, released = 0;
    vp_list_each(c, &w->mem->chunks, link) {
        bool found = false, home = false;
        held += c->released || c->host ? 0 : c->size;
        host += c->host ? c->size : 0;
        if (c->host && (c->asleep || c->exported || c->mappings != c->current || c->current->next))
            breach(w, "a chunk of the host's has one mapping, and neither sleeps nor is exported", NULL);
        released += c->released ? c->size : 0;
        asleep += c->asleep;
        if ((c->released && !c->unmapped) || (c->unmapped && (!c->asleep || c->mappings->next)))
            breach(w, "a chunk without memory is unmapped, and one that is unmapped sleeps with one mapping", NULL);
        away += c->current != c->home;
        exported += c->exported;
        for (m = c->mappings; m; m = m->next) {
            mappings++;
            zombies += m != c->current && m != c->home;
            found |= m == c->current;
            home |= m == c->home;
            if (m->chunk != c || vp_mapping_at(w->mem, m->addr) != m ||
                vp_mapping_at(w->mem, m->addr + c->size - w->mem->granularity) != m)
                breach(w, "the page table knows each mapping", NULL);
            else if (vp_region_at(w->mem, m->addr)->state == VP_HOLE)
                breach(w, "nothing is mapped in a hole", NULL);
        }
        if (!found || !home)
            breach(w, "a chunk has one current mapping, and a home", NULL);
    }
    vp_list_each(c, &w->mem->spares, link) {
        held += c->size;
        if (c->mappings || c->current)
            breach(w, "a spare chunk is mapped nowhere", NULL);
    }
    check_zombies(w, zombies);
    if (asleep != w->mem->asleep || released != w->mem->asleep_bytes)
        breach(w, "chunks that sleep are counted", NULL);
    if (host != w->mem->stats.spilled_bytes)
        breach(w, "bytes in the host's memory are counted", NULL);
    if (exported != w->mem->exported)
        breach(w, "exported chunks are counted", NULL);
    if (held != w->mem->stats.held_bytes || mappings != w->mem->mappings || away != w->mem->away)
        breach(w, "held bytes, mappings and chunks away from home are counted", NULL);
}

bool vp_memory_check(const struct vp_memory *mem, FILE *out) {
    struct walk w = {.mem = mem, .out = out, .ok = true};
    const struct vp_index *index;
    size_t filed = 0, holes = 0;
    check_spaces(&w);
    check_chunks(&w);
    for (int z = 0; z < VP_ZONES; z++)
        check_tree(&w, &mem->holes[z], VP_HOLE, &holes);
    vp_list_each(index, &mem->indexes, link)
        check_tree(&w, index, VP_FREE, &filed);
    if (filed != w.free_regions)
        breach(&w, "every free region is filed once", NULL);
    if (holes != w.holes)
        breach(&w, "every hole is filed once", NULL);
    if (w.spilled != mem->spilled_live)
        breach(&w, "live bytes in the host's memory are counted", NULL);
    if (w.live + mem->bare_segments != mem->live.used || w.asked + mem->bare_live != mem->stats.live_bytes ||
        w.rounded != mem->rounded)
        breach(&w, "live blocks and bytes are counted", NULL);
    return w.ok;
}
