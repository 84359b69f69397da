/* Bare segments: which chunks come under a block, and from where.
 *
 * Bodies of blocks get chunks of a slot, all else single pages. While no more is held than the most that was alive, and
 * a little, chunks are created: that is cheaper than to move one, and an old mapping stays of use where it is. Beyond,
 * the idle chunk moves that is needed last (idle.c). Where none of the right size is idle, another goes back to the
 * device, and one is created in its stead; and so where single pages are idle that blocks will come back to long before
 * they need some body: pages that move from block to block leave each of them with gaps to be filled again.
 *
 * A block that reaches into a chunk pins it whole. Once more is lost in this way than is worth it, such a chunk is
 * replaced by single pages as the block comes, if that wins two at least; sooner where a slot lost some the last time
 * that memory was nearly used up, and where the rest lies beyond the segment.
 *
 * On recorded training and generation (scripts/bench --sim prints the frontier): slots of 10 MiB take a twentieth less,
 * and hold up to 0.4 % more; those of 16 MiB hold more than 1.02 of what is alive where blocks are small beside them,
 * and more sizes than two cost more in chunks of the wrong size than they save. Not to look at the old mappings of a
 * chunk costs a fifth in later rounds.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "pool/bare/bare.h"

#include <errno.h>
#include <sys/mman.h>

/* ---- one chunk ---- */

struct filling {
    struct vp_pool *pool;
    struct vp_request req;
    uint64_t mark;    /* of chunks that it has taken already */
    bool unready;     /* something was passed over, work on which is not over */
    size_t exhausted; /* the device has no so many bytes any more; 0: not as far as is known */
};

/* Is it free memory now, not taken, and ready for the stream? */
static bool obtainable(struct filling *f, struct vp_chunk *chunk) {
    const struct vp_bare *bare = f->pool->bare;
    bool used;
    if (chunk->mark == f->mark || !vp_bare_is_idle(f->pool, chunk, &used) ||
        (chunk->current->addr - bare->base < bare->size && !vp_bare_let_go(f->pool, chunk->current)))
        return false;
    bool ready = vp_chunk_usable(&f->pool->mem, chunk, &f->req, VP_USE_READY);
    f->unready |= !ready;
    return ready;
}

/* The best idle chunk of that kind; NULL: none. */
static struct vp_chunk *take_idle(struct filling *f, enum vp_bare_kind kind) {
    struct vp_bare *bare = f->pool->bare;
    for (bool known = false; vp_bare_know_idle(f->pool); bare->idle_listed = false, known = true) {
        while (bare->idle[kind].next < bare->idle[kind].count) {
            struct vp_chunk *chunk = bare->idle[kind].list[bare->idle[kind].next++].chunk;
            if (obtainable(f, chunk))
                return chunk;
        }
        if (known || bare->idle_at == bare->past.now)
            break;
    }
    return NULL;
}

/* Gives the best idle chunk of that kind back. False: that one cannot be had now, or there is none. */
static bool give_back(struct filling *f, enum vp_bare_kind kind) {
    struct vp_bare *bare = f->pool->bare;
    if (bare->idle[kind].next == bare->idle[kind].count)
        return false;
    struct vp_chunk *chunk = bare->idle[kind].list[bare->idle[kind].next++].chunk;
    const size_t size = chunk->size;
    if (!obtainable(f, chunk))
        return false;
    const bool given = vp_chunk_give_back(&f->pool->mem, chunk);
    f->unready |= !given;
    if (given) {
        bare->idle_releases++;
        bare->idle_bytes -= size < bare->idle_bytes ? size : bare->idle_bytes;
    }
    return given;
}

/* Gives one idle chunk back: of those of other sizes, then of that kind which is needed later. False: there is none. */
static bool release_one(struct filling *f) {
    struct vp_bare *bare = f->pool->bare;
    while (vp_bare_know_idle(f->pool)) {
        int best = -1;
        for (int k = 0; k < VP_BARE_IDLE_KINDS; k++)
            if (bare->idle[k].next < bare->idle[k].count &&
                (best < 0 || k == VP_BARE_OTHERS ||
                 vp_bare_better(&bare->idle[k].list[bare->idle[k].next],
                                &bare->idle[best].list[bare->idle[best].next])))
                best = k;
        if (best < 0)
            return false;
        if (give_back(f, (enum vp_bare_kind)best))
            return true;
    }
    return false;
}

/* The best chunk of that kind that is idle still; NULL: none. */
static const struct vp_bare_idle *first_idle(const struct filling *f, enum vp_bare_kind kind) {
    struct vp_bare *bare = f->pool->bare;
    bool used;
    for (; bare->idle[kind].next < bare->idle[kind].count; bare->idle[kind].next++) {
        const struct vp_bare_idle *one = &bare->idle[kind].list[bare->idle[kind].next];
        if (one->chunk->mark != f->mark && vp_bare_is_idle(f->pool, one->chunk, &used))
            return one;
    }
    return NULL;
}

/* Is it needed in less than half the time, or, where nothing is known of either, was it used so lately? */
static bool is_sooner(const struct vp_bare_idle *a, const struct vp_bare_idle *b, uint32_t now) {
    if (a->next != b->next)
        return a->next < b->next && (b->next == VP_BARE_NEVER || a->next <= now || a->next - now < (b->next - now) / 2);
    return now - a->rested < (now - b->rested) / 2;
}

/* Gives a body back for pages to be created, where all that are idle will be needed much sooner. */
static bool break_body(struct filling *f) {
    if (!vp_bare_know_idle(f->pool))
        return false;
    const struct vp_bare_idle *page = first_idle(f, VP_BARE_PAGES), *body = first_idle(f, VP_BARE_BODIES);
    return page && body && is_sooner(page, body, f->pool->bare->past.now) && give_back(f, VP_BARE_BODIES);
}

static int create(struct filling *f, size_t size, struct vp_chunk **out) {
    int err = f->exhausted && size >= f->exhausted ? -ENOMEM : vp_chunk_create(&f->pool->mem, size, false, out);
    if (err == -ENOMEM && (!f->exhausted || size < f->exhausted))
        f->exhausted = size;
    if (!err)
        vp_chunk_spare(&f->pool->mem, *out, true);
    return err;
}

static struct vp_chunk *take_spare(struct filling *f, size_t size) {
    struct vp_chunk *chunk;
    vp_list_each(chunk, &f->pool->mem.spares, link)
        if (chunk->size == size && chunk->mark != f->mark)
            return chunk;
    return NULL;
}

/* Gives a spare body back, so that single pages may be created. */
static bool break_spare(struct filling *f) {
    struct vp_chunk *chunk;
    vp_list_each(chunk, &f->pool->mem.spares, link)
        if (chunk->size > f->pool->mem.granularity && chunk->mark != f->mark) {
            vp_chunk_destroy(&f->pool->mem, chunk);
            return true;
        }
    return false;
}

/* A chunk for `pages` pages. What was created is among the spares. 0; -EAGAIN, -ENOMEM, -EIO. */
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
    if (err != -ENOMEM || (*out = take_idle(f, kind)))
        return err == -ENOMEM ? 0 : err;
    while (mem->stats.held_bytes + size > cap && release_one(f))
        f->exhausted = 0;
    if (patient && f->unready && mem->stats.held_bytes + size > cap)
        return -EAGAIN;
    while ((err = create(f, size, out)) == -ENOMEM && (release_one(f) || (pages == 1 && break_spare(f))))
        f->exhausted = 0;
    return err;
}

/* ---- a gap ---- */

/* Room for so many chunks; NULL: there is no memory. */
static struct vp_chunk **chunk_list(struct vp_bare *bare, size_t n) {
    if (n <= bare->chunk_room)
        return bare->chunks;
    size_t room = n + n / 2 + 512;
    void *list = mmap(NULL, room * sizeof *bare->chunks, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (list == MAP_FAILED)
        return NULL;
    if (bare->chunks)
        munmap(bare->chunks, bare->chunk_room * sizeof *bare->chunks);
    bare->chunk_room = room;
    return bare->chunks = list;
}

static int gather(struct filling *f, size_t first, size_t end, bool body, bool patient, struct vp_chunk **chunks,
                  size_t *count) {
    bool whole = body;
    int err = 0;
    for (size_t p = first; p < end && !err;) {
        size_t pages = whole && p % VP_SLOT_PAGES == 0 && p + VP_SLOT_PAGES <= end ? VP_SLOT_PAGES : 1;
        err = find_chunk(f, pages, patient, &chunks[*count]);
        if (err == -ENOMEM && pages > 1) {
            /* Single pages may still be had. */
            whole = false;
            err = 0;
        } else if (!err) {
            chunks[(*count)++]->mark = f->mark;
            p += pages;
        }
    }
    return err == -ENOMEM && f->unready ? -EAGAIN : err;
}

int vp_bare_fill(struct vp_pool *pool, struct vp_bare_segment *segment, size_t first, size_t end, size_t size,
                 bool patient) {
    struct vp_bare *bare = pool->bare;
    struct vp_memory *mem = &pool->mem;
    struct filling f = {.pool = pool, .req = {.timeline = segment->timeline}, .mark = ++mem->marks};
    struct vp_chunk **chunks = chunk_list(bare, end - first);
    struct vp_mapping *m;
    size_t count = 0;
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
    atomic_store_explicit(&bare->filled, bare->past.now ? bare->past.now : 1, memory_order_relaxed);
    vp_bare_mappings_each(m, bare, first, end) if (!err) err = vp_bare_keep(pool, segment, m);
    return err;
}

/* ---- room ---- */

/* What the device would still give. */
static size_t creatable(const struct vp_pool *pool) {
    const struct vp_memory *mem = &pool->mem;
    size_t free_bytes = 0, total = 0, held = mem->stats.held_bytes;
    if (mem->drv->cuMemGetInfo_v2(&free_bytes, &total))
        free_bytes = 0;
    if (mem->limit && free_bytes > (mem->limit > held ? mem->limit - held : 0))
        free_bytes = mem->limit > held ? mem->limit - held : 0;
    return free_bytes;
}

bool vp_bare_leaves(const struct vp_pool *pool, size_t bytes) {
    return !vp_bare_lacks(pool) || (vp_bare_idle_pages(pool) << pool->mem.granularity_shift) + creatable(pool) >=
                                       (pool->bare->owed << pool->mem.granularity_shift) + bytes;
}

/* Pages beyond a block's own that it may take: those at its edges, and where it pins chunks for a part. */
enum { ROOM_PAGES = VP_BARE_ROOM_PAGES };

/*
 * Bytes that a block may take. Where memory is short that is what it touches, and a page more. A small one lies in a
 * segment of its own kind, which is no more than a page where pages are of the usual size, and may have the last ones:
 * most small blocks lie in pages that have memory already, and are not to be refused where larger ones were.
 */
enum { SMALL_SEGMENT = 2 << 20 };

static size_t needed(const struct vp_pool *pool, size_t size, bool pressed) {
    const size_t page = pool->mem.granularity;
    if (size > SIZE_MAX / 4)
        return SIZE_MAX / 2;
    const size_t own = vp_round_up(size, page);
    if (!pressed)
        return own + ROOM_PAGES * page;
    return own + (size > VP_BARE_LARGE ? 2 * page : page < SMALL_SEGMENT ? page : 0);
}

/*
 * Of what the device would give, the part that is left to others before it is made sure of; and the part that is
 * counted on, for so long. Other processes may take all of it meanwhile, and a block without memory ends the program:
 * what a block is sure to take is made before it is promised.
 */
enum { DEVICE_SHARE = 64 };
static const uint64_t COUNTED_NS = 10000000;

/* What a cheap clock may be late by: a tick of most systems. Each block asks it, and a look at the clock itself would
 * take a quarter of what a block costs. */
static const uint64_t ABOUT_NS = 4000000;

bool vp_bare_counts_on(const struct vp_bare *bare, size_t pages) {
    const struct vp_pool_config *config = &bare->pool->config;
    if (pages >= bare->counted)
        return false;
    if (config->now_about)
        return config->now_about() + ABOUT_NS < bare->counted_until;
    return !config->now || config->now() < bare->counted_until;
}

/* Held, and in no chunk with blocks, as far as is known. */
static size_t there_of(const struct vp_pool *pool) {
    const size_t used = atomic_load_explicit(&pool->bare->used, memory_order_relaxed),
                 bounds = atomic_load(&pool->bare->bounds);
    return bounds > used ? (bounds - used) << pool->mem.granularity_shift : 0;
}

/* The same, by a look at all that is idle. */
static bool look_there(struct vp_pool *pool, size_t *there) {
    const struct vp_chunk *chunk;
    pool->bare->idle_listed = false;
    if (!vp_bare_know_idle(pool))
        return false;
    *there = pool->bare->idle_bytes;
    vp_list_each(chunk, &pool->mem.spares, link)
        *there += chunk->size;
    return true;
}

/* Single pages that may be had. */
static size_t singles_of(const struct vp_pool *pool) {
    const struct vp_chunk *chunk;
    size_t single = pool->bare->idle[VP_BARE_PAGES].count;
    vp_list_each(chunk, &pool->mem.spares, link)
        single += chunk->size == pool->mem.granularity;
    return single;
}

int vp_bare_make_room(struct vp_pool *pool, size_t size, struct vp_timeline *timeline, bool pressed) {
    struct vp_bare *bare = vp_bare_of(pool);
    struct filling f = {.pool = pool, .req = {.timeline = timeline}, .mark = ++pool->mem.marks};
    const size_t page = pool->mem.granularity, body = VP_SLOT_PAGES * page, need = needed(pool, size, pressed);
    if (!bare)
        return -ENOMEM;
    vp_bare_count(pool);
    vp_bare_count_anew(bare);
    const size_t fresh = creatable(pool), counted = fresh / DEVICE_SHARE, sure = fresh - counted;
    size_t there = there_of(pool), least = size < need ? vp_bare_touched(bare, size) * page : need;
    if ((there < least || there + sure < need) && !look_there(pool, &there))
        return -ENOMEM;
    /* Memory is short: only what is held is certain, for this block alone. */
    const bool is_short = there + sure < need;
    if (is_short || least > need)
        least = need;
    else if (need > counted && need - counted > least)
        least = need - counted;
    size_t single = singles_of(pool);
    struct vp_chunk *chunk;
    int err = 0;
    while (there < least && !err) {
        bool whole = least - there >= body && size >= body && (single >= ROOM_PAGES || !is_short);
        size_t want = whole ? body : page;
        err = create(&f, want, &chunk);
        there += err ? 0 : want;
        single += want == page;
    }
    const size_t used = atomic_load_explicit(&bare->used, memory_order_relaxed);
    bare->counted = counted >> pool->mem.granularity_shift;
    bare->counted_until = pool->config.now ? pool->config.now() + COUNTED_NS : 0;
    atomic_store(&bare->bounds, is_short || err ? 0 : used + (there >> pool->mem.granularity_shift));
    return err;
}
