/* A map from non-zero 64-bit keys to pointers: open addressing with linear probing, in anonymous memory of our own.
 * Not thread-safe. 16 bytes a slot, at most 3/4 full.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VP_MAP_H
#define VP_MAP_H

#include <stddef.h>
#include <stdint.h>

struct vp_map {
    struct vp_map_slot {
        uint64_t key;
        void *value;
    } *slots;
    size_t mask; /* slots - 1, or 0 before the first insertion */
    size_t used;
};

void vp_map_finish(struct vp_map *m);

/* Makes sure that the next insertion succeeds. 0 or -ENOMEM. */
int vp_map_reserve(struct vp_map *m);
/* Inserts or replaces; needs a reservation. */
void vp_map_set(struct vp_map *m, uint64_t key, void *value);
void *vp_map_get(const struct vp_map *m, uint64_t key);
/* Removes the key and returns its value, or NULL. */
void *vp_map_take(struct vp_map *m, uint64_t key);

#endif
