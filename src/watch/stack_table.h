/* A table of numbered stacks: a trie of frames in memory of its own, which only grows, up to a limit.
 *
 * A stack is a frame and the stack that called it, so stacks share their outer parts. Look-ups take no lock; additions
 * take one. A number keeps its meaning until the process ends, also in forked children. Frames, stacks and modules are
 * numbered from 1; 0 is none. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/lock.h"

#include <stdbool.h>
#include <stdint.h>

/* As in a trace: a line of Python, an address in a module, or words. */
enum vp_frame_kind { VP_FRAME_PYTHON = 'p', VP_FRAME_NATIVE = 'c', VP_FRAME_WORDS = 't' };

/* The key of a frame: for Python a signature of the code object and a position in it; for native code an address and
 * how often modules have been loaded and unloaded. */
struct vp_frame_key {
    uint64_t a, b;
};

/* The most stacks that fit. */
enum { VP_STACKS_MOST = 1 << 20 };

/* Call this before all others. 0 or -ENOMEM. */
int vp_stack_table_open(void);

/* The frame that has this key; 0: none. */
uint32_t vp_frame_find(struct vp_frame_key key);
/* Adds a frame, or finds the one with this text, which has the key from now on. 0: there is no room. */
uint32_t vp_frame_add(struct vp_frame_key key, enum vp_frame_kind kind, const char *text);
/* The stack in which `frame` was called by the stack `parent`. 0: there is no room. */
uint32_t vp_stack_push(uint32_t parent, uint32_t frame);

/* Adds or finds a module of native code; `bias`: its load address minus the addresses in its file. */
uint32_t vp_module_add(const char *path, const char *build_id, uint64_t bias);

/* ---- what is in it: numbers below the counts ---- */

struct vp_frame {
    enum vp_frame_kind kind;
    const char *label;
};
struct vp_module {
    const char *path, *build_id;
    uint64_t bias;
};
uint32_t vp_stack_count(void), vp_frame_count(void), vp_module_count(void);
uint32_t vp_stack_frame(uint32_t stack), vp_stack_parent(uint32_t stack);
const struct vp_frame *vp_frame(uint32_t frame);
const struct vp_module *vp_module(uint32_t module);
/* Has an addition failed for lack of room? */
bool vp_stack_table_is_full(void);

extern struct vp_lock vp_stack_table_guard;
