/* What the doors of graphs in general (doors_observe.c) tell those of copies. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VP_DOORS_COPY_H
#define VP_DOORS_COPY_H

#include "doors.h"

/* A node gets these parameters: if it copies between devices, their memory is opened to it. */
void vp_copy_node(const CUgraphNodeParams *params);

#endif
