/* vpool's own policy.
 *
 * A large request goes to
 *   1. the place that served its size before (place.c). Its stream waits on the GPU for that where it may, or the host:
 * a program that repeats itself must not get another place, and then others after it, because the GPU was a little
 * slower this time;
 *   2. the best fit among the free bytes that it may use at once, or the beginning of a somewhat larger place that can
 * be switched back;
 *   3. the same after asking the driver what has completed;
 *   4. the same for which its stream may wait on the GPU (not where growing comes first);
 *   5. for cudaMalloc: a host wait on the barrier of an earlier cudaFree, once waiting costs less memory than it is
 * worth;
 *   6. a new range: a place that served less, or the usable end of the free region before a hole, wholly free chunks
 * remapped behind it, and fresh chunks for what is then still short. Nothing is created while enough wholly free,
 * usable chunks lie about; nor before the host has waited for what other streams have freed, where that is due
 * (throttle.h). If the device has no more, waits that were to come after growing are due, and 4 and 6 are tried with
 * them. A small request takes its best fit first: the small zone has chunks of one size only, each as good as the
 * other.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "pool/policy.h"
#include "pool/parking.h"
#include "pool/throttle.h"

#include <errno.h>

/* Synchronous blocks of this size and more share no 64 KiB page with others: NICs and DMA-BUF register whole pages. */
enum { SYNC_PAGES = 1 << 20, SYNC_PAGE = 64 << 10 };

/* Below this a request goes to the small zone. PyTorch's own timeline between small and large lies here too. */
enum { SMALL = 1 << 20 };

/*
 * Handles of the large zone. A remap costs by the handle, not by the byte, and a handle that a block covers in part is
 * pinned whole: so the handle grows with the request. With one in 128 it is remapped in some 128 calls however large it
 * is. One in 256 makes half as many calls again and spares a tenth of the waste; one in 64 saves a third of them and
 * wastes twice as much. Below 8 MiB the calls become too many: 4 MiB doubles them. Measured on recorded programs
 * (scripts/bench prints the frontier) and on training (there 286, 183 and 125 ms of driver time for 1.0044, 1.0049
 * and 1.0097 times what was live).
 */
enum { HANDLE_SHARE = 128, HANDLE_LEAST = 8 << 20 };

/* Fresh bytes, in largest handles, from which on a range ends in small handles even where large ones come out even.
 * Lower, and a program that grows step by step ends up with small handles only. */
enum { ENDS_FROM = 3 };

/* Held memory above the peak of live bytes that cudaMalloc may add, beyond one block, before it waits for an earlier
 * cudaFree: rounding of a few chunks. */
enum { SYNC_SLACK_GRANULES = 4 };

static int layout(struct vp_pool *pool, struct vp_request *req) {
    bool pages = !req->timeline && req->asked >= SYNC_PAGES;
    if (req->asked > SIZE_MAX / 4)
        return -ENOMEM;
    /* What comes in whole granules anyway has them to itself, so that it can be exported. No more is held for it; were
     * all large requests of a recorded training step so, the driver would take three to four times as long until the
     * step repeats (583 for 152 ms, in a replay). */
    req->alone |= pages && req->asked % pool->mem.granularity == 0;
    req->align = req->alone ? pool->mem.granularity : pages ? SYNC_PAGE : VP_QUANTUM;
    req->size = vp_round_up(req->asked, req->align);
    req->zone = !req->alone && req->asked < SMALL && req->asked < pool->mem.granularity ? VP_ZONE_SMALL : VP_ZONE_LARGE;
    return 0;
}

/* ---- harvest: which wholly free chunks ---- */

struct candidate {
    struct vp_chunk *chunk;
    size_t region : 63; /* size of the free region around it */
    size_t ready : 1;   /* no wait needed */
};

struct harvest {
    struct candidate *list; /* room for every chunk of the pool */
    size_t count;
    const struct vp_request *req;
    enum vp_usable use;
    CUdeviceptr skip, skip_end; /* the part of a region that stays where it is */
};

static void harvest_region(struct vp_pool *pool, struct harvest *h, const struct vp_region *r) {
    size_t largest = h->req->zone == VP_ZONE_SMALL && !h->req->pressed ? pool->mem.granularity : SIZE_MAX;
    CUdeviceptr at = r->space->base + vp_round_up(r->addr - r->space->base, pool->mem.granularity);
    while (at < vp_region_end(r)) {
        struct vp_chunk *chunk = vp_mapping_at(&pool->mem, at)->chunk;
        CUdeviceptr begin = chunk->current->addr, end = begin + chunk->size;
        bool skipped = begin < h->skip_end && end > h->skip;
        if (begin == at && end <= vp_region_end(r) && chunk->size <= largest && !skipped &&
            vp_range_usable(r, at, end, h->req, h->use))
            h->list[h->count++] = (struct candidate){chunk, r->size, vp_range_usable(r, at, end, h->req, VP_USE_READY)};
        at = end;
    }
}

static void harvest_index(struct vp_pool *pool, struct harvest *h, struct vp_index *index) {
    for (struct vp_region *r = vp_index_first(index, pool->mem.granularity); r; r = vp_index_next(index, r))
        harvest_region(pool, h, r);
}

static void harvest_all(struct vp_pool *pool, struct harvest *h) {
    struct vp_index *index;
    for (int z = 0; z < VP_ZONES; z++) {
        harvest_index(pool, h, &pool->mem.met[z]);
        harvest_index(pool, h, &pool->mem.mixed[z]);
    }
    vp_list_each(index, &pool->mem.timeline_indexes, link)
        harvest_index(pool, h, index);
}

/* Those that need no wait first. Large chunks first: a handle costs the same whatever its size. Then those whose region
 * is of least use otherwise; then the lowest, so that a repeating program repeats its addresses. */
static bool before(const struct candidate *a, const struct candidate *b) {
    if (a->ready != b->ready)
        return a->ready;
    if (a->chunk->size != b->chunk->size)
        return a->chunk->size > b->chunk->size;
    if (a->region != b->region)
        return a->region < b->region;
    return a->chunk->current->addr < b->chunk->current->addr;
}

/* Heap sort: libc's qsort may call malloc. */
static void sort(struct candidate *c, size_t n) {
    for (size_t start = n / 2, end = n; end > 1;) {
        if (start > 0) {
            start--;
        } else {
            struct candidate t = c[--end];
            c[end] = c[0];
            c[0] = t;
        }
        for (size_t i = start, j; (j = 2 * i + 1) < end; i = j) {
            if (j + 1 < end && before(&c[j], &c[j + 1]))
                j++;
            if (!before(&c[i], &c[j]))
                break;
            struct candidate t = c[i];
            c[i] = c[j];
            c[j] = t;
        }
    }
}

/*
 * Puts the chosen chunks to the front of the list: `want` bytes, or all there are. Greedy by size; what is then short
 * is made up by the smallest chunk that covers it, whose rest stays free right behind the new range; not if the request
 * is to be alone.
 */
static size_t choose(struct candidate *c, size_t n, size_t want, bool alone, size_t *bytes) {
    size_t taken = 0, sum = 0;
    for (size_t i = 0; i < n && sum < want; i++)
        if (c[i].chunk->size <= want - sum) {
            struct candidate t = c[i];
            for (size_t j = i; j > taken; j--)
                c[j] = c[j - 1];
            c[taken++] = t;
            sum += t.chunk->size;
        }
    if (sum < want && taken < n && !alone) {
        size_t least = taken;
        for (size_t i = taken; i < n; i++)
            if (c[i].chunk->size < c[least].chunk->size)
                least = i;
        struct candidate t = c[least];
        c[least] = c[taken];
        c[taken++] = t;
        sum += t.chunk->size;
    }
    *bytes = sum;
    return taken;
}

/* ---- where to build ---- */

/* How much what grows may do so (1/GROWS_BY) before it needs other addresses. */
enum { GROWS_BY = 2 };

struct site {
    CUdeviceptr begin; /* where the block will begin */
    CUdeviceptr hole;  /* where new mappings begin; not before the end of the block: none are needed */
};

/* The longest usable end of a free region that lies right before a hole with room. False if there is none. */
static bool find_end(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use, struct site *site) {
    struct vp_space *s;
    struct vp_region *hole, *before_hole;
    size_t longest = 0;
    vp_list_each(s, &pool->mem.spaces, link) {
        if (s->zone != req->zone)
            continue;
        vp_list_each(hole, &s->holes, holes) {
            before_hole = vp_region_prev(hole);
            if (!before_hole || before_hole->state != VP_FREE || hole->size < req->size + pool->config.handle)
                continue;
            CUdeviceptr run = 0, begin = before_hole->addr;
            for (const struct vp_piece *p = before_hole->pieces; p; begin = p->end, p = p->next)
                run = !vp_piece_usable(p, req, use) ? 0 : run ? run : begin;
            run = run ? vp_round_up(run, req->align) : 0;
            if (run && run < hole->addr && hole->addr - run > longest && hole->addr - run < req->size) {
                longest = hole->addr - run;
                *site = (struct site){run, hole->addr};
            }
        }
    }
    return longest > 0;
}

/* A hole by itself, `room` bytes of which stay free for what lies before it to grow: for room alone nothing is given
 * up. */
static int find_hole(struct vp_pool *pool, const struct vp_request *req, size_t room, struct site *site) {
    struct vp_region *hole;
    int err = vp_pool_hole(pool, req->zone, vp_round_up(req->size, pool->mem.granularity) + pool->config.handle + room,
                           !room, &hole);
    if (!err)
        *site = (struct site){hole->addr + room, hole->addr + room};
    return err;
}

/*
 * A place that is too small, and can be made longer. What grows gets addresses of its own, with as many behind it as it
 * may need: they cost nothing. Else the end of a free region; else a hole.
 */
static int find_site(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use, struct site *site) {
    if (req->alone)
        return find_hole(pool, req, 0, site);
    if (req->zone == VP_ZONE_LARGE && vp_place_grows(pool, req)) {
        site->begin = vp_place_find_smaller(pool, req, use, &site->hole).addr;
        if (site->begin ||
            find_hole(pool, req, vp_round_up(req->size / GROWS_BY + pool->config.handle, pool->mem.granularity),
                      site) == 0)
            return 0;
    }
    return find_end(pool, req, use, site) ? 0 : find_hole(pool, req, 0, site);
}

/* ---- build ---- */

/*
 * Fresh chunks of `bytes` together: the largest handles, then what is left in falling powers of two. The end of a block
 * then lies in a small handle, of which little is pinned when the block behind it stays; and later ranges find small
 * handles to end in.
 */
static int create_chunks(struct vp_pool *pool, size_t bytes, size_t largest, struct vp_chunk **out, size_t *count) {
    size_t n = 0, spared = bytes >= ENDS_FROM * largest ? pool->mem.granularity : 0;
    int err = 0;
    while (bytes && !err) {
        size_t size = largest;
        if (bytes <= largest)
            for (size = pool->mem.granularity; size * 2 + spared <= bytes; size *= 2)
                continue;
        err = vp_chunk_create(&pool->mem, size, &out[n]);
        if (!err) {
            n++;
            bytes -= size;
        }
    }
    *count = n;
    return err;
}

/* The largest handle that is created for a request: a power of two of granules. */
static size_t handle_for(const struct vp_pool *pool, const struct vp_request *req) {
    size_t size = pool->mem.granularity, most = req->size / HANDLE_SHARE;
    if (req->zone == VP_ZONE_SMALL)
        return size;
    if (most < HANDLE_LEAST)
        most = HANDLE_LEAST;
    if (most > pool->config.handle)
        most = pool->config.handle;
    while (size * 2 <= most)
        size *= 2;
    return size;
}

/*
 * For what is to be alone in its chunks all those left over are too large. Nothing is created while enough free memory
 * lies about: the smallest goes back to the device, and what is lacking is created in its stead.
 */
static void break_one(struct vp_pool *pool, const struct candidate *c, size_t n) {
    const struct candidate *least = NULL;
    for (size_t i = 0; i < n; i++)
        if (c[i].ready && (!least || c[i].chunk->size < least->chunk->size))
            least = &c[i];
    if (least)
        vp_chunk_give_back(&pool->mem, least->chunk);
}

/* Is there something free that fits, but is not ready yet? */
static bool fit_pending(struct vp_pool *pool, const struct vp_request *req) {
    return vp_place_find(pool, req, VP_USE_PENDING).region || vp_fit_find(&pool->mem, req, VP_USE_PENDING).region;
}

static int build(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use, struct vp_region **out) {
    struct site site;
    int err = find_site(pool, req, use, &site);
    if (err)
        return err;
    size_t there = site.hole - site.begin,
           want = there < req->size ? vp_round_up(req->size - there, pool->mem.granularity) : 0;
    size_t fresh_most = want / pool->mem.granularity + 1, chunks_most = pool->mem.chunk_count + fresh_most;
    size_t list_bytes = pool->mem.chunk_count * sizeof(struct candidate),
           chunk_bytes = chunks_most * sizeof(struct vp_chunk *);
    struct harvest h = {.req = req, .use = use, .skip = site.begin, .skip_end = site.hole};
    h.list = vp_pool_scratch(pool, list_bytes > chunk_bytes ? list_bytes : chunk_bytes);
    if (!h.list)
        return -ENOMEM;
    const bool lags = want && vp_throttle_room(pool, req, want) && fit_pending(pool, req);
    if (want && !lags)
        harvest_all(pool, &h);
    sort(h.list, h.count);
    size_t bytes, old = choose(h.list, h.count, want, req->alone, &bytes), fresh = 0;
    if (want && !lags && vp_throttle_due(pool, req, want - bytes))
        return -EAGAIN;
    if (req->alone && bytes < want)
        break_one(pool, h.list + old, h.count - old);
    /* The chosen chunks move up to the front of the same memory, each over what was read before. */
    struct vp_chunk **chunks = (struct vp_chunk **)h.list;
    for (size_t i = 0; i < old; i++) {
        struct vp_chunk *chunk = h.list[i].chunk;
        chunks[i] = chunk;
    }
    if (bytes < want)
        err = create_chunks(pool, want - bytes, handle_for(pool, req), chunks + old, &fresh);
    if (!err && want)
        err = vp_stitch_map(&pool->mem, chunks, old + fresh, site.hole);
    if (err) {
        while (fresh)
            vp_chunk_destroy(&pool->mem, chunks[old + --fresh]);
        return err;
    }
    vp_place_add(pool, site.begin, req->size);
    vp_place_limit(pool, old + fresh);
    return vp_fit_take(&pool->mem, (struct vp_fit){vp_region_at(&pool->mem, site.begin), site.begin}, req, out);
}

/* ---- the steps: each serves the request (0), fails (a negative errno), or leaves it to the next one ---- */

enum { NEXT = 1 };

/* Loops over tables that are known: unrolled, all calls are direct. By pointer they made a cudaMalloc a tenth slower.
 */
#define ALWAYS_INLINE inline __attribute__((always_inline))

static bool flush_caches(struct vp_pool *pool, const struct vp_request *req, enum vp_flush unpressed) {
    return vp_parking_flush(pool, req->pressed ? VP_FLUSH_ALL : unpressed);
}

/* Which wait the request's stream may make on the GPU; VP_USE_READY: none. */
static enum vp_usable waits_of(const struct vp_request *req) {
    if (!req->timeline || !(req->waits == VP_WAITS_EARLY || (req->waits == VP_WAITS_LATE && req->pressed)))
        return VP_USE_READY;
    return req->pressed ? VP_USE_WAIT_LATE : VP_USE_WAIT;
}

static struct vp_fit best_fit(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use) {
    return vp_fit_find(&pool->mem, req, use);
}

static struct vp_fit best_fit_of_parked(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use) {
    return flush_caches(pool, req, VP_FLUSH_MOST) ? best_fit(pool, req, use) : (struct vp_fit){0};
}

/* Without old mappings all that is free is free where it lies, and does not fit. */
static struct vp_fit old_place(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use) {
    return pool->mem.mappings > pool->mem.chunk_count ? vp_place_find(pool, req, use) : (struct vp_fit){0};
}

static struct vp_fit old_larger_place(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use) {
    return pool->mem.mappings > pool->mem.chunk_count ? vp_place_find_larger(pool, req, use) : (struct vp_fit){0};
}

/* Where what is there is looked for, in this order. */
enum { LOOKS = 4 };
static struct vp_fit (*const LOOK[VP_ZONES][LOOKS])(struct vp_pool *, const struct vp_request *, enum vp_usable) = {
    [VP_ZONE_SMALL] = {best_fit, best_fit_of_parked, old_place, old_larger_place},
    [VP_ZONE_LARGE] = {vp_place_find, best_fit, vp_place_find_larger},
};

/* Takes what is there. What served a large request is a place from then on, if it was none. */
static ALWAYS_INLINE int reuse_in(struct vp_pool *pool, enum vp_zone_name zone, const struct vp_request *req,
                                  enum vp_usable use, struct vp_region **out) {
#pragma GCC unroll 4
    for (int i = 0; i < LOOKS; i++) {
        struct vp_fit fit = LOOK[zone][i] ? LOOK[zone][i](pool, req, use) : (struct vp_fit){0};
        if (!fit.region)
            continue;
        int err = vp_fit_take(&pool->mem, fit, req, out);
        if (!err && i && zone == VP_ZONE_LARGE)
            vp_place_add(pool, (*out)->addr, req->size);
        return err;
    }
    return NEXT;
}

static int reuse(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use, struct vp_region **out) {
    return req->zone == VP_ZONE_SMALL ? reuse_in(pool, VP_ZONE_SMALL, req, use, out)
                                      : reuse_in(pool, VP_ZONE_LARGE, req, use, out);
}

/*
 * Makes free memory of what other streams have parked, for a request of the large zone: which place is the oldest must
 * not hang on who parked what. If that is one block only, the very place that would then be found, there is no need to
 * free it first. A small request need not disturb other streams while there is room: see LOOK.
 */
static int take_over(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    struct vp_handed handed = {0};
    if (!req->timeline || req->alone) {
        flush_caches(pool, req, VP_FLUSH_SOME);
        return NEXT;
    }
    vp_parking_flush_for(pool, req->pressed ? VP_FLUSH_ALL : VP_FLUSH_SOME, req, &handed);
    struct vp_region *r = handed.block.region;
    if (!r)
        return NEXT;
    const struct vp_piece freed = {.end = vp_region_end(r), .fence = handed.block.fence, .stream = handed.timeline->id};
    if (r->size == req->size && r->addr % req->align == 0 && vp_piece_usable(&freed, req, waits_of(req)) &&
        vp_place_is_oldest(pool, req, r->addr) && !vp_handed_take(pool, &handed, req)) {
        *out = r;
        return 0;
    }
    vp_handed_settle(pool, &handed);
    return NEXT;
}

/* Is the oldest place of the request's size free, but not ready yet? */
static bool place_pending(struct vp_pool *pool, const struct vp_request *req) {
    for (bool asked = false;; asked = true) {
        struct vp_fit fit = vp_place_find(pool, req, VP_USE_PENDING);
        if (!fit.region || vp_range_usable(fit.region, fit.addr, fit.addr + req->size, req, VP_USE_READY))
            return false;
        if (asked || !vp_fit_refresh(&pool->mem))
            return true;
    }
}

/* The place that served the size before, behind a wait of the stream or of the host. */
static int wait_for_place(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    const enum vp_usable waits = waits_of(req);
    struct vp_fit fit = waits != VP_USE_READY ? vp_place_find(pool, req, waits) : (struct vp_fit){0};
    if (fit.region)
        return vp_fit_take(&pool->mem, fit, req, out);
    return vp_throttle_place_due(pool, req) && place_pending(pool, req) ? -EAGAIN : NEXT;
}

static int reuse_ready(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    return reuse(pool, req, VP_USE_READY, out);
}

static int ask_and_reuse(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    int err = vp_fit_refresh(&pool->mem) ? reuse(pool, req, VP_USE_READY, out) : NEXT;
    return err == NEXT && req->context->error ? -EIO : err;
}

static int wait_and_reuse(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    const enum vp_usable waits = waits_of(req);
    return waits != VP_USE_READY ? reuse(pool, req, waits, out) : NEXT;
}

/* cudaMalloc: is a host wait due? Native CUDA would have waited in cudaFree; one block more than it would hold is what
 * not waiting may cost. */
static int host_wait(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    const struct vp_fence *fence;
    size_t allowed = pool->mem.stats.peak_live_bytes + SYNC_SLACK_GRANULES * pool->mem.granularity;
    if (req->timeline || req->impatient || (!req->pressed && pool->mem.stats.held_bytes <= allowed))
        return NEXT;
    if (!vp_fit_host(&pool->mem, req, &fence).region)
        return NEXT;
    req->await = vp_fence_event(fence);
    return req->await ? -EAGAIN : NEXT;
}

static int build_anew(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    /* A few small blocks keep chunks from being wholly free. */
    flush_caches(pool, req, VP_FLUSH_MOST);
    return build(pool, req, waits_of(req), out);
}

/* The steps of the head comment, in its order. */
enum { STEPS = 7 };
static int (*const STEP[VP_ZONES][STEPS])(struct vp_pool *, struct vp_request *, struct vp_region **) = {
    [VP_ZONE_SMALL] = {reuse_ready, ask_and_reuse, wait_and_reuse, host_wait, build_anew},
    [VP_ZONE_LARGE] = {take_over, wait_for_place, reuse_ready, ask_and_reuse, wait_and_reuse, host_wait, build_anew},
};

static ALWAYS_INLINE int alloc_in(enum vp_zone_name zone, struct vp_pool *pool, struct vp_request *req,
                                  struct vp_region **out) {
    int err = NEXT;
#pragma GCC unroll 8
    for (int i = 0; i < STEPS && err == NEXT; i++)
        if (STEP[zone][i])
            err = STEP[zone][i](pool, req, out);
    return err;
}

static int alloc(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    return req->zone == VP_ZONE_SMALL ? alloc_in(VP_ZONE_SMALL, pool, req, out)
                                      : alloc_in(VP_ZONE_LARGE, pool, req, out);
}

const struct vp_policy vp_policy_vpool = {
    .name = "vpool",
    .traits = {.host_waits = true, .homes = true, .parks = true},
    .layout = layout,
    .alloc = alloc,
};
