/* Progress: a line on a terminal that is rewritten, and removed at the end. A short task shows none. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vp_progress {
    bool on, shown;
    uint64_t next; /* when the line is rewritten next, ns */
};

void vp_progress_begin(struct vp_progress *p);
/* Is it time to show something? Looks at the clock. */
bool vp_progress_due(struct vp_progress *p);
void vp_progress_show(struct vp_progress *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
void vp_progress_end(struct vp_progress *p);
