/* Waking makes larger chunks under large blocks: fewer driver calls from then on, and all else as it was. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "api_test.h"

#include "memory/chunk.h"

#include <errno.h>
#include <stdlib.h>
#include <vpool.h>

/* ---- what it is for ---- */

enum { BLOCKS_MOST = 512 };
static CUdeviceptr large[BLOCKS_MOST];

/* Sizes as of weights, moments and caches, as tests/gpu/pausing.c has them. */
static void furnish(size_t all) {
    const size_t least = all / BLOCKS_MOST;
    size_t done = 0;
    setenv("VPOOL_VA", "256G", 1);
    setenv("VPOOL_HANDLE", "256M", 1);
    setenv("VPOOL_CHECK", "0", 1);
    door_open("backing=ledger,capacity=80G,lazy=0");
    for (unsigned r = 12345, i = 0; done < all; r = r * 1103515245 + 12345) {
        size_t bytes = (least + (r >> 8) % (least * 2 + 1)) / 4096 * 4096 + 4096;
        bytes = bytes < all - done ? bytes : all - done + 4096;
        large[i++] = door_malloc(bytes);
        done += bytes;
    }
}

/* Calls of the driver so far, and what they would have cost. */
struct calls {
    unsigned long made, handles;
    uint64_t ns;
};

static struct calls since(struct calls from) {
    const char *const names[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease"};
    struct calls now = {.ns = vp_sim_cost_ns() - from.ns, .handles = vp_sim_calls("cuMemCreate") - from.handles};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        now.made += vp_sim_calls(names[i]);
    now.made -= from.made;
    return now;
}

/* What a pause and the resume after it take, where nothing is copied. */
struct nap {
    struct calls out, in;
};

static struct nap nap(void) {
    struct vpool_pause how = {.size = sizeof how, .contents = VPOOL_DROP};
    struct nap nap;
    struct calls begin = since((struct calls){0});
    cr_assert_eq(vpool_pause_with(0, &how), 0);
    cr_assert_eq(vp_sim_used_vmm(0), 0);
    nap.out = since(begin);
    begin = since((struct calls){0});
    cr_assert_eq(vpool_resume(0), 0);
    nap.in = since(begin);
    cr_assert(vp_pool_check(pool_of(0), stderr));
    cr_log_info("out: %lu calls, %.1f ms; in: %lu calls, %lu handles, %.1f ms", nap.out.made, 1e-6 * (double)nap.out.ns,
                nap.in.made, nap.in.handles, 1e-6 * (double)nap.in.ns);
    return nap;
}

Test(pause, waking_makes_later_pauses_cheap) {
    furnish(32 * GiB);
    const struct nap first = nap(), second = nap(), third = nap();
    cr_assert_eq(second.out.made, first.out.made, "what has slept once is as it was");
    cr_assert_leq(second.in.made, first.in.made / 3);
    cr_assert_leq(second.in.ns, first.in.ns / 3);
    cr_assert_leq(third.out.made, first.out.made / 3);
    cr_assert_leq(third.out.ns, first.out.ns / 3);
    cr_assert_eq(third.in.made, second.in.made, "they become no larger");
    cr_assert_leq(pool_of(0)->mem.largest, 128 * MiB);
    door_close();
}

/* What two blocks share stays by itself: each of them frees what is its own. */
Test(pause, larger_chunks_are_of_one_block) {
    furnish(8 * GiB);
    nap();
    nap();
    for (int i = 0; i < BLOCKS_MOST; i += 2)
        if (large[i])
            cu_ok(door_free(large[i]));
    cu_ok(door_synchronize());
    vpool_trim(0, 0);
    const struct vp_memory_stats stats = vp_pool_stats(pool_of(0));
    cr_assert_leq(stats.held_bytes, stats.live_bytes + BLOCKS_MOST / 2 * 4 * MiB, "%lu of %lu", stats.held_bytes,
                  stats.live_bytes);
    door_close();
}

/* ---- what stays as it was ---- */

enum { BLOCKS = 6, LARGEST = 8 * MiB };
static const char DEVICE[] = "capacity=512M,granularity=64K,lazy=30,timeout=300";
static CUdeviceptr block[BLOCKS];

static size_t size_of(int i) {
    return (size_t)(i + 1) * 4 * MiB + 100 * KiB;
}

static void write_all(void) {
    for (int i = 0; i < BLOCKS; i++)
        for (size_t at = 0; at < size_of(i); at += 512)
            *(uint64_t *)(block[i] + at) = block[i] + at;
}

static void check_all(void) {
    for (int i = 0; i < BLOCKS; i++)
        for (size_t at = 0; block[i] && at < size_of(i); at += 512)
            if (*(uint64_t *)(block[i] + at) != block[i] + at)
                cr_assert(false, "block %d has changed at %zu", i, at);
    cr_assert(vp_pool_check(pool_of(0), stderr));
}

static void sleep_and_wake(void) {
    cr_assert_eq(vpool_pause(0), 0);
    cr_assert_eq(vp_sim_used_vmm(0), 0);
    cr_assert_eq(vpool_resume(0), 0);
    check_all();
}

static void furnish_blocks(void) {
    door_open(DEVICE);
    for (int i = 0; i < BLOCKS; i++)
        block[i] = door_malloc(size_of(i));
    /* Made of 1 MiB each, as the fixture wants it. */
    pool_of(0)->config.handle = LARGEST;
    write_all();
}

Test(pause, larger_chunks_keep_their_bytes) {
    furnish_blocks();
    const size_t chunks = pool_of(0)->mem.chunk_count, held = pool_of(0)->mem.stats.held_bytes;
    sleep_and_wake();
    cr_assert_eq(pool_of(0)->mem.chunk_count, chunks);
    sleep_and_wake();
    cr_assert_leq(pool_of(0)->mem.largest, LARGEST, "VPOOL_HANDLE");
    cr_assert_leq(pool_of(0)->mem.chunk_count, held / LARGEST + 3 * BLOCKS);
    cr_assert_leq(pool_of(0)->mem.chunk_count, chunks / 2, "%zu, %zu before", pool_of(0)->mem.chunk_count, chunks);
    cr_assert_eq(pool_of(0)->mem.stats.held_bytes, held);
    sleep_and_wake();
    cr_assert_eq(pool_of(0)->mem.stats.held_bytes, held);
    door_close();
}

/* One that is freed while it sleeps, or later, takes nothing of its neighbours along, and leaves nothing. */
Test(pause, larger_chunks_go_with_their_block) {
    furnish_blocks();
    sleep_and_wake();
    sleep_and_wake();
    const size_t held = pool_of(0)->mem.stats.held_bytes;
    cr_assert_eq(vpool_pause(0), 0);
    cu_ok(door_free(block[3]));
    block[3] = 0;
    cr_assert_eq(vpool_resume(0), 0);
    check_all();
    cr_assert_leq(pool_of(0)->mem.stats.held_bytes, held - size_of(3) + 128 * KiB);
    cu_ok(door_free(block[4]));
    block[4] = 0;
    vpool_trim(0, 0);
    check_all();
    cr_assert_leq(pool_of(0)->mem.stats.held_bytes, held - size_of(3) - size_of(4) + 256 * KiB);
    /* In their place others, of other sizes. */
    CUdeviceptr other[40];
    for (size_t i = 0; i < 40; i++)
        other[i] = door_malloc(500 * KiB + i * 9 * KiB);
    sleep_and_wake();
    sleep_and_wake();
    for (int i = 0; i < 40; i++)
        cu_ok(door_free(other[i]));
    for (int i = 0; i < BLOCKS; i++)
        if (block[i])
            cu_ok(door_free(block[i]));
    cu_ok(door_synchronize());
    vpool_trim(0, 0);
    cr_assert_eq(vp_sim_used_vmm(0), 0);
    door_close();
}

/* It has grown in memory only where there was none: a resume that fails leaves what the next one needs. */
Test(pause, larger_chunks_wait_for_room) {
    CUdeviceptr native = 0;
    furnish_blocks();
    sleep_and_wake();
    cr_assert_eq(vpool_pause(0), 0);
    cu_ok(cuMemAlloc(&native, 480 * MiB));
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(vpool_resume(0), -ENOMEM);
        cr_assert_eq(vp_sim_used_vmm(0), 0);
        cr_assert(vp_pool_check(pool_of(0), stderr));
    }
    cu_ok(cuMemFree(native));
    cr_assert_eq(vpool_resume(0), 0);
    check_all();
    sleep_and_wake();
    door_close();
}
