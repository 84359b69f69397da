/* Doors of the driver: memory that is allocated at once, not in stream order.
 *
 * CUDA itself serves some of these calls. If one fails for lack of memory, memory that the pool keeps may be what is
 * missing: the pool gives it back, waits for pending work if need be, and the call is made again (VP_TRIED). The same
 * holds for every door, here and in other files, whose call takes device memory.
 *
 * These have no such doors: calls that take a few bytes of memory which the driver has already (events, texture and
 * surface objects); calls that map what others have made (cuExternalMemoryGetMapped*, cuGraphicsMapResources, imported
 * handles and pools); copies and memsets, which are staged in host memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "make.h"
#include "torch.h"

VP_DOORS_MEMORY(VP_MAKE)
