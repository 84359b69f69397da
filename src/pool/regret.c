/* Regret, when memory that went back is created again: see giving.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/giving.h"

static const uint64_t PERIOD_MOST_NS = 600000000000;

void vp_giving_regret(struct vp_pool *pool) {
    struct vp_giving *g = &pool->giving;
    const uint64_t now = pool->config.now ? pool->config.now() : 0;
    g->regret_from = SIZE_MAX;
    if (now - g->given_at > VP_REGRET_PERIODS * g->period_ns)
        return;
    g->period_ns = g->period_ns * 2 < PERIOD_MOST_NS ? g->period_ns * 2 : PERIOD_MOST_NS;
    g->not_before = now + g->period_ns;
    pool->mem.stats.regrets++;
}
