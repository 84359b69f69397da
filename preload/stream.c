/* Doors of the driver: streams, their captures, and what is queued on them or makes them wait.
 *
 * While nothing couples the process with the outside, a stream may be made to wait for another stream's work before the
 * pool grows. In a coupled process the awaited work may itself be waiting for something that this process has yet to
 * do, so streams wait only where CUDA's would (see vp_api_coupled). A wait is reported before it is queued; an import
 * after it, since nobody can have used it yet. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "adopt.h"
#include "make.h"

#define VP_MAKE_CAPTURE(symbol, like, ...)                                                                             \
    VP_MAKE_BRACKETED(symbol, like, vp_api_capture_beginning(a, vp_adopt_has_any()),                                   \
                      vp_api_capture_began(a, res == CUDA_SUCCESS), __VA_ARGS__)

/* Reports a wait for a value in memory, which any process or device may write. */
static void waits(void) {
    vp_api_coupled("a stream waits for a value in memory");
}

/* Looks for waits in a batch, which may also consist of writes and barriers alone. CUDA refuses a batch with flags or
 * of more operations, so those are not looked at. */
enum { BATCH_MOST = 256 };
static void batch(unsigned int count, const CUstreamBatchMemOpParams *ops, unsigned int flags) {
    for (unsigned int i = 0; ops && !flags && count <= BATCH_MOST && i < count; i++)
        if (ops[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || ops[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_64)
            waits();
}

/* A host function holds up its stream for any length of time. One that is captured will run on whatever stream its
 * graph is launched on, so it counts as coupling the process. */
static void host_function(CUstream stream) {
    CUstreamCaptureStatus status;
    if (VP_REAL(cuStreamIsCapturing)(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE)
        vp_api_coupled("a host function in a graph");
    else
        vp_api_host_function(stream);
}

VP_DOORS_STREAM(VP_MAKE)
VP_DOORS_QUEUE(VP_MAKE)
