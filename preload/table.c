/* The table of the doors. It lies above all of them: look-ups find doors here and call none. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"

#include <dlfcn.h>
#include "doors.h"
#include "runtime.h"

/* NCCL's functions and C++ functions: only their names are known here. */
#define DECLARE(symbol, ...) __attribute__((visibility("default"))) extern void symbol(void);
#define DECLARE_PASSED(name, symbol) DECLARE(symbol)
VP_DOORS_NCCL(DECLARE)
VP_DOORS_TORCH_TOLD(DECLARE)
VP_DOORS_TORCH_PASSED(DECLARE_PASSED)

const struct vp_door_table vp_door_table = {
#define DOOR(symbol, ...) symbol,
    .driver = {VP_DOORS_DRIVER(DOOR)},
    .runtime = {VP_DOORS_RUNTIME(DOOR)},
    .nccl = {VP_DOORS_NCCL(DOOR)},
#define DOOR_PASSED(name, symbol) symbol,
    .torch = {VP_DOORS_TORCH_PASSED(DOOR_PASSED) VP_DOORS_TORCH_TOLD(DOOR)},
#undef DOOR_PASSED
#undef DOOR
    .dlsym = dlsym,
    .dlvsym = dlvsym,
};
