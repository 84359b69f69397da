/* Programs with thousands of equal blocks come to rest like others: each round finds its places again. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include "pool/place.h"

enum { BLOCKS = 2048 }; /* many more than places are tried */

static const size_t LIVE = 2 * GiB;
static CUdeviceptr block[BLOCKS];
static size_t count;
static uint64_t most_maps; /* that one block has taken */
static uint32_t seed;

static uint32_t rnd(uint32_t below) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % below;
}

static void open_pool(void) {
    const struct vp_pool_config config = {.handle = 256 * MiB, .va = 1024 * GiB, .slack = 5};
    fx_open_pool("backing=ledger,capacity=64G,lazy=0", &vp_policy_vpool, &config);
}

/* Fills up with blocks of a size. */
static void fill(size_t size) {
    while (fx.pool.mem.stats.live_bytes + size <= LIVE) {
        const uint64_t maps = fx.pool.mem.stats.calls.map;
        block[count++] = fx_alloc(size, 1);
        if (most_maps < fx.pool.mem.stats.calls.map - maps)
            most_maps = fx.pool.mem.stats.calls.map - maps;
    }
}

/* Frees every other block. */
static void thin_out(void) {
    size_t left = 0;
    for (size_t i = 0; i < count; i++)
        if (i % 2)
            fx_free(block[i], 1);
        else
            block[left++] = block[i];
    count = left;
}

/* All that is left, in an order that no other round has. */
static void drain(void) {
    while (count) {
        const size_t i = rnd((uint32_t)count);
        fx_free(block[i], 1);
        block[i] = block[--count];
    }
}

/* Robson's adversary: of small blocks every other one goes, and what comes is twice as large. */
static void round_of_sizes(size_t largest) {
    for (size_t size = MiB; size <= largest; size *= 2) {
        fill(size);
        thin_out();
    }
    drain();
}

Test(rest, thousands_of_equal_blocks_find_their_places_again) {
    open_pool();
    round_of_sizes(256 * MiB);
    const uint64_t before = fx.pool.mem.stats.calls.map;
    cr_assert_gt(before, BLOCKS);
    for (int i = 0; i < 3; i++)
        round_of_sizes(256 * MiB);
    cr_assert_eq(fx.pool.mem.stats.calls.map, before, "%llu more",
                 (unsigned long long)(fx.pool.mem.stats.calls.map - before));
    cr_assert_leq(fx.pool.mem.stats.peak_held_bytes, LIVE / 100 * 151);
    fx_close();
}

/* What is twice as large begins in what is free of the size before, and leaves the others of these alone. */
Test(rest, sizes_that_double_move_half_of_their_handles) {
    open_pool();
    round_of_sizes(512 * MiB);
    cr_assert_leq(most_maps, 128, "%llu handles of 2 MiB for one block", (unsigned long long)most_maps);
    cr_assert_leq(fx.pool.mem.stats.peak_held_bytes, LIVE / 100 * 151);
    const uint64_t before = fx.pool.mem.stats.calls.map;
    for (int i = 0; i < 3; i++)
        round_of_sizes(512 * MiB);
    cr_assert_eq(fx.pool.mem.stats.calls.map, before);
    cr_assert(vp_pool_check(&fx.pool, stderr));
    fx_close();
}

static size_t open_places(size_t size) {
    struct vp_place *k;
    size_t n = 0;
    RB_FOREACH(k, vp_open_places, &fx.pool.open_places[VP_ZONE_LARGE])
        n += k->size == size;
    return n;
}

/* What is taken is not looked at for each request. */
Test(rest, a_place_that_a_block_lies_in_waits_for_its_free) {
    open_pool();
    for (count = 0; count < 100; count++)
        block[count] = fx_alloc(4 * MiB, 0);
    cr_assert_eq(open_places(4 * MiB), 1, "but for the last, all were seen to be taken: %zu", open_places(4 * MiB));
    fx_free(block[50], 0);
    fx_idle(1);
    cr_assert_leq(open_places(4 * MiB), 2);
    cr_assert_eq(fx_alloc(4 * MiB, 0), block[50]);
    cr_assert(vp_pool_check(&fx.pool, stderr));
    while (count)
        fx_free(block[--count], 0);
    fx_close();
}
