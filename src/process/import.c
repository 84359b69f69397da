/* Legacy IPC: the importer. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/ipc.h"

#include "base/descriptor.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Held while memory is opened or closed, so that no other thread opens the same. Taken before the other locks. A fork
 * does not wait for it: half-opened memory is the parent's. */
static struct vp_lock opening;

/* Held while descriptors of another process's memory are open here, which a child forked meanwhile would keep. Not held
 * while an answer is awaited. Taken before the library's lock. */
struct vp_lock vp_imports_in_hand;

/* A thread that is cancelled while it waits for another process would never release the lock. */
static VP_ACQUIRES(opening) int begin_opening(void) {
    int cancel;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    vp_lock_take(&opening);
    return cancel;
}

static VP_RELEASES(opening) void end_opening(int cancel) {
    vp_lock_release(&opening);
    pthread_setcancelstate(cancel, NULL);
}

static struct vp_slab import_slab = VP_SLAB(struct vp_import);
static uint64_t opened;

/* Imports that are mapped, by their end: libraries that keep imports open have thousands. */
static RB_HEAD(vp_imports, vp_import) by_end;

static int compare(const struct vp_import *a, const struct vp_import *b) {
    const CUdeviceptr x = a->base + a->bytes, y = b->base + b->bytes;
    return (x > y) - (x < y);
}
RB_GENERATE_STATIC(vp_imports, vp_import, by_end, compare)

/* ---- look-ups, with the library's lock held ---- */

/* The first one that ends behind the address, or NULL. */
static struct vp_import *ends_behind(CUdeviceptr ptr) {
    struct vp_import wanted = {.base = ptr, .bytes = 1};
    return RB_NFIND(vp_imports, &by_end, &wanted);
}

const struct vp_import *vp_import_at(CUdeviceptr ptr) {
    const struct vp_import *import = ends_behind(ptr);
    return import && ptr - import->ptr < import->asked && import->references ? import : NULL;
}

bool vp_import_maps(CUdeviceptr ptr, size_t size) {
    const struct vp_import *import = ends_behind(ptr);
    return import && vp_ranges_meet(ptr, size, import->base, import->bytes);
}

/* Each context opens an import for itself, as in CUDA: its imports end with it alone. */
static struct vp_import *find(const struct vp_ipc_handle *handle, const struct vp_context *ctx) {
    struct vp_import *import;
    vp_list_each(import, &vp_state.imports, link)
        if (!memcmp(&import->key, &handle->key, sizeof import->key) && import->ctx == ctx)
            return import;
    return NULL;
}

/* ---- mapping ---- */

/* Gives devices access, or revokes it, for each device as far as the driver allows. */
static CUresult set_access(struct vp_import *import, uint64_t devices, CUmemAccess_flags flags) {
    CUresult res = CUDA_SUCCESS;
    for (int dev = 0; dev < VP_DEVICES; dev++)
        if (devices >> dev & 1) {
            const CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev}, .flags = flags};
            CUresult one = vp_state.drv.cuMemSetAccess(import->base, import->bytes, &desc, 1);
            import->access ^= (uint64_t)!one << dev;
            res = one ? one : res;
        }
    return res;
}

static CUresult grant(struct vp_import *import, uint64_t devices) {
    return set_access(import, devices & ~import->access, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

static void unmap(const struct vp_import *import, size_t mapped) {
    CUresult res = mapped ? vp_state.drv.cuMemUnmap(import->base, mapped) : CUDA_SUCCESS;
    /* At a process's end CUDA may be gone before what asks whether a context lives. */
    if (res && res != CUDA_ERROR_DEINITIALIZED)
        vp_log(VP_LOG_WARN, "memory of another process stays mapped: the driver refuses to unmap it");
    else if (import->base)
        vp_state.drv.cuMemAddressFree(import->base, import->bytes);
}

/* Maps the chunks of one message behind what is mapped. */
static CUresult map_some(const struct vp_ipc_reply *reply, const int *fds, const struct vp_import *import,
                         size_t *mapped) {
    const struct vp_driver *drv = &vp_state.drv;
    CUresult res = CUDA_SUCCESS;
    for (uint32_t i = 0; i < reply->count && !res; i++) {
        CUmemGenericAllocationHandle chunk;
        if (!reply->size[i] || reply->size[i] > import->bytes - *mapped)
            return CUDA_ERROR_INVALID_HANDLE;
        res = drv->cuMemImportFromShareableHandle(&chunk, (void *)(uintptr_t)fds[i],
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        if (res)
            break;
        res = drv->cuMemMap(import->base + *mapped, reply->size[i], 0, chunk, 0);
        drv->cuMemRelease(chunk);
        if (!res)
            *mapped += reply->size[i];
    }
    return res;
}

static CUresult begin(const struct vp_ipc_reply *reply, struct vp_import *import) {
    if (!reply->asked || reply->offset >= reply->bytes || reply->asked > reply->bytes - reply->offset)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult res = vp_state.drv.cuMemAddressReserve(&import->base, reply->bytes, 0, 0, 0);
    if (res)
        return res;
    import->bytes = reply->bytes;
    import->asked = reply->asked;
    import->ptr = import->base + reply->offset;
    return CUDA_SUCCESS;
}

/* Handles one message, and closes its descriptors. */
static CUresult map_all(const struct vp_ipc_reply *reply, const int *fds, size_t n, struct vp_import *import,
                        size_t *mapped) {
    CUresult res = reply->result;
    if (!res && (!n || n != reply->count))
        res = CUDA_ERROR_INVALID_HANDLE;
    if (!res && !import->base)
        res = begin(reply, import);
    if (!res)
        res = map_some(reply, fds, import, mapped);
    while (n)
        close(fds[--n]);
    return res;
}

/* Asks the exporter and maps what it sends. Without the library's lock. On failure nothing is left behind. */
static CUresult fetch(const struct vp_ipc_handle *handle, struct vp_import *import) {
    static struct vp_ipc_reply reply; /* guarded by `opening` */
    const struct vp_channel_name name = {.id = {handle->key.id[0], handle->key.id[1]}, .in_file = handle->in_file};
    const struct vp_ipc_request ask = {
        .addr = handle->key.addr, .serial = handle->key.serial, .device = handle->device};
    CUresult res = CUDA_SUCCESS;
    size_t mapped = 0;
    const int fd = vp_channel_connect(&name);
    if (fd < 0)
        return vp_ipc_unreachable(fd, handle);
    struct vp_descriptor line = vp_descriptor_of(fd); /* the program may close it while an answer is waited for */
    int err = vp_channel_send(fd, &ask, sizeof ask, NULL, 0);
    do {
        int fds[VP_CHANNEL_FDS];
        size_t n = VP_CHANNEL_FDS;
        if (!err)
            err = vp_channel_wait(fd);
        vp_calls_begin(); /* before the lock, for which a fork in a signal's handler is not to wait */
        vp_lock_take(&vp_imports_in_hand);
        if (!err)
            err = !vp_descriptor_is_ours(&line) ? -EBADF : vp_channel_receive(fd, &reply, sizeof reply, fds, &n);
        if (!err)
            res = map_all(&reply, fds, n, import, &mapped);
        vp_lock_release(&vp_imports_in_hand);
        vp_calls_end();
        if (err)
            res = vp_ipc_unreachable(err, handle);
    } while (!res && reply.left);
    vp_descriptor_close(&line);
    if (!res && mapped != import->bytes)
        res = CUDA_ERROR_INVALID_HANDLE;
    if (res)
        unmap(import, mapped);
    return res;
}

/* The device that the handle names, here; -1: it is not visible to this process. */
static CUdevice owner_of(const struct vp_ipc_handle *handle) {
    const CUuuid unknown = {{0}};
    int count = 0;
    if (!memcmp(&handle->uuid, &unknown, sizeof unknown))
        return -1;
    vp_state.drv.cuDeviceGetCount(&count);
    for (int i = 0; i < count && i < VP_DEVICES; i++) {
        CUdevice dev;
        if (vp_state.drv.cuDeviceGet(&dev, i))
            continue;
        const CUuuid uuid = vp_ipc_uuid(dev);
        if (!memcmp(&uuid, &handle->uuid, sizeof uuid))
            return dev;
    }
    return -1;
}

bool vp_import_add_copier(struct vp_import *import, CUdevice dev) {
    const uint64_t one = UINT64_C(1) << dev;
    if (!(import->access & one) && (import->refused & one || grant(import, one))) {
        import->refused |= one;
        return false;
    }
    import->always |= one;
    return true;
}

/* ---- what is not open any more ---- */

/* Closed memory whose work cannot be waited for now, because a stream captures or the context cannot be entered. */
static const CUresult LATER = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;

/* Unmaps what is no longer open. While a stream captures, nothing can be waited for, so it stays until another close.
 * Releases the lock meanwhile. */
static VP_LOCKED CUresult take_away(struct vp_import *import) {
    bool over;
    if (atomic_load(&vp_state.timelines.captures))
        return CUDA_SUCCESS;
    /* Nobody else sees it from here on. */
    vp_list_remove(&import->link);
    CUresult res = vp_wait_for_devices(vp_devices_touching(import->access), import->ctx->device, &over);
    res = res || over ? res : LATER;
    if (res) {
        vp_list_append(&vp_state.imports, &import->link);
        return res;
    }
    RB_REMOVE(vp_imports, &by_end, import);
    vp_step_out();
    unmap(import, import->bytes);
    vp_step_in();
    vp_slab_free(&import_slab, import);
    return CUDA_SUCCESS;
}

static VP_LOCKED void take_away_all(void) {
    struct vp_import *import, *closed;
    do {
        closed = NULL;
        vp_list_each(import, &vp_state.imports, link)
            if (!import->references)
                closed = import;
    } while (closed && !atomic_load(&vp_state.timelines.captures) && !take_away(closed));
}

/* ---- open ---- */

/* Maps memory that is not open yet. `import` has its context and device. */
static CUresult open_new(const struct vp_ipc_handle *handle, struct vp_import *import) {
    const uint64_t here = UINT64_C(1) << import->ctx->device;
    CUresult res = fetch(handle, import);
    if (res)
        return res;
    if ((res = grant(import, here))) {
        unmap(import, import->bytes);
        return res == CUDA_ERROR_INVALID_DEVICE ? CUDA_ERROR_PEER_ACCESS_UNSUPPORTED : res;
    }
    /* More than the current device need not be possible; a kernel there would fail natively, too. */
    CUdevice owner = owner_of(handle);
    if (owner >= 0)
        grant(import, UINT64_C(1) << owner);
    import->always = import->access;
    return CUDA_SUCCESS;
}

static CUresult open_alone(CUdeviceptr *out, const struct vp_ipc_handle *handle) {
    struct vp_import *import = NULL;
    CUresult res = CUDA_SUCCESS;
    if (!vp_enter())
        return CUDA_ERROR_INVALID_CONTEXT;
    struct vp_context *ctx = vp_context_current(&vp_state.timelines);
    /* CUDA, too, has no current context for a process that opens its own memory. */
    if (!ctx || vp_ipc_own(handle)) {
        res = CUDA_ERROR_INVALID_CONTEXT;
    } else if ((import = find(handle, ctx))) {
        import->references++;
        *out = import->ptr;
    } else {
        import = vp_slab_alloc(&import_slab);
        res = import ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (res || import->references) {
        vp_leave();
        return res;
    }
    *import = (struct vp_import){.key = handle->key, .references = 1, .ctx = ctx};
    ctx->pins++;
    vp_step_out();
    res = open_new(handle, import);
    vp_step_in();
    ctx->pins--;
    /* What it had open has gone with it already. */
    if (!res && ctx->ending) {
        unmap(import, import->bytes);
        res = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    if (res) {
        vp_slab_free(&import_slab, import);
    } else {
        grant(import, vp_peers_of(ctx->device)); /* as they are by now */
        import->number = ++opened;
        vp_list_append(&vp_state.imports, &import->link);
        RB_INSERT(vp_imports, &by_end, import);
        vp_spaces_widen(import->base, import->bytes);
        *out = import->ptr;
    }
    vp_leave();
    return res;
}

CUresult vp_api_ipc_open(CUdeviceptr *out, const CUipcMemHandle *from, unsigned flags) {
    struct vp_ipc_handle handle;
    if (!out || !vp_ipc_read(from, &handle) || !vp_api_ready() || vp_thread.inside)
        return VP_NOT_OURS;
    if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    if (!vp_ipc_good(&handle))
        return CUDA_ERROR_INVALID_HANDLE;
    int cancel = begin_opening();
    CUresult res = open_alone(out, &handle);
    end_opening(cancel);
    return res;
}

/* ---- close ---- */

static CUresult close_alone(CUdeviceptr ptr) {
    struct vp_import *import = NULL, *one;
    if (!vp_enter())
        return VP_NOT_OURS;
    take_away_all();
    vp_list_each(one, &vp_state.imports, link)
        if (one->ptr == ptr && one->references)
            import = one;
    CUresult res = import ? CUDA_SUCCESS : VP_NOT_OURS;
    if (import && !--import->references && (res = take_away(import)) && res != LATER)
        import->references = 1;
    vp_leave();
    return res == LATER ? CUDA_SUCCESS : res;
}

CUresult vp_api_ipc_close(CUdeviceptr ptr) {
    if (!ptr || !vp_api_ready() || vp_thread.inside)
        return VP_NOT_OURS;
    int cancel = begin_opening();
    CUresult res = close_alone(ptr);
    end_opening(cancel);
    return res;
}

/* ---- what happens around it ---- */

void vp_imports_drop_context(const struct vp_context *ctx) {
    struct vp_import *import, *next;
    vp_list_each_safe(import, next, &vp_state.imports, link)
        if (import->ctx == ctx) {
            vp_list_remove(&import->link);
            RB_REMOVE(vp_imports, &by_end, import);
            unmap(import, import->bytes);
            vp_slab_free(&import_slab, import);
        }
}

void vp_imports_set_peers(CUdevice device, uint64_t peers) {
    struct vp_import *import;
    vp_list_each(import, &vp_state.imports, link)
        if (import->ctx->device == device) {
            grant(import, peers);
            set_access(import, import->access & ~import->always & ~peers, CU_MEM_ACCESS_FLAGS_PROT_NONE);
        }
}

bool vp_imports_fork_child(void) {
    vp_lock_reset(&opening);
    vp_lock_reset(&vp_imports_in_hand);
    return opened;
}
