/* `vpool run --report`: records a program, and writes its page when it has ended. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* Runs a program whose environment is set up, waits for it, and writes the page of what it and its children recorded. A
 * trace that the environment names already (VPOOL_TRACE) stays, another is removed. `quiet`: without the three lines at
 * the end. Returns the program's exit status; ends by the same signal, where it did. */
int vp_record_run(const char *page, char **argv, bool quiet);
