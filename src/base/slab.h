/* Objects of one size, carved from anonymous memory of our own: the host program's malloc is never entered.
 *
 * Memory once taken from the system is kept, and stays readable after an object was freed (type-stable): a reader that
 * holds a stale pointer sees an old object of the same type, never an unmapped page. The owner locks. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct span;

struct vp_slab {
    size_t size;        /* bytes an object, a multiple of 8 */
    bool many;          /* set by the owner: very many, looked at in any order, are to lie in huge pages */
    size_t spare;       /* objects that are free */
    size_t total;       /* objects that there is room for */
    size_t bytes;       /* of the system's that were ever touched */
    void *free;         /* those that were handed out before, linked through their first word */
    struct span *fresh; /* spans of which some never were: a reservation by itself touches no memory */
    struct span *spans; /* taken from the system; freed by finish */
};

/* What vp_slab_init() makes, for a static one. */
#define VP_SLAB(type) {.size = (sizeof(type) + 7) & ~(size_t)7}
void vp_slab_init(struct vp_slab *s, size_t object_size);
void vp_slab_finish(struct vp_slab *s);

/* Makes sure that the next `n` allocations succeed. 0 or -ENOMEM. */
int vp_slab_grow(struct vp_slab *s, size_t n);
static inline int vp_slab_reserve(struct vp_slab *s, size_t n) {
    return __builtin_expect(s->spare >= n, true) ? 0 : vp_slab_grow(s, n);
}

/* A zeroed object, or NULL if the system has no memory left; never NULL within a reservation. */
void *vp_slab_alloc(struct vp_slab *s);
/* The same as its last owner left it (at first: zeroed), but for the first word. */
void *vp_slab_alloc_raw(struct vp_slab *s);
void vp_slab_free(struct vp_slab *s, void *object);
