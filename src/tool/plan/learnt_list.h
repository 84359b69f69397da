/* The plans that runs have written (VPOOL_PLAN): where they are, and what is wrong with them. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/learnt/learnt_file.h"
#include "tool/array.h"

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

/* The folder of VPOOL_PLAN=auto: ${XDG_CACHE_HOME:-~/.cache}/vpool/plans. False: no variable says where it is. */
bool vp_learnt_folder(char folder[PATH_MAX]);

struct vp_learnt_entry {
    char path[PATH_MAX];
    const char *name; /* the path's last part */
    off_t bytes;
    time_t written;
    int err; /* as from vp_learnt_load(); if not 0, `why` explains it */
    char why[160];
    struct vp_learnt plan; /* valid if there is no error */
};

/* Examines one plan; `name` is a path, or the name of a file in the folder. To be finished in either case. */
void vp_learnt_look(struct vp_learnt_entry *entry, const char *name);
void vp_learnt_looked(struct vp_learnt_entry *entry);

/* Lists the names of the folder's plans, in order. A plan begins as one, or is no file that may be read. Returns 0,
 * -ENOENT (there is no folder) or another errno; vp_learnt_named() finishes `names`, which are char *. */
int vp_learnt_names(const char *folder, struct vp_array *names);
void vp_learnt_named(struct vp_array *names);

/* Its age, for people: "5 min". */
const char *vp_learnt_age(time_t written, char text[32]);

/* `vpool plan show` and `vpool plan forget`, as the commands of tool.h. */
int vp_learnt_show(int argc, char **argv);
int vp_learnt_forget(int argc, char **argv);

/* Prints what `vpool doctor` says of plans: whether VPOOL_PLAN is on, which plans there are, and what is wrong. `mark`:
 * 0 is ok, 1 something to know, 2 something to do. */
void vp_learnt_doctor(const char *option, bool stalloc,
                      void (*say)(int mark, const char *format, ...) __attribute__((format(printf, 2, 3))));

/* How well the plan of a process fitted, read from its statistics value by value (vp_json_read()); and what `vpool
 * doctor` says of it: nothing if no plan was wanted. `which` is "the program" or "its child". */
struct vp_learnt_told {
    bool wanted, used;
    unsigned long long requests, placed;
};
void vp_learnt_take(struct vp_learnt_told *told, const char *path, const char *value);
void vp_learnt_fitted(const struct vp_learnt_told *told, const char *which, const char *pid,
                      void (*say)(int mark, const char *format, ...) __attribute__((format(printf, 2, 3))));
