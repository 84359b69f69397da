/* Where each byte counts, small blocks lie where they pin least: in chunks that are pinned already, or in small ones.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include "pool/parking.h"
#include "pool/slack.h"

#include <errno.h>

enum { PARTS = 40 };

/* 8 GiB in large chunks lie free, and 10 GiB in chunks of 8 and less, with a live block in between. */
static CUdeviceptr scatter(void) {
    const struct vp_pool_config config = {.handle = 256 * MiB, .va = 1024 * GiB, .slack = 5, .limit = 24 * GiB};
    CUdeviceptr part[PARTS], large;
    fx_open_pool("backing=ledger,capacity=64G,lazy=0", &vp_policy_vpool, &config);
    large = fx_alloc(8 * GiB, 1);
    CUdeviceptr between = fx_alloc(2 * MiB, 1);
    for (int i = 0; i < PARTS; i++)
        part[i] = fx_alloc(254 * MiB, 1);
    fx_free(large, 1);
    for (int i = 0; i < PARTS; i++)
        fx_free(part[i], 1);
    return between;
}

static size_t chunk_at(CUdeviceptr addr) {
    return vp_mapping_at(&fx.pool.mem, addr)->chunk->size;
}

static void press(void) {
    CUdeviceptr never;
    cr_assert_eq(fx_try(63 * GiB, 1, &never), -ENOMEM);
}

Test(pin, a_small_block_takes_no_large_chunk_under_pressure) {
    CUdeviceptr between = scatter(), small = fx_alloc(3 * MiB, 1), beside;
    cr_assert_gt(chunk_at(small), 32 * MiB, "what fits best, while there is room");
    fx_free(small, 1);
    press();
    cr_assert(fx.pool.slack.rest);
    small = fx_alloc(3 * MiB + 512, 1);
    cr_assert_leq(chunk_at(small), 8 * MiB);
    beside = fx_alloc(1 * MiB + 512, 1);
    cr_assert_eq(vp_mapping_at(&fx.pool.mem, beside), vp_mapping_at(&fx.pool.mem, small), "it pins nothing more");
    CUdeviceptr rest = fx_alloc(24 * GiB - 16 * MiB, 1);
    fx_free(rest, 1);
    fx_free(beside, 1);
    fx_free(small, 1);
    fx_free(between, 1);
    fx_close();
}

/* What may not be used is no choice, however little it pins: all that is free was freed by stream 1. */
Test(pin, it_takes_only_what_it_may_use) {
    CUdeviceptr between = scatter();
    struct vp_timeline *timeline;
    cr_assert(!vp_timeline_get(&fx.timelines, fx.stream[2], &timeline));
    struct vp_request req = {.asked = 2 * MiB,
                             .size = 2 * MiB,
                             .align = 512,
                             .zone = VP_ZONE_LARGE,
                             .strict = &fx.pool.mem,
                             .timeline = timeline,
                             .context = fx.context};
    vp_parking_flush(&fx.pool, VP_FLUSH_ALL);
    fx_idle(1);
    for (int i = 0; i < PARTS; i++)
        vp_fit_refresh(&fx.pool.mem);
    struct vp_region *r = vp_index_first(&fx.pool.mem.met[VP_ZONE_LARGE], 1 * GiB);
    const struct vp_fit fit = {r, r->addr};
    cr_assert(vp_fit_pins_much(&fx.pool.mem, &req, fit));
    cr_assert_eq(vp_fit_pin_less(&fx.pool.mem, &req, VP_USE_READY, fit).addr, fit.addr);
    req.strict = NULL;
    cr_assert_neq(vp_fit_pin_less(&fx.pool.mem, &req, VP_USE_READY, fit).addr, fit.addr);
    fx_free(between, 1);
    fx_close();
}

Test(pin, it_is_told_once_a_chunk_whether_the_edge_is_near) {
    CUdeviceptr between = scatter();
    fx.pool.slack.roams = true;
    cr_assert(!vp_slack_spares(&fx.pool));
    fx.pool.mem.limit = 19 * GiB;
    cr_assert(!vp_slack_spares(&fx.pool));
    CUdeviceptr more = fx_alloc(18 * GiB + 512 * MiB, 1);
    cr_assert(vp_slack_spares(&fx.pool));
    fx.pool.slack.roams = false;
    cr_assert(!vp_slack_spares(&fx.pool));
    fx_free(more, 1);
    fx_free(between, 1);
    fx_close();
}
