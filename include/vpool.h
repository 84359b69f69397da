/* vpool: functions that a program may call to query and control the allocator. The library works without them.
 *
 * libvpool.so exports these functions. It is preloaded, not linked: look each one up with dlsym(RTLD_DEFAULT,
 * "vpool_stats") and so on, and do without it if that returns NULL.
 *
 * All functions are thread-safe. They may be called before CUDA is initialised; those that need a pool then return
 * -ENODEV. Do not call them from a CUDA host function or callback, nor from a signal handler. An error is a negative
 * errno value, and a call that fails leaves its outputs untouched. A child process that is forked after its parent used
 * CUDA has no pools: -ENODEV. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VPOOL_H
#define VPOOL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* New members are added at the end only. Sizes are in bytes, times in nanoseconds. Counts are since the process began.
 */
struct vpool_stats {
    size_t size;            /* in: the caller's sizeof(struct vpool_stats) */
    uint64_t allocs, frees; /* calls served */
    uint64_t live_bytes;    /* allocated and not freed, as requested */
    uint64_t peak_live_bytes;
    uint64_t held_bytes; /* physical memory of the device that the pool has now */
    uint64_t peak_held_bytes;
    uint64_t ooms;               /* calls that ended with out of memory */
    uint64_t waits_gpu;          /* waits queued on a stream for memory that another stream freed */
    uint64_t waits_host;         /* times that a call waited on the host */
    uint64_t driver_ns;          /* that the pool spent in driver calls */
    uint64_t waits_fruitless;    /* of waits_host: those that gained nothing */
    uint64_t host_wait_ns;       /* spent in waits_host */
    uint64_t written_after_free; /* with VPOOL_POISON: blocks, of all devices, written to after they were freed */
    uint64_t spilled_bytes;      /* with VPOOL_SPILL: host memory in use now, not part of held_bytes */
    uint64_t peak_spilled_bytes;
    uint64_t asleep_bytes;               /* during a pause: memory that resuming will take again */
    uint64_t given_back_bytes;           /* idle memory returned to the device, automatically or on request */
    uint64_t lent_bytes;                 /* the part of it that another process asked for */
    uint64_t loans_asked, loans_refused; /* requests of this process; requests of others that it refused */
};

/* Returns the version of the library, "MAJOR.MINOR.PATCH": a constant string. */
const char *vpool_version(void);

/* Fills in the statistics of one device's pool. `device` is the ordinal of CUDA, 0 to 63. The caller owns the struct
 * and sets `stats->size`; members that this version of the library does not know become 0. Returns 0; -EINVAL: there is
 * no such ordinal, `stats` is NULL or its size is impossibly small; -ENODEV: the device has no pool (yet). Takes the
 * library's lock, and some microseconds. */
int vpool_stats(int device, struct vpool_stats *stats);

/* Records a named moment, such as "epoch 3", as a line `m,NAME,THREAD,0,MICROSECONDS` in the file that VPOOL_TRACE
 * names, between the allocations and frees before and after it. The first 512 marks before the start of CUDA are kept
 * until that file begins. Only the first 128 bytes of the name count; commas, quotes, percent signs and control
 * characters are written as %2C and so on. The library copies the name. Returns 0; -EINVAL: the name is NULL or empty;
 * -ENODEV: nothing is recorded. Costs some hundred nanoseconds if anything is recorded, else a few. */
int vpool_mark(const char *name);

/* Writes a dump of all pools into an open file, whatever VPOOL_DUMP says: the JSON object that docs/dumps.md describes.
 * The caller keeps the descriptor, whose position is then behind the dump. Returns 0; -EINVAL: `fd` is negative;
 * -ENODEV: there is no pool, and no call went on to CUDA; -EBUSY: another thread hangs in the driver; or the errno of
 * write(2). Holds the library's lock for some ten nanoseconds a region, and makes no driver call. */
int vpool_snapshot(int fd);

/* Begin and end a named range of the calling thread: lines `b,NAME,THREAD,DEPTH,MICROSECONDS` and
 * `e,,THREAD,DEPTH,MICROSECONDS` in the trace. Ranges of a thread nest. With or without a trace, statistics and dumps
 * report, for each name, the most bytes that were alive while a range of that name was open; dumps also report the
 * range that each thread is in. Names are treated as by vpool_mark. Both return the depth of the range, 0 for the
 * outermost; push returns -EINVAL if the name is NULL or empty, -ENOMEM if 128 threads are in ranges already; pop
 * returns -ENOENT if the thread is in no range. Costs some hundred nanoseconds; after the first range every allocation
 * and free costs some ten more. */
int vpool_range_push(const char *name);
int vpool_range_pop(void);

/* Returns idle physical memory to the device until the pool holds at most `keep` bytes. Memory that queued work may
 * still use stays. Returns the number of bytes given back, or -EINVAL or -ENODEV as vpool_stats. Takes some 50
 * microseconds for each handle of some megabytes. */
int64_t vpool_trim(int device, uint64_t keep);

/* Puts the pool of a device to sleep: copies live memory to the host, and returns all memory of the pool to the device,
 * for use by other processes. vpool_resume() brings it back to the same addresses, so pointers and captured graphs stay
 * valid.
 *
 * Until then the program must not queue work on the device that touches the pool's memory, which is not there. It may
 * free blocks and allocate: requests get new memory (but a cache of the program may hand out memory that is asleep).
 * Memory that CUDA made itself (contexts, handles of libraries) stays on the device.
 *
 * The call first waits until the device has finished its queued work. It returns 0, or one of these errors with nothing
 * changed:
 *
 * - `-EBUSY`: a stream is capturing.
 * - `-ENOTSUP`: others can reach the memory: it was exported to another process or opened from one, registered with a
 *   network, or bound to a multicast object; or there was an NCCL communicator of several ranks. The log says which.
 *   Also: the driver lacks a call.
 * - `-ETIMEDOUT`: the device did not finish within 10 seconds.
 * - `-ENOMEM`: the host does not have enough memory.
 * - `-EALREADY`: the pool is asleep already.
 * - `-EIO`: a driver call failed.
 * - `-EINVAL`, `-ENODEV`: as above.
 *
 * One error leaves the pool asleep, with nothing lost: -ENOTRECOVERABLE, if the driver refuses to unmap memory, and
 * then to map again what was already unmapped. Call vpool_resume() then, too.
 *
 * The copy needs as much host memory as is live. For 32 GiB it takes some tenths of a second the second time, and
 * several times as long the first time, when the system has to find that memory. The library keeps that host memory for
 * the next pause; the system may take it when memory is short. */
int vpool_pause(int device);

/* What happens to the contents of live memory. */
enum {
    VPOOL_KEEP, /* kept in host memory */
    VPOOL_DROP, /* discarded: after the pause, memory is undefined until it is written */
    VPOOL_FILE  /* kept in a file, which takes as much of the disk; it is unlinked, and ends with the process */
};

/* New members are only added at the end. Set members that you do not use to 0. */
struct vpool_pause {
    size_t size;        /* in: the caller's sizeof(struct vpool_pause) */
    int contents;       /* in: VPOOL_KEEP and so on */
    unsigned wait_ms;   /* in: how long to wait for queued work; 0: 10 seconds */
    const char *file;   /* in: for VPOOL_FILE only: the file to create, which must not exist */
    const char *reason; /* out: why it was refused, a constant string, as in the log; else NULL */
};

/* As vpool_pause(), with the given settings. If the file cannot be created, returns the errno of that. */
int vpool_pause_with(int device, struct vpool_pause *how);

/* Wakes the pool of a device. Returns 0; -ENOMEM: the device does not have enough free memory; the pool stays asleep,
 * and can be woken once there is enough; -EALREADY: it is not asleep; -EIO, -ETIMEDOUT: the driver failed, and the pool
 * stays asleep with its contents; -EINVAL, -ENODEV: as above. */
int vpool_resume(int device);

#ifdef __cplusplus
}
#endif

#endif
