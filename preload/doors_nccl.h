/* The doors of libnccl, for resolve.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VP_DOORS_NCCL_H
#define VP_DOORS_NCCL_H

/* What to hand out for NCCL's function `real`, found by `name` in a handle: our door, or `real` itself. */
void *vp_nccl_exchange(const char *name, void *real);

#endif
