/* Heaps and sorting in place, since libc's qsort may call malloc, and the program's malloc may have called us.
 *
 * `over(a, b, ctx)`: does `a` belong above `b` in the heap? Items have at most 64 bytes. Uses no locks and no
 * memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef bool (*vp_over)(const void *a, const void *b, const void *ctx);

static inline __attribute__((always_inline)) void vp_sort_swap(void *a, void *b, size_t size) {
    char t[64];
    memcpy(t, a, size);
    memcpy(a, b, size);
    memcpy(b, t, size);
}

/* In a heap of `n`: moves the item at `i` down to where it belongs. */
static inline __attribute__((always_inline)) void vp_heap_sink(void *items, size_t size, size_t n, size_t i,
                                                               vp_over over, const void *ctx) {
    char *at = items;
    for (size_t j; (j = 2 * i + 1) < n; i = j) {
        if (j + 1 < n && over(at + (j + 1) * size, at + j * size, ctx))
            j++;
        if (!over(at + j * size, at + i * size, ctx))
            break;
        vp_sort_swap(at + i * size, at + j * size, size);
    }
}

/* Sorts: items that belong above others come behind them. */
static inline __attribute__((always_inline)) void vp_sort(void *items, size_t size, size_t n, vp_over over,
                                                          const void *ctx) {
    for (size_t i = n / 2; i-- > 0;)
        vp_heap_sink(items, size, n, i, over, ctx);
    for (size_t left = n; left-- > 1;) {
        vp_sort_swap(items, (char *)items + left * size, size);
        vp_heap_sink(items, size, left, 0, over, ctx);
    }
}
