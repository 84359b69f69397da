/* Captures of blocking streams begin while other threads free, under a driver whose barriers are events on the
 * legacy stream: one of those in the middle of a capture destroys it. */
#include "race.h"

enum { ROUNDS = 2000, SIZE = 100000 };

static void capturer(void)
{
    CUdeviceptr target;
    CU(door_alloc(&target, SIZE));
    for (int i = 0; i < ROUNDS; i++) {
        CUstream stream;
        CUgraph graph;
        CU(door_stream_create(&stream, CU_STREAM_DEFAULT));
        CU(door_begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        CU(cuMemsetD8Async(target, 1, SIZE, stream));
        CU(door_end_capture(stream, &graph));
        CU(cuGraphDestroy(graph));
        CU(door_stream_destroy(stream));
    }
    CU(door_free(target));
}

/* Memory is short: who allocates asks what is over, and records the events that frees have put off. */
static void freer(int index)
{
    for (int i = 0; i < 2 * ROUNDS; i++) {
        CUdeviceptr ptr;
        CUresult res = door_alloc(&ptr, (size_t)(1 + (i + index) % 5) << 20);
        CHECK(res == CUDA_SUCCESS || res == CUDA_ERROR_OUT_OF_MEMORY);
        if (!res)
            CU(door_free(ptr));
    }
}

static void racer(int index)
{
    if (index < 2)
        capturer();
    else
        freer(index);
}

int main(void)
{
    race_open("granularity=64K,capacity=16M,driver=12020");
    race_run(racer);
    race_close();
    return 0;
}
