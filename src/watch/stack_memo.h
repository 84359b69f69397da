/* Remembers walks of the native stack: an unwinder takes a quarter of a microsecond per frame; checking that a stack is
 * the same as a moment ago takes a nanosecond.
 *
 * The end of a function's frame follows from the position in its code, the stack pointer there and, if its size varies,
 * the frame pointer. So two walks from the same frame address are equal if every return address, at the place where it
 * was, and the frame pointer saved beside it are the same. Only x86-64 has them at known places; other machines keep
 * nothing. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "watch/stack_walk.h"

enum { VP_MEMO_SLOTS = 96 };

/* What two walks must have in common to be compared. */
struct vp_memo_key {
    uintptr_t frame; /* __builtin_frame_address(0) of whoever walks */
    uintptr_t until; /* where it would end */
    uint64_t went;   /* modules that are gone */
};

/* A return address on the stack. */
struct vp_memo_slot {
    const uintptr_t *at;
    uintptr_t value;
    uintptr_t saved; /* the frame pointer beside it, where one is saved there; 0: none */
};

/* A walk in progress. */
struct vp_memo {
    struct vp_memo_key key;
    unsigned count;
    bool lost; /* some return address lies elsewhere, or there are too many */
    struct vp_memo_slot slots[VP_MEMO_SLOTS];
};

/* Copies the frames of an equal walk, if there was one. */
bool vp_memo_recall(const struct vp_memo_key *key, struct vp_walk *walk);
/* Adds a step: to `pc`, from a frame that ends at `cfa`, whose caller's frame pointer is `fp`. */
void vp_memo_step(struct vp_memo *memo, uintptr_t pc, uintptr_t cfa, uintptr_t fp);
void vp_memo_keep(const struct vp_memo *memo, const struct vp_walk *walk);
