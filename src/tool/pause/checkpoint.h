/* The driver's functions to checkpoint another process, and others that this needs: found by name in a libcuda. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

/* The functions that are used, each a symbol of that name. */
#define VP_CHECKPOINT_CALLS(X)                                                                                         \
    X(cuInit, (unsigned))                                                                                                                  \
    X(cuDriverGetVersion, (int *))                                                                                                                  \
    X(cuGetErrorString, (CUresult, const char **))                                                                                                                  \
    X(cuDeviceGetCount, (int *))                                                                                                                  \
    X(cuDeviceGet, (CUdevice *, int))                                                                                                                  \
    X(cuDeviceGetUuid_v2, (CUuuid *, CUdevice))                                                                                                                  \
    X(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                                                                                                  \
    X(cuCtxSetCurrent, (CUcontext))                                                                                                                  \
    X(cuMemGetInfo_v2, (size_t *, size_t *))                                                                                                                  \
    X(cuCheckpointProcessLock, (int, CUcheckpointLockArgs *))                                                                                                                  \
    X(cuCheckpointProcessCheckpoint, (int, CUcheckpointCheckpointArgs *))                                                                                                                  \
    X(cuCheckpointProcessRestore, (int, CUcheckpointRestoreArgs *))                                                                                                                  \
    X(cuCheckpointProcessUnlock, (int, CUcheckpointUnlockArgs *))                                                                                                                  \
    X(cuCheckpointProcessGetState, (int, CUprocessState *))

enum { VP_CHECKPOINT_DEVICES = 64 };

struct vp_checkpoint {
#define VP_CHECKPOINT_FIELD(name, args) CUresult(CUDAAPI *name) args;
    VP_CHECKPOINT_CALLS(VP_CHECKPOINT_FIELD)
#undef VP_CHECKPOINT_FIELD
    int devices;
    CUuuid uuid[VP_CHECKPOINT_DEVICES];
    CUcontext context[VP_CHECKPOINT_DEVICES]; /* our own contexts, if nothing else says what is free */
};

/* Loads that libcuda (NULL: the system's) and initializes it. False: `why` says what is wrong. */
bool vp_checkpoint_open(struct vp_checkpoint *c, const char *library, char why[256]);
/* The driver's message for a result. */
const char *vp_checkpoint_words(const struct vp_checkpoint *c, CUresult res);
/* Finds the free and the total memory of a device, by NVML, else by a context of our own. False: it cannot be found. */
bool vp_checkpoint_free(struct vp_checkpoint *c, int device, size_t *free_bytes, size_t *total);
/* The number of the device with that UUID; -1: there is none. */
int vp_checkpoint_device(const struct vp_checkpoint *c, const void *uuid);
