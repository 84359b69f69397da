/* Records a replay for the pages of the report. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/replay/record.h"

#include "memory/chunk.h"
#include "pool/bare/bare.h"

#include "pool/stream_cache.h"
#include "pool/place.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Samples of where the bytes are: somewhat more than a wide screen has pixels. Each walks all regions, at some 15 ns a
 * step. If walks are long, the next sample is put off so that walks take EVENT_WALK steps for each event, plus about a
 * second in all: replaying an event takes microseconds. */
enum { SAMPLES = 3000, LONG_WALK = 1 << 15, EVENT_WALK = 64 };

/* ---- mappings ---- */

static uint64_t home_of(const struct vp_mapping *m) {
    return m->chunk->home ? m->chunk->home->addr : m->addr;
}

static int open_mapping(struct vp_record *r, const struct vp_mapping *m, bool current, uint32_t i) {
    struct vp_record_mapping *new = vp_array_add(&r->mappings, sizeof *new);
    if (!new || vp_numbers_set(&r->open, m->addr, r->mappings.count) < 0)
        return -ENOMEM;
    *new = (struct vp_record_mapping){
        .addr = m->addr, .size = m->chunk->size, .home = home_of(m), .from = i, .to = UINT32_MAX, .current = current};
    return 0;
}

/* Compares what is mapped at an address with what was recorded. */
static int look_at_mapping(struct vp_record *r, const struct vp_pool *pool, uint64_t addr, uint32_t i) {
    const struct vp_mapping *m = vp_mapping_at(&pool->mem, addr);
    const size_t n = vp_numbers_get(&r->open, addr);
    struct vp_record_mapping *was = n ? (struct vp_record_mapping *)r->mappings.items + n - 1 : NULL;
    m = m && m->addr == addr ? m : NULL;
    const bool current = m && m->chunk->current == m;
    if (was && m && was->size == m->chunk->size && was->current == current && was->home == home_of(m))
        return 0;
    if (was) {
        was->to = i;
        vp_numbers_drop(&r->open, addr);
    }
    return m ? open_mapping(r, m, current, i) : 0;
}

/* Called by the pool's memory at a change. Only the state at the end of the event counts. */
static void note_change(void *record, CUdeviceptr addr) {
    struct vp_record *r = record;
    uint64_t *changed = vp_array_add(&r->changed, sizeof *changed);
    if (changed)
        *changed = addr;
    else
        r->missed = true;
}

/* Begins to listen to changes. All existing mappings are to be looked at once. */
static void listen(struct vp_record *r, struct vp_pool *pool) {
    const struct vp_chunk *chunk;
    pool->mem.watcher = r;
    pool->mem.remapped = note_change;
    vp_list_each(chunk, &pool->mem.chunks, link)
        vp_chunk_tell(&pool->mem, chunk);
}

/* Looks only at what has changed: a trace may have as many changes as the pool has mappings. */
static int look_at_mappings(struct vp_record *r, struct vp_pool *pool, uint32_t i) {
    int err = 0;
    if (pool->mem.watcher != r)
        listen(r, pool);
    const uint64_t *changed = r->changed.items;
    for (size_t n = 0; n < r->changed.count && !err; n++)
        err = look_at_mapping(r, pool, changed[n], i);
    r->changed.count = 0;
    return r->missed ? -ENOMEM : err;
}

/* ---- where the bytes are ---- */

/* The chunk that the walk is in. */
struct in_chunk {
    const struct vp_mapping *mapping;
    uint64_t live, free;
    bool pending;
    uint64_t steps; /* steps of the whole walk so far */
};

static void leave_chunk(struct vp_record_sample *s, const struct in_chunk *c) {
    if (c->live)
        s->pinned += c->free;
    else if (c->pending)
        s->pending += c->free;
    else
        s->idle += c->free;
}

/* Counts [at, end), which is all live or all free. */
static void count_range(struct vp_record_sample *s, struct in_chunk *c, const struct vp_pool *pool,
                        const struct vp_space *space, uint64_t at, uint64_t end, bool live, bool pending) {
    while (at < end) {
        const struct vp_mapping *m = vp_space_granule(&pool->mem, space, at)->mapping;
        uint64_t stop = m->addr + m->chunk->size < end ? m->addr + m->chunk->size : end;
        if (m != c->mapping) {
            leave_chunk(s, c);
            *c = (struct in_chunk){.mapping = m, .steps = c->steps};
        }
        c->steps++;
        *(live ? &c->live : &c->free) += stop - at;
        c->pending |= pending;
        at = stop;
    }
}

static void count_region(struct vp_record_sample *s, struct in_chunk *c, const struct vp_pool *pool,
                         const struct vp_timeline *timeline, const struct vp_region *r) {
    uint64_t at = r->addr;
    c->steps++;
    if (r->state == VP_LIVE) {
        const struct vp_timeline *parked = vp_stream_cache_holding(r);
        if (!parked) {
            s->live += r->asked;
            s->internal += r->size - r->asked;
        }
        count_range(s, c, pool, r->space, at, vp_region_end(r), !parked, parked && parked != timeline);
    } else if (r->state == VP_BACKED) {
        /* Its blocks belong to the cache. */
        count_range(s, c, pool, r->space, at, vp_region_end(r), true, false);
    } else if (r->state == VP_FREE) {
        for (const struct vp_piece *p = r->pieces; p; at = p->end, p = p->next)
            count_range(s, c, pool, r->space, at, p->end, false, !vp_fence_ready(&p->fence, timeline));
    }
}

static int look_at_bytes(struct vp_record *record, const struct vp_pool *pool, const struct vp_timeline *timeline,
                         uint32_t i) {
    struct vp_record_sample *s = vp_array_add(&record->samples, sizeof *s);
    struct in_chunk in = {0};
    const struct vp_space *space;
    const struct vp_region *r;
    if (!s)
        return -ENOMEM;
    *s = (struct vp_record_sample){.event = i};
    s->live = pool->bare ? atomic_load(&pool->bare->live) : 0;
    vp_list_each(space, &pool->mem.spaces, link)
        vp_list_each(r, &space->regions, va)
            count_region(s, &in, pool, timeline, r);
    leave_chunk(s, &in);
    record->due = i + in.steps / (LONG_WALK / record->step + EVENT_WALK);
    return 0;
}

/* ---- driver calls ---- */

static int look_at_calls(struct vp_record *r, const struct vp_pool *pool, uint32_t i) {
    const struct vp_timeline_stats timelines = pool->mem.timelines->stats[pool->mem.device];
    const uint64_t now[VP_RECORD_KINDS] = {
#define POOL_CALL(field, name) [VP_RECORD_##field] = pool->mem.stats.calls.field,
        VP_MEMORY_CALLS(POOL_CALL)
#undef POOL_CALL
            [VP_RECORD_event_record] = timelines.records + timelines.barriers,
        [VP_RECORD_event_query] = timelines.queries,
        [VP_RECORD_wait] = timelines.waits,
    };
    if (!memcmp(now, r->totals, sizeof now))
        return 0;
    struct vp_record_calls *calls = vp_array_add(&r->calls, sizeof *calls);
    if (!calls)
        return -ENOMEM;
    uint64_t ns = r->engine->cost_ns ? r->engine->cost_ns() : 0;
    *calls = (struct vp_record_calls){.event = i, .ns = ns - r->ns};
    for (int k = 0; k < VP_RECORD_KINDS; k++)
        calls->count[k] = (uint32_t)(now[k] - r->totals[k]);
    memcpy(r->totals, now, sizeof now);
    r->ns = ns;
    return 0;
}

/* ---- all of it ---- */

static int look(void *context, struct vp_pool *pool, size_t i, const struct vp_timeline *timeline,
                const struct vp_region *block) {
    struct vp_record *r = context;
    const struct vp_trace_event *e = &r->trace->events[i];
    uint64_t changes = vp_engine_remap_calls(&pool->mem.stats) + pool->mem.switches;
    int err = 0;
    r->granularity = pool->mem.granularity;
    if (e->alloc && block)
        r->blocks[e->block] = (struct vp_record_block){block->addr, block->size};
    if (changes != r->changes)
        err = look_at_mappings(r, pool, (uint32_t)i);
    r->changes = changes;
    if (!err)
        err = look_at_calls(r, pool, (uint32_t)i);
    if (!err && ((i % r->step == 0 && i >= r->due) || i + 1 == r->trace->count))
        err = look_at_bytes(r, pool, timeline, (uint32_t)i);
    return err;
}

static int by_start(const void *a, const void *b) {
    const struct vp_record_mapping *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return x->addr < y->addr ? -1 : x->addr > y->addr;
}

int vp_record_make(struct vp_record *r, struct vp_engine *engine, const struct vp_replay_options *options,
                   const struct vp_policy *policy, const struct vp_trace *trace, const char *name) {
    const struct vp_replay_watch watch = {r, look};
    struct vp_replay_options o = *options;
    *r = (struct vp_record){.trace = trace,
                            .policy = policy,
                            .name = policy->name,
                            .engine = engine,
                            .result = {.trace = name, .policy = policy->name},
                            .step = (uint32_t)(trace->count / SAMPLES + 1),
                            .ns = engine->cost_ns ? engine->cost_ns() : 0};
    r->blocks = calloc(trace->blocks + 1, sizeof *r->blocks);
    o.repeat = 1;
    o.watch = &watch;
    int err = r->blocks ? vp_engine_replay(engine, &o, policy, trace, &r->result) : -ENOMEM;
    struct vp_record_mapping *all = r->mappings.items;
    for (size_t n = 0; n < r->mappings.count; n++)
        if (all[n].to == UINT32_MAX)
            all[n].to = (uint32_t)trace->count;
    if (r->mappings.count)
        qsort(all, r->mappings.count, sizeof *all, by_start);
    return err;
}

void vp_record_finish(struct vp_record *r) {
    free(r->result.malloc_ns.ns);
    free(r->result.free_ns.ns);
    free(r->blocks);
    free(r->mappings.items);
    free(r->samples.items);
    free(r->calls.items);
    free(r->changed.items);
    vp_numbers_finish(&r->open);
    *r = (struct vp_record){0};
}
