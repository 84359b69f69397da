/* Arrays that grow as needed. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdlib.h>

/* All zero at first. The owner frees `items`. */
struct vp_array {
    void *items;
    size_t count, room;
};

/* Adds one item of `size` bytes, not filled in. NULL: there is no memory, and nothing has changed. */
static inline void *vp_array_add(struct vp_array *a, size_t size) {
    if (a->count == a->room) {
        size_t room = a->room ? a->room * 2 : 64;
        void *items = realloc(a->items, room * size);
        if (!items)
            return NULL;
        a->items = items;
        a->room = room;
    }
    return (char *)a->items + a->count++ * size;
}
