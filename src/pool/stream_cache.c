/* The stream cache: blocks that a stream has freed, ready for its next request without a lock of the library. See
 * stream_cache.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/stream_cache.h"

#include "base/clock.h"
#include "pool/policy.h"

#include <sched.h>
#include <string.h>

/* Serials handed to a cache at a time. Fewer cost a visit to the slow path more often (a tenth of a nanosecond each at
 * 4096); it is what shows a program that caches serve alone to those who watch its counts (watch/shared_stats.h). */
enum { SERIALS = 4096 };

/* Blocks up to this size are tiny. With larger ones (2 KiB, 4 KiB) the places of others hang so much on what is parked
 * that recorded programs which repeat themselves do not come to rest: they ask the driver for something again and
 * again. */
enum { TINY = 1024 };

/* Where so many blocks were parked for nothing, sizes hardly repeat, and only one block in some is parked to see
 * whether they do by now. */
enum { VAIN = 64, VAIN_TRIES = 8 };

/* Places at which a remembered block may lie, from the one of its address on. */
enum { WAYS = 4 };

/* So many requests in a row must have been served from the cache before it may keep what it holds, and before it is
 * calm. Measured on recorded programs: with fewer, phases that only look calm cost memory. */
enum { KEEPS = 16, CALM = 256 };

/* ---- its lock: held for some ten nanoseconds ---- */

enum { SPINS = 100, YIELDS = 100 };

static void cache_lock(struct vp_stream_cache *cache) {
    for (unsigned n = 0; atomic_exchange_explicit(&cache->locked, true, memory_order_acquire); n++)
        if (n >= SPINS + YIELDS)
            vp_clock_nap(); /* to yield does not help a holder of lower priority that this thread keeps from the
                               processor */
        else if (n >= SPINS)
            sched_yield();
}

static void cache_unlock(struct vp_stream_cache *cache) {
    atomic_store_explicit(&cache->locked, false, memory_order_release);
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
    return (unsigned)((hash + way) % VP_STREAM_CACHE_RECENT);
}

static CUdeviceptr recent_at(const struct vp_stream_cache *cache, unsigned place) {
    return atomic_load_explicit(&cache->recent_at[place], memory_order_relaxed);
}

static void set_recent(struct vp_stream_cache *cache, unsigned place, CUdeviceptr addr) {
    atomic_store_explicit(&cache->recent_at[place], addr, memory_order_relaxed);
}

static void remember(struct vp_stream_cache *cache, const struct vp_stream_cache_block *block) {
    unsigned at = place_of(block->addr, 0);
    for (unsigned way = 1; way < WAYS && recent_at(cache, at); way++)
        at = place_of(block->addr, way);
    if (recent_at(cache, at))
        cache->recent[at].region->serial = cache->recent[at].serial;
    cache->recent[at] = *block;
    set_recent(cache, at, block->addr);
}

/* Where it remembers a live block at that address; VP_STREAM_CACHE_RECENT: nowhere. Without the lock this was so a
 * moment ago. */
static unsigned remembered(const struct vp_stream_cache *cache, CUdeviceptr addr) {
    for (unsigned way = 0; way < WAYS; way++)
        if (recent_at(cache, place_of(addr, way)) == addr)
            return place_of(addr, way);
    return VP_STREAM_CACHE_RECENT;
}

/* True if it is still remembered there: it comes out. */
static bool forget(struct vp_stream_cache *cache, CUdeviceptr addr, unsigned at, struct vp_stream_cache_block *out) {
    if (at == VP_STREAM_CACHE_RECENT || recent_at(cache, at) != addr)
        return false;
    *out = cache->recent[at];
    set_recent(cache, at, 0);
    return true;
}

/* ---- parked blocks ---- */

static void list(struct vp_stream_cache *cache) {
    struct vp_stream_cache *first = atomic_load_explicit(&cache->pool->busy_caches, memory_order_relaxed);
    if (cache->listed)
        return;
    cache->listed = true;
    do
        cache->next_busy = first;
    while (!atomic_compare_exchange_weak(&cache->pool->busy_caches, &first, cache));
}

/* The i-th parked block, oldest first. */
#define PARKED(cache, i) ((cache)->parked[(cache)->place[i]])

/* Blocks that differ in it differ in size. The lowest bit says that they are tiny. */
static uint16_t tag_of(size_t asked) {
    return (uint16_t)(asked * UINT64_C(0x9e3779b97f4a7c15) >> 48 & ~UINT64_C(1)) | (asked <= TINY);
}

static bool is_tiny(uint16_t tag) {
    return tag & 1;
}

/* Looked at without its lock: may it hold a block of that size? */
static unsigned of_kind(const struct vp_stream_cache *cache, uint16_t tag) {
    return atomic_load_explicit(&cache->kinds[tag * VP_STREAM_CACHE_KINDS >> 16], memory_order_relaxed);
}

static void count_kind(struct vp_stream_cache *cache, uint16_t tag, int more) {
    atomic_store_explicit(&cache->kinds[tag * VP_STREAM_CACHE_KINDS >> 16], (uint8_t)((int)of_kind(cache, tag) + more),
                          memory_order_relaxed);
}

/* `fence`: what the block waits for besides its stream, then passed over; NULL: nothing. */
static void push(struct vp_stream_cache *cache, const struct vp_stream_cache_block *block, struct vp_fence *fence) {
    unsigned n = get(&cache->count);
    cache->tag[n] = tag_of(block->asked);
    PARKED(cache, n).block = *block;
    PARKED(cache, n).fence = fence ? *fence : (struct vp_fence){0};
    if (fence)
        *fence = (struct vp_fence){0};
    set(&cache->count, n + 1);
    add(&cache->tiny, is_tiny(cache->tag[n]));
    count_kind(cache, cache->tag[n], 1);
    cache->bytes += block->asked;
    cache->frees++;
    add(&cache->in_vain, 1);
    list(cache);
}

/* Its condition, if it has one, is the caller's. */
static struct vp_stream_cache_block take_out(struct vp_stream_cache *cache, unsigned i) {
    unsigned left = get(&cache->count) - 1;
    uint8_t place = cache->place[i];
    set(&cache->tiny, get(&cache->tiny) - is_tiny(cache->tag[i]));
    count_kind(cache, cache->tag[i], -1);
    if (i < left) { /* mostly not: the last one parked is the first wanted */
        memmove(&cache->tag[i], &cache->tag[i + 1], (left - i) * sizeof cache->tag[0]);
        memmove(&cache->place[i], &cache->place[i + 1], (left - i) * sizeof cache->place[0]);
    }
    cache->place[left] = place;
    set(&cache->count, left);
    cache->bytes -= cache->parked[place].block.asked;
    return cache->parked[place].block;
}

/* Takes out all, or all but tiny ones; oldest first. Returns how many. */
static unsigned give_up(struct vp_stream_cache *cache, bool all, struct vp_region **regions, struct vp_fence *fences) {
    unsigned count = get(&cache->count), begin = 0, n = 0;
    uint8_t places[VP_STREAM_CACHE_PARKED];
    /* Mostly that is the last one alone, behind many tiny ones. */
    if (!all)
        for (unsigned more = count - get(&cache->tiny), i = begin = count; more; begin = i)
            more -= !is_tiny(cache->tag[--i]);
    unsigned left = begin;
    for (unsigned i = begin; i < count; i++) {
        uint8_t place = cache->place[i];
        if (!all && is_tiny(cache->tag[i])) {
            cache->tag[left] = cache->tag[i];
            cache->place[left++] = place;
            continue;
        }
        count_kind(cache, cache->tag[i], -1);
        cache->bytes -= cache->parked[place].block.asked;
        fences[n] = cache->parked[place].fence;
        regions[n] = cache->parked[place].block.region;
        places[n++] = place;
    }
    memcpy(&cache->place[left], places, n);
    set(&cache->count, left);
    set(&cache->tiny, left);
    return n;
}

/* Four tags in a word, and what tells of each of them whether it is 0 (some that are not may look so). */
enum { TAGS = 4, TAG_BITS = 16 };
static const uint64_t EACH = UINT64_C(0x0001000100010001);

/* The block of that size that was parked last; `count`: none. */
static unsigned find(const struct vp_stream_cache *cache, size_t asked, const void *owner) {
    unsigned n = get(&cache->count);
    uint64_t tags, want = tag_of(asked) * EACH;
    for (unsigned w = (n + TAGS - 1) / TAGS; w-- > 0;) {
        memcpy(&tags, &cache->tag[w * TAGS], sizeof tags);
        tags ^= want;
        for (uint64_t like = (tags - EACH) & ~tags & EACH << (TAG_BITS - 1); like;) {
            unsigned at = (63 - (unsigned)__builtin_clzll(like)) / TAG_BITS, i = w * TAGS + at;
            if (i < n && PARKED(cache, i).block.asked == asked && PARKED(cache, i).block.owner == owner)
                return i;
            like &= (UINT64_C(1) << at * TAG_BITS) - 1;
        }
    }
    return n;
}

/* Takes a parked block into use again. Its own stream need not wait for it. */
static struct vp_stream_cache_block give_out(struct vp_stream_cache *cache, unsigned i, uint64_t serial) {
    cache->spent += !vp_fence_empty(&PARKED(cache, i).fence);
    struct vp_stream_cache_block block = take_out(cache, i);
    block.serial = serial;
    cache->allocs++;
    add(&cache->calm, block.event);
    /* That a tiny one was wanted says nothing about others. */
    if (block.asked > TINY || get(&cache->in_vain) < VAIN)
        set(&cache->in_vain, 0);
    remember(cache, &block);
    return block;
}

/* ---- the fast path ---- */

/* A capture that begins raises the count and then passes every cache: whoever finds 0 here is done before the stream
 * captures, and may ask for its id. */
static bool names(const struct vp_stream_cache *cache, CUstream stream) {
    const struct vp_timelines *timelines = cache->pool->timelines;
    unsigned long long id;
    return !atomic_load_explicit(&timelines->captures, memory_order_acquire) &&
           !timelines->drv->cuStreamGetId(stream, &id) && id + 1 == cache->id;
}

bool vp_stream_cache_alloc(struct vp_stream_cache *cache, CUstream stream, size_t asked, const void *owner,
                           struct vp_stream_cache_block *out) {
    if (!of_kind(cache, tag_of(asked)))
        return false;
    cache_lock(cache);
    unsigned count = get(&cache->count), i = cache->serial < cache->serial_end ? find(cache, asked, owner) : count;
    bool found = i < count && names(cache, stream);
    if (found)
        *out = give_out(cache, i, ++cache->serial);
    cache_unlock(cache);
    return found;
}

enum vp_stream_cache_answer vp_stream_cache_free(struct vp_stream_cache *cache, CUstream stream, CUdeviceptr addr,
                                                 struct vp_stream_cache_block *out) {
    unsigned at = remembered(cache, addr);
    enum vp_stream_cache_answer answer = VP_STREAM_CACHE_ELSE;
    if (at == VP_STREAM_CACHE_RECENT)
        return answer;
    cache_lock(cache);
    if (get(&cache->count) < VP_STREAM_CACHE_PARKED && recent_at(cache, at) == addr) {
        if (cache->recent[at].event && get(&cache->calm) < CALM && vp_pool_worth_event(cache->pool, SIZE_MAX)) {
            answer = VP_STREAM_CACHE_EVENT;
        } else if (names(cache, stream)) {
            forget(cache, addr, at, out);
            push(cache, out, NULL);
            answer = VP_STREAM_CACHE_DONE;
        }
    }
    cache_unlock(cache);
    return answer;
}

/* ---- under the library's lock ---- */

/* Drops the points of blocks that the stream took back. The cache's lock is held too. */
static void drop_spent(struct vp_stream_cache *cache) {
    if (cache->spent)
        cache->timeline->refs -= cache->spent;
    cache->spent = 0;
}

static struct vp_stream_cache *cache_new(struct vp_pool *pool, struct vp_timeline *timeline) {
    struct vp_stream_cache *cache;
    if (vp_list_empty(&pool->spare_caches)) {
        if (!(cache = vp_slab_alloc(&pool->cache_slab)))
            return NULL;
        cache->pool = pool;
        for (unsigned i = 0; i < VP_STREAM_CACHE_PARKED; i++)
            cache->place[i] = (uint8_t)i;
    } else {
        cache = vp_container_of(pool->spare_caches.next, struct vp_stream_cache, link);
        vp_list_remove(&cache->link);
    }
    vp_list_append(&pool->caches, &cache->link);
    cache_lock(cache);
    cache->id = timeline->id;
    cache->timeline = timeline;
    atomic_store_explicit(&cache->number, timeline->number, memory_order_relaxed);
    cache_unlock(cache);
    return cache;
}

struct vp_stream_cache *vp_stream_cache_of(struct vp_pool *pool, struct vp_timeline *timeline) {
    struct vp_stream_store *share = pool->policy->parks && !timeline->gone ? vp_stream_store_of(pool, timeline) : NULL;
    if (share && !share->cache)
        share->cache = cache_new(pool, timeline);
    return share ? share->cache : NULL;
}

/* The cache of a timeline, if it has one: NULL otherwise, or if the timeline is of another device. */
static struct vp_stream_cache *cache_known(const struct vp_pool *pool, const struct vp_timeline *timeline) {
    return timeline->store && timeline->context->device == pool->device ? timeline->store->cache : NULL;
}

/* What has left a cache becomes free memory: under the event of its free, or else under one yet to be recorded. */
static void settle(struct vp_pool *pool, struct vp_timeline *timeline, struct vp_region *r, struct vp_fence *fence) {
    r->cache = NULL;
    if (vp_fence_empty(fence))
        vp_fence_add_late(pool->timelines, fence, timeline);
    vp_region_release(pool, r, fence);
}

/* Should one more block not be parked? A request served meanwhile may go unnoticed: then the next one counts. */
static bool is_vain(struct vp_stream_cache *cache) {
    unsigned n = get(&cache->in_vain);
    if (n < VAIN)
        return false;
    set(&cache->in_vain, n + 1);
    return (n + 1) % VAIN_TRIES;
}

bool vp_stream_cache_calm(const struct vp_timeline *timeline) {
    struct vp_stream_cache *cache = timeline->store ? timeline->store->cache : NULL;
    return cache && get(&cache->calm) >= CALM;
}

static struct vp_stream_cache_block describe(struct vp_region *r) {
    return (struct vp_stream_cache_block){.addr = r->addr,
                                          .region = r,
                                          .asked = r->asked,
                                          .owner = r->owner,
                                          .serial = r->serial,
                                          .event = vp_pool_large(r->size)};
}

/* Parks a block in a cache whose lock is held, and lets it go. */
static void park(struct vp_stream_cache *cache, const struct vp_stream_cache_block *block, struct vp_fence *fence) {
    struct vp_region *oldest = NULL;
    struct vp_pool *pool = cache->pool;
    struct vp_timeline *timeline = cache->timeline;
    struct vp_fence its;
    if (get(&cache->count) == VP_STREAM_CACHE_PARKED) {
        its = PARKED(cache, 0).fence;
        oldest = take_out(cache, 0).region;
    }
    push(cache, block, fence);
    cache_unlock(cache);
    if (oldest)
        settle(pool, timeline, oldest, &its);
}

bool vp_stream_cache_park(struct vp_pool *pool, struct vp_region *block, struct vp_timeline *timeline,
                          struct vp_fence *fence) {
    struct vp_stream_cache *cache = block->sync ? NULL : vp_stream_cache_of(pool, timeline);
    if (!cache || is_vain(cache))
        return false;
    const struct vp_stream_cache_block fresh = describe(block);
    block->cache = cache;
    block->stream = timeline->id;
    cache_lock(cache);
    park(cache, &fresh, fence);
    return true;
}

/* Is it remembered, and does the stream belong to the cache? Whose cache it is changes under the library's lock only.
 */
static bool may_park(const struct vp_stream_cache *cache, CUstream stream, CUdeviceptr addr) {
    return remembered(cache, addr) < VP_STREAM_CACHE_RECENT && names(cache, stream);
}

bool vp_stream_cache_free_event(struct vp_stream_cache *cache, CUstream stream, CUdeviceptr addr,
                                struct vp_stream_cache_block *out) {
    struct vp_timelines *timelines = cache->pool->timelines;
    struct vp_fence fence = {0};
    if (!may_park(cache, stream, addr) || vp_fence_add_free(timelines, &fence, cache->timeline, true))
        return false;
    cache_lock(cache);
    /* Two threads may free it at once, which is an error of theirs and none of ours. */
    bool known = forget(cache, addr, remembered(cache, addr), out);
    if (known) {
        park(cache, out, &fence);
    } else {
        cache_unlock(cache);
        vp_fence_clear(timelines, &fence);
    }
    return known;
}

struct vp_region *vp_stream_cache_unpark(struct vp_pool *pool, const struct vp_request *req) {
    struct vp_stream_cache *cache = req->timeline ? cache_known(pool, req->timeline) : NULL;
    struct vp_region *r = NULL;
    if (!cache || !of_kind(cache, tag_of(req->asked)))
        return NULL;
    cache_lock(cache);
    unsigned i = find(cache, req->asked, req->owner);
    if (i < get(&cache->count)) {
        r = give_out(cache, i, ++pool->serial).region;
        r->serial = pool->serial;
        drop_spent(cache);
    }
    if (cache->serial == cache->serial_end) {
        cache->serial = pool->serial;
        cache->serial_end = pool->serial += SERIALS;
    }
    cache_unlock(cache);
    return r;
}

/* Does it hold the block, whose size is known? */
static bool holds(const struct vp_stream_cache *cache, const struct vp_region *block) {
    uint16_t tag = tag_of(block->asked);
    for (unsigned i = of_kind(cache, tag) ? get(&cache->count) : 0; i-- > 0;)
        if (cache->tag[i] == tag && PARKED(cache, i).block.region == block)
            return true;
    return false;
}

const struct vp_timeline *vp_stream_cache_holding(const struct vp_region *block) {
    struct vp_stream_cache *cache = block->cache;
    const struct vp_timeline *timeline = NULL;
    if (!cache)
        return NULL;
    cache_lock(cache);
    if (holds(cache, block))
        timeline = cache->timeline;
    cache_unlock(cache);
    return timeline;
}

bool vp_stream_cache_recall(struct vp_region *block) {
    struct vp_stream_cache *cache = block->cache;
    struct vp_stream_cache_block known;
    cache_lock(cache);
    bool parked = holds(cache, block);
    if (!parked && forget(cache, block->addr, remembered(cache, block->addr), &known))
        block->serial = known.serial;
    cache_unlock(cache);
    if (!parked)
        block->cache = NULL;
    return !parked;
}

/* The cache's lock is held. */
static void count(struct vp_pool *pool, struct vp_stream_cache *cache) {
    pool->stats.allocs += cache->allocs;
    pool->stats.frees += cache->frees;
    cache->allocs = cache->frees = 0;
}

/* ---- what caches give up ---- */

/* A request of another stream that could use it, and what it gets. */
struct wanted {
    const struct vp_request *req;
    struct vp_handed *out;
    bool more; /* more was given up than one block */
};

static bool is_wanted(const struct wanted *w, const struct vp_region *r, const struct vp_fence *fence) {
    return w && !w->more && !w->out->region && !vp_fence_empty(fence) && !r->exported && r->asked == w->req->asked &&
           r->owner == w->req->owner;
}

void vp_handed_settle(struct vp_pool *pool, struct vp_handed *handed) {
    if (handed->region)
        settle(pool, handed->timeline, handed->region, &handed->fence);
    handed->region = NULL;
}

static void give(struct vp_pool *pool, struct vp_timeline *timeline, struct vp_region *r, struct vp_fence *fence,
                 struct wanted *w) {
    if (is_wanted(w, r, fence)) {
        *w->out = (struct vp_handed){r, timeline, *fence};
        return;
    }
    if (w) {
        w->more = true;
        vp_handed_settle(pool, w->out);
    }
    settle(pool, timeline, r, fence);
}

int vp_handed_take(struct vp_pool *pool, struct vp_handed *handed, const struct vp_request *req) {
    struct vp_region *r = handed->region;
    struct vp_stream_cache *cache = cache_known(pool, req->timeline);
    int err = vp_fit_await(pool, &handed->fence, req->timeline);
    if (err)
        return err;
    vp_fence_clear(pool->timelines, &handed->fence);
    handed->region = NULL;
    vp_region_account(pool, r, false);
    vp_fit_go_live(pool, r, req);
    if (cache) {
        r->cache = cache;
        const struct vp_stream_cache_block block = describe(r);
        cache_lock(cache);
        remember(cache, &block);
        cache_unlock(cache);
    }
    return 0;
}

/* Frees for good what it holds; not `all`: but for tiny blocks. `w`: somebody wants just one; else NULL. */
static void flush(struct vp_pool *pool, struct vp_stream_cache *cache, bool all, bool close, struct wanted *w) {
    struct vp_region *regions[VP_STREAM_CACHE_PARKED];
    struct vp_fence fences[VP_STREAM_CACHE_PARKED];
    cache_lock(cache);
    struct vp_timeline *timeline = cache->timeline;
    unsigned n = give_up(cache, all, regions, fences);
    drop_spent(cache);
    set(&cache->calm, 0);
    if (close)
        cache->id = 0;
    count(pool, cache);
    cache_unlock(cache);
    for (unsigned i = 0; i < n; i++)
        give(pool, timeline, regions[i], &fences[i], w);
}

void vp_stream_cache_flush(struct vp_pool *pool, const struct vp_timeline *timeline) {
    struct vp_stream_cache *cache = cache_known(pool, timeline);
    if (cache && (get(&cache->count) > get(&cache->tiny) || get(&cache->calm)))
        flush(pool, cache, false, false, NULL);
}

/* What caches may keep together: what rounding to a few handles costs anyway. */
enum { KEPT_BYTES = 32 << 20 };

/* May the cache, whose lock is held, keep what it holds? Then it counts as kept. */
static bool keeps(const struct vp_stream_cache *cache, size_t *kept) {
    size_t bytes = *kept + cache->bytes;
    if (get(&cache->calm) < KEEPS || bytes > KEPT_BYTES)
        return false;
    *kept = bytes;
    return true;
}

static bool flush_busy(struct vp_pool *pool, enum vp_flush what, struct wanted *w) {
    struct vp_stream_cache *cache, *next;
    size_t kept = 0;
    bool any = false;
    if (!atomic_load_explicit(&pool->busy_caches, memory_order_relaxed))
        return false;
    for (cache = atomic_exchange(&pool->busy_caches, NULL); cache; cache = next) {
        next = cache->next_busy;
        cache_lock(cache);
        bool keep = what != VP_FLUSH_ALL && keeps(cache, &kept);
        cache->listed = false;
        if (keep || (what == VP_FLUSH_SOME && get(&cache->tiny)))
            list(cache);
        cache_unlock(cache);
        if (!keep) {
            flush(pool, cache, what != VP_FLUSH_SOME, false, w);
            any = true;
        }
    }
    return any;
}

bool vp_stream_caches_flush(struct vp_pool *pool, enum vp_flush what) {
    return flush_busy(pool, what, NULL);
}

void vp_stream_caches_flush_for(struct vp_pool *pool, enum vp_flush what, const struct vp_request *req,
                                struct vp_handed *out) {
    flush_busy(pool, what, &(struct wanted){.req = req, .out = out});
}

uint64_t vp_stream_caches_parked(struct vp_pool *pool, const void *owner) {
    uint64_t bytes = 0;
    for (struct vp_stream_cache *cache = atomic_load(&pool->busy_caches); cache; cache = cache->next_busy) {
        cache_lock(cache);
        for (unsigned i = 0; owner && i < get(&cache->count); i++)
            if (PARKED(cache, i).block.owner == owner)
                bytes += PARKED(cache, i).block.asked;
        if (!owner)
            bytes += cache->bytes;
        cache_unlock(cache);
    }
    return bytes;
}

uint64_t vp_stream_caches_count(struct vp_pool *pool) {
    for (struct vp_stream_cache *cache = atomic_load(&pool->busy_caches); cache; cache = cache->next_busy) {
        cache_lock(cache);
        count(pool, cache);
        cache_unlock(cache);
    }
    return vp_stream_caches_parked(pool, NULL);
}

void vp_stream_caches_pass(struct vp_pool *pool) {
    struct vp_stream_cache *cache;
    vp_list_each(cache, &pool->caches, link) {
        cache_lock(cache);
        cache_unlock(cache);
    }
}

void vp_stream_cache_close(struct vp_pool *pool, struct vp_timeline *timeline) {
    struct vp_stream_cache *cache = cache_known(pool, timeline);
    if (!cache)
        return;
    flush(pool, cache, true, true, NULL);
    cache_lock(cache);
    /* What it gave out lives on, and is no more its business. */
    for (unsigned i = 0; i < VP_STREAM_CACHE_RECENT; i++)
        if (recent_at(cache, i)) {
            cache->recent[i].region->serial = cache->recent[i].serial;
            cache->recent[i].region->cache = NULL;
            set_recent(cache, i, 0);
        }
    cache->timeline = NULL;
    cache_unlock(cache);
    vp_list_remove(&cache->link);
    vp_list_append(&pool->spare_caches, &cache->link);
    timeline->store->cache = NULL;
}
