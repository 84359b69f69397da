/* What the files of the guests of two devices share. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "guest.h"

enum { SIZE = 1 << 20 };

extern CUcontext context[2];
extern CUstream stream[2];

void *sim(const char *name);
void hold(CUstream which);
void *release_later(void *which);
void start(void);
void enter(int device);
CUdeviceptr take(int device, bool async);
bool can_reach(void);
void check_bytes(CUdeviceptr ptr, unsigned char value);

/* ---- devices_nodes.c ---- */

/* A copy of SIZE bytes. */
CUDA_MEMCPY3D row(CUdeviceptr dst, CUdeviceptr src);
void nodes_are_as_others(void);
void nodes_run_where_their_memory_is(void);
void graphs_have_no_copies_between_devices_apart(void);

/* ---- devices_current.c ---- */

void copies_do_not_mind_what_is_current(void);
void a_graphs_other_device_is_waited_for(void);
void so_is_that_of_one_captured_there(void);
void so_is_that_of_a_node(void);
void so_is_that_of_a_graph_within(void);
void poison_waits_for_another_devices_graphs(void);
void poison_waits_for_another_devices_copies(void);
void batches_leave_captures_alone(void);
void room_is_the_pools_own_devices(void);
