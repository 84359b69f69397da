/* Blocks allocated in one thread and freed in another, by both kinds of calls, while a third asks about them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "race.h"

#include <stdatomic.h>

enum { ROUNDS = 1500, SHELF = 8 };

static CUstream stream;
static _Atomic(CUdeviceptr) shelf[SHELF];
static atomic_int giving = 2;

static void put(CUdeviceptr ptr, int at) {
    CUdeviceptr old = atomic_exchange(&shelf[at % SHELF], ptr);
    if (old)
        CU(at % 2 ? door_free(old) : door_free_async(old, stream));
}

static void give(int index) {
    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr ptr;
        size_t size = (size_t)1 << (9 + i % 13);
        CU(i % 3 ? door_alloc_async(&ptr, size, NULL, stream) : door_alloc(&ptr, size));
        CU(cuMemsetD8Async(ptr, (unsigned char)i, size, stream));
        put(ptr, i * 3 + index);
    }
    atomic_fetch_sub(&giving, 1);
}

static void take(int index) {
    for (int i = index; atomic_load(&giving); i++)
        put(0, i);
}

static void ask(int index) {
    for (int i = index; atomic_load(&giving); i++) {
        size_t free_bytes, total, size;
        CUdeviceptr base, ptr = atomic_load(&shelf[i % SHELF]);
        CU(door_mem_info(&free_bytes, &total));
        CHECK(free_bytes <= total);
        /* The block may have been freed meanwhile: then it is CUDA that answers. */
        if (ptr && !door_address_range(&base, &size, ptr))
            CHECK(base <= ptr && ptr < base + size);
    }
}

static void racer(int index) {
    if (index < 2)
        give(index);
    else if (index == 2)
        take(index);
    else
        ask(index);
}

int main(void) {
    race_open("granularity=64K,capacity=64M");
    CU(door_stream_create(&stream, CU_STREAM_NON_BLOCKING));
    race_run(racer);
    for (int i = 0; i < SHELF; i++)
        put(0, i);
    CU(door_stream_destroy(stream));
    race_close();
    return 0;
}
