/*
 * vpool: what a program may ask of the allocator, if it wants to. Nothing here is needed for the library to work.
 *
 * The functions are exported by libvpool.so, which is preloaded and not linked: find them with dlsym(RTLD_DEFAULT, "vpool_stats") and so on, and
 * go without where that gives NULL.
 *
 * All are thread-safe, and callable before CUDA is initialised (there is then nothing to tell: -ENODEV). None may be called from a host function
 * or callback of CUDA. Errors are negative errno values; outputs are untouched on failure.
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
    size_t size;                /* in: sizeof(struct vpool_stats) as the caller knows it */
    uint64_t allocs, frees;     /* calls served */
    uint64_t live_bytes;        /* handed out now, as asked for */
    uint64_t peak_live_bytes;
    uint64_t held_bytes;        /* physical memory taken from the device now */
    uint64_t peak_held_bytes;
    uint64_t ooms;              /* calls that ended with out of memory */
    uint64_t waits_gpu;         /* stream waits queued for reuse across streams */
    uint64_t waits_host;        /* times that a call waited on the host */
    uint64_t driver_ns;         /* spent in the driver by the pool */
};

/* The library's version, "MAJOR.MINOR.PATCH"; a constant. */
const char *vpool_version(void);

/* The pool of a device (CUDA's ordinal). -EINVAL: `stats->size` is too small to be true; -ENODEV: the device has no pool (yet). */
int vpool_stats(int device, struct vpool_stats *stats);

/*
 * Gives idle physical memory back to the device until at most `keep` bytes are held. Returns the bytes given back, or a negative errno (-ENODEV as
 * above). Memory that queued work may still use stays. Takes some 50 microseconds for each megabyte-sized handle.
 */
int64_t vpool_trim(int device, uint64_t keep);

#ifdef __cplusplus
}
#endif

#endif
