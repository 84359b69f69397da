/* Blocks large enough for events of their own, on fewer streams than threads: parked, taken back, and taken over by
 * the others while work on them is queued, in little memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "race.h"

#include <sched.h>
#include <stdatomic.h>

enum { ROUNDS = 3000, TURNS = 2000, BATCH = 25, STREAMS = 3, CELL = 512, SPELL = 40 };

static CUstream streams[STREAMS];

/* What a block's owners write at both ends, and where it is copied to when the stream gets there: nothing on the host
 * waits for that. */
struct batch {
    unsigned char written[BATCH];
    CUdeviceptr seen;
};

static void use(CUdeviceptr ptr, size_t size, struct batch *batch, int i, CUstream stream) {
    unsigned char mark = (unsigned char)(1 + i % 255);
    batch->written[i % BATCH] = mark;
    CU(cuMemsetD8Async(ptr, mark, CELL, stream));
    CU(cuMemsetD8Async(ptr + size - CELL, mark, CELL, stream));
    CU(cuMemcpyDtoDAsync(batch->seen + 2 * (CUdeviceptr)(i % BATCH), ptr, 1, stream));
    CU(cuMemcpyDtoDAsync(batch->seen + 2 * (CUdeviceptr)(i % BATCH) + 1, ptr + size - 1, 1, stream));
}

static void check(const struct batch *batch) {
    unsigned char seen[2 * BATCH];
    for (int s = 0; s < STREAMS; s++)
        CU(cuStreamSynchronize(streams[s]));
    CU(cuMemcpyDtoH(seen, batch->seen, sizeof seen));
    for (int i = 0; i < BATCH; i++)
        CHECK(seen[2 * i] == batch->written[i] && seen[2 * i + 1] == batch->written[i]);
}

/* Each on the stream that it likes: mostly the same size on the same stream; now and then all move on. */
static void all_at_once(int index) {
    struct batch batch;
    CU(door_alloc(&batch.seen, 2 * BATCH));
    for (int i = 0; i < ROUNDS; i++) {
        CUstream stream = streams[(index + i / SPELL) % STREAMS];
        size_t size = (size_t)(i % SPELL < SPELL - 2 ? 2 : 1) << 20;
        CUdeviceptr ptr;
        CU(door_alloc_async(&ptr, size, NULL, stream));
        use(ptr, size, &batch, i + 50 * index, stream);
        CU(door_free_async(ptr, stream));
        if (i % BATCH == BATCH - 1)
            check(&batch);
    }
    CU(door_free(batch.seen));
}

/* One block goes from stream to stream, while a thread that has no turn is at work on one of them too. */
static struct batch handed;

static void in_turn(int index) {
    static atomic_int turn;
    for (int i, seen = -1; (i = atomic_load(&turn)) < TURNS;) {
        CUdeviceptr ptr;
        if (index >= STREAMS && i != seen) {
            seen = i;
            CU(door_alloc_async(&ptr, CELL, NULL, streams[0]));
            CU(door_free_async(ptr, streams[0]));
        } else if (i % STREAMS == index) {
            CU(door_alloc_async(&ptr, 2 << 20, NULL, streams[index]));
            use(ptr, 2 << 20, &handed, i, streams[index]);
            CU(door_free_async(ptr, streams[index]));
            if (i % BATCH == BATCH - 1)
                check(&handed);
            atomic_store(&turn, i + 1);
        } else {
            sched_yield();
        }
    }
}

int main(void) {
    race_open("granularity=64K,capacity=32M");
    for (int s = 0; s < STREAMS; s++)
        CU(door_stream_create(&streams[s], CU_STREAM_NON_BLOCKING));
    CU(door_alloc(&handed.seen, 2 * BATCH));
    race_run(all_at_once);
    race_run(in_turn);
    CU(door_free(handed.seen));
    for (int s = 0; s < STREAMS; s++)
        CU(door_stream_destroy(streams[s]));
    race_close();
    return 0;
}
