/* The benchmarks in process: through the doors, on the simulated driver. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"
#include "check.h"

#include "../common/doors.h"
#include "sim.h"

const char bench_api[] = "doors, simulated driver";

const char *bench_capacity = "1T";

static CUcontext context;

static void configure(void) {
    char settings[64];
    snprintf(settings, sizeof settings, "backing=ledger,capacity=%s,lazy=0", bench_capacity);
    if (vp_sim_configure(settings))
        exit(1);
}

void gpu_open(void) {
    configure();
    if (doors_open()) {
        fprintf(stderr, "the library does not open\n");
        exit(1);
    }
    CU(cuInit(0));
    CU(door_primary(&context, 0));
    CU(cuCtxSetCurrent(context));
}

void gpu_enter(void) {
    CU(cuCtxSetCurrent(context));
}

void gpu_synchronize(void) {
    CU(cuCtxSynchronize());
}

bench_stream gpu_stream_create(void) {
    CUstream stream;
    CU(door_stream_create(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

void gpu_stream_destroy(bench_stream stream) {
    CU(door_stream_destroy(stream));
}

bench_block gpu_alloc(size_t bytes) {
    CUdeviceptr block;
    CU(door_alloc(&block, bytes));
    return block;
}

void gpu_free(bench_block block) {
    CU(door_free(block));
}

bench_block gpu_alloc_on(bench_stream stream, size_t bytes) {
    CUdeviceptr block;
    CU(door_alloc_async(&block, bytes, NULL, stream));
    return block;
}

void gpu_free_on(bench_stream stream, bench_block block) {
    CU(door_free_async(block, stream));
}
