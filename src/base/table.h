/* A table of objects by a non-zero 64-bit key that each begins with: open addressing after Robin Hood (Celis, Larson,
 * Munro, 1985), 8 bytes a slot, at most 3/4 full, in anonymous memory of our own. An object must not change its key
 * while it is here. Not thread-safe. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct vp_table {
    uint64_t *slots; /* the object's address; from bit 48 on how far it lies from its home, plus 1; from bit 56 on bits
                        of its hash. 0: empty */
    size_t mask;     /* slots - 1, or 0 before the first insertion */
    size_t used;
    size_t found;      /* the slot that vp_table_seek() found last */
    unsigned farthest; /* no object has lain farther from its home, plus 1, since the table last grew */
};

void vp_table_finish(struct vp_table *t);

/* Makes sure that the next insertion succeeds. 0 or -ENOMEM. */
int vp_table_reserve(struct vp_table *t);
/* Inserts an object whose key is not in the table; needs a reservation. */
void vp_table_add(struct vp_table *t, void *object);
void *vp_table_get(const struct vp_table *t, uint64_t key);
/* The same; to take it out then needs no other look-up. */
void *vp_table_seek(struct vp_table *t, uint64_t key);
/* Says that the key is going to be added. */
void vp_table_prefetch(const struct vp_table *t, uint64_t key);
/* Removes the object of that key, and returns it; NULL: there is none. */
void *vp_table_take(struct vp_table *t, uint64_t key);
/* The object in slot `i`, of 0 to `mask`; NULL: none. */
void *vp_table_slot(const struct vp_table *t, size_t i);
/* Bytes of memory that it takes. */
size_t vp_table_bytes(const struct vp_table *t);
