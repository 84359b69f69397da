/* What a run learns of bare segments: where handles are to be made, and where else they are to be mapped.
 *
 * The cache chose the addresses of its blocks. A *unit* is a slot or a page of these; it is busy while a large block
 * lies in it. Units that are never busy at the same time can share a handle, which the next run then has mapped at all
 * of them (ahead_again.c). Each unit, in the order in which they were first busy, gets the first handle that is free
 * whenever it is busy, or a new one. Once there are as many as were held, who finds none that is free gets the one that
 * is busy at the fewest of its times: there, memory must still be moved.
 *
 * See learn.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/learnt/learn.h"

#include "base/clock.h"
#include "base/os_memory.h"
#include "base/sort.h"
#include "pool/bare/bare.h"

#include <string.h>

/* Spans of all units together: 32 MiB. */
enum { SPANS_MOST = 1 << 22 };

/* Numbers of large blocks: from one that came until one before which it was gone. */
struct span {
    uint32_t begin, end;
};

struct unit {
    uint32_t page, pages; /* where it is, and what its handle has */
    uint32_t span, spans; /* index of its first span, and their number */
    uint32_t handle;      /* number of its handle */
    uint32_t next;        /* number of the next unit of that handle, plus 1; 0: none */
};

struct handle {
    uint32_t pages;
    uint32_t first, last; /* numbers of its first and last unit, plus 1 */
    uint32_t begin, end;  /* of all its spans */
    bool taken;           /* for good: it is not free for any later unit */
};

struct sharing {
    struct vp_pool *pool;
    struct vp_learnt_device *out;
    const struct vp_lifetime *lives;
    uint32_t life_count;
    size_t page_count;
    uint8_t *filled, *shared; /* by slot: how many blocks filled it, and how many lay in a part of it; at most 255 */
    uint32_t *at;             /* by page: spans of the unit that begins there; then the unit's number, plus 1 */
    struct unit *units;
    struct span *spans;
    struct handle *handles;
    uint32_t *first_page; /* by handle: where it is made, plus 1 */
    size_t unit_count, handle_count;
    size_t looked_at;   /* of the handles, when the last unit found none that was free, or the first that was, plus 1 */
    size_t pages, most; /* of all handles together: so far, and at most */
    size_t again;       /* handles that are to be mapped again, so far */
    uint64_t until;
    void *mem;
    size_t bytes;
};

/* ---- units ---- */

static size_t page_of(const struct sharing *s, uint64_t offset) {
    return offset >> s->pool->mem.granularity_shift;
}

static size_t end_of(const struct sharing *s, const struct vp_lifetime *life) {
    return page_of(s, life->offset + life->size - 1) + 1;
}

/* False: out of memory, or there are too many spans, which are at least as many as the slots that each block touches.
 */
static bool take_tables(struct sharing *s) {
    size_t spans = 0;
    for (uint32_t i = 0; i < s->life_count; i++) {
        const size_t end = vp_round_up(end_of(s, &s->lives[i]), VP_SLOT_PAGES);
        spans += end / VP_SLOT_PAGES - page_of(s, s->lives[i].offset) / VP_SLOT_PAGES;
        s->page_count = vp_greater(s->page_count, end);
    }
    if (spans > SPANS_MOST)
        return false;
    const size_t slots = vp_round_up(s->page_count / VP_SLOT_PAGES, 8), n = s->page_count;
    s->bytes = 2 * slots + n * (sizeof *s->at + sizeof *s->units + sizeof *s->handles + sizeof *s->first_page) +
               (size_t)SPANS_MOST * sizeof *s->spans;
    if (!(s->mem = vp_os_take_sparse(s->bytes)))
        return false;
    s->filled = s->mem;
    s->shared = s->filled + slots;
    s->at = (uint32_t *)(void *)(s->shared + slots);
    s->units = (struct unit *)(s->at + n);
    s->handles = (struct handle *)(s->units + n);
    s->first_page = (uint32_t *)(s->handles + n);
    s->spans = (struct span *)(s->first_page + n);
    return true;
}

/* Is a handle of a whole slot wanted there? Blocks that lie in a part of it pin the rest. Where there were many of
 * these, or the slot was in pages at the end, it is to be so from the beginning. */
static bool is_whole(const struct sharing *s, size_t slot) {
    const struct vp_mapping *m = vp_mapping_at(&s->pool->mem, vp_bare_addr(s->pool->bare, slot * VP_SLOT_PAGES));
    const bool was = m && vp_bare_pages(s->pool, m->chunk) == VP_SLOT_PAGES;
    return s->filled[slot] && (!s->shared[slot] || (was && s->filled[slot] >= s->shared[slot]));
}

/* The unit in which a page lies: its first page. `*next` is the page behind it. */
static size_t unit_at(const struct sharing *s, size_t page, size_t *next) {
    const size_t slot = page / VP_SLOT_PAGES;
    const bool whole = is_whole(s, slot);
    *next = whole ? (slot + 1) * VP_SLOT_PAGES : page + 1;
    return whole ? slot * VP_SLOT_PAGES : page;
}

static void mark_slots(struct sharing *s) {
    for (uint32_t i = 0; i < s->life_count; i++) {
        const size_t first = page_of(s, s->lives[i].offset), end = end_of(s, &s->lives[i]);
        for (size_t slot = first / VP_SLOT_PAGES; slot * VP_SLOT_PAGES < end; slot++) {
            const bool fills = slot * VP_SLOT_PAGES >= first && (slot + 1) * VP_SLOT_PAGES <= end;
            s->filled[slot] += fills && s->filled[slot] < UINT8_MAX;
            s->shared[slot] += !fills && s->shared[slot] < UINT8_MAX;
        }
    }
}

/* Makes the units, with room for their spans. False: there are too many. */
static bool make_units(struct sharing *s) {
    size_t spans = 0;
    for (uint32_t i = 0; i < s->life_count; i++)
        for (size_t p = page_of(s, s->lives[i].offset), end = end_of(s, &s->lives[i]), next; p < end; p = next)
            s->at[unit_at(s, p, &next)]++;
    for (size_t p = 0, next; p < s->page_count; p = next) {
        const size_t at = unit_at(s, p, &next), most = s->at[at];
        if (!most)
            continue;
        s->units[s->unit_count++] = (struct unit){(uint32_t)at, (uint32_t)(next - at), (uint32_t)spans, 0, 0, 0};
        s->at[at] = (uint32_t)s->unit_count;
        spans += most;
        if (spans > SPANS_MOST)
            return false;
    }
    return true;
}

static void note_span(struct sharing *s, struct unit *unit, uint32_t begin, uint32_t end) {
    struct span *last = &s->spans[unit->span + unit->spans - 1];
    if (!unit->spans || last->end < begin)
        s->spans[unit->span + unit->spans++] = (struct span){begin, end};
    else if (last->end < end)
        last->end = end;
}

static void note_spans(struct sharing *s) {
    for (uint32_t i = 0; i < s->life_count; i++) {
        const uint32_t end = atomic_load_explicit(&s->lives[i].end, memory_order_relaxed);
        for (size_t p = page_of(s, s->lives[i].offset), stop = end_of(s, &s->lives[i]), next; p < stop; p = next)
            note_span(s, &s->units[s->at[unit_at(s, p, &next)] - 1], i, end);
    }
}

static uint32_t first_use(const struct sharing *s, const struct unit *unit) {
    return s->spans[unit->span].begin;
}

static bool comes_later(const void *x, const void *y, const void *ctx) {
    const struct unit *a = x, *b = y;
    const uint32_t first = first_use(ctx, a), other = first_use(ctx, b);
    return first != other ? first > other : a->page > b->page;
}

/* ---- handles ---- */

/* How often two units are busy at the same time; counts to `enough`. */
static size_t overlaps(const struct sharing *s, const struct unit *a, const struct unit *b, size_t enough) {
    const struct span *x = &s->spans[a->span], *y = &s->spans[b->span];
    const struct span *const x_end = x + a->spans, *const y_end = y + b->spans;
    size_t count = 0;
    while (x < x_end && y < y_end && count < enough) {
        count += x->begin < y->end && y->begin < x->end;
        if (x->end <= y->end)
            x++;
        else
            y++;
    }
    return count;
}

/* How often the handle is busy when the unit is; counts to `enough`. */
static size_t busy(const struct sharing *s, const struct handle *h, const struct unit *unit, size_t enough) {
    const struct span *first = &s->spans[unit->span], *last = first + unit->spans - 1;
    size_t count = 0;
    if (h->end <= first->begin || last->end <= h->begin)
        return 0;
    for (uint32_t u = h->first; u && count < enough; u = s->units[u - 1].next)
        count += overlaps(s, &s->units[u - 1], unit, enough - count);
    return count;
}

/* The handle, from `from` on, that is least often busy when the unit is, and of these the first; at most `most` times.
 * If there is none: the number of handles. */
static size_t find_handle(const struct sharing *s, const struct unit *unit, size_t from, size_t most) {
    size_t best = s->handle_count, fewer_than = most + 1;
    for (size_t i = from; i < s->handle_count && fewer_than; i++) {
        const struct handle *h = &s->handles[i];
        const size_t count = h->pages == unit->pages && !h->taken ? busy(s, h, unit, fewer_than) : SIZE_MAX;
        if (count < fewer_than) {
            best = i;
            fewer_than = count;
        }
    }
    return best;
}

/* Does the unit want what the one before it wanted, as those of one block do? Then no handle that was not free for that
 * is free now. */
static bool wants_the_same(const struct sharing *s, const struct unit *unit) {
    const struct unit *before = unit - 1;
    return unit > s->units && before->pages == unit->pages && before->spans == unit->spans &&
           !memcmp(&s->spans[before->span], &s->spans[unit->span], unit->spans * sizeof *s->spans);
}

/* Gives the unit of that number a handle: the first that is free in time, a new one, or the least busy one. */
static void give_handle(struct sharing *s, uint32_t number) {
    struct unit *unit = &s->units[number];
    size_t i = find_handle(s, unit, wants_the_same(s, unit) ? s->looked_at : 0, 0);
    s->looked_at = i + 1;
    if (i == s->handle_count && s->pages + unit->pages > s->most)
        i = find_handle(s, unit, 0, SIZE_MAX - 1);
    struct handle *h = &s->handles[i];
    const struct span *first = &s->spans[unit->span], *last = first + unit->spans - 1;
    if (i == s->handle_count) {
        *h = (struct handle){.pages = unit->pages, .begin = first->begin, .end = last->end};
        s->handle_count++;
        s->pages += unit->pages;
    }
    if (h->last)
        s->units[h->last - 1].next = number + 1;
    else
        h->first = number + 1;
    h->last = number + 1;
    h->begin = (uint32_t)vp_lesser(h->begin, first->begin);
    h->end = (uint32_t)vp_greater(h->end, last->end);
    h->taken |= unit->spans == 1 && first->end == UINT32_MAX;
    unit->handle = (uint32_t)i;
    unit->next = 0;
}

/* False: there is no time left. */
static bool give_handles(struct sharing *s) {
    for (size_t i = 0; i < s->unit_count; i++) {
        if (vp_clock_ns() > s->until)
            return false;
        give_handle(s, (uint32_t)i);
    }
    return true;
}

/* ---- the result ---- */

static void add_again(struct sharing *s, uint64_t from, uint64_t to, uint64_t size, uint32_t need) {
    struct vp_learnt_device *out = s->out;
    struct vp_learnt_again *last = out->again_count ? &out->agains[out->again_count - 1] : NULL;
    if (s->again == VP_LEARNT_HANDLES)
        return;
    s->again++;
    if (last && last->size == size && last->need == need && last->from + last->count * size == from &&
        last->to + last->count * size == to)
        last->count++;
    else if (out->again_count < VP_LEARNT_AGAINS)
        out->agains[out->again_count++] = (struct vp_learnt_again){from, to, size, 1, need};
}

static void tell_shared(struct sharing *s) {
    const unsigned shift = s->pool->mem.granularity_shift;
    for (const struct unit *unit = s->units; unit < s->units + s->unit_count; unit++) {
        const uint64_t at = (uint64_t)unit->page << shift, size = (uint64_t)unit->pages << shift;
        uint32_t *first = &s->first_page[unit->handle];
        if (*first) {
            add_again(s, (uint64_t)(*first - 1) << shift, at, size, first_use(s, unit));
        } else {
            vp_learnt_add_run(s->out, VP_ZONE_BARE, at, size, first_use(s, unit));
            *first = unit->page + 1;
        }
    }
}

/* Have large blocks been at any of the chunk's addresses? */
static bool is_shared(const struct sharing *s, const struct vp_chunk *chunk) {
    const struct vp_bare *bare = s->pool->bare;
    for (const struct vp_mapping *m = chunk->mappings; m; m = m->next) {
        const size_t page = m->addr - bare->base < bare->size ? vp_bare_page(bare, m->addr) : SIZE_MAX;
        if (page < s->page_count && s->at[page])
            return true;
    }
    return false;
}

static bool is_bare(const struct vp_pool *pool, const struct vp_chunk *chunk) {
    return chunk->home && !chunk->exported && chunk->home->addr - pool->bare->base < pool->bare->size;
}

/* What has no large blocks, or was not shared in time, is made where it was first. */
static void tell(struct sharing *s, bool shares) {
    const struct vp_chunk *chunk;
    vp_list_each(chunk, &s->pool->mem.chunks, link)
        if (is_bare(s->pool, chunk) && !(shares && is_shared(s, chunk)))
            vp_learnt_add_run(s->out, VP_ZONE_BARE, chunk->home->addr - s->pool->bare->base, chunk->size, 0);
    if (shares)
        tell_shared(s);
}

/* The most pages that may be held for large blocks. */
static size_t most_of(const struct sharing *s) {
    const struct vp_chunk *chunk;
    size_t others = 0;
    vp_list_each(chunk, &s->pool->mem.chunks, link)
        others += is_shared(s, chunk) ? 0 : chunk->size;
    const size_t held = s->pool->mem.stats.peak_held_bytes;
    return held > others ? (held - others) >> s->pool->mem.granularity_shift : 0;
}

void vp_learn_bare(struct vp_pool *pool, uint64_t until, struct vp_learnt_device *out) {
    const struct vp_lifetimes *l = pool->bare ? pool->bare->lifetimes : NULL;
    struct sharing s = {.pool = pool, .out = out, .until = until};
    if (!pool->bare)
        return;
    if (l && !atomic_load(&l->lost)) {
        s.lives = l->each;
        s.life_count = atomic_load(&l->count);
    }
    bool shares = false;
    if (s.life_count && take_tables(&s)) {
        mark_slots(&s);
        if ((shares = make_units(&s))) {
            note_spans(&s);
            vp_sort(s.units, sizeof *s.units, s.unit_count, comes_later, &s);
            s.most = most_of(&s);
            shares = give_handles(&s);
        }
    }
    for (size_t i = 0; i < s.life_count / VP_LIFETIMES_WINDOW; i++)
        out->windows[out->window_count++] = atomic_load(&l->windows[i]);
    tell(&s, shares);
    if (s.mem)
        vp_os_give(s.mem, s.bytes);
}
