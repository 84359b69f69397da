/* The configuration of the simulated driver. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"
#include "sim.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = fuzz_text(data, size);
    size_t granularity = 0, free_bytes = 0, total = 0;
    int count = 0, version = 0;
    CUcontext ctx;
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    /* It names a file, which would be made, and written to. */
    if (strstr(text, "shared=")) {
        free(text);
        return 0;
    }
    vp_sim_configure(text);
    cuDriverGetVersion(&version);
    /* Any call may be one that was asked to fail. */
    if (!cuInit(0) && !cuDeviceGetCount(&count) && !cuDevicePrimaryCtxRetain(&ctx, 0) && !cuCtxSetCurrent(ctx) &&
        !cuMemGetInfo(&free_bytes, &total)) {
        if (count < 1 || count > 8 || version < 11020 || free_bytes > total || total < 1 << 20)
            fuzz_fail("%d devices, version %d, %zu of %zu bytes free", count, version, free_bytes, total);
        if (!cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) &&
            (granularity < 65536 || granularity & (granularity - 1)))
            fuzz_fail("a granularity of %zu", granularity);
    }
    vp_sim_reset();
    free(text);
    fuzz_count(0);
    return 0;
}
