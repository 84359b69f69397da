/* Objects looked up by handle, and by address. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_private.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A handle looks like a pointer but is none: its kind, and its slot's number. Nobody can follow it, and a
 * destroyed one is recognised for as long as its slot is empty. The slot freed last is taken first, so a
 * handle that comes back as another object is the rule here, as it is (less often) with real pointers. */
#define HANDLE_BASE 0x5c0000000000u
#define HANDLE_STRIDE 64u

static struct sim_slots tables[SIM_HANDLE_KINDS];

static uintptr_t handle_of(enum sim_handle_kind kind, size_t slot) {
    return HANDLE_BASE + ((uintptr_t)kind << 36) + (slot + 1) * HANDLE_STRIDE;
}

static bool slot_of(enum sim_handle_kind kind, const void *handle, size_t *slot) {
    uintptr_t first = handle_of(kind, 0), value = (uintptr_t)handle;
    if (value < first || (value - first) % HANDLE_STRIDE)
        return false;
    *slot = (value - first) / HANDLE_STRIDE;
    return *slot < tables[kind].count;
}

void *sim_handle_new(enum sim_handle_kind kind, void *item) {
    struct sim_slots *table = &tables[kind];
    size_t slot;
    if (table->free_count) {
        slot = table->free[--table->free_count];
    } else {
        if (table->count == table->room) {
            table->room = table->room ? 2 * table->room : 64;
            table->items = realloc(table->items, table->room * sizeof(*table->items));
            table->free = realloc(table->free, table->room * sizeof(*table->free));
            if (!table->items || !table->free)
                abort();
        }
        slot = table->count++;
    }
    table->items[slot] = item;
    return (void *)handle_of(kind, slot);
}

void *sim_handle_get(enum sim_handle_kind kind, const void *handle) {
    static const char *const names[SIM_HANDLE_KINDS] = {
        "",      "stream",           "event",    "context", "green context", "memory handle", "pool",
        "graph", "executable graph", "resource", "array",   "module"};
    size_t slot;
    if (!slot_of(kind, handle, &slot))
        return NULL;
    if (!tables[kind].items[slot])
        sim_violation("a destroyed %s is used (%p)", names[kind], handle);
    return tables[kind].items[slot];
}

bool sim_handle_is(enum sim_handle_kind kind, const void *handle) {
    size_t slot;
    return slot_of(kind, handle, &slot) && tables[kind].items[slot];
}

void sim_handle_free(enum sim_handle_kind kind, const void *handle) {
    size_t slot;
    if (slot_of(kind, handle, &slot) && tables[kind].items[slot]) {
        tables[kind].items[slot] = NULL;
        tables[kind].free[tables[kind].free_count++] = slot;
    }
}

void sim_handle_each(enum sim_handle_kind kind, void (*visit)(void *item, void *arg), void *arg) {
    for (size_t i = 0; i < tables[kind].count; i++)
        if (tables[kind].items[i])
            visit(tables[kind].items[i], arg);
}

size_t sim_handle_count(enum sim_handle_kind kind) {
    return tables[kind].count - tables[kind].free_count;
}

void sim_handle_reset(void) {
    for (int kind = 0; kind < SIM_HANDLE_KINDS; kind++) {
        free(tables[kind].items);
        free(tables[kind].free);
        tables[kind] = (struct sim_slots){0};
    }
}

/* Two ranges are "equal" to the tree when they overlap. That is an order as long as all ranges in it are
 * disjoint, and it makes a look-up by any address inside a range an ordinary look-up. */
static int compare(const void *a, const void *b) {
    const struct sim_range *x = a, *y = b;
    return x->end <= y->start ? -1 : x->start >= y->end ? 1 : 0;
}

void *sim_range_find(void *const *root, uintptr_t start, uintptr_t end) {
    struct sim_range key = {start, end};
    struct sim_range **node = start < end ? tfind(&key, root, compare) : NULL;
    return node ? *node : NULL;
}

void sim_range_insert(void **root, struct sim_range *range) {
    if (!tsearch(range, root, compare))
        abort();
}

void sim_range_remove(void **root, struct sim_range *range) {
    tdelete(range, root, compare);
}

/* twalk() hands nothing on, and twalk_r() is not in glibc before 2.30. */
static struct {
    void (*visit)(void *item, void *arg);
    void *arg;
} walk;

static void visit_node(const void *node, VISIT which, int depth) {
    (void)depth;
    if (which == postorder || which == leaf)
        walk.visit(*(void *const *)node, walk.arg);
}

void sim_range_each(const void *root, void (*visit)(void *item, void *arg), void *arg) {
    walk.visit = visit;
    walk.arg = arg;
    twalk(root, visit_node);
}

void *sim_range_any(void *const *root) {
    return *root ? **(struct sim_range ***)root : NULL;
}

uintptr_t sim_space_reserve(size_t size, size_t alignment, uintptr_t hint) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (hint && hint % alignment == 0) {
        void *at = mmap((void *)hint, size, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
        if (at == (void *)hint)
            return hint;
        if (at != MAP_FAILED)
            munmap(at, size);
    }
    /* The request is large enough to cut an aligned piece out of it. */
    size_t slack = alignment > 4096 ? alignment : 0;
    char *at = mmap(NULL, size + slack, PROT_NONE, flags, -1, 0);
    if (at == MAP_FAILED)
        return 0;
    size_t head = slack ? (size_t)(-(uintptr_t)at & (alignment - 1)) : 0;
    if (head)
        munmap(at, head);
    if (slack - head)
        munmap(at + head + size, slack - head);
    return (uintptr_t)at + head;
}
