/* Bare segments: which chunks come under a block, and from where.
 *
 * Bodies of blocks get chunks of a slot, everything else single pages. While no more is held than the peak of live
 * bytes and a little, chunks are created: that is cheaper than moving one, and an old mapping stays useful where it is.
 * Beyond that the idle chunk moves that is needed last (idle.c). If none of the right size is idle another one goes
 * back to the device, and one is created in its stead. The same happens if single pages are idle, but blocks will come
 * back to them long before a body is needed: pages that move from block to block leave gaps in each, to be filled
 * again.
 *
 * A block that reaches into a chunk pins all of it. Once too much is lost so, the chunk is replaced by single pages as
 * the block comes, if that wins two or more; sooner if the rest of the chunk lies beyond the segment. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/bare/bare.h"
#include "pool/slack.h"

#include <errno.h>

/* ---- one chunk ---- */

struct filling {
    struct vp_pool *pool;
    struct vp_timeline *timeline;
    uint64_t mark;    /* of chunks that this filling has taken */
    bool unready;     /* a chunk was passed over because work on it is not over */
    size_t exhausted; /* the device no longer has so many bytes; 0: as far as is known it has */
};

/* Is the chunk free memory now, not taken, and ready for the stream? Lets go of it if need be. */
static bool obtainable(struct filling *f, struct vp_chunk *chunk) {
    const struct vp_bare *bare = f->pool->bare;
    if (chunk->mark == f->mark || !vp_bare_is_idle(f->pool, chunk) ||
        (chunk->current->addr - bare->base < bare->size && !vp_bare_let_go(f->pool, chunk->current)))
        return false;
    bool ready = vp_chunk_ready(&f->pool->mem, chunk, f->timeline);
    f->unready |= !ready;
    f->pool->bare->idle_unready |= !ready;
    return ready;
}

/* Takes the best idle chunk of that kind; NULL: none. */
static struct vp_chunk *take_idle(struct filling *f, enum vp_bare_kind kind) {
    struct vp_bare *bare = f->pool->bare;
    for (bool known = false; vp_bare_know_idle(f->pool); bare->idle_listed = false, known = true) {
        while (bare->idle[kind].next < bare->idle[kind].count) {
            struct vp_chunk *chunk = bare->idle[kind].list[bare->idle[kind].next++].chunk;
            if (obtainable(f, chunk))
                return chunk;
        }
        if (known || bare->idle_at == vp_bare_past_now(&bare->past))
            break;
    }
    return NULL;
}

/* Gives the best idle chunk of that kind back. False: it cannot be had now, or there is none. */
static bool give_back(struct filling *f, enum vp_bare_kind kind) {
    struct vp_bare *bare = f->pool->bare;
    if (bare->idle[kind].next == bare->idle[kind].count)
        return false;
    struct vp_chunk *chunk = bare->idle[kind].list[bare->idle[kind].next++].chunk;
    if (!obtainable(f, chunk))
        return false;
    const size_t pages = vp_bare_pages(f->pool, chunk);
    const bool given = vp_chunk_give_back(&f->pool->mem, chunk);
    f->unready |= !given;
    bare->idle_unready |= !given;
    bare->idle_releases += given;
    if (given && kind != VP_BARE_OTHERS) /* other sizes are not counted */
        vp_bare_count_held(bare, -vp_bare_count_of(pages));
    return given;
}

/* Gives one idle chunk of these kinds back, if it may go: preferably one of another size, else of the kind that is
 * needed later. Returns its kind; -1: none. */
static int release_one(struct filling *f, unsigned kinds, bool promised) {
    struct vp_bare *bare = f->pool->bare;
    while (vp_bare_know_idle(f->pool)) {
        int best = -1;
        for (int k = 0; k < VP_BARE_IDLE_KINDS; k++)
            if (kinds >> k & 1 && bare->idle[k].next < bare->idle[k].count &&
                (best < 0 || k == VP_BARE_OTHERS ||
                 vp_bare_better(&bare->idle[k].list[bare->idle[k].next],
                                &bare->idle[best].list[bare->idle[best].next])))
                best = k;
        if (best < 0 ||
            (promised && best != VP_BARE_OTHERS && !vp_bare_may_go(f->pool, best == VP_BARE_PAGES ? 1 : VP_SLOT_PAGES)))
            return -1;
        if (give_back(f, (enum vp_bare_kind)best))
            return best;
    }
    return -1;
}

/* The best chunk of that kind that is still idle; NULL: none. */
static const struct vp_bare_idle *first_idle(const struct filling *f, enum vp_bare_kind kind) {
    struct vp_bare *bare = f->pool->bare;
    for (; bare->idle[kind].next < bare->idle[kind].count; bare->idle[kind].next++) {
        const struct vp_bare_idle *one = &bare->idle[kind].list[bare->idle[kind].next];
        if (one->chunk->mark != f->mark && vp_bare_is_idle(f->pool, one->chunk))
            return one;
    }
    return NULL;
}

/* Is `a` needed in less than half the time that `b` is? If neither is known: did it rest for less than half as long? */
static bool is_sooner(const struct vp_bare_idle *a, const struct vp_bare_idle *b, uint32_t now) {
    if (a->next != b->next)
        return a->next < b->next && (b->next == VP_BARE_NEVER || a->next <= now || a->next - now < (b->next - now) / 2);
    return now - a->rested < (now - b->rested) / 2;
}

/* Gives a body back, so that single pages can be created, if all idle pages will be needed much sooner. */
static bool break_body(struct filling *f) {
    if (!vp_bare_know_idle(f->pool))
        return false;
    const struct vp_bare_idle *page = first_idle(f, VP_BARE_PAGES), *body = first_idle(f, VP_BARE_BODIES);
    return page && body && is_sooner(page, body, vp_bare_past_now(&f->pool->bare->past)) &&
           vp_bare_may_go(f->pool, VP_SLOT_PAGES) && give_back(f, VP_BARE_BODIES);
}

static int create(struct filling *f, size_t size, struct vp_chunk **out) {
    int err = f->exhausted && size >= f->exhausted ? -ENOMEM : vp_chunk_create(&f->pool->mem, size, false, out);
    if (err == -ENOMEM && (!f->exhausted || size < f->exhausted))
        f->exhausted = size;
    if (!err) {
        vp_chunk_spare(&f->pool->mem, *out, true);
        vp_bare_count_held(f->pool->bare, vp_bare_count_of(vp_bare_pages(f->pool, *out)));
    }
    return err;
}

static struct vp_chunk *take_spare(struct filling *f, size_t size) {
    struct vp_chunk *chunk;
    vp_list_each(chunk, &f->pool->mem.spares, link)
        if (chunk->size == size && chunk->mark != f->mark)
            return chunk;
    return NULL;
}

/* Gives a spare body back, so that single pages can be created. */
static bool break_spare(struct filling *f) {
    struct vp_chunk *chunk = take_spare(f, (size_t)VP_SLOT_PAGES << f->pool->mem.granularity_shift);
    if (!chunk || vp_chunk_is_kept(&f->pool->mem, chunk))
        return false;
    vp_chunk_destroy(&f->pool->mem, chunk);
    vp_bare_count_held(f->pool->bare, -(size_t)VP_SLOT_PAGES);
    return true;
}

/* Finds a chunk of `pages` pages; a created one is among the spares. 0, -EAGAIN, -ENOMEM or -EIO. */
static int find_chunk(struct filling *f, size_t pages, bool patient, struct vp_chunk **out) {
    struct vp_memory *mem = &f->pool->mem;
    const size_t size = pages << mem->granularity_shift, cap = vp_bare_cap(f->pool);
    const enum vp_bare_kind kind = pages == 1 ? VP_BARE_PAGES : VP_BARE_BODIES;
    int err = -ENOMEM;
    if ((*out = take_spare(f, size)))
        return 0;
    if (mem->stats.held_bytes + size <= cap)
        err = create(f, size, out);
    else if (pages == 1 && break_body(f)) {
        f->exhausted = 0;
        err = create(f, size, out);
    }
    if (f->exhausted && !f->pool->bare->pins)
        vp_slack_press(f->pool, &f->pool->bare_slack);
    if (err != -ENOMEM || (*out = take_idle(f, kind)))
        return err == -ENOMEM ? 0 : err;
    while (mem->stats.held_bytes + size > cap && release_one(f, ~0U, true) >= 0)
        f->exhausted = 0;
    if (patient && f->unready && mem->stats.held_bytes + size > cap)
        return -EAGAIN;
    while ((err = create(f, size, out)) == -ENOMEM &&
           (release_one(f, ~0U, true) >= 0 || (pages == 1 && vp_bare_may_go(f->pool, VP_SLOT_PAGES) && break_spare(f))))
        f->exhausted = 0;
    return err;
}

/* Chunks that one call gives back when slack is no longer worth it: some 3 ms. */
enum { SHRINKS = 64 };

bool vp_bare_shrink(struct vp_pool *pool) {
    struct filling f = {.pool = pool, .mark = ++pool->mem.marks};
    if (atomic_load(&pool->mem.timelines->captures))
        return true;
    vp_fit_refresh(&pool->mem);
    pool->bare->idle_listed = false; /* what has become idle since shall go, too */
    for (int i = 0; pool->mem.stats.held_bytes > vp_bare_cap(pool); i++)
        if (i == SHRINKS || release_one(&f, ~0U, true) < 0) {
            pool->bare->idle_listed &= !f.unready;
            return i == SHRINKS || f.unready;
        }
    return false;
}

/* ---- a gap ---- */

static int gather(struct filling *f, size_t first, size_t end, bool body, bool patient, struct vp_chunk **chunks,
                  size_t *count) {
    bool whole = body;
    int err = 0;
    for (size_t p = first; p < end && !err;) {
        size_t pages = whole && p % VP_SLOT_PAGES == 0 && p + VP_SLOT_PAGES <= end ? VP_SLOT_PAGES : 1;
        err = find_chunk(f, pages, patient, &chunks[*count]);
        if (err == -ENOMEM && pages > 1 && !(f->unready && f->pool->bare->short_of)) {
            /* Single pages may still be had, unless they are too few. */
            whole = false;
            err = 0;
        } else if (!err) {
            chunks[(*count)++]->mark = f->mark;
            p += pages;
        }
    }
    return err == -ENOMEM && f->pool->bare->idle_unready ? -EAGAIN : err;
}

int vp_bare_fill(struct vp_pool *pool, struct vp_bare_segment *segment, size_t first, size_t end, size_t size,
                 bool patient) {
    struct vp_bare *bare = pool->bare;
    struct vp_memory *mem = &pool->mem;
    struct filling f = {.pool = pool, .timeline = segment->timeline, .mark = ++mem->marks};
    struct vp_mapping *m;
    size_t count = 0;
    struct vp_chunk **chunks = bare->chunks = vp_bare_grow(bare->chunks, &bare->chunk_room, end - first,
                                                           sizeof *chunks);
    if (!chunks)
        return -ENOMEM;
    bool body = size >= (size_t)VP_SLOT_PAGES << mem->granularity_shift;
    int err = gather(&f, first, end, body, patient, chunks, &count);
    if (!err) {
        for (size_t i = 0; i < count; i++)
            if (!chunks[i]->current)
                vp_chunk_spare(mem, chunks[i], false);
        err = vp_stitch_map(mem, chunks, count, vp_bare_addr(bare, first));
        for (size_t i = 0; i < count && err; i++)
            if (!chunks[i]->current)
                vp_chunk_spare(mem, chunks[i], true);
    }
    if (err) { /* what was not used stays for the next try */
        for (size_t i = 0; i < count; i++)
            chunks[i]->mark = 0;
        return err;
    }
    const uint32_t now = vp_bare_past_now(&bare->past);
    atomic_store_explicit(&bare->filled, now ? now : 1, memory_order_relaxed);
    vp_bare_mappings_each(m, bare, first, end) if (!err) err = vp_bare_keep(pool, segment, m);
    return err;
}

/* ---- room ---- */

bool vp_bare_leaves(const struct vp_pool *pool, size_t bytes) {
    const unsigned shift = pool->mem.granularity_shift;
    return !vp_bare_lacks(pool) ||
           vp_memory_device_free(&pool->mem) + (vp_bare_all_of(vp_bare_idle_pages(pool, false)) << shift) >=
               (pool->bare->owed << shift) + bytes;
}

/* Bytes that a block may take. If memory is short these are what it touches, and a page more. A small block lies in a
 * small segment, of no more than a page where pages are of the usual size, and may have the last pages: most small
 * blocks lie in pages that have memory already, and must not be refused where larger ones were served. */
enum { SMALL_SEGMENT = 2 << 20 };

static size_t needed(const struct vp_pool *pool, size_t size, bool pressed) {
    const size_t page = pool->mem.granularity;
    if (size > SIZE_MAX / 4)
        return SIZE_MAX / 2;
    const size_t own = vp_round_up(size, page);
    if (!pressed)
        return own + VP_BARE_ROOM_PAGES * page;
    return own + (size > VP_BARE_LARGE ? 2 * page : page < SMALL_SEGMENT ? page : 0);
}

/* The share of the device's free memory that is left to others before memory for a block is created; and that is relied
 * on, for COUNTED_NS. Other processes may take all of it meanwhile, and a block without memory ends the program: so
 * what a block is sure to take is created before it is promised. */
enum { DEVICE_SHARE = 64 };
static const uint64_t COUNTED_NS = 10000000;

/* How late the cheap clock may be: a tick of most systems. Each block asks it; the real clock takes a quarter of what a
 * block costs. */
static const uint64_t ABOUT_NS = 4000000;

bool vp_bare_counts_on(const struct vp_bare *bare, size_t pages) {
    const struct vp_pool_config *config = &bare->pool->config;
    if (pages >= bare->counted)
        return false;
    if (config->now_about)
        return config->now_about() + ABOUT_NS < bare->counted_until;
    return !config->now || config->now() < bare->counted_until;
}

/* What a block is promised: a number of pages, and of single ones among them. */
struct room {
    size_t least, there; /* wanted; held; both counts */
    bool bodies;         /* the block is large enough for bodies */
    bool counts;         /* the device has more: single pages may rely on it, for a moment */
};

/* Creates what is lacking. What must go back for that goes now, before the promise: another process may take it first,
 * and then nothing more goes. What may rely on the device holds no more than is held anyway. */
static int make_there(struct filling *f, struct room *room) {
    const size_t page = f->pool->mem.granularity;
    struct vp_chunk *chunk;
    bool went = false;
    for (size_t lacks; (lacks = vp_bare_less(room->least, room->there));) {
        const size_t all = vp_bare_all_of(lacks);
        const bool whole = room->bodies && all >= VP_SLOT_PAGES + vp_bare_single_of(lacks) &&
                           (room->counts || vp_bare_single_of(room->there) >= VP_BARE_ROOM_PAGES);
        const bool spares = !all && room->counts && f->pool->mem.stats.held_bytes >= vp_bare_cap(f->pool);
        const bool looks = !went && (!spares || (f->pool->bare->idle_listed && !f->pool->ahead));
        int err = spares && !went ? -ENOMEM : create(f, (whole ? VP_SLOT_PAGES : 1) * page, &chunk);
        if (err == -ENOMEM && whole)
            err = create(f, page, &chunk);
        const int kind = err == -ENOMEM && looks ? release_one(f, 1 << VP_BARE_OTHERS | !all << VP_BARE_BODIES, false)
                                                 : -1;
        if (err && kind < 0 && !(err == -ENOMEM && looks && !all && break_spare(f)))
            return spares ? 0 : err;
        if (!err)
            room->there += vp_bare_count_of(vp_bare_pages(f->pool, chunk));
        else if (kind != VP_BARE_OTHERS)
            room->there = vp_bare_less(room->there, VP_SLOT_PAGES);
        f->exhausted = err ? 0 : f->exhausted;
        went = err;
    }
    return 0;
}

/* Single pages that are to be held for a block. Beside pages that stay where they are it may need more, for which the
 * device is relied on if it has more; and in a capture, where bodies are not to be exchanged for them. */
static size_t singles_for(struct vp_pool *pool, bool counts, size_t counted) {
    const size_t kept = vp_bare_most_beside_kept(pool->bare), most = counted - VP_BARE_ENDS;
    pool->bare->singles = VP_BARE_ENDS + (counts && kept > most ? most : kept);
    return counts || atomic_load(&pool->mem.timelines->captures) ? VP_BARE_ENDS : pool->bare->singles;
}

int vp_bare_make_room(struct vp_pool *pool, size_t size, struct vp_timeline *timeline, bool pressed) {
    struct vp_bare *bare = vp_bare_of(pool);
    struct filling f = {.pool = pool, .timeline = timeline, .mark = ++pool->mem.marks};
    const unsigned shift = pool->mem.granularity_shift;
    const size_t need = needed(pool, size, pressed) >> shift;
    if (!bare || need > INT32_MAX)
        return -ENOMEM;
    vp_bare_count(pool);
    vp_bare_count_anew(bare);
    if (pressed)
        vp_exports_settle(pool);
    const size_t fresh = vp_memory_device_free(&pool->mem) >> shift, counted = fresh / DEVICE_SHARE,
                 sure = fresh - counted;
    struct room room = {.there = vp_bare_less(atomic_load(&bare->bounds), atomic_load(&bare->used)),
                        .bodies = size >> shift >= VP_SLOT_PAGES};
    size_t least = size < need << shift ? vp_bare_touched(bare, size) : need;
    if (vp_bare_all_of(room.there) < least || vp_bare_all_of(room.there) + sure < need) {
        bare->idle_listed = false;
        room.there = vp_bare_idle_pages(pool, atomic_load(&pool->mem.timelines->captures));
    }
    /* Memory is short: only what is held is certain, and for this block alone. */
    const bool is_short = vp_bare_all_of(room.there) + sure < need;
    if (is_short || least > need)
        least = need;
    else if (need > counted && need - counted > least)
        least = need - counted;
    room.counts = !is_short && counted >= VP_BARE_ENDS;
    room.least = least | vp_lesser(least, singles_for(pool, room.counts, counted)) << 32;
    int err = make_there(&f, &room);
    bare->counted = counted;
    bare->pressed = pressed;
    bare->counted_until = pool->config.now ? pool->config.now() + COUNTED_NS : 0;
    const size_t used = atomic_load_explicit(&bare->used, memory_order_relaxed);
    /* While the device sleeps, memory that a block leaves is not idle until it wakes. */
    atomic_store(&bare->bounds, is_short || err || pool->mem.asleep || bare->gave_up ? 0 : used + room.there);
    return err;
}
