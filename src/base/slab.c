#include "base/slab.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

/* One request to the system. Small enough not to matter, large enough that a million blocks need a few hundred. */
enum { SPAN = 256 * 1024, SPAN_HEADER = 64 };

void vp_slab_init(struct vp_slab *s, size_t object_size) {
    *s = (struct vp_slab){ .size = (object_size + 7) & ~(size_t)7 };
}

void vp_slab_finish(struct vp_slab *s) {
    while (s->spans) {
        void *span = s->spans;
        s->spans = *(void **)span;
        munmap(span, SPAN);
    }
    s->free = NULL;
    s->spare = s->total = s->bytes = 0;
}

static int grow(struct vp_slab *s) {
    char *span = mmap(NULL, SPAN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (span == MAP_FAILED)
        return -ENOMEM;
    *(void **)span = s->spans;
    s->spans = span;
    s->bytes += SPAN;
    size_t n = (SPAN - SPAN_HEADER) / s->size;
    /* Linked in address order, so that objects made one after another lie side by side. */
    for (size_t i = n; i-- > 0;) {
        void **object = (void **)(void *)(span + SPAN_HEADER + i * s->size);
        *object = s->free;
        s->free = object;
    }
    s->spare += n;
    s->total += n;
    return 0;
}

int vp_slab_reserve(struct vp_slab *s, size_t n) {
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
