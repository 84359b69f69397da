/* The doors of libcudart, as symbols. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#define CUDA_ENABLE_DEPRECATED /* programs still call what is */
#include <cuda_runtime_api.h>
#include "doors_list.h"

#define VP_DOOR_DECLARE(symbol, like, ...) __attribute__((visibility("default"))) extern __typeof__(like) symbol;
VP_DOORS_RUNTIME(VP_DOOR_DECLARE)
#undef VP_DOOR_DECLARE
