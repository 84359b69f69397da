/* What a cache did before, and so what it may do next: the large blocks of one device in their order of use.
 *
 * The clock counts these blocks. If the last few came in that order before, what followed then is expected again. The
 * uses of each slot of addresses are noted, so that its next use can be found, if one is expected. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Blocks, and uses of slots, that are remembered; powers of two. A training step has some thousands of large blocks,
 * each in some ten slots. */
enum { VP_BARE_BLOCKS = 1 << 16, VP_BARE_USES = 1 << 18 };

struct vp_bare_record;

struct vp_bare_past {
    struct vp_bare_record *record; /* anonymous memory; owned */
    _Atomic uint32_t now;          /* the clock: blocks used so far */
    uint32_t uses;                 /* uses of slots so far; number n is at n modulo VP_BARE_USES */
    uint32_t match;                /* the time that the present one repeats; 0: none known */
    uint64_t hash;                 /* of the last few blocks */
};

static inline uint32_t vp_bare_past_now(const struct vp_bare_past *past) {
    return atomic_load_explicit(&past->now, memory_order_relaxed);
}

/* 0 or -ENOMEM. */
int vp_bare_past_init(struct vp_bare_past *past);
void vp_bare_past_finish(struct vp_bare_past *past);
size_t vp_bare_past_bytes(const struct vp_bare_past *past);
/* A block is used: the clock ticks. */
void vp_bare_past_block(struct vp_bare_past *past, uint64_t addr, uint64_t size);
/* It lies in a slot; `*last` is the number of the slot's last use, and is brought up to date. */
void vp_bare_past_slot(struct vp_bare_past *past, uint32_t *last);

/* When a slot will be used next, as far as expected, on the clock of the time that repeats now. `last`, `other`: the
 * last use of the slot, and of a run that it is in (0: none). */
static const uint32_t VP_BARE_NEVER = UINT32_MAX;
uint32_t vp_bare_past_next(const struct vp_bare_past *past, uint32_t last, uint32_t other);
/* When it will be used next if the present repeats nothing, on the present clock, guessed from the pauses between its
 * uses so far (`last`). */
uint32_t vp_bare_past_guess(const struct vp_bare_past *past, uint32_t last);
/* Merges the uses that end with `other` into those that end with `*last`, in the order of time. */
void vp_bare_past_unite(struct vp_bare_past *past, uint32_t *last, uint32_t other);
