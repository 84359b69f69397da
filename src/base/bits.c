/* Sets of small numbers: see bits.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bits.h"

static size_t words_of(size_t count) {
    return (count + VP_BITS_WORD - 1) / VP_BITS_WORD;
}

size_t vp_bits_bytes(size_t count) {
    size_t words = 0;
    do {
        count = words_of(count);
        words += count;
    } while (count > 1);
    return words * sizeof(uint64_t);
}

void vp_bits_init(struct vp_bits *b, size_t count, uint64_t *mem) {
    b->levels = 0;
    do {
        count = words_of(count);
        b->level[b->levels++] = mem;
        mem += count;
    } while (count > 1);
}

void vp_bits_add(struct vp_bits *b, size_t i) {
    for (unsigned l = 0; l < b->levels; l++, i /= VP_BITS_WORD) {
        uint64_t *word = &b->level[l][i / VP_BITS_WORD], was = *word;
        *word |= UINT64_C(1) << i % VP_BITS_WORD;
        if (was)
            return;
    }
}

void vp_bits_remove(struct vp_bits *b, size_t i) {
    for (unsigned l = 0; l < b->levels; l++, i /= VP_BITS_WORD) {
        uint64_t *word = &b->level[l][i / VP_BITS_WORD];
        *word &= ~(UINT64_C(1) << i % VP_BITS_WORD);
        if (*word)
            return;
    }
}

size_t vp_bits_at_most(const struct vp_bits *b, size_t i) {
    for (unsigned l = 0; l < b->levels; l++) {
        /* Upwards, until some word has a member at or before `i`; each level above is asked for the words before this
         * one. */
        uint64_t below = b->level[l][i / VP_BITS_WORD] & (~UINT64_C(0) >> (VP_BITS_WORD - 1 - i % VP_BITS_WORD));
        if (below) {
            i = i / VP_BITS_WORD * VP_BITS_WORD + (VP_BITS_WORD - 1 - (unsigned)__builtin_clzll(below));
            while (l-- > 0)
                i = i * VP_BITS_WORD + (VP_BITS_WORD - 1 - (unsigned)__builtin_clzll(b->level[l][i]));
            return i;
        }
        i /= VP_BITS_WORD;
        if (i-- == 0)
            break;
    }
    return SIZE_MAX;
}
