/* Driver calls that must succeed. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VPOOL_BENCH_CHECK_H
#define VPOOL_BENCH_CHECK_H

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

#endif
