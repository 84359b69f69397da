/* Objects of one size from anonymous memory of our own: the program's malloc is never called.
 *
 * Memory taken from the system is kept, and stays readable after an object is freed (type-stable): a reader with a
 * stale pointer sees an old object of the same type, never an unmapped page. Not thread-safe; the owner locks. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct span;

struct vp_slab {
    size_t size;        /* bytes of an object, a multiple of 8 */
    bool many;          /* set by the owner: there are very many, accessed at random; use huge pages */
    size_t spare;       /* free objects */
    size_t total;       /* free and used objects */
    size_t bytes;       /* bytes of memory that were ever touched */
    void *free;         /* objects that were freed, linked by their first word */
    struct span *fresh; /* spans with objects never handed out: a reservation alone touches no memory */
    struct span *spans; /* taken from the system; freed by finish */
};

/* Initialises a static one, like vp_slab_init(). */
#define VP_SLAB(type) {.size = (sizeof(type) + 7) & ~(size_t)7}
void vp_slab_init(struct vp_slab *s, size_t object_size);
void vp_slab_finish(struct vp_slab *s);

/* Makes sure that the next `n` allocations succeed. 0 or -ENOMEM. */
int vp_slab_grow(struct vp_slab *s, size_t n);
static inline int vp_slab_reserve(struct vp_slab *s, size_t n) {
    return __builtin_expect(s->spare >= n, true) ? 0 : vp_slab_grow(s, n);
}

/* Returns a zeroed object; NULL: out of memory, but never within a reservation. */
void *vp_slab_alloc(struct vp_slab *s);
/* The same, not zeroed: as its last owner left it (at first zeroed), except for the first word. */
void *vp_slab_alloc_raw(struct vp_slab *s);
void vp_slab_free(struct vp_slab *s, void *object);
