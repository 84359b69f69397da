/* What a cache did before, and so what it may do next: the large blocks of one device, in the order in which they were
 * used.
 *
 * Its clock counts these. Where the last few have come in that order before, all that followed then is expected again.
 * It is known by slot of addresses when each was used, so that of each slot the next use is found, if expected. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Blocks, and uses of slots, that are remembered: powers of two. A step of training has some thousands of large blocks,
 * each of which lies in some ten slots. */
enum { VP_BARE_BLOCKS = 1 << 16, VP_BARE_USES = 1 << 18 };

struct vp_bare_record;

struct vp_bare_past {
    struct vp_bare_record *record; /* anonymous memory; owned */
    _Atomic uint32_t now;          /* blocks so far */
    uint32_t uses;                 /* so far; that of number n lies at n modulo VP_BARE_USES */
    uint32_t match;                /* now is as it was at that time; 0: not as far as is known */
    uint64_t hash;                 /* of the last few */
};

static inline uint32_t vp_bare_past_now(const struct vp_bare_past *past) {
    return atomic_load_explicit(&past->now, memory_order_relaxed);
}

/* 0 or -ENOMEM. */
int vp_bare_past_init(struct vp_bare_past *past);
void vp_bare_past_finish(struct vp_bare_past *past);
size_t vp_bare_past_bytes(const struct vp_bare_past *past);
/* A block is used. */
void vp_bare_past_block(struct vp_bare_past *past, uint64_t addr, uint64_t size);
/* It lies in a slot whose last use `*last` is. */
void vp_bare_past_slot(struct vp_bare_past *past, uint32_t *last);

/* When a slot will be used next, with the last use of it and of a run that it is in (0: none), as far as expected: on
 * the clock of the time that matches now. */
static const uint32_t VP_BARE_NEVER = UINT32_MAX;
uint32_t vp_bare_past_next(const struct vp_bare_past *past, uint32_t last, uint32_t other);
/* When it will be used next, where now is as at no time before: on the clock of now, by the pauses between the uses of
 * it (`last`) so far. */
uint32_t vp_bare_past_guess(const struct vp_bare_past *past, uint32_t last);
/* What followed `*last` in the order of uses that ends with `other` is noted after it. */
void vp_bare_past_unite(struct vp_bare_past *past, uint32_t *last, uint32_t other);
