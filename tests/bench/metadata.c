/* Takes N pieces of one kind and ends with all of them in use. What the library then needs to describe them
 * stands in its statistics (VPOOL_STATS=FILE); the difference of two runs is the price of a piece.
 *
 * usage: bench_metadata KIND N
 *   blocks     live blocks of 512 bytes
 *   mixed      live blocks of 512 bytes to 1 MiB, evenly over the orders of magnitude
 *   chunks     handles with their one mapping each, 16 under each live block
 *   remapped   2 N handles with one mapping each, and half of them with a second one, 16 side by side
 *   twice      the same, and the other half too
 *
 * Handles must be of 2 MiB: VPOOL_HANDLE=2M. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"
#include "check.h"

#include "../common/doors.h"
#include "process/process.h"

#include <string.h>

enum { HANDLE = 2 << 20, HANDLES_A_BLOCK = 16 };

static void blocks(bench_stream stream, size_t n, bool mixed) {
    uint64_t state = 1;
    for (size_t i = 0; i < n; i++) {
        size_t low = (size_t)512 << (mixed ? bench_random(&state) % 11 : 0);
        gpu_alloc_on(stream, mixed ? low + bench_random(&state) % low : low);
    }
}

/* Handles under live blocks of 16. */
static void chunks(bench_stream stream, bench_block *large, size_t n) {
    for (size_t i = 0; i < n; i += HANDLES_A_BLOCK)
        large[i / HANDLES_A_BLOCK] = gpu_alloc_on(stream, HANDLES_A_BLOCK * HANDLE);
}

/* Of 2 N blocks of one handle, frees the even or the odd ones, N handles that lie apart; has these mapped
 * side by side, and puts everything back. */
static void remap(bench_stream stream, bench_block *small, bench_block *large, size_t n, int odd) {
    for (size_t i = (size_t)odd; i < 2 * n; i += 2)
        gpu_free_on(stream, small[i]);
    chunks(stream, large, n);
    for (size_t i = 0; i < n; i += HANDLES_A_BLOCK)
        gpu_free_on(stream, large[i / HANDLES_A_BLOCK]);
    for (size_t i = (size_t)odd; i < 2 * n; i += 2)
        small[i] = gpu_alloc_on(stream, HANDLE);
}

int main(int argc, char **argv) {
    const char *kind = argc == 3 ? argv[1] : "";
    size_t n = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
    gpu_open();
    bench_stream stream = gpu_stream_create();
    bench_block *small = calloc(2 * n + 1, sizeof *small), *large = calloc(n + 1, sizeof *large);
    if (n && !strcmp(kind, "blocks")) {
        blocks(stream, n, false);
    } else if (n && !strcmp(kind, "mixed")) {
        blocks(stream, n, true);
    } else if (n && !strcmp(kind, "chunks")) {
        chunks(stream, large, n);
    } else if (n && (!strcmp(kind, "remapped") || !strcmp(kind, "twice"))) {
        for (size_t i = 0; i < 2 * n; i++)
            small[i] = gpu_alloc_on(stream, HANDLE);
        remap(stream, small, large, n, 0);
        if (!strcmp(kind, "twice"))
            remap(stream, small, large, n, 1);
    } else {
        fprintf(stderr, "usage: bench_metadata blocks|mixed|chunks|remapped|twice N\n");
        return 2;
    }
    vp_api_exit();
    free(small);
    free(large);
    return 0;
}
