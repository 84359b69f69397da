/* The start and the end of the library in a process, and what takes part in them. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* If a program loads two copies of the library, such as the one with all policies, the first serves. True in the other.
 */
extern bool vp_load_aside;
/* Called once, when the program has loaded its driver and the library is open on it. */
void vp_load_opened(void);

/* ---- first.c: which process of a run came first, and what is told when a signal ends one ---- */

/* At load, if statistics are to be printed: marks the environment, unless the parent process has. */
void vp_first_mark(void);
/* When the program has loaded its driver: from here on, a signal that ends the process, unhandled, writes statistics.
 */
void vp_first_hear_signals(void);
