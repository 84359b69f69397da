/* What only ever grows unless something bounds it: old mappings, places that are remembered, and ranges of addresses.
 * In large numbers, on a device without memory behind it, and while nothing can be given up because work is not over.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include "pool/place.h"

#define LEDGER "backing=ledger,capacity=8G,lazy=0"

/* Chunks of the test's: half of them free, each between two that are not. And the mappings that the pool then wants to
 * have at most. */
enum { CHUNKS = 512, FREE = CHUNKS / 2, MOST = 32 * CHUNKS };

static CUdeviceptr wall[CHUNKS];

/* A pool whose free memory lies scattered: any two chunks of it have to be remapped to lie side by side. */
static void open_scattered(void) {
    const struct vp_pool_config config = {.handle = 2 * MiB, .va = 64 * GiB};

    fx_open_pool(LEDGER, &vp_policy_vpool, &config);
    for (int i = 0; i < CHUNKS; i++)
        wall[i] = fx_alloc(2 * MiB, 1);
    for (int i = 0; i < CHUNKS; i += 2)
        fx_free(wall[i], 1);
    cr_assert_eq(fx.pool.mem.chunk_count, CHUNKS);
}

static void close_scattered(void) {
    for (int i = 1; i < CHUNKS; i += 2)
        fx_free(wall[i], 1);
    fx_close();
}

/* One round of a program that uses most of the free memory, each time in parts of other sizes. */
static void split_all(size_t from) {
    for (size_t first = from; first < 60; first += 20)
        for (size_t n = 2; n < FREE - first - 1; n++) {
            CUdeviceptr a = fx_alloc((first + 1) * 2 * MiB, 1), b = fx_alloc(n * 2 * MiB, 1);
            CUdeviceptr c = fx_alloc((FREE - first - 1 - n) * 2 * MiB, 1);

            fx_free(a, 1);
            fx_free(b, 1);
            fx_free(c, 1);
        }
}

/* Old mappings cannot go while work that was queued before them is not over. The places must stay all the same: without
 * them each round is built anew, and leaves as many mappings again. */
Test(places, old_mappings_stay_bounded_while_no_work_ends) {
    open_scattered();
    fx_busy(1);
    split_all(0);
    split_all(0);
    size_t mappings = fx.pool.mem.mappings;
    uint64_t calls = fx_calls();
    cr_assert_gt(mappings, MOST + MOST / 4, "more than it wants to have");
    cr_assert_eq(fx.pool.mem.stats.reaps, 0);
    for (int round = 0; round < 4; round++)
        split_all(0);
    cr_assert_eq(fx.pool.mem.mappings, mappings, "%zu mappings grew to %zu", mappings, fx.pool.mem.mappings);
    cr_assert_eq(fx_calls(), calls, "the program has come to rest");
    cr_assert(vp_pool_check(&fx.pool, stderr));
    fx_idle(1);
    close_scattered();
}

/* Once the work is over, what there is too much of goes as new ranges are built, whether its places are still
 * remembered or not. */
Test(places, too_many_old_mappings_go_once_work_has_ended) {
    open_scattered();
    fx_busy(1);
    split_all(0);
    cr_assert_gt(fx.pool.mem.mappings, MOST + MOST / 4);
    cr_assert_eq(fx.pool.mem.stats.reaps, 0);
    fx_idle(1);
    split_all(10);
    cr_assert_leq(fx.pool.mem.mappings, MOST);
    cr_assert(vp_pool_check(&fx.pool, stderr));
    close_scattered();
}

Test(places, a_hundred_thousand_sizes_are_not_all_remembered) {
    fx_open_pool(LEDGER, &vp_policy_vpool, NULL);
    for (size_t i = 0; i < 100000; i++)
        fx_free(fx_alloc(MiB + i * VP_QUANTUM, 1), 1);
    cr_assert_leq(fx.pool.place_count, VP_PLACE_MOST);
    cr_assert_leq(fx.pool.mem.mappings, 4096 + 64);
    fx_close();
}

/* Addresses that run short again and again are reserved in ranges that grow. */
Test(places, however_many_addresses_few_ranges) {
    const struct vp_pool_config config = {.handle = MiB, .va = 16 * MiB};

    fx_open_pool(LEDGER, &vp_policy_vpool, &config);
    for (int i = 0; i < 1000; i++)
        fx_alloc(8 * MiB, 1);
    cr_assert_leq(fx.pool.mem.space_count, 24, "%zu spaces", fx.pool.mem.space_count);
    fx_close();
}

/* And where the driver gives no large ones, many are as quick as few. */
Test(places, a_hundred_thousand_ranges_are_found) {
    enum { RANGES = 100000 };
    const CUdeviceptr first = (CUdeviceptr)1 << 56;

    fx_open_pool(LEDGER, &vp_policy_vpool, NULL);
    const size_t size = fx.pool.mem.granularity;
    for (int late = 0; late < 2; late++)
        for (size_t i = 0; i < RANGES; i++)
            if ((i % 100 == 50) == late)
                cr_assert(!vp_space_carve(&fx.pool.mem, i % 2, first + 2 * i * size, size, 0));
    for (int round = 0; round < VP_FEWER(10); round++)
        for (size_t i = 0; i < RANGES; i++) {
            const struct vp_space *s = vp_space_of(&fx.pool.mem, first + (2 * i + 1) * size - 1);

            cr_assert(s && s->base == first + 2 * i * size && s->zone == i % 2);
            cr_assert_null(vp_space_of(&fx.pool.mem, first + (2 * i + 1) * size));
        }
    cr_assert(vp_pool_check(&fx.pool, stderr));
    fx_close();
}
