/* JAX as it begins, with what the library has set for it. */
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

GUEST_MAIN(GUEST(preallocates), GUEST(preallocates_as_the_program_says), GUEST(preallocates_nothing))
