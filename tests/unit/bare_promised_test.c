/* Bare segments: blocks that room was made for, and that never come. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bare_test.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static CUcontext made_current;
static CUstream stream;
static atomic_bool is_promised, is_through;

/* A cache that refuses each block itself, for a limit of its own, say. */
static void *refuse_again_and_again(void *unused) {
    (void)unused;
    cu_ok(cuCtxSetCurrent(made_current));
    while (!atomic_load(&is_through)) {
        cu_ok(vp_bare_room(0, MiB, on(stream)));
        atomic_store(&is_promised, true);
        usleep(30000);
    }
    return NULL;
}

Test(bare, blocks_that_never_come_are_waited_for_no_longer_than_one, .timeout = 20) {
    pthread_t thread;
    CUdeviceptr other;
    made_current = door_open(SIM);
    stream = door_stream(CU_STREAM_NON_BLOCKING);
    segment(32 * MiB, stream);
    cr_assert(!pthread_create(&thread, NULL, refuse_again_and_again, NULL));
    while (!atomic_load(&is_promised))
        usleep(100);
    const uint64_t begin = vp_clock_ns();
    cu_ok(door_alloc(&other, MiB));
    cr_assert_leq(vp_clock_ns() - begin, 2 * (uint64_t)VP_BARE_BUSY_NS);
    atomic_store(&is_through, true);
    pthread_join(thread, NULL);
    door_close();
}
