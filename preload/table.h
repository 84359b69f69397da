/* The addresses and the numbers of the doors, for code that looks them up. The table (table.c) is above all the doors.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <cuda.h>
#include "doors_list.h"

/* cuda.h defines these names as macros for their newest variants. Here a name is a symbol. */
#undef cuCtxCreate
#undef cuCtxDestroy
#undef cuCtxPopCurrent
#undef cuDevicePrimaryCtxRelease
#undef cuDevicePrimaryCtxReset
#undef cuGetProcAddress
#undef cuGraphAddNode
#undef cuGraphNodeSetParams
#undef cuGraphInstantiate
#undef cuIpcOpenMemHandle
#undef cuMemPrefetchAsync
#undef cuMemcpy3DBatchAsync
#undef cuMemcpyBatchAsync
#undef cuStreamBatchMemOp
#undef cuStreamBeginCapture
#undef cuStreamDestroy
#undef cuStreamWaitValue32
#undef cuStreamWaitValue64
#undef cuStreamWriteValue32
#undef cuStreamWriteValue64

enum vp_door {
#define VP_DOOR_ENUM(symbol, ...) VP_DOOR_##symbol,
    VP_DOORS_DRIVER(VP_DOOR_ENUM) VP_DOOR_COUNT,
    VP_DOOR_LAST = VP_DOOR_COUNT - 1, /* so that what follows counts on from there */
    VP_DOORS_ASK(VP_DOOR_ENUM)
#undef VP_DOOR_ENUM
        VP_REAL_COUNT
};

enum vp_runtime_door {
#define VP_RUNTIME_ENUM(symbol, ...) VP_RUNTIME_##symbol,
    VP_DOORS_RUNTIME(VP_RUNTIME_ENUM)
#undef VP_RUNTIME_ENUM
        VP_RUNTIME_COUNT
};

enum vp_nccl_door {
#define VP_NCCL_ENUM(symbol, ...) VP_NCCL_##symbol,
    VP_DOORS_NCCL(VP_NCCL_ENUM)
#undef VP_NCCL_ENUM
        VP_NCCL_COUNT
};

/* First those of pass.S. */
enum vp_torch_symbol {
#define VP_TORCH_ENUM(name, symbol) VP_TORCH_##name,
    VP_DOORS_TORCH_PASSED(VP_TORCH_ENUM)
#undef VP_TORCH_ENUM
        VP_TORCH_PASSED,
    VP_TORCH_IS_CURRENT = VP_TORCH_PASSED,
    VP_TORCH_IS_STREAM,
    VP_TORCH_IS_ROUND_CUDA,
    VP_TORCH_IS_ROUND,
    VP_TORCH_IS_REPORT,
    VP_TORCH_SYMBOLS
};

extern const struct vp_door_table {
    void *driver[VP_DOOR_COUNT], *runtime[VP_RUNTIME_COUNT], *nccl[VP_NCCL_COUNT], *torch[VP_TORCH_SYMBOLS];
    void *dlsym, *dlvsym;
} vp_door_table;

/* The first bytes of each door's code when libcuda was found; an impossible value once a door must not be bypassed. */
extern unsigned vp_door_begins[VP_DOOR_COUNT];
