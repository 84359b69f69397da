/* A hash table of objects, each of which begins with its non-zero 64-bit key. Open addressing, Robin Hood hashing
 * (Celis, Larson, Munro, 1985); 8 bytes a slot, at most 3/4 full, in anonymous memory of our own. The objects stay the
 * caller's; an object must not change its key while it is here. Not thread-safe. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct vp_table {
    /* The object's address; from bit 48 on its distance from its home, plus 1; from bit 56 on bits of its hash. 0:
     * empty. */
    uint64_t *slots;
    size_t mask; /* slots - 1, or 0 before the first insertion */
    size_t used;
    size_t found;      /* slot of the last success of vp_table_seek() */
    unsigned farthest; /* largest distance from home, plus 1, of any object since the table last grew */
};

void vp_table_finish(struct vp_table *t);

/* Makes sure that the next insertion succeeds. 0 or -ENOMEM. */
int vp_table_reserve(struct vp_table *t);
/* Inserts an object whose key is not in the table; needs a reservation. */
void vp_table_add(struct vp_table *t, void *object);
void *vp_table_get(const struct vp_table *t, uint64_t key);
/* The same; a vp_table_take() of that key then needs no other look-up. */
void *vp_table_seek(struct vp_table *t, uint64_t key);
/* Prefetches the slot for a key that is about to be added. */
void vp_table_prefetch(const struct vp_table *t, uint64_t key);
/* Removes the object of that key, and returns it; NULL: there is none. */
void *vp_table_take(struct vp_table *t, uint64_t key);
/* The object in slot `i`, from 0 to `mask`; NULL: none. */
void *vp_table_slot(const struct vp_table *t, size_t i);
/* Bytes of its slots. */
size_t vp_table_bytes(const struct vp_table *t);
