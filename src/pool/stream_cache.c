/* Stream caches: blocks that a stream has freed, ready for its next request. See stream_cache.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/stream_cache.h"

#include "base/clock.h"

#include <sched.h>
#include <string.h>

/* Serials that a cache gets at a time. Fewer mean more visits to the slow path (a tenth of a nanosecond a call at
 * 4096). These visits show a program that caches serve alone to readers of its statistics (watch/shared_stats.h). */
enum { SERIALS = 4096 };

/* Blocks up to this size are tiny. With a larger bound (2 or 4 KiB) the layout of other blocks depends so much on what
 * is parked that recorded programs which repeat themselves do not come to rest, and call the driver again and again. */
enum { TINY = 1024 };

/* After VAIN blocks were parked without one being reused, sizes hardly repeat: only one block in VAIN_TRIES is parked,
 * to see whether they do by now. */
enum { VAIN = 64, VAIN_TRIES = 8 };

/* Slots in which a block may be remembered, from the one of its address on. */
enum { WAYS = 4 };

/* Requests in a row that a cache must have served before it may keep its blocks, and before it is calm. Measured on
 * recorded programs: with fewer, phases that only look calm cost memory. */
enum { KEEPS = 16, CALM = 256 };

/* ---- its lock: held for some ten nanoseconds ---- */

enum { SPINS = 100, YIELDS = 100 };

/* Not analysed: these functions implement the lock. */
__attribute__((noinline, cold)) static void lock_taken(struct vp_stream_cache *cache) {
    for (unsigned n = 0; atomic_exchange_explicit(&cache->lock.taken, true, memory_order_acquire); n++)
        if (n >= SPINS + YIELDS)
            vp_clock_nap(); /* to yield does not help a holder of lower priority that this thread keeps from the
                               processor */
        else if (n >= SPINS)
            sched_yield();
}

static inline void cache_lock(struct vp_stream_cache *cache) VP_ACQUIRES(cache->lock) VP_NOT_ANALYSED {
    if (__builtin_expect(atomic_exchange_explicit(&cache->lock.taken, true, memory_order_acquire), false))
        lock_taken(cache);
}

static void cache_unlock(struct vp_stream_cache *cache) VP_RELEASES(cache->lock) VP_NOT_ANALYSED {
    atomic_store_explicit(&cache->lock.taken, false, memory_order_release);
}

/* Counters that are also read without the lock. */
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

static unsigned slot_of(CUdeviceptr addr, unsigned way) {
    size_t hash = (size_t)(addr / VP_QUANTUM * UINT64_C(0x9e3779b97f4a7c15) >> 32);
    return (unsigned)((hash + way) % VP_STREAM_CACHE_RECENT);
}

static CUdeviceptr recent_at(const struct vp_stream_cache *cache, unsigned slot) {
    return atomic_load_explicit(&cache->recent_at[slot], memory_order_relaxed);
}

static void set_recent(struct vp_stream_cache *cache, unsigned slot, CUdeviceptr addr) {
    atomic_store_explicit(&cache->recent_at[slot], addr, memory_order_relaxed);
}

static struct vp_stream_cache_block *remember(struct vp_stream_cache *cache, const struct vp_stream_cache_block *block)
    VP_REQUIRES(cache->lock) {
    unsigned at = slot_of(block->addr, 0);
    for (unsigned way = 1; way < WAYS && recent_at(cache, at); way++)
        at = slot_of(block->addr, way);
    if (recent_at(cache, at))
        cache->recent[at].region->serial = cache->recent[at].serial;
    cache->recent[at] = *block;
    set_recent(cache, at, block->addr);
    return &cache->recent[at];
}

/* The slot where it remembers a live block at that address, as of a moment ago without the lock; ..._RECENT: none. */
static unsigned remembered(const struct vp_stream_cache *cache, CUdeviceptr addr) {
    for (unsigned way = 0; way < WAYS; way++)
        if (recent_at(cache, slot_of(addr, way)) == addr)
            return slot_of(addr, way);
    return VP_STREAM_CACHE_RECENT;
}

/* Takes a remembered block out into `*out`. False: it is no longer remembered there. */
static bool forget(struct vp_stream_cache *cache, CUdeviceptr addr, unsigned at, struct vp_stream_cache_block *out)
    VP_REQUIRES(cache->lock) {
    if (at == VP_STREAM_CACHE_RECENT || recent_at(cache, at) != addr)
        return false;
    *out = cache->recent[at];
    set_recent(cache, at, 0);
    return true;
}

/* ---- parked blocks ---- */

static void list(struct vp_stream_cache *cache) VP_REQUIRES(cache->lock) {
    struct vp_stream_cache *first = atomic_load_explicit(&cache->all->busy, memory_order_relaxed);
    if (cache->listed)
        return;
    cache->listed = true;
    do
        cache->next_busy = first;
    while (!atomic_compare_exchange_weak(&cache->all->busy, &first, cache));
}

/* The i-th parked block, oldest first. */
#define PARKED(cache, i) ((cache)->parked[(cache)->slot[i]])

/* Blocks with different tags have different sizes. The lowest bit is set for tiny ones. */
static uint16_t tag_of(size_t asked) {
    return (uint16_t)(asked * UINT64_C(0x9e3779b97f4a7c15) >> 48 & ~UINT64_C(1)) | (asked <= TINY);
}

static bool is_tiny(uint16_t tag) {
    return tag & 1;
}

/* Number of parked blocks of the tag's kind, without the lock; 0: none has that size. */
static unsigned of_kind(const struct vp_stream_cache *cache, uint16_t tag) {
    return atomic_load_explicit(&cache->kinds[tag * VP_STREAM_CACHE_KINDS >> 16], memory_order_relaxed);
}

static void count_kind(struct vp_stream_cache *cache, uint16_t tag, int more) {
    atomic_store_explicit(&cache->kinds[tag * VP_STREAM_CACHE_KINDS >> 16], (uint8_t)((int)of_kind(cache, tag) + more),
                          memory_order_relaxed);
}

/* `fence`: what the block waits for besides its stream (its points pass over); NULL: nothing. */
static void push(struct vp_stream_cache *cache, const struct vp_stream_cache_block *block, struct vp_fence *fence)
    VP_REQUIRES(cache->lock) {
    unsigned n = get(&cache->count);
    cache->tag[n] = tag_of(block->asked);
    PARKED(cache, n).block = *block;
    PARKED(cache, n).fence.first.timeline = NULL;
    if (fence)
        vp_fence_pass(&PARKED(cache, n).fence, fence);
    set(&cache->count, n + 1);
    add(&cache->tiny, is_tiny(cache->tag[n]));
    count_kind(cache, cache->tag[n], 1);
    cache->bytes += block->asked;
    cache->frees++;
    add(&cache->in_vain, 1);
    list(cache);
}

/* Its fence, if any, is the caller's to handle. The result stays valid until the next block is parked. */
static const struct vp_stream_cache_block *take_out(struct vp_stream_cache *cache, unsigned i)
    VP_REQUIRES(cache->lock) {
    unsigned left = get(&cache->count) - 1;
    uint8_t slot = cache->slot[i];
    set(&cache->tiny, get(&cache->tiny) - is_tiny(cache->tag[i]));
    count_kind(cache, cache->tag[i], -1);
    if (i < left) { /* mostly not: the last one parked is the first wanted */
        memmove(&cache->tag[i], &cache->tag[i + 1], (left - i) * sizeof cache->tag[0]);
        memmove(&cache->slot[i], &cache->slot[i + 1], (left - i) * sizeof cache->slot[0]);
    }
    cache->slot[left] = slot;
    set(&cache->count, left);
    cache->bytes -= cache->parked[slot].block.asked;
    return &cache->parked[slot].block;
}

/* Takes out all blocks, or all but tiny ones, oldest first. Returns their number. */
static unsigned give_up(struct vp_stream_cache *cache, bool all, struct vp_evicted *out) VP_REQUIRES(cache->lock) {
    unsigned count = get(&cache->count), begin = 0, n = 0;
    uint8_t slots[VP_STREAM_CACHE_PARKED];
    /* Mostly only the last one is not tiny. */
    if (!all)
        for (unsigned more = count - get(&cache->tiny), i = begin = count; more; begin = i)
            more -= !is_tiny(cache->tag[--i]);
    unsigned left = begin;
    for (unsigned i = begin; i < count; i++) {
        uint8_t slot = cache->slot[i];
        if (!all && is_tiny(cache->tag[i])) {
            cache->tag[left] = cache->tag[i];
            cache->slot[left++] = slot;
            continue;
        }
        count_kind(cache, cache->tag[i], -1);
        cache->bytes -= cache->parked[slot].block.asked;
        out[n] = (struct vp_evicted){cache->parked[slot].block.region, cache->parked[slot].fence};
        slots[n++] = slot;
    }
    memcpy(&cache->slot[left], slots, n);
    set(&cache->count, left);
    set(&cache->tiny, left);
    return n;
}

/* A word holds four tags. EACH serves to find those that are 0; some others may look so. */
enum { TAGS = 4, TAG_BITS = 16 };
static const uint64_t EACH = UINT64_C(0x0001000100010001);

/* The index of the block of that size that was parked last; `count`: none. */
static unsigned find(const struct vp_stream_cache *cache, size_t asked, const void *owner) VP_REQUIRES(cache->lock) {
    unsigned n = get(&cache->count);
    uint64_t tags, want = tag_of(asked) * EACH;
    /* Mostly it is the last one. */
    if (n && PARKED(cache, n - 1).block.asked == asked && PARKED(cache, n - 1).block.owner == owner)
        return n - 1;
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

/* Takes a parked block into use again. Its own stream need not wait for its fence. */
static inline const struct vp_stream_cache_block *give_out(struct vp_stream_cache *cache, unsigned i, uint64_t serial)
    VP_REQUIRES(cache->lock) {
    cache->spent += !vp_fence_empty(&PARKED(cache, i).fence);
    struct vp_stream_cache_block *block = remember(cache, take_out(cache, i));
    block->serial = serial;
    cache->allocs++;
    add(&cache->calm, block->event);
    /* A request for a tiny block says nothing about the reuse of others. */
    if (block->asked > TINY || get(&cache->in_vain) < VAIN)
        set(&cache->in_vain, 0);
    return block;
}

/* ---- the fast path ---- */

/* Is `stream` the cache's own? A capture that begins first raises `captures` and then passes every cache: a thread that
 * sees 0 here is done before the stream captures, and may ask for its id. */
static bool names(const struct vp_stream_cache *cache, CUstream stream) {
    const struct vp_timelines *timelines = cache->all->timelines;
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
        *out = *give_out(cache, i, ++cache->serial);
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
        if (vp_timeline_joins(cache->all->timelines, cache->timeline) ||
            (cache->recent[at].event && get(&cache->calm) < CALM &&
             atomic_load_explicit(&cache->all->several, memory_order_relaxed))) {
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

/* Drops the points of blocks that the stream took back. Under both locks. */
static void drop_spent(struct vp_stream_cache *cache) VP_REQUIRES(cache->lock) {
    if (cache->spent)
        cache->timeline->refs -= cache->spent;
    cache->spent = 0;
}

void vp_stream_caches_init(struct vp_stream_caches *all, struct vp_timelines *timelines, CUdevice device,
                           struct vp_memory_stats *stats) {
    *all = (struct vp_stream_caches){.timelines = timelines, .device = device, .stats = stats};
    vp_list_init(&all->used);
    vp_list_init(&all->spare);
    vp_slab_init(&all->slab, sizeof(struct vp_stream_cache));
}

struct vp_stream_cache *vp_stream_cache_open(struct vp_stream_caches *all, struct vp_timeline *timeline) {
    struct vp_stream_cache *cache;
    if (vp_list_empty(&all->spare)) {
        if (!(cache = vp_slab_alloc(&all->slab)))
            return NULL;
        cache->all = all;
        for (unsigned i = 0; i < VP_STREAM_CACHE_PARKED; i++)
            cache->slot[i] = (uint8_t)i;
    } else {
        cache = vp_container_of(all->spare.next, struct vp_stream_cache, link);
        vp_list_remove(&cache->link);
    }
    vp_list_append(&all->used, &cache->link);
    cache_lock(cache);
    cache->id = timeline->id;
    cache->timeline = timeline;
    atomic_store_explicit(&cache->number, timeline->number, memory_order_relaxed);
    cache_unlock(cache);
    return cache;
}

bool vp_stream_cache_is_vain(struct vp_stream_cache *cache) {
    unsigned n = get(&cache->in_vain);
    if (n < VAIN)
        return false;
    set(&cache->in_vain, n + 1);
    return (n + 1) % VAIN_TRIES;
}

bool vp_stream_cache_was_vain(struct vp_stream_cache *cache, size_t *bytes) {
    if (get(&cache->in_vain) < VAIN)
        return false;
    cache_lock(cache);
    *bytes = cache->bytes;
    cache_unlock(cache);
    return true;
}

bool vp_stream_cache_is_calm(const struct vp_stream_cache *cache) {
    return get(&cache->calm) >= CALM;
}

static void put(struct vp_stream_cache *cache, const struct vp_stream_cache_block *block, struct vp_fence *fence,
                struct vp_evicted *oldest) VP_REQUIRES(cache->lock) {
    oldest->region = NULL;
    if (get(&cache->count) == VP_STREAM_CACHE_PARKED) {
        oldest->fence = PARKED(cache, 0).fence;
        oldest->region = take_out(cache, 0)->region;
    }
    push(cache, block, fence);
}

void vp_stream_cache_put(struct vp_stream_cache *cache, const struct vp_stream_cache_block *block,
                         struct vp_fence *fence, struct vp_evicted *oldest) {
    cache_lock(cache);
    put(cache, block, fence, oldest);
    cache_unlock(cache);
}

unsigned vp_stream_cache_knows(const struct vp_stream_cache *cache, CUstream stream, CUdeviceptr addr) {
    unsigned at = remembered(cache, addr);
    return at < VP_STREAM_CACHE_RECENT && names(cache, stream) ? at : VP_STREAM_CACHE_RECENT;
}

bool vp_stream_cache_put_known(struct vp_stream_cache *cache, unsigned at, CUdeviceptr addr, struct vp_fence *fence,
                               struct vp_stream_cache_block *block, struct vp_evicted *oldest) {
    cache_lock(cache);
    bool known = forget(cache, addr, at, block);
    if (known)
        put(cache, block, fence, oldest);
    cache_unlock(cache);
    return known;
}

struct vp_region *vp_stream_cache_take(struct vp_stream_cache *cache, size_t asked, const void *owner,
                                       uint64_t *serial) {
    struct vp_region *r = NULL;
    if (!of_kind(cache, tag_of(asked)))
        return NULL;
    cache_lock(cache);
    unsigned i = find(cache, asked, owner);
    if (i < get(&cache->count)) {
        r = give_out(cache, i, ++*serial)->region;
        r->serial = *serial;
        drop_spent(cache);
    }
    if (cache->serial == cache->serial_end) {
        cache->serial = *serial;
        cache->serial_end = *serial += SERIALS;
    }
    cache_unlock(cache);
    return r;
}

void vp_stream_cache_remember(struct vp_stream_cache *cache, const struct vp_stream_cache_block *block) {
    cache_lock(cache);
    remember(cache, block);
    cache_unlock(cache);
}

/* Does it hold this block as parked? */
static bool holds(const struct vp_stream_cache *cache, const struct vp_region *block) VP_REQUIRES(cache->lock) {
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

static void count(struct vp_stream_cache *cache) VP_REQUIRES(cache->lock) {
    cache->all->stats->allocs += cache->allocs;
    cache->all->stats->frees += cache->frees;
    cache->allocs = cache->frees = 0;
}

bool vp_stream_cache_has_some(const struct vp_stream_cache *cache) {
    return get(&cache->count) != get(&cache->tiny) || get(&cache->calm);
}

/* Gives blocks up. Somebody else wants what the cache holds, so it is calm no more. */
static unsigned evict(struct vp_stream_cache *cache, bool all, struct vp_evicted *out) VP_REQUIRES(cache->lock) {
    unsigned n = give_up(cache, all, out);
    drop_spent(cache);
    set(&cache->calm, 0);
    count(cache);
    return n;
}

unsigned vp_stream_cache_evict(struct vp_stream_cache *cache, struct vp_evicted *out) {
    cache_lock(cache);
    unsigned n = evict(cache, false, out);
    cache_unlock(cache);
    return n;
}

/* What all caches together may keep: as much as rounding to a few handles costs anyway. */
enum { KEPT_BYTES = 32 << 20 };

/* May the cache keep what it holds? If so, that counts as kept. */
static bool keeps(const struct vp_stream_cache *cache, size_t *kept) VP_REQUIRES(cache->lock) {
    size_t bytes = *kept + cache->bytes;
    if (get(&cache->calm) < KEEPS || bytes > KEPT_BYTES)
        return false;
    *kept = bytes;
    return true;
}

bool vp_stream_cache_evict_busy(struct vp_stream_cache *cache, enum vp_flush what, size_t *kept, struct vp_evicted *out,
                                unsigned *n) {
    cache_lock(cache);
    bool keep = what != VP_FLUSH_ALL && keeps(cache, kept);
    cache->listed = false;
    if (keep || (what == VP_FLUSH_SOME && get(&cache->tiny)))
        list(cache);
    *n = keep ? 0 : evict(cache, what != VP_FLUSH_SOME, out);
    cache_unlock(cache);
    return !keep;
}

unsigned vp_stream_cache_close(struct vp_stream_cache *cache, struct vp_evicted *out) {
    cache_lock(cache);
    unsigned n = evict(cache, true, out);
    cache->id = 0;
    /* The blocks that it gave out live on without it. */
    for (unsigned i = 0; i < VP_STREAM_CACHE_RECENT; i++)
        if (recent_at(cache, i)) {
            cache->recent[i].region->serial = cache->recent[i].serial;
            cache->recent[i].region->cache = NULL;
            set_recent(cache, i, 0);
        }
    cache->timeline = NULL;
    cache_unlock(cache);
    vp_list_remove(&cache->link);
    vp_list_append(&cache->all->spare, &cache->link);
    return n;
}

uint64_t vp_stream_caches_parked(struct vp_stream_caches *all, const void *owner) {
    uint64_t bytes = 0;
    for (struct vp_stream_cache *cache = atomic_load(&all->busy); cache; cache = cache->next_busy) {
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

uint64_t vp_stream_caches_count(struct vp_stream_caches *all) {
    for (struct vp_stream_cache *cache = atomic_load(&all->busy); cache; cache = cache->next_busy) {
        cache_lock(cache);
        count(cache);
        cache_unlock(cache);
    }
    return vp_stream_caches_parked(all, NULL);
}

void vp_stream_caches_await_calls(struct vp_stream_caches *all) {
    struct vp_stream_cache *cache;
    vp_list_each(cache, &all->used, link) {
        cache_lock(cache);
        cache_unlock(cache);
    }
}
