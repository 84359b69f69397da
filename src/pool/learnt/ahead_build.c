/* A plan in use: its handles are made ahead of the program. See ahead.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cancel.h"
#include "base/clock.h"
#include "pool/bare/bare.h"
#include "pool/learnt/ahead.h"

#include <limits.h>

/* How much is made ahead before it is known whether the program follows the plan: a share of what the plan holds,
 * within bounds. A program found by its executable, arguments and device mostly does what it did; one whose plan was
 * named by the user may not. */
enum { FIRST_SHARE = 4, FIRST_SHARE_NAMED = 64 };
static const size_t FIRST_LEAST = (size_t)256 << 20, FIRST_MOST_NAMED = (size_t)64 << 20;

/* Bytes of a batch, unless one handle is larger: the lock is taken once for so much. */
static const size_t BATCH = (size_t)512 << 20;

/* 1/LEFT of the device's memory is left to others. */
enum { LEFT = 64 };

/* After so many batches that the device or the driver refused, no more are tried. */
enum { REFUSALS = 3 };

/* ---- how far ---- */

/* While the program does nearly what the plan's run did, no more is held for the plan than the pool would hold without
 * it; while it does exactly the same, no more than that run held: between the two it may have created memory of its
 * own. */
enum { BOUND_SHARE = 256, BOUND_ROOM = 32 << 20 };

static size_t bound(const struct vp_ahead *p, size_t asked) {
    size_t most = vp_pool_peak_with(p->pool, asked);
    if (most < p->most && vp_ahead_is_exact(p))
        most = p->most;
    return most + most / BOUND_SHARE + BOUND_ROOM;
}

/* Live bytes, with what a cache has reported by now. */
static size_t live_bytes(const struct vp_pool *pool) {
    const size_t live = pool->mem.stats.live_bytes;
    return pool->bare ? live - pool->mem.bare_live + atomic_load_explicit(&pool->bare->live, memory_order_relaxed)
                      : live;
}

/* A program that began as the plan does will need nearly as much, whatever its sizes are later: most of it is made
 * ahead in any case, and saves the program the calls. The last part is made when it is due and the program has followed
 * the plan exactly of late: a run with another seed may do without it. (Sequences a tenth longer or shorter had 0.94 to
 * 1.05 times the peak.) */
enum { LAST_SHARE = 8 };

/* Large blocks of bare segments that are made ahead of in any case while they come as in the plan. */
enum { LOOK_AT_BLOCKS = 256 };

static bool is_due(const struct vp_ahead *p, const struct vp_learnt_run *run) {
    if (run->zone == VP_ZONE_BARE)
        return vp_ahead_blocks_in_step(p) == VP_AHEAD_IN_STEP && run->need < vp_ahead_blocks(p) + LOOK_AT_BLOCKS;
    return run->need < p->next_request + VP_AHEAD_LOOK && vp_ahead_is_exact(p);
}

/* Bytes that may be made before anything is known of the program. */
static size_t first_of(const struct vp_ahead *p) {
    const size_t share = p->plan.peak_held / (p->trusted ? FIRST_SHARE : FIRST_SHARE_NAMED);
    return p->trusted ? vp_greater(share, FIRST_LEAST) : vp_lesser(share, FIRST_MOST_NAMED);
}

/* The same for those of this run by now: twice what is alive while the program does what the plan's run did. A cache on
 * bare segments has no use for memory made elsewhere, and of what it asks for elsewhere little is known. */
static size_t by_step(const struct vp_ahead *p, const struct vp_learnt_run *run, bool due) {
    const bool bare = run->zone == VP_ZONE_BARE;
    const enum vp_ahead_step step = bare ? vp_ahead_blocks_in_step(p) : vp_ahead_in_step(p);
    const size_t first = first_of(p);
    if (due && bare)
        return p->plan.peak_held;
    if (step == VP_AHEAD_UNKNOWN)
        return first;
    if (step == VP_AHEAD_IN_STEP || (bare ? vp_ahead_blocks_kin(p) : p->kin))
        return 2 * live_bytes(p->pool) + vp_greater(first, FIRST_LEAST);
    return 0;
}

/* Bytes that may be held by now for handles of this run. */
static size_t allowed(const struct vp_ahead *p, const struct vp_learnt_run *run) {
    const bool due = is_due(p, run);
    const struct vp_pool *pool = p->pool;
    size_t end = due ? p->plan.peak_held : p->most - p->most / LAST_SHARE;
    if ((due || !p->kin) && end > bound(p, 0))
        end = bound(p, 0);
    const size_t most = vp_lesser(by_step(p, run, due), end);
    return pool->mem.limit && most > pool->mem.limit ? pool->mem.limit : most;
}

/* ---- one batch ---- */

static CUdeviceptr base_of(const struct vp_ahead *p, const struct vp_learnt_run *run) {
    return run->zone != VP_ZONE_BARE ? p->base[run->zone] : p->pool->bare ? p->pool->bare->base : 0;
}

/* The devices to which handles are opened, one bit each. */
static uint64_t open_to(const struct vp_memory *mem) {
    return mem->peers | mem->copiers | UINT64_C(1) << mem->device;
}

/* How many handles of the plan are made as one. Handles of a run are first wanted by one request, and so are used
 * together at least once. In a program that does exactly what the plan's did they never have to serve anything else,
 * and fewer calls make them. WIDE_REQUESTS must show that, as programs with other sizes often begin alike. They may be
 * as large as those of blocks that stay; but at most WIDE in one before they are due, as the program may do something
 * else by then. */
static const size_t WIDE_MOST = (size_t)256 << 20;
enum { WIDE_REQUESTS = 128, WIDE = 4 };

static unsigned how_wide(const struct vp_ahead *p, const struct vp_learnt_run *run, size_t count, size_t most) {
    const size_t largest = p->pool->config.handle < WIDE_MOST ? p->pool->config.handle : WIDE_MOST;
    unsigned wide = 1;
    if (run->zone != VP_ZONE_LARGE || p->requests < WIDE_REQUESTS || !vp_ahead_is_exact(p))
        return 1;
    const unsigned limit = is_due(p, run) ? UINT_MAX : WIDE;
    while (wide < limit && 2 * wide <= count && run->size * wide <= largest / 2 && run->size * wide <= most / 2)
        wide *= 2;
    return wide;
}

/* In how many parts a handle is made, for a program whose sizes differ from the plan's: a block that ends within one
 * pins the rest. Not too many in all: what would move some hundreds is created anew instead (bound.h). */
enum { PART_SHARE = 4096, PART_LEAST = 16 << 20 };

static unsigned how_many_parts(const struct vp_ahead *p, const struct vp_learnt_run *run) {
    size_t least = PART_LEAST;
    unsigned parts = 1;
    if (run->zone != VP_ZONE_LARGE || !p->kin || vp_ahead_in_step(p) != VP_AHEAD_OUT_OF_STEP)
        return 1;
    while (least < p->most / PART_SHARE)
        least *= 2;
    while (2 * parts <= VP_AHEAD_BATCH && run->size / parts >= 2 * least &&
           run->size / parts % (2 * p->plan.granularity) == 0)
        parts *= 2;
    return parts;
}

/* The batch is the builder's from now on. */
static bool set_out(struct vp_ahead *p, struct vp_ahead_batch *batch) {
    batch->devices = open_to(&p->pool->mem);
    p->under_way = true;
    p->way = batch->addr;
    p->way_end = batch->addr + batch->size * batch->count;
    return true;
}

/* Takes some handles of a run, of at most `most` bytes. False: not now, or never. */
static bool choose(struct vp_ahead *p, size_t i, size_t most, struct vp_ahead_batch *batch) {
    const struct vp_learnt_run *run = &p->plan.runs[i];
    const CUdeviceptr base = base_of(p, run), addr = base + run->offset + run->size * p->built[i];
    size_t count = run->count - p->built[i];
    if (!base || !count || most < run->size)
        return false;
    if (run->zone == VP_ZONE_SMALL && p->small >= run->size) {
        p->small -= run->size;
        p->built[i]++;
        return false;
    }
    const unsigned each = how_wide(p, run, count, most), parts = how_many_parts(p, run);
    const size_t size = run->size * each;
    count = vp_lesser(count / each, vp_lesser(most / size, VP_AHEAD_BATCH / parts));
    *batch = (struct vp_ahead_batch){
        .addr = addr, .size = size / parts, .count = (unsigned)count * parts, .each = each, .parts = parts, .run = i};
    batch->bare = run->zone == VP_ZONE_BARE;
    /* Somebody else has mapped there since; or the plan names addresses twice. */
    const struct vp_region *r = batch->bare ? NULL : vp_region_at(&p->pool->mem, addr);
    while (batch->count && !(batch->bare ? vp_ahead_take_bare(p->pool, addr, batch->size, batch->count)
                                         : r->planned && vp_region_end(r) >= addr + batch->size * batch->count))
        batch->count = batch->count / parts / 2 * parts;
    if (!batch->count) {
        p->built[i]++;
        return false;
    }
    batch->prop = p->pool->mem.prop;
    p->pool->mem.coming_bytes = batch->size * batch->count;
    return set_out(p, batch);
}

/* A context of the device in which to ask for free memory, kept from ending; NULL: there is none. */
static struct vp_context *hold_context(const struct vp_memory *mem) {
    struct vp_context *ctx = vp_context_on(mem->timelines, mem->device);
    if (!ctx || !ctx->primary || ctx->sick || ctx->lost)
        return NULL;
    ctx->waiters++;
    return ctx;
}

/* While a sleeping process wakes on the device, nobody else takes memory of it. */
static bool may_grow(const struct vp_memory *mem) {
    return !mem->may_grow || mem->may_grow(mem->device);
}

/* The first run in bare segments with handles left to make. */
static size_t next_bare(const struct vp_ahead *p) {
    size_t i = p->next;
    while (i < p->plan.run_count && (p->plan.runs[i].zone != VP_ZONE_BARE || p->built[i] == p->plan.runs[i].count))
        i++;
    return i;
}

bool vp_ahead_begin(struct vp_ahead *p, struct vp_ahead_batch *batch) {
    struct vp_memory *mem = &p->pool->mem;
    const size_t held = mem->stats.held_bytes;
    /* Whoever had idle memory given back keeps it until the program's next request. */
    if (!p->pool->bare && mem->stats.planned_returned != p->returned)
        p->resting = p->requests + 1;
    p->returned = mem->stats.planned_returned;
    if (p->requests < p->resting || p->ended || p->under_way || p->held_back || mem->asleep || !may_grow(mem))
        return false;
    while (p->next < p->plan.run_count && p->built[p->next] == p->plan.runs[p->next].count)
        p->next++;
    if (vp_ahead_again_begin(p, next_bare(p), batch)) {
        mem->kept = batch->births;
        mem->kept_count = batch->count;
        return set_out(p, batch);
    }
    if (p->next == p->plan.run_count && p->next_again == p->plan.again_count) {
        vp_ahead_stop(p);
        return false;
    }
    bool full = false; /* later runs of bare segments may not have more than an earlier one */
    for (size_t i = p->next; i < p->plan.run_count; i++) {
        const struct vp_learnt_run *run = &p->plan.runs[i];
        const bool bare = run->zone == VP_ZONE_BARE;
        if (p->built[i] == run->count || !base_of(p, run) || (bare && full))
            continue;
        const size_t may = allowed(p, run), most = may > held ? may - held : 0;
        while (p->built[i] < run->count && most >= run->size)
            if (choose(p, i, most < BATCH ? most : BATCH < run->size ? run->size : BATCH, batch)) {
                batch->context = hold_context(mem);
                return true;
            }
        full |= bare && most < p->plan.granularity;
        if (p->built[i] < run->count && !p->pool->bare)
            return false;
    }
    return false;
}

/* ---- made without the lock ---- */

/* One driver call: counts it, adds its time. */
#define CALL(batch, call)                                                                                              \
    ({                                                                                                                 \
        const uint64_t begin_ = vp_clock_ns();                                                                         \
        CUresult res_ = (call);                                                                                        \
        (batch)->ns += vp_clock_ns() - begin_;                                                                         \
        (batch)->calls++;                                                                                              \
        res_;                                                                                                          \
    })

/* Has the device enough to spare? If it does not tell, yes: it would refuse. */
static bool has_room(const struct vp_driver *drv, const struct vp_ahead_batch *batch) {
    size_t left = SIZE_MAX, total = 0;
    const struct vp_entered entered = vp_context_enter(drv, batch->context ? batch->context->handle : NULL);
    if (!batch->context || entered.refused || drv->cuMemGetInfo_v2(&left, &total))
        left = SIZE_MAX;
    vp_context_leave(drv, entered);
    return left > total / LEFT && left - total / LEFT > batch->size * batch->count;
}

static CUresult create(const struct vp_driver *drv, struct vp_ahead_batch *batch, CUmemGenericAllocationHandle *out) {
    CUmemAllocationProp prop = batch->prop;
    CUresult res;
    while ((res = CALL(batch, drv->cuMemCreate(out, batch->size, &prop, 0))) && res != CUDA_ERROR_OUT_OF_MEMORY &&
           vp_chunk_ask_less(&prop))
        continue;
    if (!res)
        batch->prop = prop;
    return res;
}

void vp_ahead_make(const struct vp_driver *drv, struct vp_ahead_batch *batch) {
    CUmemAccessDesc access[64];
    const size_t devices = vp_chunk_access(batch->devices, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, access);
    const unsigned want = batch->count;
    unsigned made = 0;
    if (batch->again) {
        vp_ahead_again_make(drv, batch);
        return;
    }
    while (made < want && (made || has_room(drv, batch))) {
        const CUdeviceptr addr = batch->addr + batch->size * made;
        if (create(drv, batch, &batch->handles[made]))
            break;
        if (CALL(batch, drv->cuMemMap(addr, batch->size, 0, batch->handles[made], 0))) {
            CALL(batch, drv->cuMemRelease(batch->handles[made]));
            break;
        }
        made++;
    }
    if (made && CALL(batch, drv->cuMemSetAccess(batch->addr, batch->size * made, access, devices))) {
        CALL(batch, drv->cuMemUnmap(batch->addr, batch->size * made));
        while (made)
            CALL(batch, drv->cuMemRelease(batch->handles[--made]));
    }
    batch->count = made;
    batch->short_of = made < want;
}

/* ---- handed over ---- */

/* Undoes what became no chunk. */
static void undo(const struct vp_driver *drv, const struct vp_ahead_batch *batch, unsigned from) {
    if (from < batch->count)
        drv->cuMemUnmap(batch->addr + batch->size * from, batch->size * (batch->count - from));
    for (unsigned i = from; i < batch->count && !batch->again; i++)
        drv->cuMemRelease(batch->handles[i]);
}

/* Brings access rights up to date: the memory may have been opened to more devices meanwhile. False: not possible. */
static bool agree(struct vp_memory *mem, const struct vp_ahead_batch *batch) {
    const uint64_t devices = open_to(mem);
    if (!batch->again && batch->prop.requestedHandleTypes != mem->prop.requestedHandleTypes)
        mem->prop = batch->prop;
    return devices == batch->devices || !batch->count ||
           (!(batch->devices & ~devices) && !vp_chunk_open(mem, batch->addr, batch->size * batch->count));
}

/* Notes when blocks are to come where the builder has mapped something. */
static void note_expected(struct vp_ahead *p, const struct vp_ahead_batch *batch, CUdeviceptr end) {
    struct vp_bare *bare = p->pool->bare;
    const uint32_t need = batch->again ? p->plan.agains[batch->run].need : p->plan.runs[batch->run].need;
    for (CUdeviceptr at = batch->addr; at < end; at += p->pool->mem.granularity)
        bare->slots[vp_bare_page(bare, at) / VP_SLOT_PAGES].expects = need;
}

void vp_ahead_end(struct vp_ahead *p, const struct vp_ahead_batch *batch, bool background) {
    struct vp_memory *mem = &p->pool->mem;
    unsigned done = 0;
    mem->kept_count = 0;
    if (batch->context)
        batch->context->waiters--;
    /* What comes too late for a pause must not stay. */
    const bool stays = !mem->asleep && agree(mem, batch);
    if (stays && batch->again)
        done = vp_ahead_again_end(p, batch);
    else if (stays)
        while (done < batch->count &&
               !vp_chunk_adopt(mem, batch->handles[done], batch->size, batch->addr + batch->size * done))
            done++;
    undo(mem->drv, batch, done);
    if (batch->bare)
        note_expected(p, batch, batch->addr + batch->size * done);
    if (batch->bare) {
        const CUdeviceptr stop = batch->addr + batch->size * done;
        if (stop < p->way_end)
            vp_stitch_end(mem, stop, stop, p->way_end);
    }
    p->under_way = false;
    mem->coming_bytes = 0;
    if (!batch->again)
        p->built[batch->run] += done * batch->each / batch->parts;
    if (background) {
        p->background_ns += batch->ns;
        p->background_calls += batch->calls;
    } else {
        mem->stats.driver_ns += batch->ns;
        mem->stats.calls.create += batch->again ? 0 : done;
        mem->stats.calls.map += done;
        mem->stats.calls.set_access += done > 0;
    }
    p->refusals += !batch->again && (batch->short_of || done < batch->count);
    if (p->refusals >= REFUSALS)
        vp_ahead_stop(p);
}

void vp_ahead_stop(struct vp_ahead *p) {
    struct vp_memory *mem = &p->pool->mem;
    p->ended = true;
    for (int zone = 0; zone < VP_ZONES; zone++)
        for (CUdeviceptr at = p->base[zone], end; at < p->end[zone]; at = end) {
            const struct vp_region *r = vp_region_at(mem, at);
            end = vp_region_end(r);
            if (r->planned && !vp_space_reserve(mem, 4))
                vp_stitch_end(mem, r->addr, r->addr, end);
        }
}

/* ---- made for a request that is there already ---- */

/* Makes those parts of [addr, end) that nobody has made yet. */
static bool make_now(struct vp_ahead *p, CUdeviceptr addr, CUdeviceptr end) {
    const size_t most = bound(p, end - addr);
    vp_cancel_hold(); /* the builder's calls do not, which no program knows of */
    for (size_t i = 0; i < p->plan.run_count; i++) {
        const struct vp_learnt_run *run = &p->plan.runs[i];
        const CUdeviceptr begin = p->base[VP_ZONE_LARGE] + run->offset, stop = begin + run->size * run->count;
        struct vp_ahead_batch batch;
        if (run->zone != VP_ZONE_LARGE || begin >= end || stop <= addr)
            continue;
        while (p->built[i] < run->count && begin + run->size * p->built[i] < end) {
            const uint32_t before = p->built[i];
            const size_t limit = p->pool->mem.limit, held = p->pool->mem.stats.held_bytes;
            const size_t may = limit && limit < most ? limit : most, left = may > held ? may - held : 0;
            if (!choose(p, i, left > run->size ? left : run->size, &batch))
                continue;
            if (batch.size * batch.count > left)
                batch.count = 0;
            if (batch.count)
                vp_ahead_make(p->pool->mem.drv, &batch);
            vp_ahead_end(p, &batch, false);
            if (p->built[i] == before || p->ended)
                return false;
        }
    }
    return true;
}

/* Where something in [addr, end) begins that is the plan's and not made yet; `end`: nowhere. */
static CUdeviceptr unmade_from(const struct vp_ahead *p, CUdeviceptr addr, CUdeviceptr end) {
    const struct vp_region *r;
    for (; addr < end && !(r = vp_region_at(&p->pool->mem, addr))->planned; addr = vp_region_end(r))
        continue;
    return addr < end ? addr : end;
}

bool vp_ahead_complete(struct vp_ahead *p, CUdeviceptr addr, CUdeviceptr end) {
    if ((addr = unmade_from(p, addr, end)) == end)
        return true;
    /* Handles are larger than some requests, so a program that does not follow the plan gets none made. */
    if (p->under_way || p->pool->mem.asleep || vp_ahead_in_step(p) == VP_AHEAD_OUT_OF_STEP || !may_grow(&p->pool->mem))
        return false;
    p->lacking++;
    return make_now(p, addr, end);
}

bool vp_ahead_lacks(const struct vp_ahead *p, CUdeviceptr addr, CUdeviceptr end) {
    return vp_ahead_busy(p, addr, end) ||
           (!p->ended && vp_ahead_in_step(p) != VP_AHEAD_OUT_OF_STEP && unmade_from(p, addr, end) < end);
}

bool vp_ahead_busy(const struct vp_ahead *p, CUdeviceptr addr, CUdeviceptr end) {
    return p->under_way && p->way < end && p->way_end > addr;
}
