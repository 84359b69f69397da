/* Bare segments of a device that sleeps: what blocks hold comes back, and what is let go of meanwhile does not. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bare_test.h"

#include <string.h>
#include <vpool.h>

static void fill(CUdeviceptr at, size_t size, int with) {
    memset((void *)at, with, size);
}

static bool holds(CUdeviceptr at, size_t size, int with) {
    for (size_t i = 0; i < size; i++)
        if (((unsigned char *)at)[i] != with)
            return false;
    return true;
}

Test(bare, blocks_come_back_from_sleep) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(16 * MiB, s), plain = door_malloc(3 * MiB);
    use(seg, 5 * MiB, s);
    use(seg + 6 * MiB, 200 * KiB, s);
    use(seg + 8 * MiB, 4 * MiB, s);
    unuse(seg + 8 * MiB, 4 * MiB);
    cu_ok(cuStreamSynchronize(s));
    fill(seg, 5 * MiB, 11);
    fill(seg + 6 * MiB, 200 * KiB, 22);
    fill(plain, 3 * MiB, 33);
    for (int round = 0; round < 2; round++) {
        cr_assert_eq(vpool_pause(0), 0);
        cr_assert_eq(vp_sim_used_vmm(0), 0);
        cr_assert(vp_pool_check(pool_of(0), stderr));
        cr_assert_eq(vpool_resume(0), 0);
        cr_assert(vp_pool_check(pool_of(0), stderr));
        cr_assert(holds(seg, 5 * MiB, 11) && holds(seg + 6 * MiB, 200 * KiB, 22) && holds(plain, 3 * MiB, 33));
    }
    /* What it used before it has again. */
    use(seg + 8 * MiB, 4 * MiB, s);
    fill(seg + 8 * MiB, 4 * MiB, 44);
    cr_assert(holds(seg, 5 * MiB, 11));
    door_close();
}

Test(bare, blocks_may_end_while_they_sleep) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(16 * MiB, s), other = segment(8 * MiB, s);
    use(seg, 5 * MiB, s);
    use(seg + 8 * MiB, 5 * MiB, s);
    use(other, 3 * MiB, s);
    cu_ok(cuStreamSynchronize(s));
    fill(seg + 8 * MiB, 5 * MiB, 11);
    cr_assert_eq(vpool_pause(0), 0);
    unuse(seg, 5 * MiB);
    unuse(other, 3 * MiB);
    cu_ok(door_free(other));
    vp_bare_flush(pool_of(0));
    cr_assert(vp_pool_check(pool_of(0), stderr));
    vpool_trim(0, 0);
    cr_assert_eq(vpool_resume(0), 0);
    cr_assert(vp_pool_check(pool_of(0), stderr));
    cr_assert(holds(seg + 8 * MiB, 5 * MiB, 11));
    use(seg, 5 * MiB, s);
    fill(seg, 5 * MiB, 22);
    cr_assert(holds(seg + 8 * MiB, 5 * MiB, 11));
    cr_assert_leq(held(), 12 * MiB);
    door_close();
}

/* Another program has the device meanwhile. */
Test(bare, what_sleeps_is_no_room) {
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr seg = segment(64 * MiB, s);
    use(seg, 40 * MiB, s);
    for (size_t i = 0; i < 2 * VP_BARE_ENDS; i++) /* single pages, of which each block may need some */
        use(seg + 48 * MiB + i * MiB, PAGE, s);
    cu_ok(cuStreamSynchronize(s));
    cr_assert_eq(vpool_pause(0), 0);
    unuse(seg, 40 * MiB);
    for (size_t i = 0; i < 2 * VP_BARE_ENDS; i++)
        unuse(seg + 48 * MiB + i * MiB, PAGE);
    vp_sim_others(0, 96 * MiB - held());
    cr_assert_eq(vp_bare_room(0, 20 * MiB, on(s)), CUDA_ERROR_OUT_OF_MEMORY);
    vp_sim_others(0, 0);
    cr_assert_eq(vpool_resume(0), 0);
    use(seg, 40 * MiB, s);
    door_close();
}
