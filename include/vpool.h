/* vpool: what a program may ask of the allocator, if it wants to. Nothing here is needed for the library to work.
 *
 * The functions are exported by libvpool.so, which is preloaded and not linked: find them with dlsym(RTLD_DEFAULT,
 * "vpool_stats") and so on, and go without where that gives NULL.
 *
 * All are thread-safe, and callable before CUDA is initialised (there is then nothing to tell: -ENODEV). None may be
 * called from a host function or callback of CUDA, nor from a signal handler. Errors are negative errno values; outputs
 * are untouched on failure. In a child that was forked after its parent had used CUDA there are no pools: -ENODEV.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
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
    uint64_t ooms;            /* calls that ended with out of memory */
    uint64_t waits_gpu;       /* stream waits queued for reuse across streams */
    uint64_t waits_host;      /* times that a call waited on the host */
    uint64_t driver_ns;       /* spent in the driver by the pool */
    uint64_t waits_fruitless; /* of waits_host: those that ended with nothing gained */
    uint64_t host_wait_ns;    /* spent in waits_host */
};

/* The library's version, "MAJOR.MINOR.PATCH"; a constant. */
const char *vpool_version(void);

/*
 * The pool of a device (CUDA's ordinal, 0 to 63). The caller sets `stats->size` and owns the struct; members that this
 * version of the library does not know become 0. Returns 0; -EINVAL: no such ordinal, or `stats` is NULL or its size
 * too small to be true; -ENODEV: the device has no pool (yet). Takes the library's lock, and some microseconds.
 */
int vpool_stats(int device, struct vpool_stats *stats);

/*
 * Marks a moment by a name, such as "epoch 3": a line `m,NAME,THREAD,0,MICROSECONDS` in the file that VPOOL_TRACE
 * names, between the allocations and frees before and after it; before CUDA's start marks are kept until that file
 * begins (the first 512). Of the name the first 128 bytes count; in the file commas, quotes, percent signs and control
 * characters stand as %2C and so on. It may be the caller's own memory, and is not looked at afterwards. Returns 0;
 * -EINVAL: the name is NULL or empty; -ENODEV: nothing is recorded. Costs some hundred nanoseconds where something is,
 * else a few.
 */
int vpool_mark(const char *name);

/*
 * Writes what every pool of the process looks like now into an open file: a dump, the JSON object that docs/dumps.md
 * describes, whatever VPOOL_DUMP says. The descriptor stays the caller's, at the end of what was written. Returns 0;
 * -EINVAL: it is negative; -ENODEV: there is no pool, and nothing went on to CUDA; -EBUSY: another thread hangs in the
 * driver; or what write(2) failed with. Takes the library's lock for some ten nanoseconds a region, no driver call.
 */
int vpool_snapshot(int fd);

/*
 * A range of the calling thread, from the push to the pop: lines `b,NAME,THREAD,DEPTH,MICROSECONDS` and
 * `e,,THREAD,DEPTH,MICROSECONDS` in the trace. Ranges of a thread lie in one another. Statistics and dumps tell, for
 * each name, the most bytes that were alive while a range of that name was open, with or without a trace; dumps tell
 * the range that each thread is in. A name counts as vpool_mark's does. Both return the depth of the range, 0 for the
 * outermost; push -EINVAL: the name is NULL or empty, -ENOMEM: 128 threads are in ranges already; pop -ENOENT: the
 * thread is in no range. Callable at any time. Costs some hundred nanoseconds; from the first range on each allocation
 * and free costs some ten more.
 */
int vpool_range_push(const char *name);
int vpool_range_pop(void);

/*
 * Gives idle physical memory back to the device until at most `keep` bytes are held. Returns the bytes given back, or a
 * negative errno (-ENODEV as above; -EINVAL: no such ordinal). Memory that queued work may still use stays. Takes some
 * 50 microseconds for each megabyte-sized handle.
 */
int64_t vpool_trim(int device, uint64_t keep);

#ifdef __cplusplus
}
#endif

#endif
