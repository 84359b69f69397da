/* Memory that cudaFree gave back during a capture, and CUDA itself wants before its end. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

int main(void) {
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr p;
    CUstream stream;
    CUgraph graph;
    start();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&p, 30 << 20));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemFree(p));
    SHOW(cuMemCreate(&handle, 50 << 20, &prop, 0));
    OK(cuMemRelease(handle));
    OK(cuMemAlloc(&p, 30 << 20));
    OK(cuMemFree(p));
    SHOW(cuMemAllocAsync(&p, 50 << 20, stream));
    OK(cuStreamEndCapture(stream, &graph));
}
