/* What the files of `vpool top` share: the table that it shows, in whatever way. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VP_TOOL_TOP_H
#define VP_TOOL_TOP_H

#include "tool/processes.h"

#include <stdio.h>

/* The columns by which rows can be sorted, by their keys. */
struct vp_top_order {
    char key;
    const char *name;
};
extern const struct vp_top_order vp_top_orders[];
/* Is `key` one of theirs? */
bool vp_top_is_order(char key);
/* Most first; by process id, least first. */
void vp_top_sort(struct vp_sample *sample, char key);

/* The table's head, and one row of it, without newline. */
void vp_top_head(FILE *out);
void vp_top_row(FILE *out, const struct vp_sample *sample, const struct vp_row *row);

/* "3 processes: 1.2G live, …" */
void vp_top_totals(FILE *out, const struct vp_sample *sample);

struct vp_top_options {
    int *pids;
    unsigned pid_count;
    double seconds; /* from one sample to the next */
    char order;
};

/* On the terminal, until the user has seen enough. The exit status. */
int vp_top_watch(const struct vp_top_options *options);

#endif
