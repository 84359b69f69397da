/* vpool: what a program may ask of the allocator, if it wants to. Nothing here is needed for the library to work.
 *
 * The functions are exported by libvpool.so, which is preloaded and not linked: find them with dlsym(RTLD_DEFAULT,
 * "vpool_stats") and so on, and go without where that gives NULL.
 *
 * All are thread-safe, and callable before CUDA is initialised (there is then nothing to tell: -ENODEV). None may be
 * called from a host function or callback of CUDA, nor from a signal handler. Errors are negative errno values; outputs
 * are untouched on failure. In a child that was forked after its parent had used CUDA there are no pools: -ENODEV. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VPOOL_H
#define VPOOL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows at its end only. Bytes are bytes, times nanoseconds; counts and times are since the process began. */
struct vpool_stats {
    size_t size;            /* in: sizeof(struct vpool_stats) as the caller knows it */
    uint64_t allocs, frees; /* calls served */
    uint64_t live_bytes;    /* handed out now, as asked for */
    uint64_t peak_live_bytes;
    uint64_t held_bytes; /* physical memory taken from the device now */
    uint64_t peak_held_bytes;
    uint64_t ooms;               /* calls that ended with out of memory */
    uint64_t waits_gpu;          /* stream waits queued for reuse across streams */
    uint64_t waits_host;         /* times that a call waited on the host */
    uint64_t driver_ns;          /* spent in the driver by the pool */
    uint64_t waits_fruitless;    /* of waits_host: those that ended with nothing gained */
    uint64_t host_wait_ns;       /* spent in waits_host */
    uint64_t written_after_free; /* with VPOOL_POISON: blocks of any device that were written to after their free */
    uint64_t spilled_bytes;      /* with VPOOL_SPILL: memory of the host, beside what is held, now */
    uint64_t peak_spilled_bytes;
    uint64_t asleep_bytes;               /* of a pause: not held until it is over */
    uint64_t given_back_bytes;           /* idle memory that went back to the device, by itself or when asked */
    uint64_t lent_bytes;                 /* of it: because another process lacked it */
    uint64_t loans_asked, loans_refused; /* times that this process asked others; that it was asked and gave nothing */
};

/* The library's version, "MAJOR.MINOR.PATCH"; a constant. */
const char *vpool_version(void);

/* The pool of a device (CUDA's ordinal, 0 to 63). The caller sets `stats->size` and owns the struct; members that this
 * version of the library does not know become 0. Returns 0; -EINVAL: no such ordinal, or `stats` is NULL or its size
 * too small to be true; -ENODEV: the device has no pool (yet). Takes the library's lock, and some microseconds. */
int vpool_stats(int device, struct vpool_stats *stats);

/* Marks a moment by a name, such as "epoch 3": a line `m,NAME,THREAD,0,MICROSECONDS` in the file that VPOOL_TRACE
 * names, between the allocations and frees before and after it; before CUDA's start marks are kept until that file
 * begins (the first 512). Of the name the first 128 bytes count; in the file commas, quotes, percent signs and control
 * characters stand as %2C and so on. It may be the caller's own memory, and is not looked at afterwards. Returns 0;
 * -EINVAL: the name is NULL or empty; -ENODEV: nothing is recorded. Costs some hundred nanoseconds where something is,
 * else a few. */
int vpool_mark(const char *name);

/* Writes what every pool of the process looks like now into an open file: a dump, the JSON object that docs/dumps.md
 * describes, whatever VPOOL_DUMP says. The descriptor stays the caller's, at the end of what was written. Returns 0;
 * -EINVAL: it is negative; -ENODEV: there is no pool, and nothing went on to CUDA; -EBUSY: another thread hangs in the
 * driver; or what write(2) failed with. Takes the library's lock for some ten nanoseconds a region, no driver call. */
int vpool_snapshot(int fd);

/* A range of the calling thread, from the push to the pop: lines `b,NAME,THREAD,DEPTH,MICROSECONDS` and
 * `e,,THREAD,DEPTH,MICROSECONDS` in the trace. Ranges of a thread lie in one another. Statistics and dumps tell, for
 * each name, the most bytes that were alive while a range of that name was open, with or without a trace; dumps tell
 * the range that each thread is in. A name counts as vpool_mark's does. Both return the depth of the range, 0 for the
 * outermost; push -EINVAL: the name is NULL or empty, -ENOMEM: 128 threads are in ranges already; pop -ENOENT: the
 * thread is in no range. Callable at any time. Costs some hundred nanoseconds; from the first range on each allocation
 * and free costs some ten more. */
int vpool_range_push(const char *name);
int vpool_range_pop(void);

/* Gives idle physical memory back to the device until at most `keep` bytes are held. Returns the bytes given back, or a
 * negative errno (-ENODEV as above; -EINVAL: no such ordinal). Memory that queued work may still use stays. Takes some
 * 50 microseconds for each megabyte-sized handle. */
int64_t vpool_trim(int device, uint64_t keep);

/* Puts the pool of a device to sleep: what is live is copied to the host, and all memory of the pool goes back to the
 * device, for whoever works there meanwhile. vpool_resume() brings it back, to the same addresses: pointers and
 * captured graphs stay right.
 *
 * Until then the program must queue no work on the device that touches the pool's memory: it is not there. It may free
 * blocks, and it may allocate: such requests get new memory (a cache of its own may hand out what sleeps). Memory that
 * CUDA made itself (contexts, libraries' own handles) stays.
 *
 * The call first waits until the device is done with what is queued. Returns 0, or with everything as it was:
 *
 * - `-EBUSY`: a stream captures.
 * - `-ENOTSUP`: others can reach the memory: it was exported to another process or opened from one, registered with a
 *   network, bound to a multicast object; or there was an NCCL communicator of several ranks. The log says which. Also:
 *   the driver lacks a call.
 * - `-ETIMEDOUT`: the device is not done in time (10 seconds).
 * - `-ENOMEM`: the host has not so much memory.
 * - `-EALREADY`: it sleeps.
 * - `-EIO`: a call of the driver failed.
 * - `-EINVAL`, `-ENODEV`: as above.
 *
 * One error leaves it asleep, with nothing lost: -ENOTRECOVERABLE, when the driver refuses to unmap memory, and
 * then to map again what it had unmapped. vpool_resume() is to be called then, too.
 *
 * The copy takes as much host memory as is live, some tenths of a second for 32 GiB at the second time, and several
 * times as long at the first, when the system has to find that memory. It is kept for the next pause, for the system to
 * take where it is short. */
int vpool_pause(int device);

/* What becomes of the contents. */
enum {
    VPOOL_KEEP, /* kept in host memory */
    VPOOL_DROP, /* not wanted: what is read afterwards, before it is written, is undefined */
    VPOOL_FILE  /* kept in a file, which takes as much of the disk, and no name: it is gone when the process is */
};

/* Grows at its end only. What is not used is 0. */
struct vpool_pause {
    size_t size;        /* in: sizeof(struct vpool_pause) as the caller knows it */
    int contents;       /* in: VPOOL_KEEP and so on */
    unsigned wait_ms;   /* in: how long the device may take to be done; 0: 10 seconds */
    const char *file;   /* in: for VPOOL_FILE alone: the file to make, which must not exist */
    const char *reason; /* out: why it was refused, a constant, as the log has it; else NULL */
};

/* The same, in another way. A file that cannot be made: its errno. */
int vpool_pause_with(int device, struct vpool_pause *how);

/* Wakes it. 0; -ENOMEM: the device has not so much memory free: it sleeps on, and may be woken once there is;
 * -EALREADY: it does not sleep; -EIO, -ETIMEDOUT: the driver failed; it sleeps on, with its contents. -EINVAL, -ENODEV
 * as above. */
int vpool_resume(int device);

#ifdef __cplusplus
}
#endif

#endif
