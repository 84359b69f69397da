/* When each large block of a cache came and went: see lifetimes.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/bare/lifetimes.h"

#include "base/os_memory.h"

struct vp_lifetimes *vp_lifetimes_create(void) {
    return vp_os_take_sparse(sizeof(struct vp_lifetimes));
}

void vp_lifetimes_destroy(struct vp_lifetimes *l) {
    if (!l)
        return;
    vp_table_finish(&l->open);
    vp_os_give(l, sizeof *l);
}

void vp_lifetimes_end(struct vp_lifetimes *l, uint64_t offset) {
    struct vp_lifetime *life = vp_table_take(&l->open, offset);
    if (life)
        atomic_store_explicit(&life->end, atomic_load_explicit(&l->count, memory_order_relaxed), memory_order_relaxed);
}

static uint32_t hash_of(uint64_t offset, uint64_t size) {
    static const uint64_t FACTOR = UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(((offset ^ size * FACTOR) * FACTOR) >> 32);
}

void vp_lifetimes_begin(struct vp_lifetimes *l, uint64_t offset, uint64_t size) {
    const uint32_t number = atomic_load_explicit(&l->count, memory_order_relaxed);
    vp_lifetimes_end(l, offset); /* its end was not told */
    if (number == VP_LIFETIMES)
        return;
    if (vp_table_reserve(&l->open) < 0) {
        atomic_store_explicit(&l->lost, true, memory_order_relaxed);
        return;
    }
    struct vp_lifetime *life = &l->each[number];
    life->offset = offset;
    life->size = size;
    atomic_store_explicit(&life->end, UINT32_MAX, memory_order_relaxed);
    vp_table_add(&l->open, life);
    l->hash += hash_of(offset, size);
    if ((number + 1) % VP_LIFETIMES_WINDOW == 0) {
        atomic_store_explicit(&l->windows[number / VP_LIFETIMES_WINDOW], l->hash, memory_order_relaxed);
        l->hash = 0;
    }
    atomic_store_explicit(&l->count, number + 1, memory_order_release);
}
