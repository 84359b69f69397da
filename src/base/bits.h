/* A set of small numbers: bits, and above them levels of summary bits, one for each word of the level below. So the
 * largest member not above a number is found with one or two looks a level, however far away it lies, and long
 * stretches without members are not read. The caller provides the memory, zeroed. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { VP_BITS_LEVELS = 5, VP_BITS_WORD = 64 };

struct vp_bits {
    uint64_t *level[VP_BITS_LEVELS]; /* a bit for each number; then a bit for each word of the level below */
    unsigned levels;
};

/* Bytes of memory for numbers below `count`, which is at most 2^30. */
size_t vp_bits_bytes(size_t count);
void vp_bits_init(struct vp_bits *b, size_t count, uint64_t *mem);

void vp_bits_add(struct vp_bits *b, size_t i);
void vp_bits_remove(struct vp_bits *b, size_t i);
/* The largest member that is `i` or less; SIZE_MAX: none. */
size_t vp_bits_at_most(const struct vp_bits *b, size_t i);
