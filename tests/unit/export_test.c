/* Blocks alone in their chunks, and what becomes of chunks that other processes have mapped. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <errno.h>
#include <stdlib.h>

static const char SIM[] = "capacity=64M,granularity=64K,lazy=0";

static struct vp_region *sync_block(size_t size, bool alone) {
    struct vp_request req = {.asked = size, .context = fx.context, .alone = alone};
    struct vp_region *r;
    int err;
    while ((err = vp_pool_alloc(&fx.pool, &req, &r)) == -EAGAIN) {
        req.impatient = cuEventQuery(req.await->handle) != CUDA_SUCCESS;
        vp_event_put(&fx.timelines, req.await);
    }
    return err ? NULL : r;
}

static bool is_whole(const struct vp_region *r) {
    return vp_range_whole(&fx.pool.mem, r->addr, r->addr + r->size);
}

static void sound(void) {
    cr_assert(vp_pool_check(&fx.pool, stderr));
}

/* Among blocks of all sizes, those that are to be alone are. */
Test(export, a_block_that_is_to_be_alone_covers_its_chunks) {
    struct vp_region *live[40] = {0};
    CUdeviceptr ordered[40] = {0};
    fx_open_pool(SIM, &vp_policy_vpool, NULL);
    srand(1);
    for (int i = 0; i < 3000; i++) {
        int k = rand() % 40;
        size_t size = (size_t)(1 + rand() % (rand() % 4 ? 20000 : 1500000));
        if (live[k]) {
            fx_free(live[k]->addr, 0);
            live[k] = NULL;
        } else if (ordered[k]) {
            fx_free(ordered[k], 1 + k % 2);
            ordered[k] = 0;
        } else if (rand() % 2) {
            ordered[k] = fx_alloc(size, 1 + k % 2);
        } else {
            bool alone = rand() % 2;
            cr_assert(live[k] = sync_block(size, alone));
            cr_assert(!alone || is_whole(live[k]), "%zu bytes at %#llx", size, live[k]->addr);
        }
        for (int j = 0; j < 40 && i % 100 == 0; j++)
            cr_assert(!live[j] || !live[j]->exported);
    }
    sound();
    fx_close();
}

/* Whole granules of 1 MiB and more are so without being told, since that costs nothing. */
Test(export, whole_granules_lie_alone_by_themselves) {
    fx_open_pool(SIM, &vp_policy_vpool, NULL);
    for (int i = 0; i < 4; i++) {
        cr_assert(sync_block(MiB + 1000, false));
        cr_assert(is_whole(sync_block(2 * MiB, false)));
        cr_assert(is_whole(sync_block(MiB + 64 * KiB, false)));
    }
    fx_close();
}

/* What is lacking is made of a free chunk that is too large, not of new memory beside it. */
Test(export, a_free_chunk_is_broken_rather_than_another_created) {
    const struct vp_pool_config large = {.handle = 8 * MiB, .va = GiB};
    fx_open_pool(SIM, &vp_policy_vpool, &large);
    struct vp_region *first = sync_block(32 * MiB, false);
    size_t held = fx.pool.mem.stats.held_bytes;
    fx_free(first->addr, 0);
    for (int i = 0; i < 8; i++)
        cr_assert(is_whole(sync_block(3 * MiB, true)));
    cr_assert_leq(fx.pool.mem.stats.held_bytes, held);
    sound();
    fx_close();
}

Test(export, a_block_is_exported_alone_or_with_what_lies_beside_it) {
    fx_open_pool(SIM, &vp_policy_vpool, NULL);
    struct vp_region *alone = sync_block(2 * MiB, false), *a = sync_block(1000, false), *b = sync_block(1000, false);
    CUdeviceptr ordered = fx_alloc(2 * MiB, 1);
    cr_assert_eq(vp_pool_export(&fx.pool, vp_pool_find(&fx.pool, ordered)), -EOPNOTSUPP);
    cr_assert(vp_pool_lies_alone(&fx.pool, alone) && !vp_pool_export(&fx.pool, alone));
    cr_assert(!vp_pool_lies_alone(&fx.pool, a) && !vp_pool_export(&fx.pool, a) && a->exported);
    cr_assert(!vp_pool_export(&fx.pool, a), "once more");
    sound();
    size_t held = fx.pool.mem.stats.held_bytes;
    fx_free(a->addr, 0);
    fx_free(alone->addr, 0);
    vp_pool_trim(&fx.pool, SIZE_MAX - 1);
    sync_block(512, false);
    cr_assert_eq(fx.pool.mem.stats.held_bytes, held - 2 * MiB + 64 * KiB,
                 "what was alone is the device's, the other's neighbour keeps it");
    cr_assert_eq(fx.pool.mem.exported, 1);
    fx_free(b->addr, 0);
    vp_pool_trim(&fx.pool, 0);
    cr_assert_eq(fx.pool.mem.exported, 0);
    sound();
    fx_close();
}

/* The bytes are nobody's, and the handles the device's as soon as the work on them is over, and not before. */
Test(export, exported_bytes_go_back_to_the_device) {
    fx_open_pool(SIM, &vp_policy_vpool, NULL);
    struct vp_region *block = sync_block(2 * MiB, false);
    CUdeviceptr addr = block->addr;
    cr_assert(!vp_pool_export(&fx.pool, block));
    fx_busy(1);
    cu_ok(cuMemsetD8Async(addr, 1, 2 * MiB, fx.stream[1]));
    fx_free(addr, 0);
    cr_assert_eq(fx.pool.mem.stats.live_bytes, 0);
    for (int i = 0; i < 8; i++) {
        /* One for anyone at once, and one whose stream may wait for the work. */
        CUdeviceptr got = i % 2 ? sync_block(512 * KiB, false)->addr : fx_alloc(512 * KiB, 2);
        cr_assert(got + 512 * KiB <= addr || got >= addr + 2 * MiB);
        sound();
    }
    size_t held = fx.pool.mem.stats.held_bytes;
    cr_assert_geq(held, 2 * MiB + 8 * 512 * KiB);
    fx_idle(1);
    fx_alloc(512, 1);
    cr_assert_leq(fx.pool.mem.stats.held_bytes, held - 2 * MiB + 64 * KiB);
    cr_assert_eq(fx.pool.mem.exported, 0);
    sound();
    fx_close();
}

/* Under exports, frees and streams in any order nothing is lost, and what was exported comes back to nobody. */
Test(export, any_order) {
    enum { BLOCKS = 24 };
    struct {
        CUdeviceptr addr;
        int stream;
    } live[BLOCKS] = {0};
    fx_open_pool("capacity=256M,granularity=64K,lazy=60", &vp_policy_vpool, NULL);
    srand(7);
    for (int i = 0; i < 4000; i++) {
        int k = rand() % BLOCKS, stream = rand() % 3;
        if (!live[k].addr) {
            size_t size = (size_t)(1 + rand() % (rand() % 3 ? 3000 : 900000));
            struct vp_region *r = stream ? NULL : sync_block(size, rand() % 2);
            live[k].addr = stream ? fx_alloc(size, stream) : r->addr;
            live[k].stream = stream;
            if (stream)
                cu_ok(cuMemsetD8Async(live[k].addr, 1, size, fx.stream[stream]));
        } else if (!live[k].stream && rand() % 2) {
            cr_assert(!vp_pool_export(&fx.pool, vp_pool_find(&fx.pool, live[k].addr)));
        } else {
            fx_free(live[k].addr, live[k].stream);
            live[k].addr = 0;
        }
        if (i % 50 == 0)
            vp_pool_trim(&fx.pool, 0);
        if (i % 10 == 0)
            sound();
    }
    for (int k = 0; k < BLOCKS; k++)
        if (live[k].addr)
            fx_free(live[k].addr, live[k].stream);
    cu_ok(cuCtxSynchronize());
    vp_pool_trim(&fx.pool, 0);
    cr_assert_eq(fx.pool.mem.exported, 0);
    cr_assert_eq(fx.pool.mem.stats.held_bytes, 0);
    fx_close();
}
