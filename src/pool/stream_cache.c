#include "pool/stream_cache.h"

#include "base/clock.h"
#include "pool/policy.h"

#include <sched.h>
#include <string.h>

/* Serials handed to a lane at a time. Fewer cost a visit to the slow path more often (a tenth of a nanosecond each at 4096); it is what shows a program that
 * lanes serve alone to those who watch its counts (watch/shared_stats.h). */
enum { SERIALS = 4096 };

/* Blocks up to this size are tiny. With larger ones (2 KiB, 4 KiB) the places of others hang so much on what is parked that recorded programs which repeat
 * themselves do not come to rest: they ask the driver for something again and again. */
enum { TINY = 1024 };

/* Where so many blocks were parked for nothing, sizes hardly repeat, and only one block in some is parked to see whether they do by now. */
enum { VAIN = 64, VAIN_TRIES = 8 };

/* Places at which a remembered block may lie, from the one of its address on. */
enum { WAYS = 4 };

/* So many requests in a row must have been served from the lane before it may keep what it holds, and before it is calm. Measured
 * on recorded programs: with fewer, phases that only look calm cost memory. */
enum { KEEPS = 16, CALM = 256 };

/* ---- its lock: held for some ten nanoseconds ---- */

enum { SPINS = 100, YIELDS = 100 };

static void lane_lock(struct vp_lane *lane) {
    for (unsigned n = 0; atomic_exchange_explicit(&lane->locked, true, memory_order_acquire); n++)
        if (n >= SPINS + YIELDS)
            vp_clock_nap();     /* to yield does not help a holder of lower priority that this thread keeps from the processor */
        else if (n >= SPINS)
            sched_yield();
}

static void lane_unlock(struct vp_lane *lane) {
    atomic_store_explicit(&lane->locked, false, memory_order_release);
}

/* What is also looked at without it. */
static unsigned get(const atomic_uint *n) {
    return atomic_load_explicit(n, memory_order_relaxed);
}

static void set(atomic_uint *n, unsigned value) {
    atomic_store_explicit(n, value, memory_order_relaxed);
}

static void add(atomic_uint *n, unsigned value) {
    set(n, get(n) + value);
}

/* ---- blocks that it gave out ---- */

static unsigned place_of(CUdeviceptr addr, unsigned way) {
    size_t hash = (size_t)(addr / VP_QUANTUM * UINT64_C(0x9e3779b97f4a7c15) >> 32);
    return (unsigned)((hash + way) % VP_LANE_RECENT);
}

static CUdeviceptr recent_at(const struct vp_lane *lane, unsigned place) {
    return atomic_load_explicit(&lane->recent_at[place], memory_order_relaxed);
}

static void set_recent(struct vp_lane *lane, unsigned place, CUdeviceptr addr) {
    atomic_store_explicit(&lane->recent_at[place], addr, memory_order_relaxed);
}

static void remember(struct vp_lane *lane, const struct vp_lane_block *block) {
    unsigned at = place_of(block->addr, 0);
    for (unsigned way = 1; way < WAYS && recent_at(lane, at); way++)
        at = place_of(block->addr, way);
    if (recent_at(lane, at))
        lane->recent[at].region->serial = lane->recent[at].serial;
    lane->recent[at] = *block;
    set_recent(lane, at, block->addr);
}

/* Where it remembers a live block at that address; VP_LANE_RECENT: nowhere. Without the lock this was so a moment ago. */
static unsigned remembered(const struct vp_lane *lane, CUdeviceptr addr) {
    for (unsigned way = 0; way < WAYS; way++)
        if (recent_at(lane, place_of(addr, way)) == addr)
            return place_of(addr, way);
    return VP_LANE_RECENT;
}

/* True if it is still remembered there: it comes out. */
static bool forget(struct vp_lane *lane, CUdeviceptr addr, unsigned at, struct vp_lane_block *out) {
    if (at == VP_LANE_RECENT || recent_at(lane, at) != addr)
        return false;
    *out = lane->recent[at];
    set_recent(lane, at, 0);
    return true;
}

/* ---- parked blocks ---- */

static void list(struct vp_lane *lane) {
    struct vp_lane *first = atomic_load_explicit(&lane->pool->busy_lanes, memory_order_relaxed);
    if (lane->listed)
        return;
    lane->listed = true;
    do
        lane->next_busy = first;
    while (!atomic_compare_exchange_weak(&lane->pool->busy_lanes, &first, lane));
}

/* The i-th parked block, oldest first. */
#define PARKED(lane, i) ((lane)->parked[(lane)->place[i]])

/* Blocks that differ in it differ in size. The lowest bit says that they are tiny. */
static uint16_t tag_of(size_t asked) {
    return (uint16_t)(asked * UINT64_C(0x9e3779b97f4a7c15) >> 48 & ~UINT64_C(1)) | (asked <= TINY);
}

static bool is_tiny(uint16_t tag) {
    return tag & 1;
}

/* Looked at without its lock: may it hold a block of that size? */
static unsigned of_kind(const struct vp_lane *lane, uint16_t tag) {
    return atomic_load_explicit(&lane->kinds[tag * VP_LANE_KINDS >> 16], memory_order_relaxed);
}

static void count_kind(struct vp_lane *lane, uint16_t tag, int more) {
    atomic_store_explicit(&lane->kinds[tag * VP_LANE_KINDS >> 16], (uint8_t)((int)of_kind(lane, tag) + more), memory_order_relaxed);
}

/* `cond`: what the block waits for besides its stream, then passed over; NULL: nothing. */
static void push(struct vp_lane *lane, const struct vp_lane_block *block, vp_cond *cond) {
    unsigned n = get(&lane->count);
    lane->tag[n] = tag_of(block->asked);
    PARKED(lane, n).block = *block;
    PARKED(lane, n).cond = cond ? *cond : (vp_cond){ 0 };
    if (cond)
        *cond = (vp_cond){ 0 };
    set(&lane->count, n + 1);
    add(&lane->tiny, is_tiny(lane->tag[n]));
    count_kind(lane, lane->tag[n], 1);
    lane->bytes += block->asked;
    lane->frees++;
    add(&lane->in_vain, 1);
    list(lane);
}

/* Its condition, if it has one, is the caller's. */
static struct vp_lane_block take_out(struct vp_lane *lane, unsigned i) {
    unsigned left = get(&lane->count) - 1;
    uint8_t place = lane->place[i];
    set(&lane->tiny, get(&lane->tiny) - is_tiny(lane->tag[i]));
    count_kind(lane, lane->tag[i], -1);
    if (i < left) {     /* mostly not: the last one parked is the first wanted */
        memmove(&lane->tag[i], &lane->tag[i + 1], (left - i) * sizeof lane->tag[0]);
        memmove(&lane->place[i], &lane->place[i + 1], (left - i) * sizeof lane->place[0]);
    }
    lane->place[left] = place;
    set(&lane->count, left);
    lane->bytes -= lane->parked[place].block.asked;
    return lane->parked[place].block;
}

/* Takes out all, or all but tiny ones; oldest first. Returns how many. */
static unsigned give_up(struct vp_lane *lane, bool all, struct vp_region **regions, vp_cond *conds) {
    unsigned count = get(&lane->count), begin = 0, n = 0;
    uint8_t places[VP_LANE_PARKED];
    /* Mostly that is the last one alone, behind many tiny ones. */
    if (!all)
        for (unsigned more = count - get(&lane->tiny), i = begin = count; more; begin = i)
            more -= !is_tiny(lane->tag[--i]);
    unsigned left = begin;
    for (unsigned i = begin; i < count; i++) {
        uint8_t place = lane->place[i];
        if (!all && is_tiny(lane->tag[i])) {
            lane->tag[left] = lane->tag[i];
            lane->place[left++] = place;
            continue;
        }
        count_kind(lane, lane->tag[i], -1);
        lane->bytes -= lane->parked[place].block.asked;
        conds[n] = lane->parked[place].cond;
        regions[n] = lane->parked[place].block.region;
        places[n++] = place;
    }
    memcpy(&lane->place[left], places, n);
    set(&lane->count, left);
    set(&lane->tiny, left);
    return n;
}

/* Four tags in a word, and what tells of each of them whether it is 0 (some that are not may look so). */
enum { TAGS = 4, TAG_BITS = 16 };
static const uint64_t EACH = UINT64_C(0x0001000100010001);

/* The block of that size that was parked last; `count`: none. */
static unsigned find(const struct vp_lane *lane, size_t asked, const void *owner) {
    unsigned n = get(&lane->count);
    uint64_t tags, want = tag_of(asked) * EACH;
    for (unsigned w = (n + TAGS - 1) / TAGS; w-- > 0;) {
        memcpy(&tags, &lane->tag[w * TAGS], sizeof tags);
        tags ^= want;
        for (uint64_t like = (tags - EACH) & ~tags & EACH << (TAG_BITS - 1); like;) {
            unsigned at = (63 - (unsigned)__builtin_clzll(like)) / TAG_BITS, i = w * TAGS + at;
            if (i < n && PARKED(lane, i).block.asked == asked && PARKED(lane, i).block.owner == owner)
                return i;
            like &= (UINT64_C(1) << at * TAG_BITS) - 1;
        }
    }
    return n;
}

/* Takes a parked block into use again. Its own stream need not wait for it. */
static struct vp_lane_block give_out(struct vp_lane *lane, unsigned i, uint64_t serial) {
    lane->spent += PARKED(lane, i).cond.line != NULL;
    struct vp_lane_block block = take_out(lane, i);
    block.serial = serial;
    lane->allocs++;
    add(&lane->calm, block.event);
    /* That a tiny one was wanted says nothing about others. */
    if (block.asked > TINY || get(&lane->in_vain) < VAIN)
        set(&lane->in_vain, 0);
    remember(lane, &block);
    return block;
}

/* ---- the fast path ---- */

/* A capture that begins raises the count and then passes every lane: whoever finds 0 here is done before the stream captures, and may ask for its id. */
static bool names(const struct vp_lane *lane, CUstream stream) {
    const struct vp_lines *lines = lane->pool->lines;
    unsigned long long id;
    return !atomic_load_explicit(&lines->captures, memory_order_acquire) && !lines->drv->cuStreamGetId(stream, &id) &&
           id + 1 == lane->id;
}

bool vp_lane_alloc(struct vp_lane *lane, CUstream stream, size_t asked, const void *owner, struct vp_lane_block *out) {
    if (!of_kind(lane, tag_of(asked)))
        return false;
    lane_lock(lane);
    unsigned count = get(&lane->count), i = lane->serial < lane->serial_end ? find(lane, asked, owner) : count;
    bool found = i < count && names(lane, stream);
    if (found)
        *out = give_out(lane, i, ++lane->serial);
    lane_unlock(lane);
    return found;
}

enum vp_lane_answer vp_lane_free(struct vp_lane *lane, CUstream stream, CUdeviceptr addr, struct vp_lane_block *out) {
    unsigned at = remembered(lane, addr);
    enum vp_lane_answer answer = VP_LANE_ELSE;
    if (at == VP_LANE_RECENT)
        return answer;
    lane_lock(lane);
    if (get(&lane->count) < VP_LANE_PARKED && recent_at(lane, at) == addr) {
        if (lane->recent[at].event && get(&lane->calm) < CALM && vp_pool_worth_event(lane->pool, SIZE_MAX)) {
            answer = VP_LANE_EVENT;
        } else if (names(lane, stream)) {
            forget(lane, addr, at, out);
            push(lane, out, NULL);
            answer = VP_LANE_DONE;
        }
    }
    lane_unlock(lane);
    return answer;
}

/* ---- under the library's lock ---- */

/* Drops the points of blocks that the stream took back. The lane's lock is held too. */
static void drop_spent(struct vp_lane *lane) {
    if (lane->spent)
        vp_line_drop_points(lane->line, lane->spent);
    lane->spent = 0;
}

static struct vp_lane *lane_new(struct vp_pool *pool, struct vp_line *line) {
    struct vp_lane *lane;
    if (vp_list_empty(&pool->spare_lanes)) {
        if (!(lane = vp_slab_alloc(&pool->lane_slab)))
            return NULL;
        lane->pool = pool;
        for (unsigned i = 0; i < VP_LANE_PARKED; i++)
            lane->place[i] = (uint8_t)i;
    } else {
        lane = vp_container_of(pool->spare_lanes.next, struct vp_lane, link);
        vp_list_remove(&lane->link);
    }
    vp_list_append(&pool->lanes, &lane->link);
    lane_lock(lane);
    lane->id = line->id;
    lane->line = line;
    atomic_store_explicit(&lane->number, line->number, memory_order_relaxed);
    lane_unlock(lane);
    return lane;
}

struct vp_lane *vp_lane_of(struct vp_pool *pool, struct vp_line *line) {
    struct vp_share *share = pool->policy->parks && !line->gone ? vp_share_of(pool, line) : NULL;
    if (share && !share->lane)
        share->lane = lane_new(pool, line);
    return share ? share->lane : NULL;
}

/* The lane of a line, if it has one: NULL otherwise, or if the line is of another device. */
static struct vp_lane *lane_known(const struct vp_pool *pool, const struct vp_line *line) {
    return line->share && line->context->device == pool->device ? line->share->lane : NULL;
}

/* What has left a lane becomes free memory: under the event of its free, or else under one yet to be recorded. */
static void settle(struct vp_pool *pool, struct vp_line *line, struct vp_region *r, vp_cond *cond) {
    r->lane = NULL;
    if (!cond->line)
        vp_cond_late(pool->lines, cond, line);
    vp_region_release(pool, r, cond);
}

/* Should one more block not be parked? A request served meanwhile may go unnoticed: then the next one counts. */
static bool is_vain(struct vp_lane *lane) {
    unsigned n = get(&lane->in_vain);
    if (n < VAIN)
        return false;
    set(&lane->in_vain, n + 1);
    return (n + 1) % VAIN_TRIES;
}

bool vp_lane_calm(const struct vp_line *line) {
    struct vp_lane *lane = line->share ? line->share->lane : NULL;
    return lane && get(&lane->calm) >= CALM;
}

static struct vp_lane_block describe(struct vp_region *r) {
    return (struct vp_lane_block){ .addr = r->addr, .region = r, .asked = r->asked, .owner = r->owner, .serial = r->serial,
                                   .event = vp_pool_large(r->size) };
}

/* Parks a block in a lane whose lock is held, and lets it go. */
static void park(struct vp_lane *lane, const struct vp_lane_block *block, vp_cond *cond) {
    struct vp_region *oldest = NULL;
    struct vp_pool *pool = lane->pool;
    struct vp_line *line = lane->line;
    vp_cond its;
    if (get(&lane->count) == VP_LANE_PARKED) {
        its = PARKED(lane, 0).cond;
        oldest = take_out(lane, 0).region;
    }
    push(lane, block, cond);
    lane_unlock(lane);
    if (oldest)
        settle(pool, line, oldest, &its);
}

bool vp_lane_park(struct vp_pool *pool, struct vp_region *block, struct vp_line *line, vp_cond *cond) {
    struct vp_lane *lane = block->sync ? NULL : vp_lane_of(pool, line);
    if (!lane || is_vain(lane))
        return false;
    const struct vp_lane_block fresh = describe(block);
    block->lane = lane;
    block->stream = line->id;
    lane_lock(lane);
    park(lane, &fresh, cond);
    return true;
}

/* Is it remembered, and does the stream belong to the lane? Whose lane it is changes under the library's lock only. */
static bool may_park(const struct vp_lane *lane, CUstream stream, CUdeviceptr addr) {
    return remembered(lane, addr) < VP_LANE_RECENT && names(lane, stream);
}

bool vp_lane_free_event(struct vp_lane *lane, CUstream stream, CUdeviceptr addr, struct vp_lane_block *out) {
    struct vp_lines *lines = lane->pool->lines;
    vp_cond cond = { 0 };
    if (!may_park(lane, stream, addr) || vp_cond_free(lines, &cond, lane->line, true))
        return false;
    lane_lock(lane);
    /* Two threads may free it at once, which is an error of theirs and none of ours. */
    bool known = forget(lane, addr, remembered(lane, addr), out);
    if (known) {
        park(lane, out, &cond);
    } else {
        lane_unlock(lane);
        vp_cond_clear(lines, &cond);
    }
    return known;
}

struct vp_region *vp_lane_unpark(struct vp_pool *pool, const struct vp_request *req) {
    struct vp_lane *lane = req->line ? lane_known(pool, req->line) : NULL;
    struct vp_region *r = NULL;
    if (!lane || !of_kind(lane, tag_of(req->asked)))
        return NULL;
    lane_lock(lane);
    unsigned i = find(lane, req->asked, req->owner);
    if (i < get(&lane->count)) {
        r = give_out(lane, i, ++pool->serial).region;
        r->serial = pool->serial;
        drop_spent(lane);
    }
    if (lane->serial == lane->serial_end) {
        lane->serial = pool->serial;
        lane->serial_end = pool->serial += SERIALS;
    }
    lane_unlock(lane);
    return r;
}

/* Does it hold the block, whose size is known? */
static bool holds(const struct vp_lane *lane, const struct vp_region *block) {
    uint16_t tag = tag_of(block->asked);
    for (unsigned i = of_kind(lane, tag) ? get(&lane->count) : 0; i-- > 0;)
        if (lane->tag[i] == tag && PARKED(lane, i).block.region == block)
            return true;
    return false;
}

const struct vp_line *vp_lane_holding(const struct vp_region *block) {
    struct vp_lane *lane = block->lane;
    const struct vp_line *line = NULL;
    if (!lane)
        return NULL;
    lane_lock(lane);
    if (holds(lane, block))
        line = lane->line;
    lane_unlock(lane);
    return line;
}

bool vp_lane_recall(struct vp_region *block) {
    struct vp_lane *lane = block->lane;
    struct vp_lane_block known;
    lane_lock(lane);
    bool parked = holds(lane, block);
    if (!parked && forget(lane, block->addr, remembered(lane, block->addr), &known))
        block->serial = known.serial;
    lane_unlock(lane);
    if (!parked)
        block->lane = NULL;
    return !parked;
}

/* The lane's lock is held. */
static void count(struct vp_pool *pool, struct vp_lane *lane) {
    pool->stats.allocs += lane->allocs;
    pool->stats.frees += lane->frees;
    lane->allocs = lane->frees = 0;
}

/* ---- what lanes give up ---- */

/* A request of another stream that could use it, and what it gets. */
struct wanted {
    const struct vp_request *req;
    struct vp_handed *out;
    bool more;                  /* more was given up than one block */
};

static bool is_wanted(const struct wanted *w, const struct vp_region *r, const vp_cond *cond) {
    return w && !w->more && !w->out->region && cond->line && !r->exported && r->asked == w->req->asked &&
           r->owner == w->req->owner;
}

void vp_handed_settle(struct vp_pool *pool, struct vp_handed *handed) {
    if (handed->region)
        settle(pool, handed->line, handed->region, &handed->cond);
    handed->region = NULL;
}

static void give(struct vp_pool *pool, struct vp_line *line, struct vp_region *r, vp_cond *cond, struct wanted *w) {
    if (is_wanted(w, r, cond)) {
        *w->out = (struct vp_handed){ r, line, *cond };
        return;
    }
    if (w) {
        w->more = true;
        vp_handed_settle(pool, w->out);
    }
    settle(pool, line, r, cond);
}

int vp_handed_take(struct vp_pool *pool, struct vp_handed *handed, const struct vp_request *req) {
    struct vp_region *r = handed->region;
    struct vp_lane *lane = lane_known(pool, req->line);
    int err = vp_fit_await(pool, &handed->cond, req->line);
    if (err)
        return err;
    vp_cond_clear(pool->lines, &handed->cond);
    handed->region = NULL;
    vp_region_account(pool, r, false);
    vp_fit_go_live(pool, r, req);
    if (lane) {
        r->lane = lane;
        const struct vp_lane_block block = describe(r);
        lane_lock(lane);
        remember(lane, &block);
        lane_unlock(lane);
    }
    return 0;
}

/* Frees for good what it holds; not `all`: but for tiny blocks. `w`: somebody wants just one; else NULL. */
static void flush(struct vp_pool *pool, struct vp_lane *lane, bool all, bool close, struct wanted *w) {
    struct vp_region *regions[VP_LANE_PARKED];
    vp_cond conds[VP_LANE_PARKED];
    lane_lock(lane);
    struct vp_line *line = lane->line;
    unsigned n = give_up(lane, all, regions, conds);
    drop_spent(lane);
    set(&lane->calm, 0);
    if (close)
        lane->id = 0;
    count(pool, lane);
    lane_unlock(lane);
    for (unsigned i = 0; i < n; i++)
        give(pool, line, regions[i], &conds[i], w);
}

void vp_lane_flush(struct vp_pool *pool, const struct vp_line *line) {
    struct vp_lane *lane = lane_known(pool, line);
    if (lane && (get(&lane->count) > get(&lane->tiny) || get(&lane->calm)))
        flush(pool, lane, false, false, NULL);
}

/* What lanes may keep together: what rounding to a few handles costs anyway. */
enum { KEPT_BYTES = 32 << 20 };

/* May the lane, whose lock is held, keep what it holds? Then it counts as kept. */
static bool keeps(const struct vp_lane *lane, size_t *kept) {
    size_t bytes = *kept + lane->bytes;
    if (get(&lane->calm) < KEEPS || bytes > KEPT_BYTES)
        return false;
    *kept = bytes;
    return true;
}

static bool flush_busy(struct vp_pool *pool, enum vp_flush what, struct wanted *w) {
    struct vp_lane *lane, *next;
    size_t kept = 0;
    bool any = false;
    if (!atomic_load_explicit(&pool->busy_lanes, memory_order_relaxed))
        return false;
    for (lane = atomic_exchange(&pool->busy_lanes, NULL); lane; lane = next) {
        next = lane->next_busy;
        lane_lock(lane);
        bool keep = what != VP_FLUSH_ALL && keeps(lane, &kept);
        lane->listed = false;
        if (keep || (what == VP_FLUSH_SOME && get(&lane->tiny)))
            list(lane);
        lane_unlock(lane);
        if (!keep) {
            flush(pool, lane, what != VP_FLUSH_SOME, false, w);
            any = true;
        }
    }
    return any;
}

bool vp_lanes_flush(struct vp_pool *pool, enum vp_flush what) {
    return flush_busy(pool, what, NULL);
}

void vp_lanes_flush_for(struct vp_pool *pool, enum vp_flush what, const struct vp_request *req, struct vp_handed *out) {
    flush_busy(pool, what, &(struct wanted){ .req = req, .out = out });
}

uint64_t vp_lanes_parked(struct vp_pool *pool, const void *owner) {
    uint64_t bytes = 0;
    for (struct vp_lane *lane = atomic_load(&pool->busy_lanes); lane; lane = lane->next_busy) {
        lane_lock(lane);
        for (unsigned i = 0; owner && i < get(&lane->count); i++)
            if (PARKED(lane, i).block.owner == owner)
                bytes += PARKED(lane, i).block.asked;
        if (!owner)
            bytes += lane->bytes;
        lane_unlock(lane);
    }
    return bytes;
}

uint64_t vp_lanes_count(struct vp_pool *pool) {
    for (struct vp_lane *lane = atomic_load(&pool->busy_lanes); lane; lane = lane->next_busy) {
        lane_lock(lane);
        count(pool, lane);
        lane_unlock(lane);
    }
    return vp_lanes_parked(pool, NULL);
}

void vp_lanes_pass(struct vp_pool *pool) {
    struct vp_lane *lane;
    vp_list_each(lane, &pool->lanes, link) {
        lane_lock(lane);
        lane_unlock(lane);
    }
}

void vp_lane_close(struct vp_pool *pool, struct vp_line *line) {
    struct vp_lane *lane = lane_known(pool, line);
    if (!lane)
        return;
    flush(pool, lane, true, true, NULL);
    lane_lock(lane);
    /* What it gave out lives on, and is no more its business. */
    for (unsigned i = 0; i < VP_LANE_RECENT; i++)
        if (recent_at(lane, i)) {
            lane->recent[i].region->serial = lane->recent[i].serial;
            lane->recent[i].region->lane = NULL;
            set_recent(lane, i, 0);
        }
    lane->line = NULL;
    lane_unlock(lane);
    vp_list_remove(&lane->link);
    vp_list_append(&pool->spare_lanes, &lane->link);
    line->share->lane = NULL;
}
