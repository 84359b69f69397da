/* A zone's free regions by size: small ones in bins, others in a tree. Its holes are in a tree. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/region.h"

#include <errno.h>

int vp_region_compare(const struct vp_region *a, const struct vp_region *b) {
    if (a->size != b->size)
        return a->size < b->size ? -1 : 1;
    return a->addr < b->addr ? -1 : a->addr > b->addr;
}
RB_GENERATE_STATIC(vp_region_tree, vp_region, by_size, vp_region_compare)

/* ---- bins ---- */

static struct vp_region **bin_of(const struct vp_index *index, size_t size) {
    return &index->bins->first[size / VP_QUANTUM];
}

static void bin_mark(struct vp_bins *bins, size_t bin, bool some) {
    uint64_t bit = UINT64_C(1) << bin % 64;
    bins->some[bin / 64] = some ? bins->some[bin / 64] | bit : bins->some[bin / 64] & ~bit;
    uint32_t word = UINT32_C(1) << bin / 64;
    bins->words = bins->some[bin / 64] ? bins->words | word : bins->words & ~word;
}

/* The first region in the first non-empty bin from `bin` on; NULL: none. */
static struct vp_region *bins_from(const struct vp_bins *bins, size_t bin) {
    if (bin >= VP_BINS)
        return NULL;
    size_t word = bin / 64;
    uint64_t some = bins->some[word] & ~UINT64_C(0) << bin % 64;
    if (!some) {
        uint32_t words = bins->words & ~(uint32_t)((UINT64_C(2) << word) - 1);
        if (!words)
            return NULL;
        word = (size_t)__builtin_ctz(words);
        some = bins->some[word];
    }
    return bins->first[word * 64 + (size_t)__builtin_ctzll(some)];
}

static bool binned(const struct vp_index *index, size_t size) {
    return index->bins && size < VP_BINNED;
}

/* ---- an index ---- */

int vp_index_init(struct vp_memory *mem, struct vp_index *index, struct vp_timeline *timeline, enum vp_zone_name zone) {
    *index = (struct vp_index){.timeline = timeline, .zone = zone};
    RB_INIT(&index->tree);
    vp_list_init(&index->link);
    if (!timeline)
        vp_list_append(&mem->indexes, &index->link);
    if (zone != VP_ZONE_SMALL)
        return 0;
    index->bins = vp_slab_alloc_raw(&mem->bins_slab);
    if (!index->bins)
        return -ENOMEM;
    index->bins->slab_link = NULL;
    return 0;
}

void vp_index_finish(struct vp_memory *mem, struct vp_index *index) {
    assert(!vp_index_first(index, 0));
    vp_slab_free(&mem->bins_slab, index->bins);
    index->bins = NULL;
}

void vp_index_add(struct vp_memory *mem, struct vp_index *index, struct vp_region *r) {
    r->index = index;
    if (!index->count++ && index->timeline)
        vp_list_append(&mem->indexes, &index->link);
    if (!binned(index, r->size)) {
        RB_INSERT(vp_region_tree, &index->tree, r);
        return;
    }
    struct vp_region **first = bin_of(index, r->size);
    r->in_bin.prev = NULL;
    r->in_bin.next = *first;
    if (*first)
        (*first)->in_bin.prev = r;
    else
        bin_mark(index->bins, r->size / VP_QUANTUM, true);
    *first = r;
}

void vp_index_remove(struct vp_region *r) {
    struct vp_index *index = r->index;
    r->index = NULL;
    if (!--index->count && index->timeline)
        vp_list_remove(&index->link);
    if (!binned(index, r->size)) {
        RB_REMOVE(vp_region_tree, &index->tree, r);
        return;
    }
    struct vp_region *next = r->in_bin.next, *prev = r->in_bin.prev;
    if (next)
        next->in_bin.prev = prev;
    if (prev)
        prev->in_bin.next = next;
    else if (!(*bin_of(index, r->size) = next))
        bin_mark(index->bins, r->size / VP_QUANTUM, false);
}

struct vp_region *vp_index_first(const struct vp_index *index, size_t size) {
    struct vp_region least = {.size = size};
    struct vp_region *r = index->bins ? bins_from(index->bins, (size + VP_QUANTUM - 1) / VP_QUANTUM) : NULL;
    return r ? r : RB_NFIND(vp_region_tree, (struct vp_region_tree *)&index->tree, &least);
}

struct vp_region *vp_index_next(const struct vp_index *index, const struct vp_region *r) {
    if (!binned(index, r->size))
        return RB_NEXT(vp_region_tree, &index->tree, (struct vp_region *)r);
    struct vp_region *next = r->in_bin.next ? r->in_bin.next : bins_from(index->bins, r->size / VP_QUANTUM + 1);
    return next ? next : RB_MIN(vp_region_tree, (struct vp_region_tree *)&index->tree);
}
