/* Legacy IPC (cuIpcGetMemHandle and related calls) for memory of the pool.
 *
 * CUDA refuses legacy IPC for virtual-memory allocations, so the library makes its own handles, which name a process
 * and an allocation in it. A process that opens a handle asks that process, over a socket (base/channel.h), for the
 * physical handles beneath, as file descriptors, and maps them. Both processes need the library: CUDA itself rejects
 * such a handle.
 *
 * The exporter (ipc.c) answers on a thread of its own. The importer (import.c) never holds the library's lock while it
 * waits for an answer, since two processes may open each other's memory at the same time. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "process/state.h"
#include "base/channel.h"

/* The contents of the 64 bytes of a CUipcMemHandle. An allocation has one handle, the same at each call. */
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

/* Sent by the importer: which allocation it wants. */
struct vp_ipc_request {
    uint64_t addr, serial;
    uint32_t device, zero;
};

/* Sent by the exporter: as many messages as needed, each with one file descriptor per chunk. */
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

/* vp_ipc_read() copies a handle; false: it is not ours. vp_ipc_good(): could this version have made it? */
bool vp_ipc_read(const CUipcMemHandle *from, struct vp_ipc_handle *out);
bool vp_ipc_good(const struct vp_ipc_handle *handle);
/* The process ends: stops exporting. */
void vp_ipc_stop(void);

/* ---- the rest of it; with the library's lock held ---- */

/* May other processes open this live block? Returns as vp_pool_export_check(). */
int vp_ipc_check(struct vp_pool *pool, const struct vp_region *block) VP_LOCKED;
/* Must a synchronous block of this size be placed so that it can be exported? */
bool vp_ipc_alone(size_t size) VP_LOCKED;
/* Was the handle made by this process? */
bool vp_ipc_own(const struct vp_ipc_handle *handle);
/* A device's UUID; zero if the driver does not tell. */
CUuuid vp_ipc_uuid(CUdevice dev);
/* In a forked child: drops the socket of the parent. */
void vp_ipc_leave_to_parent(void);

/* ---- errors.c: what these two calls return, once it is said why ---- */

CUresult vp_ipc_refused(int err, const struct vp_region *block);
CUresult vp_ipc_unreachable(int err, const struct vp_ipc_handle *handle);

/* ---- import.c; with the library's lock held ---- */

/* The import that holds an address, or NULL. */
const struct vp_import *vp_import_at(CUdeviceptr ptr);
/* Is any of these bytes, or that at `ptr`, in the mapping of one? */
bool vp_import_maps(CUdeviceptr ptr, size_t size);
/* Do two ranges share a byte? An empty range counts as its first byte. Ends may wrap around. */
static inline bool vp_ranges_meet(CUdeviceptr a, size_t a_size, CUdeviceptr b, size_t b_size) {
    return a - b < b_size || b - a < a_size;
}
/* As vp_memory_add_copier(). */
bool vp_import_add_copier(struct vp_import *import, CUdevice dev);
/* A context has ended, and the imports that were opened in it end, too. */
void vp_imports_drop_context(const struct vp_context *ctx);
/* From here on exactly the devices `peers`, one bit each, may access what was opened on `device`. */
void vp_imports_set_peers(CUdevice device, uint64_t peers);
/* Taken around a fork, before the library's lock: no descriptor of another process's memory stays open in the child. */
extern struct vp_lock vp_imports_in_hand;
bool vp_imports_fork_child(void); /* had the parent opened any? */
