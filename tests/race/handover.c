/* Blocks large enough for events of their own, on fewer streams than threads: parked, taken back, and taken over by
 * the others while work on them is queued, in little memory. */
#include "race.h"

#include <sched.h>
#include <stdatomic.h>

enum { ROUNDS = 3000, TURNS = 500, BATCH = 25, STREAMS = 3, CELL = 512, SPELL = 40 };

static CUstream streams[STREAMS];

/* What a block's owner wrote at both ends, and read there when its stream came to it. */
struct ends {
    unsigned char written, first, last;
};

static void use(CUdeviceptr ptr, size_t size, struct ends *ends, CUstream stream)
{
    CU(cuMemsetD8Async(ptr, ends->written, CELL, stream));
    CU(cuMemsetD8Async(ptr + size - CELL, ends->written, CELL, stream));
    CU(cuMemcpyDtoHAsync(&ends->first, ptr, 1, stream));
    CU(cuMemcpyDtoHAsync(&ends->last, ptr + size - 1, 1, stream));
}

static void check(const struct ends *ends)
{
    for (int s = 0; s < STREAMS; s++)
        CU(cuStreamSynchronize(streams[s]));
    for (int i = 0; i < BATCH; i++)
        CHECK(ends[i].first == ends[i].written && ends[i].last == ends[i].written);
}

/* Each on the stream that it likes. */
static void all_at_once(int index)
{
    struct ends ends[BATCH];
    for (int i = 0; i < ROUNDS; i++) {
        /* Mostly the same size on the same stream; now and then all move on. */
        CUstream stream = streams[(index + i / SPELL) % STREAMS];
        size_t size = (size_t)(i % SPELL < SPELL - 2 ? 2 : 1) << 20;
        CUdeviceptr ptr;
        ends[i % BATCH] = (struct ends){.written = (unsigned char)(1 + index + RACERS * (i % 60))};
        CU(door_alloc_async(&ptr, size, NULL, stream));
        use(ptr, size, &ends[i % BATCH], stream);
        CU(door_free_async(ptr, stream));
        if (i % BATCH == BATCH - 1)
            check(ends);
    }
}

/* One block goes from stream to stream, while a thread that has no turn is busy on one of them. */
static void in_turn(int index)
{
    static atomic_int turn;
    static struct ends ends[BATCH];
    for (int i; (i = atomic_load(&turn)) < TURNS;) {
        CUdeviceptr ptr;
        if (index >= STREAMS) {
            CU(door_alloc_async(&ptr, CELL, NULL, streams[0]));
            CU(door_free_async(ptr, streams[0]));
        } else if (i % STREAMS == index) {
            ends[i % BATCH] = (struct ends){.written = (unsigned char)(1 + i % 250)};
            CU(door_alloc_async(&ptr, 2 << 20, NULL, streams[index]));
            use(ptr, 2 << 20, &ends[i % BATCH], streams[index]);
            CU(door_free_async(ptr, streams[index]));
            if (i % BATCH == BATCH - 1)
                check(ends);
            atomic_store(&turn, i + 1);
        } else {
            sched_yield();
        }
    }
}

int main(void)
{
    race_open("granularity=64K,capacity=32M");
    for (int s = 0; s < STREAMS; s++)
        CU(door_stream_create(&streams[s], CU_STREAM_NON_BLOCKING));
    race_run(all_at_once);
    race_run(in_turn);
    for (int s = 0; s < STREAMS; s++)
        CU(door_stream_destroy(streams[s]));
    race_close();
    return 0;
}
