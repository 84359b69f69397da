/* The table of the doors, which is above them all. What looks a door up finds it here and calls none. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"

#include <dlfcn.h>
#include "doors.h"
#include "nccl.h"
#include "runtime.h"

const struct vp_door_table vp_door_table = {
#define DOOR(symbol, ...) symbol,
    .driver = {VP_DOORS_DRIVER(DOOR)},
    .runtime = {VP_DOORS_RUNTIME(DOOR)},
    .nccl = {VP_DOORS_NCCL(DOOR)},
#undef DOOR
    .dlsym = dlsym,
    .dlvsym = dlvsym,
};
