/* The stacks that hold the memory of a running process, as it answers when asked. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "tool/array.h"
#include "tool/top/pages.h"
#include "base/json.h"

/* As in dumps: what a frame has not is NULL. The texts are the process's, with whatever characters. */
struct vp_asked_frame {
    char *function, *file, *module, *build_id, *address, *text;
    uint64_t line;
};

struct vp_asked_holder {
    uint64_t bytes, blocks, sampled;
    struct vp_array stack; /* of struct vp_asked_frame, the innermost first */
};

struct vp_asked {
    uint64_t device;
    bool recorded;           /* stacks are */
    struct vp_array holders; /* of struct vp_asked_holder, the largest first */
};

/* Asks the process of that page who holds most on one of its devices, and waits for a second at most. Returns NULL, or
 * what keeps it from telling, in words behind "process N". To be dropped either way. */
const char *vp_asked_take(struct vp_asked *asked, const struct vp_page *page, uint64_t device);
void vp_asked_drop(struct vp_asked *asked);

/* The frame that people know a stack by: the innermost in Python that is of no installed package, else the innermost in
 * Python, else the innermost; -1: it has none. */
int vp_asked_line(const struct vp_asked_holder *holder);
/* "function (file:line)", in characters that the terminal has room for; each other one is a question mark. */
void vp_asked_frame_text(const struct vp_asked_frame *frame, char *out, size_t room);

/* An array `holders`, as in dumps. */
void vp_asked_json(struct vp_json *j, const struct vp_asked *asked);
