/* Whether `vpool pause` may pause a process, and if not, why. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "tool/top/pages.h"

#include <limits.h>

struct vp_screened {
    int pid;
    struct vp_process process;
    uid_t uid;
    char driver[PATH_MAX];   /* the libcuda that it has loaded, if that may be loaded here, too; "": not */
    bool cuda, nccl, shares; /* libcuda, libnccl, and shared memory of NCCL's are mapped there */
    bool library;            /* libvpool.so is */
    bool page;               /* and has published one: */
    struct vp_page is;
    struct vp_shared_stats stats;
};

/* Looks at the process. False: there is none. */
bool vp_screen(struct vp_screened *s, int pid);
/* Why it is not to be paused; NULL: as far as is known it may be. */
const char *vp_screen_refusal(const struct vp_screened *s);
/* Its page, read anew. False: it is gone. */
bool vp_screen_again(struct vp_screened *s);

/* The page in memory, for a moment, to ask for something; NULL: it is not to be had. */
struct vp_shared_stats *vp_screen_map(const struct vp_screened *s);
/* Whether `vpool top` is to show that it sleeps. */
void vp_screen_mark(const struct vp_screened *s, bool paused);
