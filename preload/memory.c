/* Doors of the driver: memory that the device hands out at once.
 *
 * Some of it is none of ours: whoever asks for it gets CUDA's own. But when it runs out, what we keep may be what is
 * missing: it is given back, waited for if need be, and the call made again (VP_TRIED). So it is at every door of a
 * call that takes memory of the device, here and in other files.
 *
 * No doors for that have: what takes a few bytes of memory that the driver has already (events, texture and
 * surface objects); what maps memory that exists, which takes page tables (cuMemMap, cuMemSetAccess,
 * cuExternalMemoryGetMapped*, cuGraphicsMapResources, imported handles and pools); copies and memsets, which
 * stage in the host's memory; and launches of kernels. A launch may load the kernel's code or make room for
 * its local memory, but CUDA does not promise that one which fails has queued nothing, and it is no call to
 * lengthen. Whoever loads lazily and runs short calls cuFuncLoad or asks for the function first. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "make.h"

VP_DOORS_MEMORY(VP_MAKE)
