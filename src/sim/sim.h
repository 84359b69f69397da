/* The simulated CUDA driver: what a test may ask of it beyond CUDA's own calls.
 *
 * libcuda.so.1 of this folder implements enough of the CUDA driver API to run an allocator without a GPU. It
 * refuses what the real driver refuses and runs queued work late on purpose, so that a missing order shows as
 * wrong data. One environment variable configures it, read by the first call; or vp_sim_configure does:
 *
 *     VPOOL_SIM="capacity=64M,granularity=64K,lazy=90,fail=cuMemMap:3"
 *
 *   backing=bytes|ledger  bytes: device pointers are host addresses, data is real (default). ledger: nothing
 *                         lies behind a pointer, copies and memsets do nothing, any capacity can be had
 *   capacity=256M         physical memory of each device (suffixes K, M, G, T); 1G:256M: of the first, of all others
 *   granularity=2M        of handles and of reservations, a power of two from 64K
 *   host=1T               memory of the host that handles of cuMemCreate may take (HOST_NUMA); 0: there are none such
 *   devices=1             1 to 8
 *   visible=1:0           those of them that are shown, in this order, as by CUDA_VISIBLE_DEVICES (default: all)
 *   peers=1               0: no device can access another's memory; copies between them are staged
 *   driver=13000          what cuDriverGetVersion answers; younger entry points do not exist for cuGetProcAddress, and
 *                         refuse (NOT_SUPPORTED) whoever found them by dlsym, as libvpool.so does: for that there
 *                         are libraries without them (tests/process/preload/old_driver)
 *   vmm=1                 0: devices without virtual memory management; 1:0: but for the first one
 *   decompress=0          1: devices with an engine that decompresses
 *   lazy=50               0: work runs at the next driver call; 100: hardly before somebody waits for it
 *   memset=wait|late      whether plain memsets and device-to-device copies wait for their work (default), or
 *                         return early as the real ones do
 *   managed=stays|moves   whether managed memory keeps what it has of its device (default), or lies there as long as
 *                         nobody else wants that, and is not free meanwhile
 *   timeout=5000          milliseconds after which a wait that nothing can satisfy gives up (LAUNCH_TIMEOUT)
 *   seed=1                of the order in which streams progress
 *   shared=FILE           processes that name the same file have their devices in common: what one has taken the
 *                         others lack. Amounts only; what a dead process had comes back. One can checkpoint
 *                         another there (cuCheckpointProcess...), whose driver calls wait meanwhile
 *   fail=NAME:N           the Nth call of NAME fails with OUT_OF_MEMORY; NAME:N+ from the Nth on; *:N the Nth
 *                         of all calls that may fail (queries and what gives back are not among them);
 *                         NAME:N+:801 with another error (NOT_SUPPORTED). Can be given several times. cuMemAlloc names
 * cuMemAlloc_v2 too delay=NAME:MS         each call of NAME takes so many milliseconds more; NAME:MS+ after it has done
 * what it does trace=1               every call on stderr
 *
 * All functions here may be called from any thread, before cuInit too. Simulated time is the cost that the
 * calls had on one H200, and never a claim about this machine. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Applies a string of the syntax above over the defaults. Best called before cuInit; 0, or -EINVAL when a
 * part of it was wrong (that part is reported on stderr and ignored). */
int vp_sim_configure(const char *text);

/* Frees everything that lives in the simulator and forgets the configuration: the state of a library just
 * loaded. No other thread may be inside a driver call. */
void vp_sim_reset(void);

/* How often a driver function was called since the reset, failed calls included. NULL: all of them. */
unsigned long vp_sim_calls(const char *name);

/* Lets the nth call from now (1 is the next) of a function fail with the given result; NULL means any call
 * that may fail. A negative nth means that call and all later ones; 0 forgets every rule of that name. */
void vp_sim_fail(const char *name, long nth, CUresult result);

/* Sets how much of a device other processes have; VP_SIM_ALL: all that is left, and at once all that becomes free. */
#define VP_SIM_ALL SIZE_MAX
void vp_sim_others(int device, size_t bytes);

/* Work queued on a held stream does not run. The handles 0, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD mean
 * those of the calling thread and its current context. */
void vp_sim_hold(CUstream stream);
void vp_sim_release(CUstream stream);

/* Runs up to n queued operations, chosen at random among those that may run now. Returns how many ran. */
int vp_sim_step(int n);

/* Operations queued and not yet run, over all streams. */
size_t vp_sim_pending(void);

/* Bytes of physical memory in use on a device, of all kinds. */
size_t vp_sim_used(int device);

/* Physical bytes of VMM handles alone. */
size_t vp_sim_used_vmm(int device);

/* Returns what a device may do at an address where a handle is mapped, as cuMemGetAccess says; -1: there is no mapping.
 * This is the driver's own answer, whoever has mapped it. */
int vp_sim_access(CUdeviceptr at, int device);

/* Lists what still exists (handles, mappings, reservations, allocations, streams, events, graphs) on a stdio stream,
 * which may be NULL, and returns the number. Contexts and pools are not counted. */
size_t vp_sim_leaks(FILE *out);

/* How often something was done that the real device would punish with a fault or with wrong data: queued
 * work touched memory that is not there, memory was taken away under queued work, a destroyed handle was
 * used. Each is printed. */
unsigned long vp_sim_violations(void);

/* Reports each memset when it runs: the address, the bytes from the first to the last, and the value written, whatever
 * its width. NULL: stops the reports. Called inside the simulator: no driver call may be made there. With
 * `backing=ledger`, this is all that is left of the data. */
typedef void vp_sim_fill_fn(CUdeviceptr at, size_t bytes, uint32_t value);
void vp_sim_watch_fills(vp_sim_fill_fn *told);

/* The same for each copy of one row to the device. */
typedef void vp_sim_copy_fn(CUdeviceptr to, CUdeviceptr from, size_t bytes);
void vp_sim_watch_copies(vp_sim_copy_fn *told);

/* Nanoseconds that all driver calls so far would have cost. */
uint64_t vp_sim_cost_ns(void);

/* From now until the reset, the clock is modelled, in nanoseconds from 0. Nothing is random then (`lazy` and `seed`
 * have no effect), and queues are unlimited. Only kernels take time: streams that run one share the device equally, and
 * all devices count as one. Other work is done as soon as what it waits for is. Driver calls advance the clock by their
 * cost, and waits of the host advance it to the end of what they wait for. */
void vp_sim_time_start(void);
uint64_t vp_sim_now(void);
void vp_sim_advance(uint64_t nanoseconds);

/* Queues a kernel that takes so long if no other stream runs one. NOT_INITIALIZED without a modelled clock,
 * NOT_SUPPORTED in a capture; otherwise refused as other work is. */
CUresult vp_sim_kernel(CUstream stream, uint64_t nanoseconds);

/* From here on, the stream waits for what the other stream of the same context was given so far. Errors as of
 * vp_sim_kernel(). */
CUresult vp_sim_follow(CUstream stream, CUstream other);

/* Returns when the next kernel will be done, if nothing is queued before; UINT64_MAX if none runs. */
uint64_t vp_sim_next_completion(void);

/* Returns when everything queued so far will be done, at least the current time, if nothing is held up for good. */
uint64_t vp_sim_idle_at(void);

#ifdef __cplusplus
}
#endif
