/* A device goes to sleep and wakes again and again, while other threads allocate and free, look, and give memory to
 * other processes: what one of them holds comes back as it was.
 *
 * By contract nobody queues work on what sleeps: the others only have memory, and one writes to its own when the device
 * is awake. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "race.h"

#include "pool/giving.h"
#include "process/state.h"
#include "vpool.h"

#include <errno.h>
#include <stdatomic.h>

enum { ROUNDS = 40, KEPT = 6, HAD = 24 };
static const size_t CHUNK = 64 << 10;

static atomic_bool over;

static void sleep_and_wake(void) {
    CUdeviceptr kept[KEPT];
    for (int i = 0; i < KEPT; i++)
        CU(door_alloc(&kept[i], (size_t)(i + 1) * 3 * CHUNK / 2));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < KEPT; i++)
            CU(cuMemsetD8(kept[i], (unsigned char)(round * KEPT + i), (size_t)(i + 1) * 3 * CHUNK / 2));
        CU(cuCtxSynchronize());
        CHECK(vpool_pause(0) == 0);
        CHECK(vpool_pause(0) == -EALREADY);
        int err;
        while ((err = vpool_resume(0)) == -ENOMEM)
            continue;
        CHECK(err == 0);
        for (int i = 0; i < KEPT; i++) {
            unsigned char seen[2];
            const size_t size = (size_t)(i + 1) * 3 * CHUNK / 2;
            CU(cuMemcpyDtoH(&seen[0], kept[i], 1));
            CU(cuMemcpyDtoH(&seen[1], kept[i] + size - 1, 1));
            CHECK(seen[0] == (unsigned char)(round * KEPT + i) && seen[1] == seen[0]);
        }
    }
    for (int i = 0; i < KEPT; i++)
        CU(door_free(kept[i]));
    atomic_store(&over, true);
}

/* Of all sizes and by either call; what is had longest goes. */
static void have(int index) {
    CUdeviceptr had[HAD] = {0};
    CUstream stream;
    CU(door_stream_create(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned n = 0; !atomic_load(&over); n++) {
        CUdeviceptr *one = &had[n % HAD];
        const size_t size = (n * 7 + (unsigned)index) % 5 ? 512 * (1 + n % 300) : 5 * CHUNK;
        if (*one)
            CU(n % 3 ? door_free_async(*one, stream) : door_free(*one));
        *one = 0;
        CUresult res = n % 2 ? door_alloc_async(one, size, NULL, stream) : door_alloc(one, size);
        CHECK(res == CUDA_SUCCESS || res == CUDA_ERROR_OUT_OF_MEMORY);
    }
    for (int i = 0; i < HAD; i++)
        if (had[i])
            CU(door_free_async(had[i], stream));
    CU(door_stream_destroy(stream));
}

static void look(void) {
    for (unsigned n = 0; !atomic_load(&over); n++) {
        struct vpool_stats stats = {.size = sizeof stats};
        CHECK(!vpool_stats(0, &stats));
        CHECK(vp_enter());
        vp_giving_lend(vp_state.pools[0], (n % 8) * 4 * CHUNK);
        vp_leave();
        if (n % 4 == 0)
            CHECK(vpool_trim(0, stats.live_bytes) >= 0);
    }
}

static void each(int index) {
    if (index == 0)
        sleep_and_wake();
    else
        index == 1 ? look() : have(index);
}

int main(void) {
    CUdeviceptr first;
    race_open("granularity=64K,capacity=64M,lazy=30");
    CU(door_alloc(&first, CHUNK));
    race_run(each);
    CU(door_free(first));
    race_close();
    return 0;
}
