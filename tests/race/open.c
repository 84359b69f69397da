/* Many threads make the program's first CUDA calls at the same moment. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "race.h"

#include "process/process.h"

static void first_calls(int index) {
    CUcontext ctx;
    CUdeviceptr ptr;
    (void)index;
    CHECK(!doors_open());
    CHECK(vp_api_ready());
    CU(cuInit(0));
    CU(door_primary(&ctx, 0));
    CU(cuCtxSetCurrent(ctx));
    CU(door_alloc(&ptr, 4096));
    CU(cuMemsetD8(ptr, 1, 4096));
    CU(door_free(ptr));
}

int main(void) {
    CHECK(!vp_sim_configure("granularity=64K"));
    race_run(first_calls);
    race_close();
    return 0;
}
