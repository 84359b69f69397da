/* Doors of the driver: streams, their captures, and what is queued on them or they are made to wait for.
 *
 * While nothing ties the process to the world outside, a stream may be made to wait for another's work before the pool
 * grows. With a tie, the work awaited may itself be waiting for something that this process has yet to do, and CUDA's
 * order holds (see vp_api_coupled). What a stream will wait for is told before it is queued; what is imported after,
 * since nobody can have used it yet. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "make.h"

#define VP_MAKE_CAPTURE(symbol, like, ...)                                                                             \
    VP_MAKE_BRACKETED(symbol, like, vp_api_capture_beginning(a), vp_api_capture_began(a, res == CUDA_SUCCESS),         \
                      __VA_ARGS__)

/* Waits for a value in memory, which anyone may write. */
static void waits(void) {
    vp_api_coupled("a stream waits for a value in memory");
}

/* A batch may hold a wait, or writes and barriers alone. One of more is refused, or with a flag, and not looked at. */
enum { BATCH_MOST = 256 };
static void batch(unsigned int count, const CUstreamBatchMemOpParams *ops, unsigned int flags) {
    for (unsigned int i = 0; ops && !flags && count <= BATCH_MOST && i < count; i++)
        if (ops[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || ops[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_64)
            waits();
}

/* Host functions hold up one stream for as long as they like. One that is captured will run on whatever
 * stream its graph is launched on: then it counts as a tie of the process. */
static void host_function(CUstream stream) {
    CUstreamCaptureStatus status;
    if (VP_REAL(cuStreamIsCapturing)(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE)
        vp_api_coupled("a host function in a graph");
    else
        vp_api_host_function(stream);
}

VP_DOORS_STREAM(VP_MAKE)
VP_DOORS_QUEUE(VP_MAKE)
