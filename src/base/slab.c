/* Objects of one size, from memory of our own. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/slab.h"

#include "base/os_memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* One request to the system: small enough not to matter; where there are many objects by then, a huge page. */
enum { SPAN = 256 * 1024, SMALL_SPANS = 4 };

struct span {
    struct span *next;
    size_t bytes;
    char pad[48]; /* objects begin on a cache line of their own */
};

void vp_slab_init(struct vp_slab *s, size_t object_size) {
    *s = (struct vp_slab){.size = (object_size + 7) & ~(size_t)7};
}

void vp_slab_finish(struct vp_slab *s) {
    while (s->spans) {
        struct span *span = s->spans;
        s->spans = span->next;
        munmap(span, span->bytes);
    }
    s->free = NULL;
    s->spare = s->total = s->bytes = 0;
}

static int grow(struct vp_slab *s) {
    size_t bytes = s->many && s->bytes >= SMALL_SPANS * SPAN ? VP_HUGE : SPAN;
    struct span *span = vp_os_take(bytes);
    if (!span)
        return -ENOMEM;
    *span = (struct span){.next = s->spans, .bytes = bytes};
    s->spans = span;
    s->bytes += bytes;
    size_t n = (bytes - sizeof *span) / s->size;
    /* Linked in address order, so that objects made one after another lie side by side. */
    for (size_t i = n; i-- > 0;) {
        void **object = (void **)(void *)((char *)(span + 1) + i * s->size);
        *object = s->free;
        s->free = object;
    }
    s->spare += n;
    s->total += n;
    return 0;
}

int vp_slab_grow(struct vp_slab *s, size_t n) {
    while (s->spare < n) {
        int err = grow(s);
        if (err)
            return err;
    }
    return 0;
}

void *vp_slab_alloc_raw(struct vp_slab *s) {
    if (!s->free && grow(s) < 0)
        return NULL;
    void **object = s->free;
    s->free = *object;
    s->spare--;
    return object;
}

void *vp_slab_alloc(struct vp_slab *s) {
    void *object = vp_slab_alloc_raw(s);
    return object ? memset(object, 0, s->size) : NULL;
}

void vp_slab_free(struct vp_slab *s, void *object) {
    if (!object)
        return;
    *(void **)object = s->free;
    s->free = object;
    s->spare++;
}
