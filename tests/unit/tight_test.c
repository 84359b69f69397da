/* Small programs: how few granules their blocks open, and what is in the way of that. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include "pool/slack.h"
#include "pool/tight.h"

enum { BLOCKS = 160, STREAMS = 4, PERCENT = 5 };

static uint32_t seed = 1;

static uint32_t rnd(uint32_t below) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % below;
}

/* A small program from its first request on. */
static void open_small(const char *sim, bool check) {
    const struct vp_pool_config config = {.handle = 256 * MiB, .va = 64 * GiB, .slack = PERCENT, .check = check};
    fx_open_pool(sim, &vp_policy_vpool, &config);
    fx.pool.slack.early = true;
}

static void open_quiet(void) {
    open_small("backing=ledger,capacity=64G,lazy=0", true);
}

static size_t held(void) {
    return fx.pool.mem.stats.held_bytes / MiB;
}

static void end_with(const CUdeviceptr *blocks, unsigned n) {
    for (unsigned i = 0; i < n; i++)
        fx_free(blocks[i], 1);
    fx_close();
}

Test(tight, an_odd_end_goes_where_a_granule_has_room) {
    CUdeviceptr block[3];
    open_quiet();
    block[0] = fx_alloc(5 * MiB, 1);
    cr_assert_eq(held(), 6);
    block[1] = fx_alloc(3 * MiB - 64 * KiB, 1);
    cr_assert_eq(held(), 8, "behind it: %zu MiB", held());
    block[2] = fx_alloc(64 * KiB, 1);
    cr_assert_eq(held(), 8, "and between them: %zu MiB", held());
    end_with(block, 3);
}

Test(tight, chunks_are_mapped_before_a_granule_too) {
    CUdeviceptr block[3];
    open_quiet();
    block[0] = fx_alloc(MiB, 1);
    block[1] = fx_alloc(MiB, 1);
    cr_assert_eq(held(), 2);
    fx_free(block[0], 1);
    block[0] = fx_alloc(5 * MiB, 1);
    cr_assert_eq(held(), 6);
    cr_assert_lt(block[0], block[1]);
    block[2] = fx_alloc(2 * MiB, 1);
    end_with(block, 3);
}

/* Beside many blocks, which keep their granule for longer, and not beside one; both leave the same. */
Test(tight, a_block_lies_beside_many_rather_than_beside_one) {
    CUdeviceptr many[8], one, block;
    open_quiet();
    one = fx_alloc(MiB + 512 * KiB, 1);
    for (unsigned i = 0; i < 8; i++)
        many[i] = fx_alloc(i ? 128 * KiB : 640 * KiB, 1);
    cr_assert_eq(held(), 4);
    block = fx_alloc(256 * KiB, 1);
    cr_assert_eq(block / (2 * MiB), many[7] / (2 * MiB));
    fx_free(one, 1);
    fx_free(block, 1);
    end_with(many, 8);
}

/* Small blocks use what large ones leave, though the small zone is another. */
Test(tight, small_blocks_lie_beside_large_ones) {
    CUdeviceptr block[2];
    open_quiet();
    block[0] = fx_alloc(3 * MiB, 1);
    block[1] = fx_alloc(900 * KiB, 1);
    cr_assert_eq(held(), 4);
    end_with(block, 2);
}

static CUdeviceptr live[BLOCKS];
static int of_stream[BLOCKS];

static size_t any_size(unsigned i) {
    return i % 3 ? 512 + rnd(1 << 20) : MiB + rnd(3 * MiB);
}

static void replace(unsigned i, unsigned first_stream) {
    if (live[i])
        fx_free(live[i], rnd(5) && of_stream[i] ? of_stream[i] : (int)(first_stream + rnd(STREAMS)));
    of_stream[i] = (int)(first_stream + rnd(STREAMS));
    live[i] = fx_alloc(any_size(i), of_stream[i]);
}

static double random_program(unsigned rounds, unsigned first_stream) {
    for (unsigned n = 0; n < rounds; n++)
        replace(rnd(BLOCKS), first_stream);
    const struct vp_memory_stats stats = fx.pool.mem.stats;
    for (unsigned i = 0; i < BLOCKS; i++)
        if (live[i])
            fx_free(live[i], of_stream[i]);
    fx_close();
    return (double)stats.peak_held_bytes / (double)stats.peak_live_bytes;
}

Test(tight, random_sizes_hold_little_more_than_is_alive) {
    open_small("backing=ledger,capacity=64G,lazy=0", false);
    const double times = random_program(20000, 1);
    cr_assert_lt(times, 1.22, "%.3f times", times);
}

/* With cudaMalloc and cudaFree among them, and its invariants proved after each call. */
Test(tight, every_step_keeps_the_pool_sound) {
    open_small("backing=ledger,capacity=64G,lazy=70", true);
    random_program(3000, 0);
}

/* Any of the driver's calls fails at some time: what was begun is undone. */
Test(tight, failing_calls_leave_the_pool_sound) {
    static const char *const call[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap"};
    open_small("backing=ledger,capacity=64G,lazy=50", true);
    fx.lossy = true;
    for (unsigned n = 0; n < 400; n++) {
        const unsigned i = rnd(BLOCKS);
        if (live[i])
            fx_free(live[i], of_stream[i]);
        live[i] = 0;
        of_stream[i] = 1 + (int)rnd(STREAMS);
        const char *fails = call[n % (sizeof call / sizeof *call)];
        vp_sim_fail(fails, 1 + rnd(2), CUDA_ERROR_OUT_OF_MEMORY);
        if (fx_try(any_size(i), of_stream[i], &live[i]))
            live[i] = 0;
        vp_sim_fail(fails, 0, CUDA_SUCCESS);
    }
    random_program(0, 1);
}
