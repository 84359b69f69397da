/* GMLake: what is published of it. Sizes are chunks (64 KiB here). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <errno.h>

static const char SIM[] = "backing=ledger,capacity=1G,granularity=64K,lazy=0";

enum { CHUNK = 64 * 1024 };

/* Requests from so many chunks on are stitched, in the cases that say so; they are too large to share. */
enum { FRAGMENT = 400 };

static const struct {
    const char *name;
    size_t stitch_least, stitched_most;
    const char *script;
} cases[] = {
    {"S1: a pBlock of the size", 0, 0, "a+4 w+1 a- b+4 b@a held=5"},
    {"S1: an sBlock of the size, at no cost", 0, 0,
     "a+2 w+1 b+2 x+1 a- b- c+4 c^a c^b held=6 c- mark d+4 d@c retaken=1 quiet held=6"},
    {"S1: before a larger pBlock is split", 0, 0,
     "l+8 w+1 a+2 x+1 b+2 y+1 a- b- c+4 c^l c- l- d+4 d@c held=15 e+8 e@l held=15"},
    {"not one that is larger", 0, 0, "a+3 w+1 b+3 x+1 a- b- c+6 c- mark d+5 d^c retaken=0 held=8"},
    {"not while one of its pBlocks is in use", 0, 0,
     "a+2 w+1 b+2 x+1 a- b- c+4 c- e+2 e@a d+4 d^c held=8 e- d- f+4 f@c held=8"},
    {"a pBlock of a stitched block is free when that is", 0, 0, "a+2 w+1 b+2 x+1 a- b- c+4 c- d+2 d@a e+2 e@b held=6"},
    {"S2: the smallest larger pBlock is split", 0, 0, "a+8 w+1 b+4 x+1 a- b- c+3 c@b d+1 d>c e+7 e@a f+1 f>e held=14"},
    {"S3: the largest first, the last is split", 0, 0,
     "a+2 w+1 b+3 x+1 c+4 y+1 a- b- c- mark d+6 held=12 stitches=1 e+2 e@a f+1 held=12 f^d f^e"},
    {"S4: what is short is made and stitched", 0, 0, "a+2 w+1 a- b+5 b^a held=6 b- mark c+5 c@b quiet d+1 held=7"},
    {"S4: nothing is free", 0, 0, "a+5 held=5 b+3 held=8"},
    {"pBlocks that were split unite", 0, 0, "a+8 w+1 a- b+3 c+5 c>b b- c- mark d+8 d@a stitches=0 held=9"},

    {"below the limit nothing is stitched", FRAGMENT, 0,
     "a+352 w+352 b+352 x+352 held=1408 a- b- c+380 c^a c^b held=1792"},
    {"from the limit on it is", FRAGMENT, 0, "a+352 w+352 b+352 x+352 held=1408 a- b- c+400 held=1408"},
    {"below 10 MiB a pBlock of 20 MiB is shared", FRAGMENT, 0, "a+20 held=320 b+300 b>a held=320"},

    {"the sBlock used last is let go", 0, 12 * CHUNK,
     "a+3 w+1 b+3 x+1 a- b- c+4 c- d+5 d- e+6 e- mark d+5 retaken=1 d- e+6 retaken=2 e- held=8 "
     "c+4 retaken=2 stitches=1 held=8"},
    {"as long as they find room all stay", 0, 15 * CHUNK,
     "a+3 w+1 b+3 x+1 a- b- c+4 c- d+5 d- e+6 e- mark d+5 d- e+6 e- c+4 retaken=3 quiet held=8"},
    {"the next one is, where that is in use", 0, 12 * CHUNK,
     "a+3 w+1 b+3 x+1 e+3 y+1 f+3 z+1 a- b- c+4 e- f- d+5 d- g+6 g- mark d+5 retaken=0 stitches=1"},
    {"one in use stays", 0, 6 * CHUNK, "a+3 w+1 b+3 x+1 a- b- c+4 e+4 held=10 c- mark f+4 f@c retaken=1"},

    {"each stream has its own", 0, 0, "a+4 a- S2 b+4 b^a held=8 S1 c+4 c@a held=8"},
    {"sBlocks too", 0, 0, "a+2 w+1 b+2 x+1 a- b- c+4 c- mark S2 d+4 d^c retaken=0 held=10 S1 e+4 e@c"},
    {"what another stream frees waits for it", 0, 0,
     "a+2 w+1 b+2 x+1 a- b- c+4 busy2 S2 c- S1 d+4 d^c held=10 idle2 mark e+4 e@c retaken=1 held=10"},
    {"cudaMalloc waits for cudaFree", 0, 0, "S0 a+20 a- b+20 b@a held=20"},
};

Test(gmlake, cases) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct vp_pool_config config = {
            .va = GiB, .stitch_least = cases[i].stitch_least * CHUNK, .stitched_most = cases[i].stitched_most};
        cr_log_info("%s", cases[i].name);
        fx_open_pool(SIM, &vp_policy_gmlake, &config);
        fx_script(cases[i].script, CHUNK);
        fx_close();
    }
}

/* Less than a chunk is the caching allocator's: 512 bytes in a segment of 2 MiB. */
Test(gmlake, small_requests) {
    fx_open_pool(SIM, &vp_policy_gmlake, NULL);
    CUdeviceptr a = fx_alloc(1, 1), b = fx_alloc(CHUNK - 1, 1);
    cr_assert_eq(b, a + 512);
    cr_assert_eq(fx.pool.mem.stats.held_bytes, 2 * MiB);
    fx_alloc(CHUNK, 1);
    cr_assert_eq(fx.pool.mem.stats.held_bytes, 2 * MiB + CHUNK);
    fx_close();
}

/* S5, on 4 MiB: 63 chunks and the simulator's own. */
Test(gmlake, what_is_free_is_given_back_when_the_device_has_no_more) {
    fx_open_pool("backing=ledger,capacity=4M,granularity=64K", &vp_policy_gmlake, NULL);
    fx_script("a+20 S2 b+20 w+3 b- S1 c+40 held=63 d!1 a- c- S2 e+60 held=63", CHUNK);
    fx_close();
}
