/* JAX as it begins, with what the library has set for it, and beside a capture. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "guest.h"
#include "xla_plugin.h"

enum { MIB = 1 << 20 };

static CUmemoryPool start(void) {
    CUcontext context;
    CUmemoryPool pool;

    CHECK_OK(cuInit(0));
    CHECK_OK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK_OK(cuCtxSetCurrent(context));
    CHECK_OK(cuDeviceGetDefaultMemPool(&pool, 0));
    return pool;
}

static void preallocates(void) {
    CHECK(xla_preallocates(start(), 48 * MIB) == 48 * MIB);
}

static void preallocates_as_the_program_says(void) {
    setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "true", 1);
    preallocates();
}

/* Others have what they set, and the highest threshold is nothing to allocate. */
static void preallocates_nothing(void) {
    CUmemoryPool pool = start();
    cuuint64_t threshold = 48 * MIB;

    CHECK(xla_preallocates(pool, 48 * MIB) == 0);
    CHECK(xla_preallocates(pool, UINT64_MAX) == UINT64_MAX);
    CHECK_OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    CHECK_OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    CHECK(threshold == 48 * MIB);
}

/* As XLA captures: on a stream of its own, in the thread that allocates. */
static void allocates_beside_a_capture(void) {
    CUmemoryPool pool = start();
    CUstream stream, side;
    CUdeviceptr old, ptr;
    CUgraph graph;

    CHECK_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_OK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    CHECK_OK(xla_allocates(pool, stream, &old));
    CHECK_OK(cuStreamBeginCapture(side, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    SHOW(xla_allocates(pool, stream, &ptr));
    SHOW(cuStreamEndCapture(side, &graph));
    CHECK_OK(cuStreamBeginCapture(side, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    SHOW(xla_frees(old, stream));
    SHOW(cuStreamEndCapture(side, &graph));
    SHOW(xla_frees(old, stream));
}

GUEST_MAIN(GUEST(allocates_beside_a_capture), GUEST(preallocates), GUEST(preallocates_as_the_program_says),
           GUEST(preallocates_nothing))
