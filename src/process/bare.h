/* Bare segments: memory for a cache that manages blocks itself and reports each of them (PyTorch's).
 *
 * A segment is a range of addresses without memory. The cache reports which of its bytes are in use. Pages with bytes
 * in use are backed; memory of the other pages may serve any other request.
 *
 * The caller keeps this order on a device: room() for a block, perhaps segment(), used() for the block. No other call
 * for that cache comes between, as the cache holds its own lock. All functions are thread-safe, and make no driver call
 * unless memory has to move. Stream handles are the driver's. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "process/process.h"

/* The stream whose work uses a segment: one for the segment's life, or unknown (`known` is false). */
struct vp_bare_stream {
    CUstream handle;
    bool known;
};

/* Makes a segment on the current context's device. `size` is rounded up to the granularity. CUDA_SUCCESS;
 * CUDA_ERROR_OUT_OF_MEMORY: addresses, a multiple of the device's memory, have run out (the cache must give segments
 * back and try again); VP_NOT_OURS: the device is not served, use ordinary memory. vp_api_free() frees the segment. */
CUresult vp_bare_segment(CUdeviceptr *out, size_t size, struct vp_bare_stream stream);

/* Does the cache of a device hold so many addresses that it should give back its segments without blocks before it gets
 * one of `size` bytes? Then tell it that there is no memory; when it has given them back and asks again, do not ask
 * this again. Only for a cache that does so, at a moment when it can. */
bool vp_bare_is_crowded(CUdevice dev, size_t size);

/* Called before the cache changes anything for a block of `size` bytes: makes sure that vp_bare_used() of a block of
 * that size will find memory, whatever its address. May wait for work of the device, but not of a capture, for a
 * bounded time. CUDA_SUCCESS; CUDA_ERROR_OUT_OF_MEMORY: there is no memory, refuse the block now; VP_NOT_OURS: the
 * device is not served or, if blocks also lie elsewhere, has no place for it. Call the second variant before a segment
 * is made for the block. */
CUresult vp_bare_room(CUdevice dev, size_t size, struct vp_bare_stream stream);
CUresult vp_bare_room_locked(CUdevice dev, size_t size, struct vp_bare_stream stream);

/* The cache also has blocks in memory outside the library: expandable segments, or a pool with its own allocator. */
extern atomic_bool vp_bare_beside;

/* The cache handed out a block much larger than the room that was made. If it fills its segment, the next one there may
 * do so, too, whatever is requested: from then on room() counts on that. */
void vp_bare_unsplit(CUdeviceptr ptr, size_t size);

/* After room was refused: may the cache still find a place without memory for the block, or get one before it asks for
 * a segment, when it collects blocks that other processes used? */
bool vp_bare_may_place(CUdevice dev, size_t size);

/* The cache has had memory pools, and may set one back to an earlier state: a freed block may then be used again at
 * once, reported by the same thread without room(), and has the bytes that it had. */
extern atomic_bool vp_bare_pools;

/* A block is used from now on, or no longer. Report every block exactly, with its address and the same size both times.
 * False: no bare segment is there. `barrier`: streams other than the segment's may have work on the block that the
 * cache does not report. `stream`, that of the use: if it is known and differs from the segment's, the segment's stream
 * is unknown from then on. vp_bare_room() must have made sure that vp_bare_used() finds memory. */
bool vp_bare_used(CUdeviceptr ptr, size_t size, struct vp_bare_stream stream);
bool vp_bare_unused(CUdeviceptr ptr, size_t size, bool barrier);

/* A block on one page that was used without asking for room has no memory: it is taken out of use, and counts as
 * refused. False: it has memory, or is not ours. */
bool vp_bare_refused(CUdevice dev, CUdeviceptr ptr, size_t size);

/* The bytes [ptr, ptr + size) will be accessed in ways that the library does not see (`size` 0: the whole segment):
 * backs them and keeps their memory until the segment is freed. CUDA_SUCCESS; CUDA_ERROR_OUT_OF_MEMORY; VP_NOT_OURS:
 * they are in no bare segment. */
CUresult vp_bare_pin(CUdeviceptr ptr, size_t size);

/* The calling thread does not take the block for which it was promised room. */
void vp_bare_lapsed(void);

/* The bare segments in which the calling thread was last promised room for a block that is yet to come; NULL: none. */
struct vp_bare *vp_bare_promised_to_caller(void);
