/* STAlloc's runtime: requests in the places of a plan, and what becomes of those that are not as planned. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include "compare/stalloc.h"

static const char SIM[] = "backing=ledger,capacity=1G,granularity=2M";

static struct vp_stalloc_place places[] = {
    {4 * MiB, 0, 0}, {6 * MiB, 4 * MiB, 0}, {4 * MiB, 0, 0}, {2 * MiB, 10 * MiB, 0}};
static const struct vp_stalloc_plan plan = {places, 4, 12 * MiB};

static void open_planned(const struct vp_stalloc_plan *planned, const char *sim) {
    const struct vp_pool_config config = {.va = 8 * GiB, .plan = planned};
    fx_open_pool(sim, &vp_policy_stalloc, &config);
}

static struct vp_timeline *timeline(int stream) {
    struct vp_timeline *found;
    cr_assert_eq(vp_timeline_get(&fx.timelines, fx.stream[stream], &found), 0);
    return found;
}

static struct vp_region *take(size_t size, int stream) {
    struct vp_region *block = NULL;
    struct vp_request req = {.asked = size, .timeline = timeline(stream), .context = fx.context};
    cr_assert_eq(vp_pool_alloc(&fx.pool, &req, &block), 0);
    cr_assert(vp_pool_check(&fx.pool, stderr));
    return block;
}

static void give(struct vp_region *block, int stream) {
    cr_assert_eq(fx.pool.policy->free(&fx.pool, block, timeline(stream)), 0);
    cr_assert(vp_pool_check(&fx.pool, stderr));
}

static void served(uint64_t placed, uint64_t missed) {
    uint64_t p, m;
    vp_stalloc_figures(&fx.pool, &p, &m);
    cr_assert(p == placed && m == missed, "%llu placed, %llu missed", (unsigned long long)p, (unsigned long long)m);
}

Test(stalloc, requests_lie_where_they_were_planned) {
    open_planned(&plan, SIM);
    cr_assert_eq(fx.pool.mem.stats.held_bytes, 12 * MiB, "the whole range is got at once");
    cr_assert_eq(fx.pool.mem.stats.live_bytes, 0);
    uint64_t before = fx_calls();
    struct vp_region *a = take(4 * MiB, 1), *b = take(6 * MiB - 100, 1);
    cr_assert_eq(b->addr - a->addr, 4 * MiB);
    CUdeviceptr first = a->addr;
    give(a, 1);
    struct vp_region *c = take(4 * MiB, 2); /* streams are not looked at */
    cr_assert_eq(c->addr, first);
    cr_assert_eq(fx.pool.mem.stats.live_bytes, 10 * MiB - 100);
    cr_assert_eq(take(2 * MiB, 1)->addr, first + 10 * MiB);
    give(b, 1);
    give(c, 1);
    cr_assert_eq(take(4 * MiB, 1)->addr, first, "and again from the first place on");
    served(5, 0);
    cr_assert_eq(fx_calls(), before);
    cr_assert_eq(fx.pool.mem.stats.peak_live_bytes, 12 * MiB - 100);
    fx_close();
}

Test(stalloc, another_size_is_left_to_the_cache_and_its_place_passed_by) {
    open_planned(&plan, SIM);
    struct vp_region *a = take(4 * MiB, 1), *odd = take(7 * MiB, 1);
    cr_assert(odd->addr < a->addr || odd->addr >= a->addr + 12 * MiB);
    cr_assert_eq(fx.pool.mem.stats.held_bytes, 32 * MiB, "what the cache has is held, too");
    give(a, 1);
    cr_assert_eq(take(4 * MiB, 1)->addr, a->addr);
    give(odd, 1);
    served(2, 1);
    fx_close();
}

Test(stalloc, a_place_in_use_is_passed_by) {
    open_planned(&plan, SIM);
    struct vp_region *a = take(4 * MiB, 1), *b = take(6 * MiB, 1), *c = take(4 * MiB, 1);
    cr_assert(c->addr < a->addr || c->addr >= a->addr + 12 * MiB, "the first block still lies there");
    served(2, 1);
    give(c, 1);
    give(b, 1);
    give(a, 1);
    cr_assert_eq(fx.pool.mem.stats.live_bytes, 0);
    fx_close();
}

Test(stalloc, tiny_requests_have_a_pool_of_their_own) {
    enum { MANY = 5000 };
    static struct vp_region *tiny[MANY];
    open_planned(&plan, SIM);
    for (int i = 0; i < MANY; i++) {
        struct vp_request req = {.asked = 1 + (size_t)i % 512, .timeline = timeline(1), .context = fx.context};
        cr_assert_eq(vp_pool_alloc(&fx.pool, &req, &tiny[i]), 0);
        cr_assert(!i || tiny[i]->addr != tiny[i - 1]->addr);
    }
    served(0, 0);
    cr_assert_eq(fx.pool.mem.stats.held_bytes, 16 * MiB, "two segments more");
    CUdeviceptr addr = tiny[7]->addr;
    give(tiny[7], 1);
    cr_assert_eq(take(512, 2)->addr, addr);
    cr_assert_eq(take(4 * MiB, 1)->size, 4 * MiB);
    served(1, 0);
    fx_close();
}

Test(stalloc, without_a_plan_or_without_room_for_it_the_cache_serves) {
    open_planned(NULL, SIM);
    give(take(4 * MiB, 1), 1);
    served(0, 1);
    fx_close();
    const struct vp_stalloc_plan large = {places, 4, 2 * GiB};
    open_planned(&large, SIM);
    give(take(4 * MiB, 1), 1);
    served(0, 1);
    cr_assert_eq(fx.pool.mem.stats.held_bytes, 20 * MiB);
    fx_close();
}
