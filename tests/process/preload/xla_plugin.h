/* What the stand-in for JAX's plug-in shows. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <cuda.h>

/* How much it would preallocate. */
unsigned long long xla_preallocates(CUmemoryPool pool, unsigned long long threshold);

CUresult xla_allocates(CUmemoryPool pool, CUstream stream, CUdeviceptr *ptr);
CUresult xla_frees(CUdeviceptr ptr, CUstream stream);
