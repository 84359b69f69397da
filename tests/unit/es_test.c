/* PyTorch's expandable segments: what is published of them. Sizes are halves of a MiB: a small page has 4, a
 * large one 40. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <errno.h>

static const char SIM[] = "backing=ledger,capacity=1G,granularity=2M";

enum { HALF = 512 * 1024 };

static const struct vp_pool_config automatic;

static const struct {
    const char *name;
    const char *script;
} cases[] = {
    {"small pages of 2 MiB, large ones of 20", "a+1 held=4 b+2 held=4 c+3 held=44 d+2 held=48"},
    {"a segment grows at its end, page by page", "a+30 held=40 b+30 b>a held=80 c+30 c>b held=120"},
    {"what is larger than a page takes as many as it needs", "a+90 held=120 b+30 b>a held=120"},
    {"free blocks unite across pages", "a+30 b+30 c+20 a- b- d+60 d@a held=80"},
    {"a free block before the end is grown", "a+30 b+30 b- c+90 c>a held=120"},
    {"the best fit", "a+14 b+3 c+10 d+3 e+12 f+3 a- c- e- g+10 g@c h+11 h@e i+13 i@a"},
    {"what could grow comes last", "a+12 b+18 a- c+8 c@a d+8 d>b held=40"},
    {"split to the last 512 bytes", "a+24 b+16 a- c+23 c@a d+1 held=44"},
    {"small and large never share", "a+6 b+1 b^a held=44"},
    {"each stream has its own segments", "a+20 a- S2 b+20 b^a held=80 S1 c+20 c@a S2 b- held=80"},
    {"what another stream frees waits for it", "a+40 busy2 S2 a- S1 b+40 b>a held=80 idle2 c+40 c@a held=80"},
    {"cudaMalloc waits for cudaFree", "S0 a+20 a- b+20 b@a held=40"},
    {"idle pages are given back one by one", "a+30 b+60 c+30 b- trim held=80 a- trim held=40 d+50 d@a held=120"},
    {"the lowest unmapped place is completed first",
     "a+40 b+40 c+40 d+40 a- c- trim held=80 e+30 e@a held=120 f+40 f@c"},
    {"not through what is in flight",
     "a+40 b+40 c+40 a- trim busy2 S2 b- S1 d+80 d>c held=160 idle2 e+80 e@a held=200"},
    {"one that is too small is passed over", "a+40 b+40 a- trim held=40 c+41 c>b held=120 d+40 d@a"},
};

Test(es, cases) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_log_info("%s", cases[i].name);
        fx_open_pool(SIM, &vp_policy_es, &automatic);
        fx_script(cases[i].script, HALF);
        fx_close();
    }
}

/* Where the caching allocator would leave 1 MiB with the block. */
Test(es, blocks_are_as_large_as_asked) {
    fx_open_pool(SIM, &vp_policy_es, &automatic);
    cr_assert_eq(vp_pool_find(&fx.pool, fx_alloc(20 * MiB - 512, 1))->size, 20 * MiB - 512);
    cr_assert_eq(vp_pool_find(&fx.pool, fx_alloc(1, 1))->size, 512);
    fx_close();
}

/* A range of addresses for each stream and kind of request: an eighth more than the device has. */
Test(es, one_reservation_for_a_stream) {
    fx_open_pool(SIM, &vp_policy_es, &automatic);
    cr_assert_eq(fx.pool.mem.stats.calls.reserve, 0);
    fx_script("a+20 b+60 c+100", HALF);
    cr_assert_eq(fx.pool.mem.stats.calls.reserve, 1);
    fx_script("a+1 S2 b+60", HALF);
    cr_assert_eq(fx.pool.mem.stats.calls.reserve, 3);
    const struct vp_space *s = vp_container_of(fx.pool.mem.spaces.next, struct vp_space, link);
    cr_assert_geq(s->size, GiB + GiB / 8);
    cr_assert_lt(s->size, GiB + GiB / 8 + 20 * MiB);
    fx_close();
}

/* Programs may make and destroy thousands of streams. */
Test(es, a_range_without_pages_goes_to_the_next_stream) {
    fx_open_pool(SIM, &vp_policy_es, &automatic);
    fx_script("a+60 a- trim S2 b+1 c+60 c@a held=84", HALF);
    cr_assert_eq(fx.pool.mem.stats.calls.reserve, 2);
    fx_script("S1 a+20 a^c held=124", HALF);
    cr_assert_eq(fx.pool.mem.stats.calls.reserve, 3);
    fx_close();
}

Test(es, a_full_range_is_followed_by_another) {
    fx_open_pool(SIM, &vp_policy_es, &(struct vp_pool_config){.va = 20 * MiB});
    fx_script("a+40 b+40 a^b held=80 c+100 c^a c^b held=200 a- b- d+40 held=200", HALF);
    fx_close();
}

/* 88 MiB, of which the simulator's own block takes one granule. */
Test(es, free_pages_are_given_back_when_the_device_has_no_more) {
    fx_open_pool("backing=ledger,capacity=88M,granularity=2M", &vp_policy_es, &automatic);
    fx_script("a+40 b+40 c+40 a- c- S2 d+80 held=120 S1 e+40 e@a held=160 f!40 held=160", HALF);
    fx_close();
}
