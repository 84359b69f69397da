/* What the stand-in for JAX's plug-in shows. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <cuda.h>

/* How much it would preallocate. */
unsigned long long xla_preallocates(CUmemoryPool pool, unsigned long long threshold);
