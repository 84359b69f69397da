/* vpool's own policy and the mechanisms under it, on a device of 64 KiB granules. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <sys/resource.h>

#include <stdlib.h>
#include <string.h>

/* What is not held runs at once, so that each test has one outcome. */
static const char SIM[] = "capacity=64M,granularity=64K,lazy=0";

/* ---- who gets which bytes ---- */

static const struct {
    const char *name;
    size_t unit;
    const char *script;
    size_t handle; /* the largest; 0: one granule */
} layouts[] = {
    {"best fit", 64 * KiB, "a+8 b+1 c+4 d+1 e+6 f+1 a- c- e- mark g+4 g@c h+5 h@e i+7 i@a quiet"},
    {"best fit takes the lowest of equals", 64 * KiB, "a+4 b+1 c+4 d+1 c- a- e+4 e@a f+4 f@c"},
    {"neighbours unite, whatever the order", 64 * KiB,
     "a+4 b+4 c+4 d+1 a- c- b- mark e+12 e@a quiet e- a+4 b+4 c+4 a@e c- b- a- f+12 f@a quiet"},
    {"a rest is split off at 512 bytes", 512,
     "a+512 b+128 a- mark c+383 c@a d+129 d>c quiet c- e+382 e@a d- f+130 f>e quiet"},
    {"odd sizes share pages at their edges", 512, "a+2049 b+2049 b>a held=4224 b- c+2047 c@b held=4224"},
    {"small blocks lie apart from large ones", KiB, "a+2048 b+1 c+2048 d+1 c>a d>b a^b held=4160"},

    {"wholly free chunks are stitched, nothing is created", MiB,
     "a+1 b+1 c+1 d+1 e+1 a- c- e- mark f+3 grown=0 stitches=1 f^b f^d held=5"},
    {"growth is what is short", MiB, "a+1 b+1 c+1 d+1 a- c- mark e+5 grown=3 held=7"},
    {"growth begins in the free end before the hole", MiB, "a+4 b+1 b- mark c+3 c@b grown=2 held=7 stitches=1"},
    {"a partly free chunk is not moved", 256 * KiB, "a+4 b+4 c+4 b- d+3 d@b e+12 e^a e^d e^c", MiB},
    {"a chosen chunk may be larger than what is short", 512 * KiB, "a+2 b+2 c+2 d+2 a- c- mark e+3 grown=0 held=8",
     MiB},

    {"a range once built is taken back without a call", MiB,
     "a+1 w+1 c+1 x+1 a- c- e+2 e- a+1 a- mark f+2 f@e retaken=1 f- a+1 c+1 a- c- g+2 g@e retaken=2 quiet"},
    {"what is parked for a stream is hidden from nobody", MiB,
     "a+4 b+4 c+1 a- b- S2 mark d+8 d@a quiet d- S0 e+8 e@a quiet"},
    {"more than can be parked", MiB,
     "a+2 b+2 c+2 d+2 e+2 f+2 g+2 h+2 i+2 j+2 a- b- c- d- e- f- g- h- i- j- mark k+20 k@a quiet"},
    {"a kept range with a live block inside is no range", MiB / 4, "a+16 a- b+4 c+2 d+4 b- d- e+16 e^c", MiB},
    {"the same with the first bytes free", MiB / 4, "z+1 a+4 a- b+1 c+1 b- e+4 e^c", MiB},
    {"a repeating program comes to rest", MiB,
     "a+5 b+3 c+7 b- d+2 a- e+6 c- d- f+4 e- f- a+5 b+3 c+7 b- d+2 a- e+6 c- d- f+4 e- f- "
     "mark a+5 b+3 c+7 b- d+2 a- e+6 c- d- f+4 e- f- quiet",
     MiB},

    {"own memory at once, with no event and no wait", MiB, "a+4 busy1 a- mark b+4 b@a quiet waits=0 idle1"},
    {"met memory of another stream at once", MiB, "a+4 a- S2 mark b+4 b@a quiet waits=0"},
    {"memory in flight by a wait", MiB, "S2 z+1 z- S1 a+4 busy1 a- S2 mark b+4 b@a grown=0 waits=1 idle1"},
    {"a second wait for the same point is not needed", MiB,
     "S2 z+1 z- S1 a+4 c+4 busy1 a- c- S2 mark b+4 d+4 grown=0 waits=2 b- e+4 waits=2 idle1"},
    {"no wait where growing comes first", MiB, "late S2 z+1 z- S1 a+4 busy1 a- S2 mark b+4 b^a grown=4 waits=0 idle1"},
    {"the wait that comes late", MiB, "late S2 z+1 z- S1 a+40 busy1 a- S2 mark b+40 b@a grown=0 waits=1 idle1"},
    {"never is never", MiB, "never S2 z+1 z- S1 a+40 busy1 a- S2 b!40 idle1 b+40"},
    {"pieces under different conditions stay apart", MiB,
     "S2 z+1 z- S1 a+2 b+2 c+2 busy1 busy2 a- S2 b- never S3 d+4 d^a d^b S1 e+2 e@a "
     "S2 f+2 f@b idle1 idle2"},
    {"and unite when both are met", MiB, "never S1 a+2 b+2 c+2 busy1 busy2 a- S2 b- idle1 idle2 S3 mark d+4 d@a quiet"},

    {"cudaMalloc takes met memory", MiB, "S0 a+4 a- mark b+4 b@a quiet"},
    {"cudaMalloc takes met bytes beside some that wait", MiB,
     "a+4 b+4 a- S0 c+4 c@a c- S1 busy1 b- S0 mark d+2 d@a grown=0 waits=0 idle1"},
    {"cudaMalloc grows rather than wait for a stream", MiB, "a+4 busy1 a- S0 mark b+4 b^a grown=4 waits=0 idle1"},
    {"cudaMalloc waits on the host before it takes a third block", MiB,
     "a+8 S0 b+8 busy1 b- c+8 c- held=24 mark d+8 awaits=1 idle1"},
};

Test(pool, layouts) {
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        cr_log_info("%s", layouts[i].name);
        fx_open_pool(SIM, &vp_policy_vpool, &(struct vp_pool_config){.handle = layouts[i].handle, .va = GiB});
        fx_script(layouts[i].script, layouts[i].unit);
        fx_close();
    }
}

Test(pool, synchronous_blocks_are_aligned) {
    fx_open_pool(SIM, &vp_policy_vpool, NULL);
    CUdeviceptr odd = fx_alloc(MiB + 512, 1), a = fx_alloc(MiB + 1, 0), b = fx_alloc(5 * KiB, 0),
                c = fx_alloc(MiB + 1, 1);
    cr_assert_eq(a % (64 * KiB), 0);
    cr_assert(a >= odd + MiB + 64 * KiB || a < odd, "nobody else lies in its first page");
    cr_assert_eq(vp_pool_find(&fx.pool, a)->size, MiB + 64 * KiB, "and nobody else lies in its last page");
    cr_assert_eq(b % 512, 0);
    cr_assert_eq(c % 512, 0);
    cr_assert_eq(vp_pool_find(&fx.pool, c)->size, MiB + 512);
    fx_close();
}

Test(pool, a_block_is_found_by_every_address_inside) {
    fx_open_pool(SIM, &vp_policy_vpool, NULL);
    CUdeviceptr a = fx_alloc(3 * MiB, 1), b = fx_alloc(700, 1), c = fx_alloc(512, 1);
    struct vp_region *r = vp_pool_find(&fx.pool, a);
    cr_assert(r && vp_pool_find_inside(&fx.pool, a) == r && vp_pool_find_inside(&fx.pool, a + 3 * MiB - 1) == r);
    cr_assert_eq(vp_pool_find_inside(&fx.pool, a + MiB), r);
    cr_assert_null(vp_pool_find(&fx.pool, a + 512));
    cr_assert_neq(vp_pool_find_inside(&fx.pool, a + 3 * MiB), r);
    cr_assert_eq(vp_pool_find_inside(&fx.pool, b + 1023), vp_pool_find(&fx.pool, b));
    cr_assert_eq(vp_pool_find_inside(&fx.pool, b + 1024), vp_pool_find(&fx.pool, c));
    fx_free(a, 1);
    cr_assert_null(vp_pool_find_inside(&fx.pool, a + MiB), "a freed one is not");
    cr_assert_null(vp_pool_find_inside(&fx.pool, 0));
    cr_assert_null(vp_pool_find_inside(&fx.pool, fx.scratch));
    fx_close();
}

/* ---- one current mapping ---- */

/* A chunk with three mappings: bytes are live in one of them only, and what is written there is read there. */
Test(pool, no_byte_is_live_at_two_addresses) {
    fx_open_pool(SIM, &vp_policy_vpool, NULL);
    CUdeviceptr live[64];
    size_t size[64], n = 0;
    srand(3);
    for (int step = 0; step < 4000; step++) {
        if (n < 40 && rand() % 5 > 1) {
            size[n] = (size_t)(1 + rand() % 4) * (rand() % 3 ? 512 * KiB : 7 * 512);
            if (fx_try(size[n], 1 + rand() % 2, &live[n]))
                continue;
            memset((void *)live[n], (int)(live[n] / 512 % 251), size[n]);
            n++;
        } else if (n) {
            size_t i = (size_t)rand() % n;
            const unsigned char *bytes = (const unsigned char *)live[i];
            for (size_t b = 0; b < size[i]; b += 256)
                cr_assert_eq(bytes[b], live[i] / 512 % 251, "written through another address");
            fx_free(live[i], 1 + rand() % 2);
            live[i] = live[--n];
            size[i] = size[n];
        }
        if (step % 50 == 0)
            cr_assert(vp_pool_check(&fx.pool, stderr));
    }
    cr_assert_gt(fx.pool.mem.stats.stitches, 20);
    cr_assert_gt(fx.pool.mem.stats.reactivations, 0);
    cr_assert_gt(fx.pool.mem.mappings, fx.pool.mem.stats.held_bytes / MiB, "old mappings are kept");
    fx_close();
}

/* ---- giving back ---- */

Test(pool, trim_gives_back_what_is_idle) {
    const struct vp_pool_config config = {.va = GiB};
    fx_open_pool(SIM, &vp_policy_vpool, &config);
    CUdeviceptr a = fx_alloc(8 * MiB, 1), b = fx_alloc(MiB / 2, 1), c = fx_alloc(4 * MiB, 1);
    fx_free(a, 1);
    cr_assert_eq(vp_pool_trim(&fx.pool, 10 * MiB), 2 * MiB + MiB / 2,
                 "as CUDA does, no less is kept than was asked for");
    cr_assert_eq(vp_pool_trim(&fx.pool, 10 * MiB), 0);
    cr_assert_eq(vp_pool_trim(&fx.pool, 0), 5 * MiB + MiB / 2);
    cr_assert_eq(vp_sim_used_vmm(0), 4 * MiB + MiB / 2);
    cr_assert_eq(vp_pool_trim(&fx.pool, 0), 0);
    fx_free(b, 1);
    fx_free(c, 1);
    vp_pool_trim(&fx.pool, 0);
    cr_assert_eq(vp_sim_used_vmm(0), 0);
    fx_script("a+8 b+8", MiB);
    fx_close();
}

/* The old mapping of a moved chunk must not go while work queued before the free may use it, nor the chunk
 * itself. */
Test(pool, nothing_is_unmapped_before_its_condition_is_met) {
    fx_open_pool(SIM, &vp_policy_vpool, NULL);
    CUdeviceptr a = fx_alloc(MiB, 1), wall = fx_alloc(MiB, 1), b = fx_alloc(MiB, 1);
    cu_ok(cuMemsetD8Async(a, 7, MiB, fx.stream[1]));
    vp_sim_hold(fx.stream[1]);
    fx_free(a, 1);
    fx_free(b, 1);
    CUdeviceptr c = fx_alloc(2 * MiB, 1);
    cr_assert(c != a && fx.pool.mem.stats.held_bytes == 3 * MiB, "stitched of a and b");
    fx_free(c, 1);
    cr_assert_eq(vp_pool_trim(&fx.pool, 0), 0, "a memset through the old address of a is queued");
    cr_assert_eq(fx.pool.mem.stats.reaps, 0);
    vp_sim_release(fx.stream[1]);
    cu_ok(cuStreamSynchronize(fx.stream[1]));
    cr_assert_eq(vp_pool_trim(&fx.pool, 0), 2 * MiB);
    fx_free(wall, 1);
    fx_close();
}

/* ---- addresses ---- */

Test(pool, more_addresses_are_reserved_when_they_run_short) {
    const struct vp_pool_config config = {.handle = MiB, .va = 16 * MiB};
    fx_open_pool(SIM, &vp_policy_vpool, &config);
    cr_assert_eq(fx.pool.mem.stats.calls.reserve, 1);
    fx_script("a+6 b+6 c+6 d+6 a^b a^c a^d b^c b^d c^d held=24 a- c- e+30 held=42", MiB);
    cr_assert_gt(fx.pool.mem.stats.calls.reserve, 1);
    fx_close();
}

/* Under ulimit -v the program's own memory is to have them: a share is taken at first, none for what may grow, and more
 * as they are needed. */
Test(pool, few_addresses_are_the_programs) {
    const struct vp_pool_config config = {.handle = MiB, .addresses = 40 * GiB};
    fx_open_pool("capacity=16G,granularity=2M,backing=ledger", &vp_policy_vpool, &config);
    cr_expect_leq(fx.pool.mem.space_bytes, 4 * GiB);
    for (int i = 0; i < 400; i++)
        fx_alloc(2 * MiB + (size_t)i * 64 * KiB, 1);
    cr_expect_leq(fx.pool.mem.space_bytes, 8 * GiB);
    fx_alloc(5 * GiB, 1);
    cr_expect_leq(fx.pool.mem.space_bytes, 14 * GiB);
    fx_close();
}

/* Sizes grow until no reservation is to be had any more: what smaller ones have left goes back. */
Test(pool, addresses_without_memory_go_back_where_there_are_no_more) {
    const struct vp_pool_config config = {.handle = MiB, .addresses = 40 * GiB};
    CUdeviceptr block;
    fx_open_pool("capacity=32G,granularity=2M,backing=ledger", &vp_policy_vpool, &config);
    const CUdeviceptr live = fx_alloc(5 * GiB, 1);
    fx_free(fx_alloc(6 * GiB, 1), 1);
    fx_idle(1);
    for (int i = 1; i <= 2; i++)
        vp_sim_fail("cuMemAddressReserve", i, CUDA_ERROR_OUT_OF_MEMORY);
    cr_assert(!fx_try(7 * GiB, 1, &block));
    cr_expect_eq(vp_sim_calls("cuMemAddressFree"), 1);
    cr_expect_leq(fx.pool.mem.space_bytes, 17 * GiB);
    fx_free(fx_alloc(6 * GiB, 1), 1);
    fx_free(block, 1);
    fx_free(live, 1);
    fx_close();
}

/* No reservation is to be had any more: old mappings make room, since each remap would else take new
 * addresses for ever. */
Test(pool, old_mappings_make_room_when_addresses_are_short) {
    const struct vp_pool_config config = {.handle = MiB, .va = 512 * MiB};
    CUdeviceptr block[8];
    fx_open_pool(SIM, &vp_policy_vpool, &config);
    vp_sim_fail("cuMemAddressReserve", -1, CUDA_ERROR_OUT_OF_MEMORY);
    for (int round = 0; round < 300; round++) {
        size_t size = (size_t)(2 + round % 7) * MiB + (size_t)(round % 50) * 64 * KiB;
        for (int i = 0; i < 3; i++)
            cr_assert(!fx_try(size, 1, &block[i]), "round %d", round);
        fx_free(block[0], 1);
        fx_free(block[2], 1);
        cr_assert(!fx_try(size + MiB, 1, &block[3]), "round %d", round);
        fx_free(block[1], 1);
        fx_free(block[3], 1);
    }
    vp_sim_fail("cuMemAddressReserve", 0, CUDA_SUCCESS);
    fx_close();
}

/* What grows is given addresses to grow in, if there are any: for that nothing is unmapped. */
Test(pool, no_room_to_grow_is_made_where_addresses_are_short) {
    const struct vp_pool_config config = {.handle = MiB, .va = 40 * MiB};
    fx_open_pool(SIM, &vp_policy_vpool, &config);
    vp_sim_fail("cuMemAddressReserve", -1, CUDA_ERROR_OUT_OF_MEMORY);
    fx_script("a+10 b+10 c+1 c>b b- held=21", MiB);
    CUdeviceptr longer = fx_alloc(10 * MiB + 256 * KiB, 1);
    cr_expect_eq(fx.pool.mem.stats.calls.unmap, 0);
    fx_free(longer, 1);
    vp_sim_fail("cuMemAddressReserve", 0, CUDA_SUCCESS);
    fx_close();
}

/* But not those that queued work may still use: then there is no room. */
Test(pool, short_addresses_do_not_unmap_under_queued_work) {
    const struct vp_pool_config config = {.handle = MiB, .va = 16 * MiB};
    CUdeviceptr none;
    fx_open_pool(SIM, &vp_policy_vpool, &config);
    vp_sim_fail("cuMemAddressReserve", -1, CUDA_ERROR_OUT_OF_MEMORY);
    CUdeviceptr a = fx_alloc(MiB, 1), wall = fx_alloc(MiB, 1), c = fx_alloc(MiB, 1);
    vp_sim_hold(fx.stream[1]);
    cu_ok(cuMemsetD8Async(a, 7, MiB, fx.stream[1]));
    fx_free(a, 1);
    fx_free(c, 1);
    cr_assert_gt(fx_alloc(2 * MiB, 1), wall, "joined from a and c, whose old mappings stay");
    for (int i = 0; i < 20; i++)
        if (fx_try(MiB, 1, &none))
            break;
    cr_assert_eq(fx.pool.mem.stats.reaps, 0);
    cr_assert_lt(fx.pool.mem.stats.live_bytes, 16 * MiB);
    fx_close();
}

struct trail {
    CUdeviceptr addr[512];
};

static void wander(struct trail *trail, unsigned seed) {
    CUdeviceptr live[16] = {0};
    for (int i = 0; i < 512; i++) {
        int k = rand_r(&seed) % 16, stream = 1 + rand_r(&seed) % 2;
        size_t size = (size_t)(1 + rand_r(&seed) % 3000) * KiB;
        if (live[k])
            fx_free(live[k], stream);
        trail->addr[i] = live[k] = fx_alloc(size, stream);
    }
    for (int k = 0; k < 16; k++)
        if (live[k])
            fx_free(live[k], 1);
}

/* The same program in two processes, so to speak, has the same addresses, counted from the beginning of the
 * pool. */
Test(pool, a_program_repeated_repeats_its_addresses) {
    static struct trail trail[2];
    for (int run = 0; run < 2; run++) {
        fx_open_pool("capacity=128M,granularity=64K,lazy=0", &vp_policy_vpool, NULL);
        const CUdeviceptr base = vp_container_of(fx.pool.mem.spaces.next, struct vp_space, link)->base;
        wander(&trail[run], 5);
        for (int i = 0; i < 512; i++)
            trail[run].addr[i] -= base;
        fx_close();
    }
    cr_assert_arr_eq(trail[0].addr, trail[1].addr, sizeof trail[0].addr);
}

/* Large blocks of random sizes come and go on two streams whose work hangs behind; in the end all are freed. */
static void muddle(unsigned seed) {
    CUdeviceptr live[24];
    int stream[24], n = 0;
    for (int i = 0; i < 1500; i++) {
        if (n < 24 && (n < 8 || rand_r(&seed) % 2)) {
            stream[n] = 1 + rand_r(&seed) % 2;
            live[n] = fx_alloc((size_t)(1025 + 97 * (rand_r(&seed) % 20)) * KiB, stream[n]);
            n++;
        } else {
            int k = rand_r(&seed) % n--;
            fx_free(live[k], stream[k]);
            live[k] = live[n];
            stream[k] = stream[n];
        }
    }
    while (n-- > 0)
        fx_free(live[n], stream[n]);
}

/* However late the work completes and whatever grew in the first round: the second takes the same places. Not so with
 * parking, where a calm cache spares the events that others could wait for. */
Test(pool, the_second_round_is_the_first) {
    struct vp_policy policy = vp_policy_vpool;
    policy.traits.parks = false;
    for (unsigned seed = 1; seed <= 5; seed++) {
        fx_open_pool("capacity=128M,granularity=64K,lazy=90", &policy, NULL);
        /* Both streams are known from the start, so that each free has its event. */
        fx_free(fx_alloc(2 * MiB, 1), 1);
        fx_free(fx_alloc(2 * MiB, 2), 2);
        muddle(seed);
        uint64_t calls = fx_calls(), held = fx.pool.mem.stats.held_bytes;
        muddle(seed);
        cr_expect_eq(fx_calls(), calls, "seed %u: %llu calls in the second round", seed,
                     (unsigned long long)(fx_calls() - calls));
        cr_expect_eq(fx.pool.mem.stats.held_bytes, held);
        fx_close();
    }
}

/* A training step: activations pile up and go in reverse, with gradients and a workspace on the way. */
static void step(unsigned seed) {
    enum { LAYERS = 24 };
    CUdeviceptr activation[LAYERS], gradient = 0;
    size_t size[LAYERS];
    for (int i = 0; i < LAYERS; i++) {
        size[i] = (size_t)(200 + rand_r(&seed) % 2400) * KiB;
        CUdeviceptr workspace = fx_alloc(size[i] / 2, 1);
        activation[i] = fx_alloc(size[i], 1);
        fx_free(workspace, 1);
    }
    for (int i = LAYERS - 1; i >= 0; i--) {
        CUdeviceptr next = fx_alloc(size[i], 1);
        if (gradient)
            fx_free(gradient, 1);
        fx_free(activation[i], 1);
        gradient = next;
    }
    fx_free(gradient, 1);
}

/* A program that repeats itself stops calling the driver. */
Test(pool, a_training_loop_comes_to_rest) {
    fx_open_pool("capacity=128M,granularity=64K,lazy=0", &vp_policy_vpool, NULL);
    for (int round = 0; round < 4; round++)
        step(9);
    uint64_t calls = fx_calls();
    step(9);
    cr_assert_eq(fx_calls(), calls, "%llu calls in the fifth round", (unsigned long long)(fx_calls() - calls));
    fx_close();
}

/* Decoding: each of some caches is replaced by one that is a little longer, again and again. All have other bytes
 * between them, so that none can simply use its neighbour's. They outgrow the room behind their first place, too. */
Test(pool, what_grows_is_made_longer_where_it_lies) {
    enum { CACHES = 12, STEPS = 60, LEAST = 5 * 1024, STEP = 96 }; /* KiB */
    CUdeviceptr cache[CACHES];
    fx_open_pool("capacity=256M,granularity=64K,lazy=0", &vp_policy_vpool, NULL);
    fx.pool.config.check = true;
    for (int i = 0; i < CACHES; i++)
        cache[i] = fx_alloc(LEAST * KiB, 1);
    uint64_t maps = 0;
    for (int step = 1; step <= STEPS; step++) {
        for (int i = 0; i < CACHES; i++) {
            CUdeviceptr longer = fx_alloc((size_t)(LEAST + step * STEP) * KiB, 1);
            fx_free(cache[i], 1);
            cache[i] = longer;
        }
        if (step == STEPS / 3)
            maps = fx.pool.mem.stats.calls.map;
    }
    maps = fx.pool.mem.stats.calls.map - maps;
    /* A range of its own would take each of them 7 handles and more: the largest have 1 MiB. */
    cr_expect_leq(maps, 3 * CACHES * (STEPS - STEPS / 3), "%llu handles mapped", (unsigned long long)maps);
    size_t most = (size_t)(CACHES + 1) * (LEAST + STEPS * STEP) * KiB;
    cr_expect_leq(fx.pool.mem.stats.held_bytes, most + most / 16, "%zu KiB",
                  (size_t)fx.pool.mem.stats.held_bytes / KiB);
    for (int i = 0; i < CACHES; i++)
        fx_free(cache[i], 1);
    fx_close();
}

/* Training on sequences whose length varies: what is computed of the last layer's output is large, and of another size
 * at each step. Ranges that are built anew, rather than longer, map 2440 handles. */
Test(pool, what_varies_is_made_longer_where_it_lies) {
    enum { LAYERS = 24 };
    static const size_t lengths[] = {528,  1416, 1984, 1896, 1816, 384,  776, 496, 1264,
                                     1808, 1176, 1216, 1584, 1032, 1864, 680, 448};
    const struct vp_pool_config config = {.handle = 32 * MiB};
    CUdeviceptr layer[LAYERS];
    fx_open_pool("backing=ledger,capacity=64G,granularity=2M", &vp_policy_vpool, &config);
    CUdeviceptr weights = fx_alloc(GiB, 1);
    for (size_t step = 0; step < sizeof lengths / sizeof *lengths; step++) {
        size_t small = lengths[step] * 12 * KiB, large = lengths[step] * MiB;
        for (int i = 0; i < LAYERS; i++)
            layer[i] = fx_alloc(small, 1);
        CUdeviceptr logits = fx_alloc(large / 2, 1), precise = fx_alloc(large, 1), softmax = fx_alloc(large, 1);
        fx_free(precise, 1);
        fx_free(logits, 1);
        CUdeviceptr loss = fx_alloc(large, 1), gradient = fx_alloc(large, 1);
        fx_free(loss, 1);
        fx_free(softmax, 1);
        logits = fx_alloc(large / 2, 1);
        fx_free(gradient, 1);
        fx_free(logits, 1);
        for (int i = LAYERS; i-- > 0;) {
            CUdeviceptr other = fx_alloc(small, 1);
            fx_free(layer[i], 1);
            fx_free(other, 1);
        }
    }
    cr_expect_leq(fx.pool.mem.stats.calls.map, 2000, "%llu handles mapped",
                  (unsigned long long)fx.pool.mem.stats.calls.map);
    cr_expect_leq(fx.pool.mem.stats.peak_held_bytes, fx.pool.mem.stats.peak_live_bytes + 32 * MiB);
    fx_free(weights, 1);
    fx_close();
}

/* ---- many small blocks ---- */

/* What a free takes for itself was there before. */
Test(pool, blocks_are_freed_though_memory_ran_out) {
    enum { BLOCKS = 20000 };
    static CUdeviceptr block[BLOCKS];
    struct rlimit limit, none;
    fx_open_pool("backing=ledger,capacity=1G,granularity=2M", &vp_policy_vpool, &(struct vp_pool_config){0});
    for (int i = 0; i < BLOCKS; i++)
        block[i] = fx_alloc(KiB, 1);
    cr_assert(!getrlimit(RLIMIT_AS, &limit));
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max};
    cr_assert(!setrlimit(RLIMIT_AS, &none));
    for (int i = 0; i < BLOCKS; i += 2)
        fx_free(block[i], 1);
    for (int i = 1; i < BLOCKS; i += 2)
        fx_free(block[i], 1);
    setrlimit(RLIMIT_AS, &limit);
    vp_pool_trim(&fx.pool, 0);
    cr_assert_eq(fx.pool.mem.stats.held_bytes, 0);
    fx_close();
}

Test(pool, a_million_kilobytes_hold_a_gigabyte) {
    enum { BLOCKS = 1000000 };
    const struct vp_pool_config config = {.handle = 16 * MiB};
    static CUdeviceptr block[BLOCKS];
    fx_open_pool("backing=ledger,capacity=8G,granularity=2M", &vp_policy_vpool, &config);
    for (int i = 0; i < BLOCKS; i++)
        block[i] = fx_alloc(KiB, 1);
    cr_assert_leq(fx.pool.mem.stats.held_bytes, BLOCKS * KiB + 4 * MiB);
    cr_assert_leq(vp_pool_metadata(&fx.pool), BLOCKS * 256, "%zu bytes of metadata", vp_pool_metadata(&fx.pool));
    for (int i = 0; i < BLOCKS; i += 2)
        fx_free(block[i], 1);
    for (int i = 0; i < BLOCKS; i += 2)
        block[i] = fx_alloc(KiB, 1);
    cr_assert_leq(fx.pool.mem.stats.held_bytes, BLOCKS * KiB + 4 * MiB, "the gaps are filled");
    for (int i = 0; i < BLOCKS; i++)
        fx_free(block[i], 1);
    vp_pool_trim(&fx.pool, 0);
    cr_assert_eq(fx.pool.mem.stats.held_bytes, 0);
    fx_close();
}
