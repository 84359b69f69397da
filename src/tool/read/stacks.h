/* The stacks of a recording. A stack is a frame and the stack that called it, so stacks share their outer parts.
 *
 * Number 0 is no stack. A stack's parent has a lower number than itself. As recorded, frames of native code are
 * positions in modules; vp_stacks_name() looks up their names. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "tool/array.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum vp_frame_kind { VP_FRAME_PYTHON = 'p', VP_FRAME_NATIVE = 'c', VP_FRAME_TEXT = 't' };

struct vp_frame {
    enum vp_frame_kind kind;
    char *name;      /* the function, or the text; for native code, NULL until it is named */
    char *file;      /* the source file; NULL: unknown */
    uint32_t line;   /* 0: unknown */
    uint32_t module; /* for native code */
    uint64_t offset; /* in that module's file addresses */
};

struct vp_module {
    char *path, *build_id;
};

struct vp_stack {
    uint32_t parent, frame;
    uint32_t depth; /* how many frames: this one and its callers */
};

struct vp_stacks {
    struct vp_array modules; /* of struct vp_module */
    struct vp_array frames;  /* of struct vp_frame */
    struct vp_array stacks;  /* of struct vp_stack; the first stands for no stack */
    bool named;
    char *complaint; /* why frames have no names, or NULL */
};

void vp_stacks_finish(struct vp_stacks *s);

static inline const struct vp_stack *vp_stacks_at(const struct vp_stacks *s, uint32_t stack) {
    return (const struct vp_stack *)s->stacks.items + stack;
}
static inline struct vp_frame *vp_stacks_frame(const struct vp_stacks *s, uint32_t stack) {
    return (struct vp_frame *)s->frames.items + vp_stacks_at(s, stack)->frame;
}
static inline struct vp_module *vp_stacks_module(const struct vp_stacks *s, const struct vp_frame *f) {
    return (struct vp_module *)s->modules.items + f->module;
}

/* Names native frames. Merges frames with the same text, and stacks with the same frames. `map` gets the new number of
 * each stack, and the caller frees it; it is NULL if the numbers did not change. 0 or -ENOMEM. */
int vp_stacks_name(struct vp_stacks *s, uint32_t **map);

/* Returns the stack, from the given one outwards, whose frame is the line that people look for: the innermost in Python
 * outside installed packages; else the innermost in Python; else the innermost outside CUDA; else the innermost. */
uint32_t vp_stacks_line(const struct vp_stacks *s, uint32_t stack);

/* "train.py:42 step", in at most `room` bytes; returns `text`. */
const char *vp_frame_text(const struct vp_stacks *s, const struct vp_frame *f, char *text, size_t room);
/* Returns the name of the source file, else of the module's file. May be empty. */
const char *vp_frame_file(const struct vp_stacks *s, const struct vp_frame *f);
