/* PyTorch's caching allocator: what is published of it. Sizes are halves of a MiB: a small segment has 4, a
 * shared large one 40. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <errno.h>

static const char SIM[] = "backing=ledger,capacity=1G,granularity=2M";

enum { HALF = 512 * 1024 };

static const struct {
    const char *name;
    size_t split_most;
    const char *script;
} cases[] = {
    {"small requests share segments of 2 MiB", 0, "a+1 b+1 c+2 held=4 b>a c>b d+1 held=8 d^c"},
    {"1 MiB is small, more is large", 0, "a+2 held=4 b+3 held=44"},
    {"small and large never share", 0, "a+6 b+1 held=44 b^a"},
    {"below 10 MiB segments of 20 MiB are shared", 0, "a+6 b+19 c+15 held=40 b>a c>b d+3 held=80"},
    {"from 10 MiB on a segment is whole 2 MiB", 0, "a+20 held=20 b+21 held=44"},
    {"the smallest that fits", 0, "a+28 b+20 c+24 a- b- c- d+22 d@c held=72"},
    {"of equals the lowest", 0, "a+20 b+20 c+20 c- b- a- d+20 d@a e+20 e@b held=60"},
    {"of small equals too", 0, "a+1 b+1 c+1 d+1 a- c- e+1 e@a held=4"},
    {"large blocks are split if more than 1 MiB is over", 0, "a+24 a- b+21 c+3 c>b held=24"},
    {"free neighbours unite", 0, "a+6 b+19 c+15 a- c- b- d+40 d@a held=40"},
    {"segments do not", 0, "a+20 b+20 a- b- c+40 c^a c^b held=80"},

    {"each stream has its own", 0, "a+20 a- S2 b+20 b^a held=40 S1 c+20 c@a held=40"},
    {"what another stream frees waits for it", 0, "a+20 busy2 S2 a- S1 b+20 b^a held=40 idle2 c+20 c@a held=40"},
    {"and goes back to its own", 0, "a+20 S2 a- b+20 b^a held=40 S1 c+20 c@a held=40"},
    {"a block in flight does not hold up its neighbours", 0,
     "a+6 b+10 c+10 d+14 busy2 S2 b- S1 c- e+8 e@c idle2 f+10 f@b held=40"},
    {"cudaMalloc waits for cudaFree", 0, "S0 a+20 a- b+20 b@a held=20"},
    {"but not for long", 0, "S0 a+20 busy1 a- b+20 b^a held=40 awaits=1 idle1 c+20 c@a held=40"},

    {"too large to split: smaller requests do not get it", 64 * HALF, "a+80 a- b+20 b^a c+63 c^a d+80 d@a"},
    {"nor if 20 MiB are over", 64 * HALF, "a+120 a- b+80 b^a held=200"},
    {"else whole", 64 * HALF, "a+120 a- b+100 b@a c+3 c^a held=160"},
    {"smaller ones are split", 64 * HALF, "a+60 a- b+20 b@a c+20 c>b held=60"},
};

Test(bfc, cases) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct vp_pool_config config = {.va = 8 * GiB, .split_most = cases[i].split_most};
        cr_log_info("%s", cases[i].name);
        fx_open_pool(SIM, &vp_policy_bfc, &config);
        fx_script(cases[i].script, HALF);
        fx_close();
    }
}

static size_t taken(CUdeviceptr addr) {
    return vp_pool_find(&fx.pool, addr)->size;
}

/* What is over in a block, and too little to be a block of its own, is the request's. */
Test(bfc, what_is_over) {
    const struct vp_pool_config config = {.va = 8 * GiB};
    fx_open_pool(SIM, &vp_policy_bfc, &config);
    cr_assert_eq(taken(fx_alloc(1, 1)), 512);
    cr_assert_eq(taken(fx_alloc(513, 1)), 1024);
    cr_assert_eq(taken(fx_alloc(MiB, 1)), MiB);
    cr_assert_eq(taken(fx_alloc(MiB - 2048, 1)), MiB - 2048, "512 bytes over are a block");
    cr_assert_eq(fx.pool.mem.stats.held_bytes, 2 * MiB);
    cr_assert_eq(taken(fx_alloc(12 * MiB - 1, 1)), 12 * MiB);
    cr_assert_eq(taken(fx_alloc(11 * MiB, 1)), 12 * MiB, "1 MiB over stays with the block");
    cr_assert_eq(taken(fx_alloc(11 * MiB - 512, 1)), 11 * MiB - 512, "more does not");
    fx_close();
}

Test(bfc, no_event_is_recorded_for_streams_that_keep_to_their_own) {
    const struct vp_pool_config config = {.va = 8 * GiB};
    fx_open_pool(SIM, &vp_policy_bfc, &config);
    fx_script("a+20 S2 b+20 S1 a- S2 b- S1 a+20 S2 b+20 S1 c+22 S2 d+22 held=88", HALF);
    struct vp_timeline_stats stats = fx.timelines.stats[0];
    cr_assert_eq(stats.records + stats.queries + stats.waits, 0);
    fx_close();
}

/* 64 MiB, of which the simulator's own block takes one granule. */
Test(bfc, wholly_free_segments_are_given_back_when_the_device_has_no_more) {
    const struct vp_pool_config config = {.va = 8 * GiB};
    fx_open_pool("backing=ledger,capacity=64M,granularity=2M", &vp_policy_bfc, &config);
    fx_script("a+40 b+40 a- b- c+80 held=80 c- d+100 held=100", HALF);
    fx_script("trim held=100", HALF);
    fx_close();
    fx_open_pool("backing=ledger,capacity=64M,granularity=2M", &vp_policy_bfc, &config);
    fx_script("a+6 b+6 c+40 a- c- d+80 held=120 e!40 held=120", HALF);
    fx_close();
}

Test(bfc, too_large) {
    CUdeviceptr addr;
    fx_open_pool(SIM, &vp_policy_bfc, NULL);
    cr_assert_eq(fx_try(SIZE_MAX, 1, &addr), -ENOMEM);
    cr_assert_eq(fx_try(2 * GiB, 1, &addr), -ENOMEM);
    fx_close();
}
