/* Objects of one size from memory of our own: see slab.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/slab.h"

#include "base/os_memory.h"

#include <errno.h>
#include <string.h>

/* Memory taken at a time: small enough not to matter; with many objects, a huge page. */
enum { SPAN = 256 * 1024, SMALL_SPANS = 4 };

struct span {
    struct span *next;
    struct span *next_fresh; /* in vp_slab.fresh */
    size_t bytes;
    size_t carved; /* objects of it ever handed out; memory behind them was never touched */
    char pad[32];  /* objects begin at a new cache line */
};

void vp_slab_init(struct vp_slab *s, size_t object_size) {
    *s = (struct vp_slab){.size = (object_size + 7) & ~(size_t)7};
}

void vp_slab_finish(struct vp_slab *s) {
    while (s->spans) {
        struct span *span = s->spans;
        s->spans = span->next;
        vp_os_give(span, span->bytes);
    }
    s->free = NULL;
    s->fresh = NULL;
    s->spare = s->total = s->bytes = 0;
}

static size_t objects_in(const struct vp_slab *s, const struct span *span) {
    return (span->bytes - sizeof *span) / s->size;
}

static int grow(struct vp_slab *s) {
    size_t bytes = s->many && s->total * s->size > (SMALL_SPANS - 1) * SPAN ? VP_HUGE : SPAN;
    struct span *span = vp_os_take(bytes);
    if (!span)
        return -ENOMEM;
    *span = (struct span){.next = s->spans, .next_fresh = s->fresh, .bytes = bytes};
    s->spans = s->fresh = span;
    s->bytes += sizeof *span;
    s->spare += objects_in(s, span);
    s->total += objects_in(s, span);
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

/* Hands out objects in address order, so that those made one after another lie side by side. */
static __attribute__((noinline)) void *carve(struct vp_slab *s) {
    if (!s->fresh && grow(s) < 0)
        return NULL;
    struct span *span = s->fresh;
    void *object = (char *)(span + 1) + span->carved++ * s->size;
    s->bytes += s->size;
    if (span->carved == objects_in(s, span))
        s->fresh = span->next_fresh;
    s->spare--;
    return object;
}

void *vp_slab_alloc_raw(struct vp_slab *s) {
    void **object = s->free;
    if (!object)
        return carve(s);
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
