/* A map from numbers to pointers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include "base/os_memory.h"

#include <errno.h>
#include <sys/mman.h>

enum { FIRST_SLOTS = 1024 };

/* Fibonacci hashing: keys are addresses and ids, whose low bits repeat. */
static size_t home(const struct vp_map *m, uint64_t key) {
    return (size_t)((key * 0x9e3779b97f4a7c15u) >> 20) & m->mask;
}

void vp_map_finish(struct vp_map *m) {
    if (m->slots)
        munmap(m->slots, (m->mask + 1) * sizeof *m->slots);
    *m = (struct vp_map){0};
}

static void put(struct vp_map *m, uint64_t key, void *value) {
    size_t i = home(m, key);
    while (m->slots[i].key && m->slots[i].key != key)
        i = (i + 1) & m->mask;
    m->used += !m->slots[i].key;
    m->slots[i] = (struct vp_map_slot){key, value};
}

int vp_map_reserve(struct vp_map *m) {
    size_t slots = m->slots ? m->mask + 1 : 0;
    if ((m->used + 1) * 4 <= slots * 3)
        return 0;
    size_t want = slots ? slots * 2 : FIRST_SLOTS;
    void *mem = vp_os_take(want * sizeof *m->slots);
    if (!mem)
        return m->used + 1 < slots ? 0 : -ENOMEM;
    struct vp_map old = *m;
    *m = (struct vp_map){.slots = mem, .mask = want - 1};
    for (size_t i = 0; i < slots; i++)
        if (old.slots[i].key)
            put(m, old.slots[i].key, old.slots[i].value);
    vp_map_finish(&old);
    return 0;
}

void vp_map_set(struct vp_map *m, uint64_t key, void *value) {
    put(m, key, value);
}

static size_t find(const struct vp_map *m, uint64_t key) {
    if (m->slots)
        for (size_t i = home(m, key); m->slots[i].key; i = (i + 1) & m->mask)
            if (m->slots[i].key == key)
                return i;
    return SIZE_MAX;
}

void *vp_map_get(const struct vp_map *m, uint64_t key) {
    size_t i = find(m, key);
    return i == SIZE_MAX ? NULL : m->slots[i].value;
}

void *vp_map_take(struct vp_map *m, uint64_t key) {
    size_t i = find(m, key);
    if (i == SIZE_MAX)
        return NULL;
    void *value = m->slots[i].value;
    /* Close the gap: a later key of the same run moves up unless its home lies behind the gap. */
    for (size_t j = (i + 1) & m->mask; m->slots[j].key; j = (j + 1) & m->mask)
        if (((j - home(m, m->slots[j].key)) & m->mask) >= ((j - i) & m->mask)) {
            m->slots[i] = m->slots[j];
            i = j;
        }
    m->slots[i].key = 0;
    m->used--;
    return value;
}
