/*
 * Takes N pieces of one kind and ends with all of them in use. What the library then needs to describe them stands in
 * its statistics (VPOOL_STATS=FILE); two runs with different N, and the difference is the price of a piece.
 *
 * usage: bench_metadata KIND N
 *   blocks     live blocks of 512 bytes
 *   mixed      live blocks of 512 bytes to 1 MiB, evenly over the orders of magnitude
 *   chunks     handles of 2 MiB with their one mapping each, 16 under each live block; VPOOL_HANDLE=2M must be set
 *   holed      2 N such handles, every other one under a live block of its own, the rest free
 *   remapped   the same, and then the N free ones mapped a second time, 16 under each live block
 */
#include "bench.h"
#include "check.h"

#include "../doors/doors.h"
#include "api/api.h"

#include <string.h>

enum { HANDLE = 2 << 20, HANDLES_A_BLOCK = 16 };

static void blocks(bench_stream stream, size_t n, bool mixed)
{
    uint64_t state = 1;
    for (size_t i = 0; i < n; i++) {
        size_t low = (size_t)512 << (mixed ? bench_random(&state) % 11 : 0);
        gpu_alloc_on(stream, mixed ? low + bench_random(&state) % low : low);
    }
}

static void chunks(bench_stream stream, size_t n)
{
    for (size_t i = 0; i < n; i += HANDLES_A_BLOCK)
        gpu_alloc_on(stream, HANDLES_A_BLOCK * HANDLE);
}

static void holes(bench_stream stream, size_t n)
{
    bench_block *all = malloc(2 * n * sizeof *all);
    for (size_t i = 0; i < 2 * n; i++)
        all[i] = gpu_alloc_on(stream, HANDLE);
    for (size_t i = 0; i < 2 * n; i += 2)
        gpu_free_on(stream, all[i]);
    free(all);
}

int main(int argc, char **argv)
{
    const char *kind = argc == 3 ? argv[1] : "";
    size_t n = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
    gpu_open();
    bench_stream stream = gpu_stream_create();
    if (n && !strcmp(kind, "blocks")) {
        blocks(stream, n, false);
    } else if (n && !strcmp(kind, "mixed")) {
        blocks(stream, n, true);
    } else if (n && !strcmp(kind, "chunks")) {
        chunks(stream, n);
    } else if (n && !strcmp(kind, "holed")) {
        holes(stream, n);
    } else if (n && !strcmp(kind, "remapped")) {
        holes(stream, n);
        chunks(stream, n);
    } else {
        fprintf(stderr, "usage: bench_metadata blocks|mixed|chunks|holed|remapped N\n");
        return 2;
    }
    vp_api_exit();
    return 0;
}
