/* Numbers by a key: see numbers.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/plan/numbers.h"

#include <errno.h>

struct pair {
    uint64_t key, number;
};

void vp_numbers_finish(struct vp_numbers *n) {
    vp_table_finish(&n->table);
    vp_slab_finish(&n->pairs);
    *n = (struct vp_numbers){0};
}

uint64_t vp_numbers_get(const struct vp_numbers *n, uint64_t key) {
    const struct pair *pair = vp_table_get(&n->table, key);
    return pair ? pair->number : 0;
}

int vp_numbers_set(struct vp_numbers *n, uint64_t key, uint64_t number) {
    struct pair *pair = vp_table_get(&n->table, key);
    if (!n->pairs.size)
        vp_slab_init(&n->pairs, sizeof *pair);
    if (!pair) {
        if (vp_table_reserve(&n->table) < 0 || !(pair = vp_slab_alloc(&n->pairs)))
            return -ENOMEM;
        pair->key = key;
        vp_table_add(&n->table, pair);
    }
    pair->number = number;
    return 0;
}

void vp_numbers_drop(struct vp_numbers *n, uint64_t key) {
    vp_slab_free(&n->pairs, vp_table_take(&n->table, key));
}
