/* Legacy IPC (cuIpcGetMemHandle and its kin) on memory of the pool.
 *
 * CUDA refuses it on memory of the virtual-memory calls, so the handle is one of ours: it names a process and an
 * allocation in it. Whoever opens it asks that process, over a socket (base/channel.h), for the physical handles
 * beneath, as file descriptors, and maps them. Both processes need the library; without it the handle means nothing to
 * CUDA, which says so.
 *
 * The exporter (ipc.c) answers from a thread of its own. The importer (import.c) never holds the library's lock while
 * it waits for an answer: two processes may well open each other's memory at the same moment. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "process/state.h"
#include "base/channel.h"

/* What stands in the 64 bytes of a CUipcMemHandle. One for each allocation, and the same at each call. */
struct vp_ipc_handle {
    char magic[8];
    struct {
        uint64_t id[2];        /* of the exporter's socket */
        uint64_t addr, serial; /* the allocation, as the exporter knows it */
    } key;
    CUuuid uuid;  /* the device's; zero: the driver does not tell */
    uint32_t pid; /* of the exporter, for messages */
    uint8_t version, in_file, device, zero;
};
_Static_assert(sizeof(struct vp_ipc_handle) == sizeof(CUipcMemHandle), "the size is CUDA's");

/* From the importer: which allocation. */
struct vp_ipc_request {
    uint64_t addr, serial;
    uint32_t device, zero;
};

/* From the exporter: as many messages as it takes, each with a file descriptor for each of its chunks. */
struct vp_ipc_reply {
    uint32_t result;               /* a CUresult; all else is 0 if it is no success */
    uint32_t count;                /* chunks in this message */
    uint64_t left;                 /* chunks in those to come */
    uint64_t bytes, offset, asked; /* of all chunks; where the allocation begins in the first; how long it is */
    uint64_t size[VP_CHANNEL_FDS]; /* of each chunk */
};

/* Memory of another process that is mapped here. */
struct vp_import {
    __typeof__(((struct vp_ipc_handle *)0)->key) key;
    CUdeviceptr base, ptr; /* the mapping; the allocation in it */
    size_t bytes, asked;
    unsigned references;    /* 0: closed while a stream captured, and still mapped */
    uint64_t number;        /* in order of opening */
    struct vp_context *ctx; /* in which it was opened, and with which it ends */
    uint64_t access;        /* devices that may touch it, one bit each */
    uint64_t always;        /* those of them that may whatever becomes of peers */
    uint64_t refused;       /* those that it cannot be opened to for copies */
    struct vp_list link;    /* vp_state.imports */
    RB_ENTRY(vp_import) by_end;
};

/* ---- ipc.c; those that need no lock ---- */

/* Copies what the program passed; false: it is no handle of ours. Then: can it be one that this version makes? */
bool vp_ipc_read(const CUipcMemHandle *from, struct vp_ipc_handle *out);
bool vp_ipc_good(const struct vp_ipc_handle *handle);
/* The process ends: nothing is exported any more. */
void vp_ipc_stop(void);

/* ---- the rest of it; with the library's lock held ---- */

/* May other processes open this live block? 0 or as vp_pool_export_check(). */
int vp_ipc_check(struct vp_pool *pool, const struct vp_region *block) VP_LOCKED;
/* Must a synchronous block of so many bytes be placed so that it can be exported? */
bool vp_ipc_alone(size_t size) VP_LOCKED;
/* Was the handle made by this process? */
bool vp_ipc_own(const struct vp_ipc_handle *handle);
/* A device's UUID; zero if the driver does not tell. */
CUuuid vp_ipc_uuid(CUdevice dev);
/* A forked child: the parent's socket is not its own. */
void vp_ipc_leave_to_parent(void);

/* ---- errors.c: what these two calls return, once it is said why ---- */

CUresult vp_ipc_refused(int err, const struct vp_region *block);
CUresult vp_ipc_unreachable(int err, const struct vp_ipc_handle *handle);

/* ---- import.c; with the library's lock held ---- */

/* The import that holds an address, or NULL. */
const struct vp_import *vp_import_at(CUdeviceptr ptr);
/* Is any of these bytes, or that at `ptr`, in the mapping of one? */
bool vp_import_maps(CUdeviceptr ptr, size_t size);
/* Do two ranges share a byte? An empty one is that byte. Their ends may wrap. */
static inline bool vp_ranges_meet(CUdeviceptr a, size_t a_size, CUdeviceptr b, size_t b_size) {
    return a - b < b_size || b - a < a_size;
}
/* As vp_memory_add_copier(). */
bool vp_import_add_copier(struct vp_import *import, CUdevice dev);
/* A context has ended, and what was opened in it with it. */
void vp_imports_drop_context(const struct vp_context *ctx);
/* From here on `peers`, one bit each, may touch what was opened on `device`, and no others. */
void vp_imports_set_peers(CUdevice device, uint64_t peers);
/* Taken around a fork, before the library's: no descriptor of another process's memory stays open in the child. */
extern struct vp_lock vp_imports_in_hand;
bool vp_imports_fork_child(void); /* had the parent opened any? */
