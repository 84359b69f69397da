/* Legacy IPC: the exporter. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/ipc.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "pool/bare/bare.h"
#include "pool/parking.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char MAGIC[8] = {'V', 'P', 'o', 'o', 'l', 'I', 'P', 'C'};

enum { VERSION = 1 };

/* In a process that uses IPC, synchronous blocks of this size and more get handles of their own. For smaller ones,
 * rounding up to a granule would more than double them; CUDA itself advises to share only whole 2 MiB. */
enum { ALONE_FROM = 1 << 20 };

/* The time until a connection that could not be accepted is tried again: descriptors may be lacking, or a system call
 * filter may forbid it. */
enum { AGAIN_NS = 5000000 };

static struct {
    struct vp_descriptor listener;
    atomic_bool listens;
    struct vp_channel_name name;
    struct vp_descriptor client; /* who is answered; a forked child closes it, and what is on its way: */
    int in_flight[VP_CHANNEL_FDS];
    size_t in_flight_count;
} exporter = {.listener.fd = -1, .client.fd = -1};

static atomic_bool stopped;

/* ---- which blocks ---- */

bool vp_ipc_alone(size_t size) {
    const bool shares = vp_state.ranked || atomic_load_explicit(&vp_state.shares, memory_order_relaxed),
               wanted = vp_state.shows_next || (shares && size >= ALONE_FROM);
    vp_state.shows_next = false;
    return vp_options()->ipc == VP_IPC_ALONE || (vp_options()->ipc == VP_IPC_AUTO && wanted);
}

int vp_ipc_check(struct vp_pool *pool, const struct vp_region *block) {
    const int err = vp_pool_export_check(pool, block);
    /* UCX asks before it shows any. What comes later need not lie beside others. */
    if (!err && !vp_state.ranked && !vp_pool_lies_alone(pool, block))
        atomic_store(&vp_state.shares, true);
    return err;
}

CUuuid vp_ipc_uuid(CUdevice dev) {
    CUuuid uuid = {{0}};
    vp_state.drv.cuDeviceGetUuid_v2(&uuid, dev);
    return uuid;
}

bool vp_ipc_own(const struct vp_ipc_handle *handle) {
    return exporter.listens && !memcmp(handle->key.id, exporter.name.id, sizeof handle->key.id);
}

/* ---- the answer ---- */

/* The physical handle of a chunk as a file descriptor. The context is entered in case that a driver wants one: the
 * calling thread may have none. */
static CUresult export(const struct vp_region *block, const struct vp_chunk *chunk, int *fd) {
    const struct vp_driver *drv = &vp_state.drv;
    const bool alive = !block->context->gone && !atomic_load(&block->context->ending);
    const struct vp_entered entered = vp_context_enter(drv, alive ? block->context->handle : NULL);
    CUresult res = drv->cuMemExportToShareableHandle(fd, chunk->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    vp_context_leave(drv, entered);
    /* The driver does not say whether its descriptors close on exec, and a child that kept one keeps the memory. */
    if (!res)
        fcntl(*fd, F_SETFD, FD_CLOEXEC);
    return res;
}

static void close_in_flight(void) {
    while (exporter.in_flight_count)
        close(exporter.in_flight[--exporter.in_flight_count]);
}

/* Chunks of the block from the `done`th byte of their mapping on, as many as fit into one message. */
static VP_LOCKED void fill_reply(const struct vp_ipc_request *ask, uint64_t done, struct vp_ipc_reply *reply) {
    struct vp_pool *pool = ask->device < VP_DEVICES ? vp_state.pools[ask->device] : NULL;
    struct vp_region *block = pool ? vp_pool_find(pool, ask->addr) : NULL;
    size_t offset, inside;
    memset(reply, 0, sizeof *reply);
    if (!block || !block->exported || block->serial != ask->serial) {
        reply->result = CUDA_ERROR_INVALID_HANDLE;
        return;
    }
    vp_pool_chunk_at(pool, block->addr, &offset);
    CUdeviceptr begin = block->addr - offset, end = vp_region_end(block), at = begin + done;
    for (; at < end && !reply->result; at += inside) {
        const struct vp_chunk *chunk = vp_pool_chunk_at(pool, at, &inside);
        if (exporter.in_flight_count == VP_CHANNEL_FDS) {
            reply->left++;
        } else {
            reply->result = export(block, chunk, &exporter.in_flight[exporter.in_flight_count]);
            exporter.in_flight_count += !reply->result;
            if (!reply->result)
                reply->size[reply->count++] = chunk->size;
        }
        inside = chunk->size;
    }
    if (reply->result) {
        vp_log(VP_LOG_WARN, "an exported allocation cannot be passed on to another process: CUDA error %u%s",
               reply->result,
               reply->result == CUDA_ERROR_OUT_OF_MEMORY || reply->result == CUDA_ERROR_OPERATING_SYSTEM
                   ? " (too few file descriptors? see ulimit -n)"
                   : "");
        close_in_flight();
        *reply = (struct vp_ipc_reply){.result = reply->result};
        return;
    }
    reply->bytes = at - begin;
    reply->offset = offset;
    reply->asked = block->asked;
}

/* Sends what the client requests. If the allocation is freed meanwhile, the next message says so. */
static void answer(void) {
    static struct vp_ipc_reply reply; /* of the one thread that answers */
    struct vp_ipc_request ask;
    uint64_t done = 0;
    int err = vp_channel_receive(exporter.client.fd, &ask, sizeof ask, NULL, NULL);
    while (!err && vp_descriptor_is_ours(&exporter.client) && vp_enter()) {
        if (atomic_load(&stopped)) {
            vp_leave();
            return;
        }
        fill_reply(&ask, done, &reply);
        vp_step_out();
        for (uint32_t i = 0; i < reply.count; i++)
            done += reply.size[i];
        err = vp_channel_send(exporter.client.fd, &reply, sizeof reply, exporter.in_flight, exporter.in_flight_count);
        vp_step_in();
        close_in_flight();
        vp_leave();
        if (reply.result || !reply.left)
            break;
    }
}

/* The program may close all descriptors that it did not open, and get a connection of its own under the listener's
 * number, which we must not accept. */
static bool listens_still(void) {
    int fd = -EMFILE;
    if (vp_descriptor_is_ours(&exporter.listener))
        return true;
    while ((fd == -EMFILE || fd == -ENFILE) && vp_enter()) {
        fd = atomic_load(&stopped) ? -ESHUTDOWN : vp_channel_listen_again(&exporter.name);
        if (fd >= 0)
            exporter.listener = vp_descriptor_of(fd);
        vp_leave();
        if (fd < 0)
            vp_clock_sleep(AGAIN_NS);
    }
    return fd >= 0;
}

static void *serve(void *unused) {
    for (bool listens = listens_still(); listens;) {
        int client = vp_channel_accept(exporter.listener.fd);
        if (client == -EINVAL && vp_descriptor_is_ours(&exporter.listener))
            return NULL;
        if (client == -EMFILE || client == -ENFILE)
            vp_log_once(VP_LOG_WARN, "no file descriptor is left to pass memory on to another process (see ulimit -n)");
        if (client < 0)
            vp_clock_sleep(AGAIN_NS);
        /* Before the answer: who has that may ask again at once. */
        listens = listens_still();
        exporter.client = vp_descriptor_of(client);
        answer();
        vp_descriptor_close(&exporter.client);
    }
    return NULL;
}

/* Listens, once. 0 or a negative errno. */
static int start(void) {
    if (exporter.listens)
        return 0;
    const int fd = vp_channel_listen(&exporter.name, false);
    if (fd < 0)
        return fd;
    exporter.listener = vp_descriptor_of(fd);
    int err = vp_thread_start(serve);
    exporter.listens = !err;
    if (err) {
        vp_descriptor_close(&exporter.listener);
        vp_channel_unlink(&exporter.name);
    }
    return err;
}

void vp_ipc_stop(void) {
    atomic_store(&stopped, true);
    if (!exporter.listens)
        return; /* a forked child's parent does */
    if (vp_descriptor_is_ours(&exporter.listener))
        shutdown(exporter.listener.fd, SHUT_RDWR);
    vp_channel_unlink(&exporter.name);
}

void vp_ipc_leave_to_parent(void) {
    vp_descriptor_close(&exporter.listener);
    vp_descriptor_close(&exporter.client);
    close_in_flight();
    exporter.listens = false;
}

/* ---- the call ---- */

/* Once it is out, other processes hold the block. 0 or a negative errno. */
static VP_LOCKED int give_out(struct vp_pool *pool, struct vp_region *block) {
    size_t offset;
    int fd, err;
    if (block->exported) /* MPI asks for each message */
        return 0;
    vp_parking_flush(pool, VP_FLUSH_ALL);
    /* Other processes map all of it. */
    if (block->bare && (err = vp_bare_pin_range(pool, block->addr, block->size)) < 0)
        return err;
    if ((err = vp_ipc_check(pool, block)) < 0)
        return err;
    if ((err = start()) < 0)
        return err == -EMFILE || err == -ENFILE ? err : -EIO;
    /* Some containers announce export, and then refuse it. */
    CUresult res = export(block, vp_pool_chunk_at(pool, block->addr, &offset), &fd);
    if (res)
        return res == CUDA_ERROR_OUT_OF_MEMORY || res == CUDA_ERROR_OPERATING_SYSTEM ? -EMFILE : -EOPNOTSUPP;
    close(fd);
    return vp_pool_export(pool, block);
}

CUresult vp_api_ipc_get(CUipcMemHandle *out, CUdeviceptr ptr) {
    struct vp_pool *pool;
    CUresult res = VP_NOT_OURS;
    if (!out || !vp_enter())
        return res;
    /* Without a context, the driver names the error. */
    struct vp_region *block = vp_context_known(&vp_state.drv, NULL) ? NULL : vp_state_find_inside(ptr, &pool);
    if (block) {
        /* Who shows what it has just got mostly does so with the next one, too, of whatever size. */
        vp_state.shows_next = block->addr == vp_state.latest && !vp_state.ranked;
        int err = give_out(pool, block);
        if (err == -ENODEV) {
            res = CUDA_ERROR_INVALID_VALUE; /* freed while its memory was waited for */
        } else if (err) {
            res = vp_ipc_refused(err, block);
        } else {
            struct vp_ipc_handle handle = {
                .key = {.id = {exporter.name.id[0], exporter.name.id[1]}, .addr = block->addr, .serial = block->serial},
                .uuid = vp_ipc_uuid(pool->mem.device),
                .pid = (uint32_t)getpid(),
                .version = VERSION,
                .in_file = exporter.name.in_file,
                .device = (uint8_t)pool->mem.device,
            };
            memcpy(handle.magic, MAGIC, sizeof MAGIC);
            memcpy(out, &handle, sizeof handle);
            res = CUDA_SUCCESS;
        }
    }
    vp_leave();
    if (res != VP_NOT_OURS)
        vp_api_shares("memory shown to other processes");
    return res;
}

bool vp_ipc_read(const CUipcMemHandle *from, struct vp_ipc_handle *out) {
    memcpy(out, from, sizeof *out);
    return !memcmp(out->magic, MAGIC, sizeof MAGIC);
}

bool vp_ipc_good(const struct vp_ipc_handle *handle) {
    return handle->version == VERSION && handle->in_file <= 1 && !handle->zero && handle->device < VP_DEVICES;
}
