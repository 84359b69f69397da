/* What the files of the guests of two devices share. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICES_H
#define DEVICES_H

#include <stdbool.h>

#include "guest.h"

enum { SIZE = 1 << 20 };

extern CUcontext context[2];
extern CUstream stream[2];

void start(void);
void enter(int device);
CUdeviceptr take(int device, bool async);
void check_bytes(CUdeviceptr ptr, unsigned char value);

/* ---- devices_nodes.c ---- */

void nodes_are_as_others(void);
void nodes_run_where_their_memory_is(void);
void old_drivers_have_no_node_between(void);
void nodes_are_made_unseen(void);

#endif
