/* Walks of the native stack that were made before: an unwinder takes a quarter of a microsecond a frame, to look
 * whether a stack is the one of a moment ago takes a nanosecond.
 *
 * Where a function's frame ends follows from the place in its code, the stack pointer there and, where its size varies,
 * the frame pointer. So from one frame address on, if the return address at each of the places where they lay is the
 * same again, and with it the frame pointer saved beside it, it is the same walk. Only x86-64 has them at places known
 * beforehand; elsewhere nothing is kept. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "watch/stack_walk.h"

enum { VP_MEMO_SLOTS = 96 };

/* What makes two walks comparable. */
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

/* A walk under way. */
struct vp_memo {
    struct vp_memo_key key;
    unsigned count;
    bool lost; /* some return address lies elsewhere, or there are too many */
    struct vp_memo_slot slots[VP_MEMO_SLOTS];
};

/* Gives the frames of the same walk, if there was one. */
bool vp_memo_recall(const struct vp_memo_key *key, struct vp_walk *walk);
/* A step of a walk: to `pc`, from a frame that ended at `cfa`, whose caller's frame pointer is `fp`. */
void vp_memo_step(struct vp_memo *memo, uintptr_t pc, uintptr_t cfa, uintptr_t fp);
void vp_memo_keep(const struct vp_memo *memo, const struct vp_walk *walk);
