#include "driver/driver.h"

#include <errno.h>

int vp_driver_fill(struct vp_driver *drv, void *(*lookup)(const char *name, void *ctx), void *ctx, const char **missing) {
    struct vp_driver d = { 0 };
#define FILL(name, args) *(void **)&d.name = lookup(#name, ctx);
#define NEED(name, args)                                                                                                     \
    if (!d.name) {                                                                                                           \
        lacking = #name;                                                                                                     \
    }
    const char *lacking = NULL;
    VP_DRIVER_REQUIRED(FILL)
    VP_DRIVER_OPTIONAL(FILL)
    VP_DRIVER_REQUIRED(NEED)
#undef FILL
#undef NEED
    if (lacking) {
        if (missing)
            *missing = lacking;
        return -ENOSYS;
    }
    *drv = d;
    return 0;
}

/* The pairs below lose nothing that a caller of cuMemAlloc could tell apart. */
static const struct {
    int err;
    CUresult res;
} pairs[] = {
    { 0, CUDA_SUCCESS },
    { -ENOMEM, CUDA_ERROR_OUT_OF_MEMORY },
    { -EINVAL, CUDA_ERROR_INVALID_VALUE },
    { -ENODEV, CUDA_ERROR_INVALID_CONTEXT },
    { -EOPNOTSUPP, CUDA_ERROR_NOT_SUPPORTED },
    { -EAGAIN, CUDA_ERROR_NOT_READY },
};

CUresult vp_driver_result(int err) {
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (pairs[i].err == err)
            return pairs[i].res;
    return CUDA_ERROR_UNKNOWN;
}

int vp_driver_errno(CUresult res) {
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (pairs[i].res == res)
            return pairs[i].err;
    return -EIO;
}
