/* The table of stacks: see stack_table.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/stack_walk.h"

#include "base/os_memory.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

/* The table's room. A training in PyTorch has some thousands of stacks of some twenty thousand frames; a server that
 * generates code has ever new ones. In all, some 90 MiB of addresses are reserved, and memory is used as needed. */
enum { STACKS = VP_STACKS_MOST, FRAMES = 1 << 18, KEYS = 1 << 19, MODULES = 1 << 12, TEXT = 32 << 20 };

/* Numbered pairs, and a hash table of twice as many slots. An item is complete before a slot names it. */
struct pairs {
    struct vp_frame_key *items;
    atomic_uint_least32_t *slots;
    uint32_t most;
    atomic_uint_least32_t count; /* numbers given out; 0 is not used */
};

struct vp_lock vp_stack_table_guard; /* taken to add, not to look up; the last but the trace's */
static struct {
    struct pairs stacks; /* parent, frame */
    struct pairs keys;
    struct pairs frames; /* two hashes of kind and text, assumed to be unique together */
    uint32_t *frame_of_key;
    struct vp_frame *frame_at;
    struct vp_module *modules;
    atomic_uint_least32_t module_count;
    char *text;
    size_t text_used;
    atomic_bool full;
} table;

/* ---- pairs ---- */

static inline uint64_t mix(uint64_t a, uint64_t b) {
    __uint128_t product = (__uint128_t)(a ^ UINT64_C(0x9e3779b97f4a7c15)) * (b ^ UINT64_C(0xe7037ed1a0b428db));
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint32_t home_of(const struct pairs *p, uint64_t a, uint64_t b) {
    return (uint32_t)mix(a, b * UINT64_C(0xff51afd7ed558ccd)) & (2 * p->most - 1);
}

static inline uint32_t find(const struct pairs *p, uint64_t a, uint64_t b) {
    for (uint32_t at = home_of(p, a, b);; at = (at + 1) & (2 * p->most - 1)) {
        const uint32_t n = atomic_load_explicit(&p->slots[at], memory_order_acquire);
        if (!n || (p->items[n].a == a && p->items[n].b == b))
            return n;
    }
}

/* Under the lock, as all below: returns the next number, which nobody can find yet; 0: the table is full. */
static uint32_t next(struct pairs *p) {
    const uint32_t n = atomic_load_explicit(&p->count, memory_order_relaxed) + 1;
    if (n >= p->most) {
        table.full = true;
        return 0;
    }
    return n;
}

static void show(struct pairs *p, uint32_t n, uint64_t a, uint64_t b) {
    uint32_t at = home_of(p, a, b);
    while (atomic_load_explicit(&p->slots[at], memory_order_relaxed))
        at = (at + 1) & (2 * p->most - 1);
    p->items[n] = (struct vp_frame_key){a, b};
    atomic_store_explicit(&p->count, n, memory_order_release);
    atomic_store_explicit(&p->slots[at], n, memory_order_release);
}

/* ---- opening ---- */

static void *carve(char **at, size_t bytes) {
    void *mem = *at;
    *at += (bytes + 63) / 64 * 64;
    return mem;
}

static void carve_pairs(char **at, struct pairs *p, uint32_t most) {
    p->most = most;
    p->items = carve(at, most * sizeof *p->items);
    p->slots = carve(at, 2 * most * sizeof *p->slots);
}

int vp_stack_table_open(void) {
    const size_t pair = sizeof(struct vp_frame_key) + 2 * sizeof(uint32_t);
    const size_t bytes = (STACKS + KEYS + FRAMES) * pair + KEYS * 4 + FRAMES * sizeof(struct vp_frame) +
                         MODULES * sizeof(struct vp_module) + TEXT + 64 * 16;
    if (table.text)
        return 0;
    char *at = vp_os_take_sparse(bytes);
    if (!at)
        return -ENOMEM;
    carve_pairs(&at, &table.stacks, STACKS);
    carve_pairs(&at, &table.keys, KEYS);
    carve_pairs(&at, &table.frames, FRAMES);
    table.frame_of_key = carve(&at, KEYS * sizeof *table.frame_of_key);
    table.frame_at = carve(&at, FRAMES * sizeof *table.frame_at);
    table.modules = carve(&at, MODULES * sizeof *table.modules);
    table.text = carve(&at, TEXT);
    return 0;
}

/* ---- frames ---- */

uint32_t vp_frame_find(struct vp_frame_key key) {
    const uint32_t n = find(&table.keys, key.a, key.b);
    return n ? table.frame_of_key[n] : 0;
}

static struct vp_frame_key hash_text(enum vp_frame_kind kind, const char *text) {
    struct vp_frame_key h = {kind, ~(uint64_t)kind};
    for (; *text; text++) {
        h.a = mix(h.a, (unsigned char)*text);
        h.b = (h.b ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    }
    return h;
}

/* Stores a text for good, and returns the copy; empty: there is no room. */
static const char *keep_text(const char *text) {
    const size_t n = strlen(text) + 1;
    if (TEXT - table.text_used < n) {
        table.full = true;
        return "";
    }
    char *at = memcpy(table.text + table.text_used, text, n);
    table.text_used += n;
    return at;
}

static uint32_t frame_of_text(enum vp_frame_kind kind, const char *text) {
    const struct vp_frame_key h = hash_text(kind, text);
    uint32_t frame = find(&table.frames, h.a, h.b);
    if (frame || !(frame = next(&table.frames)))
        return frame;
    table.frame_at[frame] = (struct vp_frame){kind, keep_text(text)};
    if (!*table.frame_at[frame].label)
        return 0;
    show(&table.frames, frame, h.a, h.b);
    return frame;
}

uint32_t vp_frame_add(struct vp_frame_key key, enum vp_frame_kind kind, const char *text) {
    vp_lock_take(&vp_stack_table_guard);
    uint32_t frame = vp_frame_find(key);
    if (!frame && (frame = frame_of_text(kind, text))) {
        const uint32_t n = next(&table.keys);
        if (n) {
            table.frame_of_key[n] = frame;
            show(&table.keys, n, key.a, key.b);
        }
    }
    vp_lock_release(&vp_stack_table_guard);
    return frame;
}

uint32_t vp_stack_push(uint32_t parent, uint32_t frame) {
    uint32_t stack = find(&table.stacks, parent, frame);
    if (__builtin_expect(stack != 0, true))
        return stack;
    vp_lock_take(&vp_stack_table_guard);
    stack = find(&table.stacks, parent, frame);
    if (!stack && (stack = next(&table.stacks)))
        show(&table.stacks, stack, parent, frame);
    vp_lock_release(&vp_stack_table_guard);
    return stack;
}

void vp_walk_add_words(struct vp_walk *walk, uint64_t number, const char *words) {
    const struct vp_frame_key key = {number, (uint64_t)'w' << 56};
    uint32_t frame = vp_frame_find(key);
    if (!frame)
        frame = vp_frame_add(key, VP_FRAME_WORDS, words);
    vp_walk_add(walk, frame);
}

/* ---- modules: few, and looked for only when an address is new ---- */

uint32_t vp_module_add(const char *path, const char *build_id, uint64_t bias) {
    vp_lock_take(&vp_stack_table_guard);
    uint32_t count = atomic_load(&table.module_count), n = 1;
    while (n <= count && (table.modules[n].bias != bias || strcmp(table.modules[n].path, path) != 0 ||
                          strcmp(table.modules[n].build_id, build_id) != 0))
        n++;
    if (n > count) {
        if (n < MODULES) {
            table.modules[n] = (struct vp_module){keep_text(path), keep_text(build_id), bias};
            atomic_store(&table.module_count, n);
        } else {
            table.full = true;
            n = 0;
        }
    }
    vp_lock_release(&vp_stack_table_guard);
    return n;
}

/* ---- what is in it ---- */

uint32_t vp_stack_count(void) {
    return atomic_load_explicit(&table.stacks.count, memory_order_acquire);
}

uint32_t vp_frame_count(void) {
    return atomic_load_explicit(&table.frames.count, memory_order_acquire);
}

uint32_t vp_module_count(void) {
    return atomic_load(&table.module_count);
}

const struct vp_frame *vp_frame(uint32_t frame) {
    return &table.frame_at[frame];
}

const struct vp_module *vp_module(uint32_t module) {
    return &table.modules[module];
}

uint32_t vp_stack_frame(uint32_t stack) {
    return (uint32_t)table.stacks.items[stack].b;
}

uint32_t vp_stack_parent(uint32_t stack) {
    return (uint32_t)table.stacks.items[stack].a;
}

bool vp_stack_table_is_full(void) {
    return atomic_load_explicit(&table.full, memory_order_relaxed);
}
