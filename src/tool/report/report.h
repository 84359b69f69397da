/* The page of `vpool report`, for other commands that write one. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* Writes the page for traces and dumps, replayed under vpool's policy. 0, or 1 with a message on stderr in that
 * command's name. */
int vp_report_write(const char *command, const char *output, char **inputs, size_t count);
