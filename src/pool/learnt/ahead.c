/* A plan in use, as the program's requests meet it: see ahead.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/learnt/ahead.h"

#include "pool/place.h"
#include "base/os_memory.h"

#include <errno.h>

/* The window of requests looked for moves on past those that have not come when requests so far ahead of them have. */
enum { LAG = VP_AHEAD_LOOK / 2 };

/* The share of the plan's peak below which a program counts as beginning again. */
enum { AGAIN_SHARE = 64 };

/* ---- opened and closed ---- */

static uint64_t gram_hash(const uint64_t *sizes, uint64_t last) {
    uint64_t hash = 0;
    for (uint64_t i = last + 1 - VP_AHEAD_GRAM; i <= last; i++)
        hash = (hash ^ sizes[i % VP_AHEAD_GRAM]) * UINT64_C(0x9e3779b97f4a7c15);
    return hash >> 40;
}

static size_t gram_slots(const struct vp_ahead *p) {
    size_t n = 64;
    while (n < 2 * p->plan.request_count)
        n *= 2;
    return n;
}

/* Notes where each eight sizes in a row end in the plan; of equal ones, the last. */
static void index_grams(struct vp_ahead *p) {
    uint64_t sizes[VP_AHEAD_GRAM];
    const size_t mask = gram_slots(p) - 1;
    for (size_t i = 0; i < p->plan.request_count; i++) {
        sizes[i % VP_AHEAD_GRAM] = p->plan.slots[p->plan.requests[i]].size;
        if (i + 1 >= VP_AHEAD_GRAM)
            p->grams[gram_hash(sizes, i) & mask] = (uint32_t)i + 1;
    }
}

/* Takes the plan's addresses in a zone, which are nobody else's from now on. */
static int take_addresses(struct vp_pool *pool, struct vp_ahead *p, enum vp_zone_name zone) {
    struct vp_space *s = NULL, *each;
    uint64_t bytes = 0;
    for (size_t i = 0; i < p->plan.run_count; i++) {
        const struct vp_learnt_run *run = &p->plan.runs[i];
        if (run->zone == zone && run->offset + run->size * run->count > bytes)
            bytes = run->offset + run->size * run->count;
    }
    vp_list_each(each, &pool->mem.spaces, link)
        if (each->zone == zone && !s)
            s = each;
    if (!bytes)
        return 0;
    /* As many again behind them are left for everything else. */
    const struct vp_region *r = s ? vp_region_at(&pool->mem, s->base) : NULL;
    if (!r || r->state != VP_HOLE || r->size / 2 < bytes)
        return -EINVAL;
    p->base[zone] = s->base;
    p->end[zone] = s->base + bytes;
    return vp_stitch_begin(&pool->mem, s->base, s->base + bytes, true);
}

static const struct vp_learnt_device *part_of(const struct vp_learnt *learnt, CUdevice device) {
    for (unsigned i = 0; i < learnt->device_count; i++)
        if (learnt->device[i].device == (unsigned)device)
            return &learnt->device[i];
    return NULL;
}

/* The bytes that the plan may hold. A run that left its own plan held more than needed; the next would, too, and so
 * on. */
static uint64_t most_of(const struct vp_learnt_device *part) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < part->run_count; i++)
        bytes += part->runs[i].size * part->runs[i].count;
    return bytes < part->peak_held ? bytes : part->peak_held;
}

static struct vp_ahead *make(const struct vp_learnt_device *part) {
    struct vp_ahead sizing = {.plan = *part}, *p;
    const size_t placed = (part->slot_count + 63) / 64 * sizeof(uint64_t), built = part->run_count * sizeof *p->built,
                 grams = gram_slots(&sizing) * sizeof *p->grams;
    if (!(p = vp_os_take(sizeof *p + placed + built + grams)))
        return NULL;
    p->plan = *part;
    p->bytes = sizeof *p + placed + built + grams;
    p->placed = (uint64_t *)(p + 1);
    p->built = (uint32_t *)((char *)(p + 1) + placed);
    p->grams = p->built + part->run_count;
    return p;
}

/* Cuts handles larger than VPOOL_HANDLE allows now, while there are not more than a file may list. Those of bare
 * segments are pages and slots, whatever it says. */
static void cut_handles(struct vp_ahead *p, size_t largest) {
    uint64_t all = 0;
    for (size_t i = 0; i < p->plan.run_count; i++)
        all += p->plan.runs[i].count;
    for (struct vp_learnt_run *run = p->plan.runs; run < p->plan.runs + p->plan.run_count; run++)
        for (; run->zone != VP_ZONE_BARE && run->size > largest && run->size % (2 * p->plan.granularity) == 0 &&
               all + run->count <= VP_LEARNT_HANDLES;
             run->size /= 2, run->count *= 2)
            all += run->count;
}

int vp_ahead_start(struct vp_pool *pool, struct vp_learnt *learnt, bool trusted) {
    const struct vp_learnt_device *part = part_of(learnt, pool->mem.device);
    int err = !part ? -ENOENT : part->granularity != pool->mem.granularity ? -EINVAL : 0;
    struct vp_ahead *p = err ? NULL : make(part);
    if (!p) {
        vp_learnt_finish(learnt);
        return err ? err : -ENOMEM;
    }
    p->pool = pool;
    p->trusted = trusted;
    p->learnt = *learnt;
    p->most = most_of(part);
    index_grams(p);
    cut_handles(p, pool->config.handle);
    if (!(err = take_addresses(pool, p, VP_ZONE_LARGE)) && !(err = take_addresses(pool, p, VP_ZONE_SMALL))) {
        pool->ahead = p;
        return 0;
    }
    vp_ahead_stop(p);
    vp_ahead_finish(p);
    return err;
}

void vp_ahead_finish(struct vp_ahead *p) {
    if (!p)
        return;
    vp_learnt_finish(&p->learnt);
    vp_os_give(p, p->bytes);
}

/* ---- which request of the plan it is ---- */

static bool is_of(const struct vp_ahead *p, size_t number, const struct vp_request *req) {
    const struct vp_learnt_slot *slot = &p->plan.slots[p->plan.requests[number]];
    return slot->size == req->size && slot->alone == req->alone;
}

/* Finds a request anywhere in the plan by the last eight sizes; or at its start, if the program has freed nearly
 * all. */
static uint32_t look_everywhere(const struct vp_ahead *p, const struct vp_request *req) {
    uint64_t sizes[VP_AHEAD_GRAM];
    if (p->requests + 1 < VP_AHEAD_GRAM)
        return 0;
    if (p->plan.request_count && is_of(p, 0, req) &&
        p->pool->mem.stats.live_bytes <= p->plan.peak_live / AGAIN_SHARE + req->size)
        return 1;
    for (int i = 0; i < VP_AHEAD_GRAM; i++)
        sizes[i] = p->sizes[i];
    sizes[p->requests % VP_AHEAD_GRAM] = req->size;
    const uint32_t number = p->grams[gram_hash(sizes, p->requests) & (gram_slots(p) - 1)];
    return number && is_of(p, number - 1, req) ? number : 0;
}

static void go_on(struct vp_ahead *p, uint32_t number) {
    if (number < p->at || number - p->at >= VP_AHEAD_LOOK) {
        p->at = number;
        p->taken = 0;
    }
    uint32_t ahead = number - p->at;
    p->taken |= UINT64_C(1) << ahead;
    p->next_request = number + 1;
    while (ahead > LAG || p->taken & 1) {
        p->taken >>= 1;
        p->at++;
        ahead -= ahead > 0;
    }
}

/* ---- its place ---- */

static bool may_be(const struct vp_ahead *p, uint64_t number, const struct vp_request *req) {
    return number >= p->at && number - p->at < VP_AHEAD_LOOK && number < p->plan.request_count &&
           !(p->taken >> (number - p->at) & 1) && is_of(p, number, req);
}

/* The request's number in the plan, plus 1; 0: the plan does not know it. Of those with its size, the nearest to where
 * the program is: some requests of the plan's run do not come this time, as stream caches serve them, and those of
 * several threads come in another order. */
static uint32_t number_of(const struct vp_ahead *p, const struct vp_request *req) {
    for (uint32_t d = 0; d < VP_AHEAD_LOOK; d++) {
        if (may_be(p, (uint64_t)p->next_request + d, req))
            return p->next_request + d + 1;
        if (d && may_be(p, (uint64_t)p->next_request - d, req))
            return p->next_request - d + 1;
    }
    return look_everywhere(p, req);
}

/* The address of the plan's place for the request; 0: none. */
static CUdeviceptr place_of(const struct vp_ahead *p, const struct vp_request *req) {
    const uint32_t number = p->base[VP_ZONE_LARGE] ? number_of(p, req) : 0;
    const CUdeviceptr addr = number ? p->base[VP_ZONE_LARGE] + p->plan.slots[p->plan.requests[number - 1]].offset : 0;
    return addr + req->size <= p->end[VP_ZONE_LARGE] ? addr : 0;
}

bool vp_ahead_await(struct vp_pool *pool, const struct vp_request *req) {
    const struct vp_ahead *p = pool->ahead;
    const CUdeviceptr addr = p->under_way ? place_of(p, req) : 0;
    if (!addr || !vp_ahead_lacks(p, addr, addr + req->size))
        return false;
    const bool waited = vp_ahead_hold_back(pool);
    vp_ahead_go_on(pool);
    return waited;
}

bool vp_ahead_hold_back(struct vp_pool *pool) {
    struct vp_ahead *p = pool->ahead;
    if (!p)
        return false;
    p->held_back++;
    return p->under_way && pool->config.await_ahead && pool->config.await_ahead(pool);
}

void vp_ahead_go_on(struct vp_pool *pool) {
    if (pool->ahead)
        pool->ahead->held_back--;
}

struct vp_fit vp_ahead_find(struct vp_pool *pool, const struct vp_request *req, enum vp_usable use) {
    struct vp_ahead *p = pool->ahead;
    const CUdeviceptr addr = place_of(p, req);
    if (!addr || (vp_ahead_is_open(p) && !vp_ahead_complete(p, addr, addr + req->size)))
        return (struct vp_fit){NULL, 0};
    return vp_place_find_at(pool, addr, req, use);
}

bool vp_ahead_keep_apart(const struct vp_pool *pool, const struct vp_request *req) {
    const struct vp_ahead *p = pool->ahead;
    return p->base[VP_ZONE_LARGE] && vp_ahead_keeps_apart(p, number_of(p, req), req->size);
}

static void touch(struct vp_pool *pool, CUdeviceptr addr, CUdeviceptr end) {
    vp_mappings_each(m, &pool->mem, addr, end)
        m->chunk->touched = true;
}

/* The program began as the plan does if, of so many first requests, all but an eighth had their places. */
enum { FIRST_REQUESTS = 64 };

void vp_ahead_served(struct vp_pool *pool, const struct vp_request *req, CUdeviceptr addr) {
    struct vp_ahead *p = pool->ahead;
    const uint32_t number = number_of(p, req);
    touch(pool, addr, addr + req->size);
    if (p->requests == FIRST_REQUESTS)
        p->kin = p->served >= FIRST_REQUESTS / 8 * 7;
    p->history <<= 1;
    p->sizes[p->requests++ % VP_AHEAD_GRAM] = req->size;
    if (!number)
        return;
    const uint32_t slot = p->plan.requests[number - 1];
    p->begun = number == 1 ? p->requests - 1 : p->begun;
    p->found++;
    go_on(p, number - 1);
    if (addr != p->base[VP_ZONE_LARGE] + p->plan.slots[slot].offset)
        return;
    p->served++;
    p->history |= 1;
    /* From now on this is a place like any other. */
    if (!(p->placed[slot / 64] >> slot % 64 & 1)) {
        p->placed[slot / 64] |= UINT64_C(1) << slot % 64;
        vp_place_add(pool, addr, req->size);
    }
}

/* ---- looked at ---- */

/* The plan fitted if so many percent of all requests were known to it and got their places. */
enum { FITTED_PERCENT = 99 };

bool vp_ahead_fitted(const struct vp_ahead *p) {
    if (!p->requests && p->plan.window_count)
        return vp_ahead_blocks_fitted(p);
    const uint64_t least = p->requests / 100 * FITTED_PERCENT;
    return p->requests == p->plan.total_requests && p->requests && p->served >= least;
}

size_t vp_ahead_used_bytes(const struct vp_pool *pool) {
    const struct vp_chunk *chunk;
    size_t bytes = 0;
    vp_list_each(chunk, &pool->mem.chunks, link) {
        if (!chunk->planned)
            continue;
        const struct vp_region *r = vp_region_at(&pool->mem, chunk->current->addr);
        bool fresh = !chunk->touched && r->state == VP_FREE && vp_region_end(r) >= vp_chunk_end(chunk);
        for (const struct vp_piece *piece = fresh ? vp_piece_at(r, chunk->current->addr) : NULL; piece;
             piece = piece->end < vp_chunk_end(chunk) ? piece->next : NULL)
            fresh &= !piece->age;
        bytes += fresh ? 0 : chunk->size;
    }
    return bytes;
}
