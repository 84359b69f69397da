/* Doors of the driver: memory that the device hands out at once.
 *
 * Some of it is none of ours: whoever asks for it gets CUDA's own. But when it runs out, what we keep may be what is
 * missing: it is given back, waited for if need be, and the call made again (VP_TRIED). So it is at every door of a
 * call that takes memory of the device, here and in other files.
 *
 * No doors for that have: what takes a few bytes of memory that the driver has already (events, texture and surface
 * objects); what maps what others have made (cuExternalMemoryGetMapped*, cuGraphicsMapResources, imported handles and
 * pools); and copies and memsets, which stage in the host's memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "make.h"

VP_DOORS_MEMORY(VP_MAKE)
