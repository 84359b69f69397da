/* Turns errors of the layers below into the result of a call, and logs them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/ipc.h"

#include <errno.h>

CUresult vp_result_of(int err, const struct vp_pool *pool, const struct vp_context *ctx) {
    CUresult res = err == -EIO && pool ? vp_pool_error(pool, ctx) : CUDA_SUCCESS;
    if (res)
        return res;
    /* Nothing is lost that a caller of cuMemAlloc could tell apart. */
    switch (err) {
    case -ENOMEM: return CUDA_ERROR_OUT_OF_MEMORY;
    case -EINVAL: return CUDA_ERROR_INVALID_VALUE;
    case -ENODEV: return CUDA_ERROR_INVALID_CONTEXT;
    case -EOPNOTSUPP: return CUDA_ERROR_NOT_SUPPORTED;
    case -EAGAIN: return CUDA_ERROR_NOT_READY;
    default: return CUDA_ERROR_UNKNOWN;
    }
}

CUresult vp_ipc_refused(int err, const struct vp_region *block) {
    switch (err) {
    case -EBUSY:
        vp_log_once(VP_LOG_WARN, "cuIpcGetMemHandle: refused, since %zu bytes are asleep (vpool_pause)", block->asked);
        return CUDA_ERROR_INVALID_VALUE;
    case -EOPNOTSUPP:
        if (block->sync)
            vp_log_once(VP_LOG_WARN,
                        "cuIpcGetMemHandle: physical memory of this device cannot be exported; VPOOL_IPC=native leaves "
                        "cudaMalloc to CUDA");
        return CUDA_ERROR_INVALID_VALUE;
    case -EXDEV:
        vp_log_once(VP_LOG_WARN, "cuIpcGetMemHandle: refused, since %zu bytes are in host memory (VPOOL_SPILL)",
                    block->asked);
        return CUDA_ERROR_INVALID_VALUE;
    case -EMFILE:
    case -ENFILE:
        vp_log_once(VP_LOG_WARN, "cuIpcGetMemHandle: no file descriptor is left (see ulimit -n)");
        return CUDA_ERROR_OUT_OF_MEMORY;
    case -ENOMEM: return CUDA_ERROR_OUT_OF_MEMORY;
    default:
        vp_log_once(VP_LOG_WARN, "cuIpcGetMemHandle: no socket or no thread can be made to answer other processes");
        return CUDA_ERROR_MAP_FAILED;
    }
}

CUresult vp_ipc_unreachable(int err, const struct vp_ipc_handle *handle) {
    const char *why;
    switch (err) {
    case -EMFILE:
    case -ENFILE: why = "no file descriptor is left (see ulimit -n)"; break;
    case -EPERM: why = "it belongs to another user"; break;
    case -EAGAIN:
    case -EINPROGRESS: why = "it does not answer"; break;
    case -EPROTO: why = "its answer is invalid, or needs more file descriptors than are left (see ulimit -n)"; break;
    default: why = "it has ended, or cannot be reached from here"; break;
    }
    vp_log(VP_LOG_WARN, "memory of process %u cannot be opened: %s", (unsigned)handle->pid, why);
    return err == -EMFILE || err == -ENFILE ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_HANDLE;
}
