/* The doors of libnccl, as symbols. Declared here, since NCCL's headers need not be there. A communicator and its
 * configuration are pointers to us.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#pragma once

#include "make.h"

typedef int vp_nccl_result;
typedef struct {
    char internal[128];
} vp_nccl_unique_id;

#define VP_NCCL_DECLARE(symbol, ranks, ...)                                                                            \
    __attribute__((visibility("default"))) extern vp_nccl_result symbol(VP_PARAMS(__VA_ARGS__));
VP_DOORS_NCCL(VP_NCCL_DECLARE)
#undef VP_NCCL_DECLARE
