/* Whether `vpool pause` may pause a process, and if not, why. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "tool/top/pages.h"

#include <limits.h>

struct vp_screened {
    int pid;
    struct vp_process process;
    uid_t uid;
    char driver[PATH_MAX];   /* the libcuda that it has loaded; "": there is none, or it may not be loaded here */
    bool cuda, nccl, shares; /* libcuda, libnccl, and shared memory of NCCL's are mapped there */
    bool library;            /* libvpool.so is mapped */
    bool page;               /* it has published a page: */
    struct vp_page is;
    struct vp_shared_stats stats;
};

/* Examines the process. False: there is no such process. */
bool vp_screen(struct vp_screened *s, int pid);
/* Why the process must not be paused; NULL: as far as is known it may be. */
const char *vp_screen_refusal(const struct vp_screened *s);
/* Reads the page again. False: it no longer exists. */
bool vp_screen_again(struct vp_screened *s);

/* Maps the page for a short time, to ask for something. NULL: that failed. */
struct vp_shared_stats *vp_screen_map(const struct vp_screened *s);
/* Sets whether `vpool top` shows that the process sleeps. */
void vp_screen_mark(const struct vp_screened *s, bool paused);
