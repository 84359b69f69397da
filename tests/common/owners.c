/* The map of owners: who has which bytes of physical memory, from the driver calls and memsets that the simulator sees.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "owners.h"

#include "base/slab.h"
#include "base/table.h"
#include "sim.h"

#include <stdlib.h>
#include <string.h>

/* A physical handle. */
struct chunk {
    uint64_t handle; /* its key */
    size_t size;
    unsigned used;        /* pieces in it */
    struct piece *active; /* those whose owner has begun, by `next` */
};

/* A granule of addresses, and where its mapping begins. */
struct place {
    uint64_t granule; /* its key: address / granularity */
    struct chunk *chunk;
    CUdeviceptr at;
};

/* The part of a block in one chunk. */
struct piece {
    struct chunk *chunk;
    size_t from, to; /* bytes of the chunk */
    struct owner *owner;
    struct piece *next, **link; /* of chunk->active */
};

struct owner {
    uint32_t number;
    CUdeviceptr at;
    size_t size;
    bool begun, freed, asleep;
    unsigned lasts; /* last memsets on their way, and one while they are being queued */
    size_t count;
    struct piece pieces[];
};

enum { OWNERS = 1 << 16 };

static struct {
    size_t granularity;
    void (*fail)(const char *format, ...) __attribute__((format(printf, 1, 2)));
    struct vp_table chunks, places;
    struct vp_slab chunk_slab, place_slab;
    struct owner *table[OWNERS];
    uint32_t free[OWNERS], free_count, used;
} all;

/* ---- the mapping calls ---- */

/* A copy of an object, which begins with its key and has the slab's size, in place of what had that key. */
static void put(struct vp_table *table, struct vp_slab *slab, const void *object) {
    uint64_t key;
    memcpy(&key, object, sizeof key);
    vp_slab_free(slab, vp_table_take(table, key));
    void *copy = vp_slab_alloc(slab);
    if (!copy || vp_table_reserve(table) < 0)
        abort();
    vp_table_add(table, memcpy(copy, object, slab->size));
}

static CUresult CUDAAPI create(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                               unsigned long long flags) {
    CUresult res = cuMemCreate(handle, size, prop, flags);
    if (!res)
        put(&all.chunks, &all.chunk_slab, &(struct chunk){.handle = *handle, .size = size});
    return res;
}

static CUresult CUDAAPI release(CUmemGenericAllocationHandle handle) {
    CUresult res = cuMemRelease(handle);
    struct chunk *chunk = res ? NULL : vp_table_take(&all.chunks, handle);
    if (chunk && chunk->used)
        all.fail("%u blocks lie in a handle that was released", chunk->used);
    vp_slab_free(&all.chunk_slab, chunk);
    return res;
}

static CUresult CUDAAPI map(CUdeviceptr at, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                            unsigned long long flags) {
    CUresult res = cuMemMap(at, size, offset, handle, flags);
    struct place place = {.chunk = vp_table_get(&all.chunks, handle), .at = at};
    for (size_t k = 0; !res && k < size; k += all.granularity) {
        place.granule = (at + k) / all.granularity;
        put(&all.places, &all.place_slab, &place);
    }
    return res;
}

static CUresult CUDAAPI unmap(CUdeviceptr at, size_t size) {
    for (uint32_t i = 0; i < all.used; i++) {
        const struct owner *o = all.table[i];
        if (o && !o->freed && !o->asleep && o->at < at + size && at < o->at + o->size)
            all.fail("[%#llx, +%zu) was unmapped, where the live block [%#llx, +%zu) lies", at, size, o->at, o->size);
    }
    CUresult res = cuMemUnmap(at, size);
    for (size_t k = 0; !res && k < size; k += all.granularity)
        vp_slab_free(&all.place_slab, vp_table_take(&all.places, (at + k) / all.granularity));
    return res;
}

void *owners_lookup(const char *name) {
    static const struct {
        const char *name;
        void *function;
    } ours[] = {{"cuMemCreate", create}, {"cuMemRelease", release}, {"cuMemMap", map}, {"cuMemUnmap", unmap}};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (!strcmp(name, ours[i].name))
            return ours[i].function;
    return NULL;
}

/* ---- owners ---- */

/* Fills in the pieces, or only counts them (`o` NULL); 0: some of it is not the pool's. */
static size_t split(struct owner *o, CUdeviceptr at, size_t size) {
    size_t count = 0;
    for (CUdeviceptr end = at + size; at < end; count++) {
        struct place *place = vp_table_get(&all.places, at / all.granularity);
        if (!place || !place->chunk)
            return 0;
        size_t from = at - place->at, left = place->chunk->size - from, bytes = left < end - at ? left : end - at;
        if (o)
            o->pieces[count] = (struct piece){.chunk = place->chunk, .from = from, .to = from + bytes, .owner = o};
        at += bytes;
    }
    return count;
}

struct owner *owner_new(CUdeviceptr at, size_t size) {
    size_t count = split(NULL, at, size);
    if (!count)
        return NULL;
    struct owner *o = calloc(1, sizeof *o + count * sizeof *o->pieces);
    if (!o || (!all.free_count && all.used == OWNERS))
        abort();
    o->number = all.free_count ? all.free[--all.free_count] : all.used++;
    o->at = at;
    o->size = size;
    o->count = split(o, at, size);
    for (size_t i = 0; i < count; i++)
        o->pieces[i].chunk->used++;
    all.table[o->number] = o;
    return o;
}

void owner_begin(struct owner *o) {
    if (o->begun)
        return;
    o->begun = true;
    for (struct piece *p = o->pieces; p < o->pieces + o->count; p++) {
        for (struct piece *q = p->chunk->active; q; q = q->next)
            if (p->from < q->to && q->from < p->to)
                all.fail("the block [%#llx, +%zu) begins on bytes that [%#llx, +%zu) is not done with", o->at, o->size,
                         q->owner->at, q->owner->size);
        p->link = &p->chunk->active;
        p->next = *p->link;
        if (p->next)
            p->next->link = &p->next;
        *p->link = p;
    }
}

static void detach(struct owner *o) {
    for (struct piece *p = o->pieces; p < o->pieces + o->count; p++) {
        if (o->begun) {
            *p->link = p->next;
            if (p->next)
                p->next->link = p->link;
        }
        p->chunk->used--;
    }
}

static void end(struct owner *o) {
    if (!o->asleep)
        detach(o);
    all.table[o->number] = NULL;
    all.free[all.free_count++] = o->number;
    free(o);
}

/* 0 is nobody's word. */
uint32_t owner_word(struct owner *o, bool last) {
    o->lasts += last;
    return 2 * o->number + 2 + last;
}

static void drop_last(struct owner *o) {
    if (--o->lasts == 0)
        end(o);
}

void owner_ending(struct owner *o) {
    o->freed = true;
    o->lasts++;
}

void owner_ended(struct owner *o) {
    drop_last(o);
}

static void fill_ran(CUdeviceptr at, size_t bytes, uint32_t word) {
    struct owner *o = word >= 2 && word / 2 - 1 < OWNERS ? all.table[word / 2 - 1] : NULL;
    if (!o)
        return;
    if (at != o->at)
        all.fail("a memset of [%#llx, +%zu) is another block's", at, bytes);
    owner_begin(o);
    if (word & 1)
        drop_last(o);
}

/* Who owns some of these bytes must be the block that lies there as the copy sees it, and no other. */
static void one_end(CUdeviceptr at, size_t bytes, const char *what) {
    for (CUdeviceptr end = at + bytes; at < end;) {
        const struct place *place = vp_table_get(&all.places, at / all.granularity);
        if (!place || !place->chunk)
            return;
        size_t from = at - place->at, left = place->chunk->size - from, some = left < end - at ? left : end - at;
        for (const struct piece *p = place->chunk->active; p; p = p->next)
            if (p->from < from + some && from < p->to &&
                (at < p->owner->at || at + some > p->owner->at + p->owner->size))
                all.fail("a copy %s %zu bytes at %#llx, which the block [%#llx, +%zu) has by now", what, bytes, at,
                         p->owner->at, p->owner->size);
        at += some;
    }
}

static void copy_ran(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    one_end(to, bytes, "writes");
    one_end(from, bytes, "reads");
}

/* ---- all of it ---- */

void owners_open(size_t granularity, void (*fail)(const char *format, ...) __attribute__((format(printf, 1, 2)))) {
    all.granularity = granularity;
    all.fail = fail;
    vp_slab_init(&all.chunk_slab, sizeof(struct chunk));
    vp_slab_init(&all.place_slab, sizeof(struct place));
    vp_sim_watch_fills(fill_ran);
    vp_sim_watch_copies(copy_ran);
}

void owners_sleep(void) {
    vp_sim_watch_copies(NULL);
    for (uint32_t i = 0; i < all.used; i++)
        if (all.table[i]) {
            detach(all.table[i]);
            all.table[i]->asleep = true;
        }
}

void owners_wake(void) {
    for (uint32_t i = 0; i < all.used; i++) {
        struct owner *o = all.table[i];
        if (!o || !o->asleep)
            continue;
        /* It may be in fewer, larger handles now. */
        const size_t count = split(NULL, o->at, o->size);
        if (!count || count > o->count)
            all.fail("the block [%#llx, +%zu) has not come back as it was", o->at, o->size);
        o->count = split(o, o->at, o->size);
        for (size_t k = 0; k < o->count; k++)
            o->pieces[k].chunk->used++;
        const bool begun = o->begun;
        o->begun = o->asleep = false;
        if (begun)
            owner_begin(o);
    }
    vp_sim_watch_copies(copy_ran);
}

void owners_close(void) {
    vp_sim_watch_fills(NULL);
    vp_sim_watch_copies(NULL);
    for (uint32_t i = 0; i < all.used; i++)
        if (all.table[i])
            all.fail("the block [%#llx, +%zu) never ended", all.table[i]->at, all.table[i]->size);
    all.used = all.free_count = 0;
    vp_table_finish(&all.chunks);
    vp_table_finish(&all.places);
    vp_slab_finish(&all.chunk_slab);
    vp_slab_finish(&all.place_slab);
}
