/* Memory pools: made, read, trimmed and destroyed by several threads, while blocks count for them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "race.h"

enum { ROUNDS = 300 };

static void racer(int index) {
    CUmemoryPool standard;
    CUstream stream;
    CU(cuDeviceGetDefaultMemPool(&standard, 0));
    CU(door_stream_create(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < ROUNDS; i++) {
        CUmemoryPool own;
        CUdeviceptr a, b;
        cuuint64_t used = 0, reserved = 0, threshold = (cuuint64_t)i << 20;
        size_t size = (size_t)1 << (10 + (i + index) % 11);
        CU(door_pool_create(&own, 0));
        CU(door_alloc_async(&a, size, own, stream));
        CU(door_alloc_async(&b, size, NULL, stream));
        CU(door_pool_get(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
        CHECK(used == size);
        CU(door_pool_get(standard, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
        CHECK(reserved > 0);
        CU(door_pool_set(standard, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
        /* Each pool's own rule; what is idle goes back, and what another freed is anyone's, when one waits. */
        int opportunistic = i % 3 > 0;
        CU(door_pool_set(own, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &opportunistic));
        CU(door_free_async(a, stream));
        if (i % 8 == index)
            CU(i % 16 == index ? door_synchronize() : door_stream_synchronize(stream));
        /* A pool may go before its last block does. */
        if (i % 2)
            CU(door_pool_destroy(own));
        CU(door_free_async(b, stream));
        if (i % 2 == 0)
            CU(door_pool_destroy(own));
        if (i % 16 == index)
            CU(door_pool_trim(standard, 0));
    }
    CU(door_stream_destroy(stream));
}

int main(void) {
    race_open("granularity=64K,capacity=64M");
    race_run(racer);
    race_close();
    return 0;
}
