/* Finds the shared statistics of processes: this user's or, for root, those of all users and containers. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "watch/shared_stats.h"

#include <sys/types.h>

enum { VP_PAGE_NAME = 48, VP_PAGE_CONTAINER = 72 };

/* A page, and the process that it is of. The page is a copy: what a stranger may cut short is not mapped. */
struct vp_page {
    struct vp_shared_stats *stats;
    int pid;                           /* as we know the process */
    int via;                           /* a process in whose root the page's folder is; 0: in ours */
    uid_t uid;                         /* the process's user, as we know it */
    char name[VP_PAGE_NAME];           /* of the file */
    char container[VP_PAGE_CONTAINER]; /* its id, as short as Docker shows it, or its name; "": in none */
};

/* Calls `take` for each until that returns something else than 0. 0, that, or a negative errno. */
int vp_pages_each(int (*take)(void *context, const struct vp_page *page), void *context);

/* How many processes the last call of it has passed over, since another version of the library writes their pages. */
unsigned vp_pages_strangers(void);

/* The file of a page whose process is still the one; -1: it is not. */
int vp_page_open(const struct vp_page *page);

enum vp_page_wish { VP_PAGE_TRIM, VP_PAGE_DUMP };
/* Raises what the process looks at. False: its page is gone. */
bool vp_page_ask(const struct vp_page *page, enum vp_page_wish wish);

/* What the process has written beside its page, under the page's name with that behind it; -1: there is nothing. Then
 * the file is removed: it is the caller's alone. */
int vp_page_take_answer(const struct vp_page *page, const char *suffix);
/* Wakes whoever sleeps on a word of the page. */
void vp_page_wake(int fd, size_t offset);
