/* What the unit tests of the pool stand on: the simulated driver, linked directly, and on it either a pool
 * driven by itself (fx_) or the calls that the doors make (door_). */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <criterion/criterion.h>

#include "../common/doors.h"
#include "../common/fewer.h"
#include "base/clock.h"
#include "compare/compare.h"
#include "sim.h"

/* How long that takes at least, of fifty times: whatever else the machine does, one of them is left alone. */
#define LEAST_NS(...)                                                                                                  \
    ({                                                                                                                 \
        uint64_t least_ = UINT64_MAX;                                                                                  \
        for (int try_ = 0; try_ < 50; try_++) {                                                                        \
            const uint64_t begin_ = vp_clock_ns();                                                                     \
            __VA_ARGS__;                                                                                               \
            const uint64_t took_ = vp_clock_ns() - begin_;                                                             \
            least_ = took_ < least_ ? took_ : least_;                                                                  \
        }                                                                                                              \
        least_;                                                                                                        \
    })

#define KiB ((size_t)1 << 10)
#define MiB ((size_t)1 << 20)
#define GiB ((size_t)1 << 30)

/* Asserts that a driver call succeeds. */
#define cu_ok(call)                                                                                                    \
    do {                                                                                                               \
        CUresult cu_ok_ = (call);                                                                                      \
        cr_assert(!cu_ok_, "%s:%d: %s: %d", __FILE__, __LINE__, #call, cu_ok_);                                        \
    } while (0)

/* The driver table from the simulator linked to this program, without what its `driver=` version lacks. */
void fx_driver(struct vp_driver *drv);

/* ---- a pool by itself ---- */

enum { FX_STREAMS = 5 };

/* The one of this process: Criterion gives each test its own. */
extern struct fixture {
    struct vp_driver drv;
    struct vp_timelines timelines;
    struct vp_pool pool;
    CUcontext handle; /* the primary context of device 0 */
    struct vp_context *context;
    CUstream stream[FX_STREAMS]; /* non-blocking ones, from 1 on; 0 stands for no stream: cudaMalloc and
                                    cudaFree */
    CUdeviceptr scratch;         /* native memory that queued work may write to */
    int waits;                   /* of the requests: VP_WAITS_EARLY at first */
    int awaits;                  /* host waits that were asked for */
    bool lossy;                  /* a giving-back call was made to fail: what it was for may stay at the driver */
} fx;

/* Simulator, context, streams and lines. */
void fx_open(const char *sim);
/* The same and a pool; `config` NULL: handles of 1 MiB at most, 1 GiB of addresses. */
void fx_open_pool(const char *sim, const struct vp_policy *policy, const struct vp_pool_config *config);
/* Proves the pool sound, gives everything back, and that nothing leaked and no queued work was wronged. */
void fx_close(void);

/* Stream 0: a synchronous call. fx_try returns the pool's errno; a host wait that could not succeed is given
 * up at once. */
int fx_try(size_t size, int stream, CUdeviceptr *out);
CUdeviceptr fx_alloc(size_t size, int stream);
/* A synchronous free has a barrier of its own; a stream's as the pool wants it. */
void fx_free(CUdeviceptr addr, int stream);
/* Work that does not run until fx_idle(). */
void fx_busy(int stream);
void fx_idle(int stream);
/* All calls that the pool has made to the driver. */
uint64_t fx_calls(void);

/* Runs a script of words, and proves the pool sound after each. Sizes are multiples of `unit`.
 *   S2            from here on stream 2 is meant (at first 1); S0: cudaMalloc and cudaFree
 *   a+4 a!4       allocates a (one letter) of 4 units; must be out of memory
 *   a-            frees it
 *   a@b a>b a^b   a begins where b did; right behind b; shares no byte with it
 *   busy2 idle2   queues work on stream 2 that does not run; lets it run
 *   early late never   when streams may wait
 *   mark quiet    since the mark the pool has called the driver: not at all
 *   held=4        units of physical memory; and since the mark: grown= (units),
 *                 waits=, awaits=, stitches=, retaken= (numbers)
 *   trim          gives back what is idle */
void fx_script(const char *text, size_t unit);

/* ---- the doors' calls, beside those of doors.h ---- */

/* Simulator, primary context of device 0, and vp_api_open(). Options are environment variables, to be set
 * before it. */
CUcontext door_open(const char *sim);
/* Every pool is sound and no queued work was wronged. */
void door_close(void);

/* Succeeding ones. */
CUstream door_stream(unsigned flags);
CUcontext door_context(int device);
/* And served by the library. */
CUdeviceptr door_take(size_t size, CUstream stream);
CUdeviceptr door_malloc(size_t size);
