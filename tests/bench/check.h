/* Driver calls that must succeed. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

#define CU(call) check(call, #call)

static inline void check(CUresult res, const char *call) {
    if (res == CUDA_SUCCESS)
        return;
    fprintf(stderr, "%s: error %d\n", call, (int)res);
    exit(1);
}
