/* Shared by the files of `vpool top`: the table, however it is shown. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "tool/top/processes.h"

#include <stdio.h>

/* ---- table.c ---- */

/* The columns by which rows can be sorted, by their keys. */
struct vp_top_order {
    char key;
    const char *name;
};
extern const struct vp_top_order vp_top_orders[];
/* Is `key` one of theirs? */
bool vp_top_is_order(char key);
/* Most first; by process id and user, least first. */
void vp_top_sort(struct vp_sample *sample, char key);

/* "1.2G" */
const char *vp_top_human(char text[16], double bytes);

/* The table's head, and one row of it, without newline, with the columns for which a screen of that width has room; 0:
 * for all. */
void vp_top_head(FILE *out, const struct vp_sample *sample, unsigned width);
void vp_top_row(FILE *out, const struct vp_sample *sample, const struct vp_row *row, unsigned width);

/* Why there is no row. */
const char *vp_top_nothing(void);
/* "3 processes: 1.2G live, …" */
void vp_top_totals(FILE *out, const struct vp_sample *sample);

/* ---- watch.c: on a terminal ---- */

struct vp_top_options {
    int *pids;
    unsigned pid_count;
    double seconds; /* from one sample to the next */
    char order;
};

/* Until the user has seen enough. The exit status. */
int vp_top_watch(const struct vp_top_options *options);

/* ---- panel.c: the devices, above the table ---- */

struct vp_panel;
/* Takes a sample into the devices' history. */
void vp_panel_add(struct vp_panel **panel, const struct vp_sample *sample);
/* Draws at most `rows` lines; how many there are. Each is at most so wide, and without its newline goes to `line`. */
unsigned vp_panel_draw(const struct vp_panel *panel, unsigned rows, unsigned width,
                       void (*line)(void *context, const char *text), void *context);
void vp_panel_drop(struct vp_panel *panel);

/* ---- metrics.c: for Prometheus ---- */

/* In its text format. */
void vp_metrics_print(FILE *out, const struct vp_sample *sample);
/* Into a file, in one step: whoever reads it meanwhile gets the old one or the new one, whole. `command` is named where
 * that fails. The exit status. */
int vp_metrics_write(const char *command, const char *file, const struct vp_sample *sample);
/* serve.c. Answers over HTTP on ADDRESS:PORT, PORT or [ADDRESS]:PORT (127.0.0.1 unless told), with a new sample each
 * time, until a signal ends it. The exit status. */
int vp_metrics_serve(const char *address);
