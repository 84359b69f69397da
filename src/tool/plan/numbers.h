/* A map from keys other than zero to numbers: a table (base/table.h) of pairs. Not thread-safe. Initialise with zeros.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/slab.h"
#include "base/table.h"

struct vp_numbers {
    struct vp_table table;
    struct vp_slab pairs;
};

/* Returns a unique key for two numbers, which must not both be the largest. The table needs keys that differ in their
 * lower bits. */
static inline uint64_t vp_numbers_pair(uint32_t high, uint32_t low) {
    uint64_t key = ((uint64_t)high << 32 | low) + 1;
    key = (key ^ key >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    return key ^ key >> 32;
}

void vp_numbers_finish(struct vp_numbers *n);
/* Returns 0 if there is none. */
uint64_t vp_numbers_get(const struct vp_numbers *n, uint64_t key);
/* Adds or replaces a number. 0 or -ENOMEM. */
int vp_numbers_set(struct vp_numbers *n, uint64_t key, uint64_t number);
void vp_numbers_drop(struct vp_numbers *n, uint64_t key);
