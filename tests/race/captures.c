/* Captures begin and end while other threads allocate and free: none may be destroyed, and none may see a
 * block of the pool. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "race.h"

enum { ROUNDS = 200, SIZE = 100000 };

static void capturer(void) {
    CUdeviceptr target;
    CU(door_alloc(&target, SIZE));
    for (int i = 0; i < ROUNDS; i++) {
        CUstream stream;
        CUgraph graph;
        CUgraphExec exec;
        CUdeviceptr aside;
        CU(door_stream_create(&stream, i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
        CU(door_begin_capture(stream, i % 3 ? CU_STREAM_CAPTURE_MODE_RELAXED : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        CU(cuMemsetD8Async(target, 1, SIZE, stream));
        CU(door_alloc(&aside, SIZE));
        CU(door_free(aside));
        CHECK(door_free_async(target, stream) != CUDA_SUCCESS);
        CUresult ended = door_end_capture(stream, &graph);
        /* The refused free has broken the capture, as in CUDA. */
        if (!ended) {
            CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
            CU(cuGraphLaunch(exec, stream));
            CU(cuGraphExecDestroy(exec));
            CU(cuGraphDestroy(graph));
        }
        CU(door_stream_destroy(stream));
    }
    CU(door_free(target));
}

static void allocator(int index) {
    CUstream stream;
    CU(door_stream_create(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 4 * ROUNDS; i++) {
        CUdeviceptr ptr, late;
        size_t size = (size_t)1 << (10 + (i + index) % 12);
        CU(door_alloc_async(&ptr, size, NULL, stream));
        CU(door_alloc(&late, size));
        CU(cuMemsetD8Async(ptr, 2, size, stream));
        CU(cuMemsetD8Async(late, 3, size, stream));
        CU(i % 2 ? door_free(ptr) : door_free_async(ptr, stream));
        CU(door_free(late));
    }
    CU(door_stream_destroy(stream));
}

static void racer(int index) {
    if (index < 2)
        capturer();
    else
        allocator(index);
}

int main(void) {
    race_open("granularity=64K");
    race_run(racer);
    race_close();
    return 0;
}
