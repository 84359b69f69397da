/* Idle memory that goes back to the device by itself.
 *
 * Never by a timer of its own: that would punish a program that repeats itself in its slow moments. But plain CUDA
 * gives memory back in cudaFree, and whoever frees much there, or trims, means it: a model is unloaded, a cache
 * emptied, and another process, or nvidia-smi, is to see it. So after a large cudaFree idle memory goes back at once if
 * it is most of what is held, or if frees alone, with no allocation between them, have made it so much; and all of it
 * when PyTorch's cache frees a segment, as it does when it is emptied. What work still uses then goes at the next
 * synchronise; so does what a trim had to leave.
 *
 * The rule of regret: if half of what was given back is made again within ten periods, that was a mistake. The period,
 * for which nothing more goes back, doubles, up to ten minutes; and is halved again when it was none. A program that
 * frees and allocates all the time so pays a dozen times, each time less than plain CUDA made it pay. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/pool.h"

/* Within so many periods what is made again is regretted. */
enum { VP_REGRET_PERIODS = 10 };

/* A cudaFree of so many bytes was served; `emptied`: a cache has freed a segment, and has no use for what is idle in
 * the others. True: memory is to go back at the next synchronise. */
bool vp_giving_freed_some(struct vp_pool *pool);
enum { VP_GIVING_LEAST = 32 << 20 }; /* with less idle there is no more to ask */
static inline bool vp_giving_freed(struct vp_pool *pool, size_t bytes, bool emptied) {
    struct vp_giving *g = &pool->giving;
    if (!pool->traits.gives || bytes < VP_EVENT_WORTH)
        return false;
    g->freed += bytes;
    g->emptied |= emptied;
    return (pool->bare || vp_memory_idle(&pool->mem) >= VP_GIVING_LEAST) && vp_giving_freed_some(pool);
}
/* As vp_pool_trim(), because somebody asked for it: what it has to leave to work that is not over is remembered. */
size_t vp_giving_trim(struct vp_pool *pool, size_t keep);
/* Is anything to go back at the next synchronise? */
static inline bool vp_giving_is_due(const struct vp_pool *pool) {
    return pool->giving.due || pool->giving.left || pool->bound.excess;
}
/* The program has synchronised. */
void vp_giving_settle(struct vp_pool *pool);
/* Gives idle chunks of so many bytes back, or what there is, those first that have been idle for longest. Returns the
 * bytes given back. */
size_t vp_giving_lend(struct vp_pool *pool, size_t bytes);
/* By time: a period of at least so many nanoseconds is over. What it did not need goes back. */
void vp_giving_tick(struct vp_pool *pool, uint64_t period_ns);
/* What was given back was made again: regret.c. */
void vp_giving_regret(struct vp_pool *pool) __attribute__((cold));

/* An allocation that no cache served has succeeded, or a block has got memory: for the fast side of regret, and for
 * what a peak needs. */
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
