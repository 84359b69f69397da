/* A set of small numbers, as bits with a summary of their words above them: the largest member not above a number is
 * found by one look a level, however far away it lies. The memory is the caller's, all zero at first; untouched parts
 * of it are never read where nothing is set. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { VP_BITS_LEVELS = 5, VP_BITS_WORD = 64 };

struct vp_bits {
    uint64_t *level[VP_BITS_LEVELS]; /* the first has a bit for each number, each other one for each word below */
    unsigned levels;
};

/* Bytes for numbers below `count`, at most 2^30. */
size_t vp_bits_bytes(size_t count);
void vp_bits_init(struct vp_bits *b, size_t count, uint64_t *mem);

void vp_bits_add(struct vp_bits *b, size_t i);
void vp_bits_remove(struct vp_bits *b, size_t i);
/* The largest member that is `i` or less; SIZE_MAX: none. */
size_t vp_bits_at_most(const struct vp_bits *b, size_t i);
