/* Idle memory that goes back to the device by itself.
 *
 * There is no timer by default: it would punish a program that repeats itself in its slow moments. But plain CUDA
 * returns memory in cudaFree, and a program that frees or trims much means it: it unloads a model or empties a cache,
 * and another process, or nvidia-smi, is to see the memory free. So after a large cudaFree idle memory goes back at
 * once if it is most of what is held, or if frees alone, with no allocation between them, have left that much. All of
 * it goes back when PyTorch's cache frees a segment, as it does when it is emptied. What work still uses then, or a
 * trim had to leave, goes back at the next synchronise.
 *
 * Regret: if half of what went back is created again within ten periods, giving it back was a mistake. The period, in
 * which nothing more goes back, then doubles, up to ten minutes; it halves when there was no regret. A program that
 * frees and allocates all the time thus pays a dozen times, each time less than with plain CUDA. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/pool.h"

/* Memory that is created again within so many periods is regretted. */
enum { VP_REGRET_PERIODS = 10 };

/* cudaFree has freed `bytes`. `emptied`: a cache freed a segment, and has no use for what is idle in its other
 * segments. Returns true if memory is to go back at the next synchronise. */
bool vp_giving_freed_some(struct vp_pool *pool);
enum { VP_GIVING_LEAST = 32 << 20 }; /* with fewer idle bytes nothing goes back */
static inline bool vp_giving_freed(struct vp_pool *pool, size_t bytes, bool emptied) {
    struct vp_giving *g = &pool->giving;
    if (!pool->traits.gives || bytes < VP_EVENT_WORTH)
        return false;
    g->freed += bytes;
    g->emptied |= emptied;
    return (pool->bare || vp_memory_idle(&pool->mem) >= VP_GIVING_LEAST) && vp_giving_freed_some(pool);
}
/* As vp_pool_trim(), on request. Remembers how much it had to leave because work still uses it. */
size_t vp_giving_trim(struct vp_pool *pool, size_t keep);
/* Is memory to go back at the next synchronise? */
static inline bool vp_giving_is_due(const struct vp_pool *pool) {
    return pool->giving.due || pool->giving.deferred || pool->bound.excess;
}
/* The program has synchronised. */
void vp_giving_settle(struct vp_pool *pool);
/* Gives idle chunks back, the longest idle first, until `bytes` are reached or none is left. Returns the bytes
 * given. */
size_t vp_giving_lend(struct vp_pool *pool, size_t bytes);
/* VPOOL_IDLE_TRIM: a period of at least `period_ns` is over. Gives back what the program did not need in it. */
void vp_giving_tick(struct vp_pool *pool, uint64_t period_ns);
/* Memory that went back was created again (regret.c). */
void vp_giving_regret(struct vp_pool *pool) __attribute__((cold));

/* After an allocation that no cache served, or when a bare block got memory: notices regret, notes what a peak
 * needs. */
static inline void vp_giving_note(struct vp_pool *pool, size_t bytes) {
    struct vp_giving *g = &pool->giving;
    const uint64_t live = pool->mem.stats.live_bytes, held = pool->mem.stats.held_bytes;
    if (bytes >= VP_EVENT_WORTH)
        g->freed = g->tried = g->emptied = 0;
    if (live > g->top_live || (held > g->top_held && live > g->top_live / 4 * 3)) {
        g->top_live = live > g->top_live ? live : g->top_live;
        g->top_held = held;
    }
    if (__builtin_expect(held > g->regret_from, false))
        vp_giving_regret(pool);
}
