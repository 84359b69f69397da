/* The library's beginning and end in a process, and what has a part in them. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* Of two of us in one program, the one with all policies say, the one that is found first serves. This is another. */
extern bool vp_load_aside;
/* The program has its driver and the library is open on it. Once. */
void vp_load_opened(void);

/* ---- first.c: which process of a run came first, and what is told when a signal ends one ---- */

/* At load, where statistics are to be printed: marks the environment, unless the parent has. */
void vp_first_mark(void);
/* When the program has its driver: statistics are written, too, where a signal ends the process that it has no handler
 * for. */
void vp_first_hear_signals(void);
