/* What the doors of copies and those of graphs have in common. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VP_COPY_H
#define VP_COPY_H

#include "make.h"

/* What an end of a copy is before anyone is asked; `offset`: of its first byte. */
static inline struct vp_copy_end vp_copy_end_of(CUmemorytype type, CUdeviceptr device, size_t offset) {
    struct vp_copy_end end = {.anywhere = type == CU_MEMORYTYPE_HOST};

    if ((type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED) && device)
        end.ptr = device + offset;
    return end;
}

#endif
