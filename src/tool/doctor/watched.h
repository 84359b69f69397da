/* The program that `vpool doctor` runs under the library, and what inspecting it shows. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sys/types.h>

/* Not looked at long enough to say; without the library; with it; with it and the driver. */
enum vp_seen { VP_TOO_SHORT, VP_MISSING, VP_THERE, VP_WITH_DRIVER };

/* Starts it; it writes statistics by that pattern. It has the terminal's signals to itself from here on. Its process,
 * or -1 if it could not be started, which is told on stderr. */
pid_t vp_watched_start(char **argv, const char *library, const char *statistics);
/* Waits for its end, and looks into it meanwhile. What waitpid() has given. */
int vp_watched_end(pid_t pid, enum vp_seen *seen);
