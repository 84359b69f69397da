/* The data of the page, as columns of numbers: see columns.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "tool/out.h"
#include "tool/progress.h"
#include "tool/replay/record.h"

/* The page that is being written. */
struct vp_page {
    FILE *file, *index; /* the page; the description of its columns, in JSON, which is written after them */
    const char *name;   /* of the input, for people */
    size_t inputs;      /* described so far, which is the next one's number */
    size_t groups;      /* recordings so far, each of one input for each device */
    struct vp_progress progress;
};

/* Writes what happened, whoever served it, and when others looked at it. */
void vp_page_put_trace(struct vp_page *page, const struct vp_trace *t);
/* Writes what all devices of a recording share: stacks, and the names of marks and ranges. 0 or -ENOMEM. */
int vp_page_put_group(struct vp_page *page, const struct vp_trace *whole);
/* Writes how one policy served it. */
void vp_page_put_run(struct vp_page *page, const struct vp_record *r);
/* Writes a file unchanged. */
void vp_page_put_bytes(struct vp_page *page, const char *name, const char *bytes, size_t length);
