/* Bare segments: memory for a cache that keeps its own books, and tells of every block (PyTorch's).
 *
 * A segment is a range of addresses without memory. The cache says which of its bytes are used and which are not; the
 * pages under used bytes are backed, and what lies under no used byte may serve anybody else.
 *
 * Who calls keeps this order on a device: room() for a block, perhaps segment(), used() for the block; nothing else of
 * that cache comes between, as it holds its own lock. All are thread-safe, and make no driver call while nothing moves.
 * Streams are handles as the driver knows them. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "process/process.h"

/* Which stream's work touches a segment: one for its life, or none that is known (then `known` is false). */
struct vp_bare_stream {
    CUstream handle;
    bool known;
};

/* A new segment on the current context's device. `size`: any, rounded up to the granularity. CUDA_SUCCESS and its
 * address; CUDA_ERROR_OUT_OF_MEMORY: addresses have come to an end, which are a multiple of the device's memory (the
 * cache is to give segments back and try again); VP_NOT_OURS: the device is not served, take ordinary memory. It is
 * freed by vp_api_free(), as any other memory. */
CUresult vp_bare_segment(CUdeviceptr *out, size_t size, struct vp_bare_stream stream);

/* Does the cache of a device keep so many addresses that it should give back the segments without a block before it
 * gets one of `size` bytes? Then it is to hear that there is no memory, and to give them back before it asks again, for
 * which this is not to be asked. Only for a cache that does so, at a moment when it can. */
bool vp_bare_is_crowded(CUdevice dev, size_t size);

/* Before the cache changes anything for a block of `size` bytes: makes sure that vp_bare_used() of a block of that size
 * will find memory, whatever its address. May wait for work of the device (never for a capture's), for a bounded time.
 * CUDA_SUCCESS; CUDA_ERROR_OUT_OF_MEMORY: there is none, refuse the block now; VP_NOT_OURS: the device is not served,
 * or has no place for it, where blocks lie elsewhere, too: the second is called before a segment is made for it. */
CUresult vp_bare_room(CUdevice dev, size_t size, struct vp_bare_stream stream);
CUresult vp_bare_room_locked(CUdevice dev, size_t size, struct vp_bare_stream stream);

/* The cache has blocks in memory that is none of the library's: expandable segments, or a pool's own allocator's. */
extern atomic_bool vp_bare_beside;

/* A block has come that is much larger than what room was made for. If it is all of its segment, so may the next be
 * there, whatever is asked for: from then on there must be room for that. */
void vp_bare_unsplit(CUdeviceptr ptr, size_t size);

/* Where room was refused: may the cache have a place without memory for the block all the same, or come to have one
 * before it asks for a segment, as it collects what other processes were shown? */
bool vp_bare_may_place(CUdevice dev, size_t size);

/* The cache has had pools of memory, and may set one back: a block that is used no more may be used again right after,
 * told of by the same thread with no room() before, and then has the bytes that it had. */
extern atomic_bool vp_bare_pools;

/* A block is used from now on, or no more; must be told exactly of every block, by its address and the same size both
 * times. False: no bare segment lies there. `barrier`: streams other than the segment's may still have work on it that
 * the cache does not tell of. `stream` of the use: where it is known, and is another than the segment's, the segment's
 * is unknown from then on. vp_bare_used() must not be the first to learn that there is no memory: vp_bare_room(). */
bool vp_bare_used(CUdeviceptr ptr, size_t size, struct vp_bare_stream stream);
bool vp_bare_unused(CUdeviceptr ptr, size_t size, bool barrier);

/* A block on one page, used without a question for room, has no memory: it is used no more, and counts as refused.
 * False: it has some, or none of ours. */
bool vp_bare_refused(CUdevice dev, CUdeviceptr ptr, size_t size);

/* Somebody is to touch [ptr, ptr + size) by ways that we do not see (`size` 0: the whole segment): it is backed, and
 * keeps its memory until the segment is freed. CUDA_SUCCESS; CUDA_ERROR_OUT_OF_MEMORY; VP_NOT_OURS: none lies there. */
CUresult vp_bare_pin(CUdeviceptr ptr, size_t size);

/* The block that the calling thread was promised room for does not come. */
void vp_bare_lapsed(void);

/* Where the calling thread was promised room last, for a block that has yet to come; NULL: nowhere. */
struct vp_bare *vp_bare_promised_to_caller(void);
