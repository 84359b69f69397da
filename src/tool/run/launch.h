/* Starting a program under the library: where the library is, and the environment that loads it. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vp_options;
/* What the environment asks of the program, as the library will read it. Good until it is asked again. */
const struct vp_options *vp_launch_options(void);

/* This command's own file. False, with nothing certain written: it cannot be found. */
bool vp_launch_self(char path[PATH_MAX]);

/* The library that has the policy which VPOOL_POLICY names: libvpool.so, or libvpool-compare.so for a published
 * allocator. */
const char *vp_launch_library_name(void);
/* That library, and the folder of the simulated libcuda.so.1: beside this command, as a build leaves them, or
 * where they were installed. False, with nothing written: not found. */
bool vp_launch_library(char path[PATH_MAX]);
bool vp_launch_sim(char folder[PATH_MAX]);
#define VP_LAUNCH_NO_SIM                                                                                               \
    "the simulated driver is neither beside this command (sim/) nor in " VP_PREFIX "/" VP_LIBDIR "/vpool"

/* The folder in which docs/ lies, with the pages that the help names: of the clone, or where they were installed. */
bool vp_launch_pages(char folder[PATH_MAX]);

/* Makes a folder of this user's alone for a while: in TMPDIR, unless options would take its name for a pattern or
 * nothing can be made there, else in /tmp. False, with errno and the name that was tried. */
bool vp_launch_room(const char *command, char folder[PATH_MAX]);

/* Which of the two is in LD_PRELOAD, by its name; NULL: neither. */
const char *vp_launch_preloaded(void);
/* Puts it behind what is there; libvpool-compare.so takes the place of a libvpool.so. False: its path has a character
 * that LD_PRELOAD cannot hold. */
bool vp_launch_preload(const char *library);
/* Lets the program find the simulated driver first; `capacity` (as VPOOL_SIM reads it) may be NULL. */
void vp_launch_simulate(const char *folder, const char *capacity);
/* Is that a size that a simulated device can have (src/sim/options.c), as VPOOL_SIM reads it? */
#define VP_LAUNCH_LEAST ((uint64_t)1 << 20)
#define VP_LAUNCH_MOST ((uint64_t)1 << 46)
#define VP_LAUNCH_SIZES "1M to 64T, a number with suffix K, M, G or T"
bool vp_launch_is_size(const char *text);

/* Why a program, found as execvp() does, will not load the library: a constant, or NULL where nothing speaks
 * against it. */
const char *vp_launch_obstacle(const char *program);

/* Becomes the program, whose words lie behind others of ours. Returns only if that fails: the exit status, as a shell's
 * (127: not found, else 126), after a message of `command`. */
int vp_launch_exec(const char *command, char **argv);
