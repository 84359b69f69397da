/* Starting a program under the library: where the library is, and the environment that loads it. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vp_options;
/* Returns the options in the environment as the library will read them. Valid until the next call. */
const struct vp_options *vp_launch_options(void);

/* Finds this command's own file. False: not found; what is written then is undefined. */
bool vp_launch_self(char path[PATH_MAX]);

/* Returns the name of the library that has the policy of VPOOL_POLICY: libvpool.so, or libvpool-compare.so for a
 * published allocator. */
const char *vp_launch_library_name(void);
/* Finds that library, and the folder of the simulated libcuda.so.1: beside this command, as in a build folder, or where
 * they were installed. False, with nothing written: not found. */
bool vp_launch_library(char path[PATH_MAX]);
bool vp_launch_sim(char folder[PATH_MAX]);
#define VP_LAUNCH_NO_SIM                                                                                               \
    "the simulated driver is neither beside this command (sim/) nor in " VP_PREFIX "/" VP_LIBDIR "/vpool"

/* Finds the folder that contains docs/, with the pages that the help names: in the clone, or where they were installed.
 */
bool vp_launch_pages(char folder[PATH_MAX]);

/* Makes a temporary folder for this user only: in TMPDIR, unless options would take its name for a pattern or it cannot
 * be used, else in /tmp. False, with errno and the name that was tried. */
bool vp_launch_room(const char *command, char folder[PATH_MAX]);

/* Returns the name of the library of the two that is in LD_PRELOAD; NULL: neither. */
const char *vp_launch_preloaded(void);
/* Adds the library at the end of LD_PRELOAD; libvpool-compare.so replaces a libvpool.so. False: its path has a
 * character that LD_PRELOAD cannot hold. */
bool vp_launch_preload(const char *library);
/* Makes the program find the simulated driver first; `capacity` (as in VPOOL_SIM) may be NULL. */
void vp_launch_simulate(const char *folder, const char *capacity);
/* Is that a valid size for a simulated device (src/sim/options.c), as in VPOOL_SIM? */
#define VP_LAUNCH_LEAST ((uint64_t)1 << 20)
#define VP_LAUNCH_MOST ((uint64_t)1 << 46)
#define VP_LAUNCH_SIZES "1M to 64T, a number with suffix K, M, G or T"
bool vp_launch_is_size(const char *text);

/* Why a program, found as by execvp(), will not load the library: a constant, or NULL if nothing prevents it. */
const char *vp_launch_obstacle(const char *program);

/* Executes the program, whose arguments follow others of ours in memory. Returns only if that fails: the exit status,
 * as a shell's (127: not found, else 126), after a message of `command`. */
int vp_launch_exec(const char *command, char **argv);
