/* A hash table of objects that begin with their key: see table.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/table.h"

#include "base/os_memory.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

enum { FIRST_SLOTS = 1024 };

/* An insertion moves no object more than one beyond the farthest, and a slot has 8 bits for that distance: past FAR the
 * table grows, if 1/FAR_SHARE full. At 3/4 full hardly any object is more than ten from its home. */
enum { FAR = 128, FARTHEST = 255, FAR_SHARE = 8 };

enum { DISTANCE = 48, TAG = 56 };

static const uint64_t ONE_FARTHER = UINT64_C(1) << DISTANCE;

/* Fibonacci hashing: keys are addresses, whose low bits repeat. */
static uint64_t hash_of(uint64_t key) {
    return key * UINT64_C(0x9e3779b97f4a7c15);
}

static size_t home(const struct vp_table *t, uint64_t hash) {
    return (size_t)(hash >> 20) & t->mask;
}

static void *object_in(uint64_t slot) {
    return (void *)(uintptr_t)(slot & (ONE_FARTHER - 1));
}

static unsigned distance_in(uint64_t slot) {
    return (unsigned)(slot >> DISTANCE) & FARTHEST;
}

static uint64_t key_of(const void *object) {
    uint64_t key;
    memcpy(&key, object, sizeof key);
    return key;
}

/* A slot at `distance` (plus 1) from the home of the hash, without the object's address. */
static uint64_t slot_for(uint64_t hash, uint64_t distance) {
    return hash >> TAG << TAG | distance << DISTANCE;
}

void *vp_table_slot(const struct vp_table *t, size_t i) {
    return object_in(t->slots[i]);
}

size_t vp_table_bytes(const struct vp_table *t) {
    return t->slots ? (t->mask + 1) * sizeof *t->slots : 0;
}

void vp_table_finish(struct vp_table *t) {
    if (t->slots)
        vp_os_give(t->slots, vp_table_bytes(t));
    *t = (struct vp_table){0};
}

void vp_table_add(struct vp_table *t, void *object) {
    assert((uintptr_t)object >> DISTANCE == 0);
    uint64_t hash = hash_of(key_of(object)), slot = slot_for(hash, 1) | (uintptr_t)object;
    size_t i = home(t, hash);
    t->used++;
    /* An object nearer to its home makes room for one that is farther away. */
    for (;; i = (i + 1) & t->mask, slot += ONE_FARTHER) {
        uint64_t there = t->slots[i];
        if (distance_in(there) >= distance_in(slot))
            continue;
        t->slots[i] = slot;
        if (distance_in(slot) > t->farthest)
            t->farthest = distance_in(slot);
        if (!there)
            return;
        slot = there;
    }
}

static __attribute__((noinline)) int grow(struct vp_table *t) {
    size_t slots = t->slots ? t->mask + 1 : 0, want = slots ? slots * 2 : FIRST_SLOTS;
    bool room = t->used + 1 < slots && t->farthest + 1 < FARTHEST;
    void *mem = vp_os_take(want * sizeof *t->slots);
    if (!mem)
        return room ? 0 : -ENOMEM;
    struct vp_table old = *t;
    *t = (struct vp_table){.slots = mem, .mask = want - 1};
    for (size_t i = 0; i < slots; i++)
        if (old.slots[i])
            vp_table_add(t, object_in(old.slots[i]));
    vp_table_finish(&old);
    return t->farthest + 1 < FARTHEST ? 0 : -ENOMEM;
}

int vp_table_reserve(struct vp_table *t) {
    /* Before the first insertion the mask is 0; one slot would count as full. */
    const size_t slots = t->mask + 1;
    const bool full = (t->used + 1) * 4 > slots * 3, crowded = t->farthest >= FAR && t->used >= slots / FAR_SHARE;
    if (__builtin_expect(full || crowded, false))
        return grow(t);
    return t->farthest + 1 < FARTHEST ? 0 : -ENOMEM;
}

void vp_table_prefetch(const struct vp_table *t, uint64_t key) {
    if (t->slots)
        __builtin_prefetch(&t->slots[home(t, hash_of(key))], 1);
}

static size_t find(const struct vp_table *t, uint64_t key) {
    uint64_t hash = hash_of(key), like = slot_for(hash, 1);
    if (t->slots)
        for (size_t i = home(t, hash);; i = (i + 1) & t->mask, like += ONE_FARTHER) {
            uint64_t slot = t->slots[i];
            if (distance_in(slot) < distance_in(like))
                return SIZE_MAX;
            if (slot >> DISTANCE == like >> DISTANCE && key_of(object_in(slot)) == key)
                return i;
        }
    return SIZE_MAX;
}

void *vp_table_get(const struct vp_table *t, uint64_t key) {
    size_t i = find(t, key);
    return i == SIZE_MAX ? NULL : object_in(t->slots[i]);
}

void *vp_table_seek(struct vp_table *t, uint64_t key) {
    size_t i = find(t, key);
    if (i == SIZE_MAX)
        return NULL;
    t->found = i;
    return object_in(t->slots[i]);
}

void *vp_table_take(struct vp_table *t, uint64_t key) {
    /* The slot found last may hold another object by now. */
    void *object = t->slots ? object_in(t->slots[t->found]) : NULL;
    size_t i = object && key_of(object) == key ? t->found : find(t, key);
    if (i == SIZE_MAX)
        return NULL;
    object = object_in(t->slots[i]);
    /* Objects behind it that are not at their homes move up. */
    for (size_t next = (i + 1) & t->mask; distance_in(t->slots[next]) > 1; i = next, next = (i + 1) & t->mask)
        t->slots[i] = t->slots[next] - ONE_FARTHER;
    t->slots[i] = 0;
    t->used--;
    return object;
}
