/* Copies the contents of a device to the host and back: see carrier.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/carrier.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/machine.h"
#include "base/os_memory.h"
#include "base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

/* Four slots of 16 MiB: the copy engine, at some 55 GB/s, has work for a millisecond while one is emptied. All together
 * are small enough for the processor's caches, and to pin them takes some 0.3 ms a MiB. */
enum { SLOT_MOST = 16 << 20, SLOT_LEAST = 64 << 10 };

/* One thread copies some 8 to 12 GB/s. */
enum { THREADS = 12 };

/* All work of the device was over: a slot takes milliseconds. */
static const uint64_t SLOT_NS = 30000000000;

/* ---- the ring ---- */

int vp_carrier_open(struct vp_carrier *c, const struct vp_driver *drv, const struct vp_context *ctx, size_t bytes) {
    *c = (struct vp_carrier){.drv = drv, .slot = vp_round_up(bytes / VP_CARRIER_SLOTS + 1, SLOT_LEAST)};
    c->slot = vp_lesser(c->slot, SLOT_MOST);
    c->entered = vp_context_enter(drv, ctx->handle);
    if (c->entered.refused)
        return -EIO;
    int err = drv->cuStreamCreate(&c->stream, CU_STREAM_NON_BLOCKING) ? -EIO : 0;
    for (int i = 0; i < VP_CARRIER_SLOTS && !err; i++)
        err = drv->cuEventCreate(&c->event[i], CU_EVENT_DISABLE_TIMING) ? -EIO : 0;
    if (!err && drv->cuMemHostAlloc((void **)&c->ring, VP_CARRIER_SLOTS * c->slot, 0))
        err = -ENOMEM;
    if (err) {
        vp_carrier_close(c);
        return err;
    }
    vp_crew_start(&c->crew, bytes > SLOT_MOST ? THREADS : 1);
    return 0;
}

void vp_carrier_close(struct vp_carrier *c) {
    if (c->crew.count)
        vp_crew_stop(&c->crew);
    if (c->ring)
        c->drv->cuMemFreeHost(c->ring);
    for (int i = 0; i < VP_CARRIER_SLOTS; i++)
        if (c->event[i])
            c->drv->cuEventDestroy_v2(c->event[i]);
    if (c->stream)
        c->drv->cuStreamDestroy_v2(c->stream);
    if (c->drv)
        vp_context_leave(c->drv, c->entered);
    *c = (struct vp_carrier){0};
}

/* The next bytes of the spans. */
struct cursor {
    const struct vp_span *span;
    size_t done; /* of it */
};

/* Queues the copies of one slot. */
static int queue(struct vp_carrier *c, struct cursor *at, unsigned slot, size_t bytes, bool out) {
    char *host = c->ring + slot * c->slot;
    while (bytes) {
        const size_t n = vp_lesser(at->span->size - at->done, bytes);
        CUdeviceptr device = at->span->addr ? at->span->addr + at->done : 0;
        CUresult res = CUDA_SUCCESS;
        if (device)
            res = out ? c->drv->cuMemcpyDtoHAsync_v2(host, device, n, c->stream)
                      : c->drv->cuMemcpyHtoDAsync_v2(device, host, n, c->stream);
        if (res)
            return -EIO;
        host += n;
        bytes -= n;
        at->done += n;
        if (at->done == at->span->size)
            *at = (struct cursor){at->span + 1, 0};
    }
    return c->drv->cuEventRecord(c->event[slot], c->stream) ? -EIO : 0;
}

/* Asked, never synchronised with: that has no end. */
static int wait_for(const struct vp_carrier *c, unsigned slot) {
    const uint64_t begin = vp_clock_ns();
    for (;;) {
        CUresult res = c->drv->cuEventQuery(c->event[slot]);
        if (res != CUDA_ERROR_NOT_READY)
            return res ? -EIO : 0;
        if (vp_clock_ns() - begin > SLOT_NS)
            return -ETIMEDOUT;
        sched_yield();
    }
}

int vp_carrier_run(struct vp_carrier *c, const struct vp_span *spans, size_t count, char *host, bool out) {
    struct cursor at = {spans, 0};
    size_t total = 0;
    int err = 0;
    for (size_t i = 0; i < count; i++)
        total += spans[i].size;
    const size_t slots = (total + c->slot - 1) / c->slot;
    for (size_t k = 0; k < slots + VP_CARRIER_SLOTS && !err; k++) {
        const unsigned slot = k % VP_CARRIER_SLOTS;
        char *ring = c->ring + slot * c->slot;
        size_t before = k >= VP_CARRIER_SLOTS ? (k - VP_CARRIER_SLOTS) * c->slot : total, here = k * c->slot;
        if (before < total) {
            size_t n = total - before < c->slot ? total - before : c->slot;
            err = wait_for(c, slot);
            if (!err && out)
                vp_crew_copy(&c->crew, host + before, ring, n, true);
        }
        if (!err && here < total) {
            size_t n = total - here < c->slot ? total - here : c->slot;
            if (!out)
                vp_crew_copy(&c->crew, ring, host + here, n, false);
            err = queue(c, &at, slot, n, out);
        }
    }
    return err;
}

/* ---- the arena ---- */

/* Huge pages make the first touch several times faster on some machines, and slower on others, which look for some. */
enum { PROBE = 32 << 20, PROBE_FROM = 1 << 30 };

static uint64_t touch_ns(char *at, int advice) {
    uint64_t begin = vp_clock_ns();
    madvise(at, PROBE, advice);
    for (size_t i = 0; i < PROBE; i += 4096)
        ((volatile char *)at)[i] = 0;
    return vp_clock_ns() - begin;
}

static void choose_pages(char *at, size_t bytes) {
    if (bytes < PROBE_FROM)
        return;
    uint64_t huge = touch_ns(at, MADV_HUGEPAGE), small = touch_ns(at + PROBE, MADV_NOHUGEPAGE);
    madvise(at, bytes, huge < small ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

static void drop(struct vp_arena *arena) {
    if (arena->bytes)
        vp_os_give(arena->at, arena->bytes);
    *arena = (struct vp_arena){0};
}

/* All its bytes are there at once: a store must not find out that the disk is full. */
static int make_file(const char *file, size_t bytes) {
    int fd = open(file, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    unlink(file);
    return vp_descriptor_unless(vp_output_reserve(fd, 0, bytes), fd);
}

int vp_arena_take(struct vp_arena *arena, size_t bytes, const char *file) {
    bytes = vp_round_up(bytes + 1, VP_HUGE);
    if (arena->bytes >= bytes && !file && !arena->in_file)
        return 0;
    drop(arena);
    if (!file && bytes > vp_host_memory_room(""))
        return -ENOMEM;
    int fd = file ? make_file(file, bytes) : -1;
    if (file && fd < 0)
        return fd;
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, fd, 0);
    /* The mapping keeps the file. */
    if (fd >= 0)
        close(fd);
    if (at == MAP_FAILED)
        return -ENOMEM;
    if (!file)
        choose_pages(at, bytes);
    *arena = (struct vp_arena){.at = at, .bytes = bytes, .in_file = file != NULL};
    return 0;
}

static void ease_share(void *arg, size_t begin, size_t end) {
    madvise((char *)arg + begin, end - begin, MADV_FREE);
}

void vp_arena_ease(struct vp_arena *arena) {
    struct vp_crew crew;
    if (!arena->bytes || arena->in_file || madvise(arena->at, VP_HUGE, MADV_FREE)) {
        drop(arena);
        return;
    }
    /* By many: each page is looked at, which takes one thread a third of a second for 32 GiB. */
    vp_crew_start(&crew, arena->bytes > SLOT_MOST ? THREADS : 1);
    vp_crew_each(&crew, arena->bytes, ease_share, arena->at);
    vp_crew_stop(&crew);
}
