/* What allocations cost that nothing cached can serve, in process, on the simulated driver.
 *
 * usage: bench_slow alike       100 GiB alive in 2,000 blocks, one after the other replaced by another of a random
 *                               size: host nanoseconds of an allocation beside the driver's calls, mean and worst
 *        bench_slow varied      the same, with blocks of 1 to 270 MiB, evenly over the orders of magnitude
 *        bench_slow large       100 GiB free in handles of 8 MiB, in pieces with live blocks between, on a device of
 *                               192 GiB; 50 GiB asked for in one: modelled nanoseconds in the driver's calls
 *
 * Prints one JSON object. `large` needs VPOOL_HANDLE=8M.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "bench.h"
#include "check.h"

#include "../common/doors.h"
#include "base/clock.h"
#include "process/process.h"
#include "sim.h"
#include "vpool.h"

#include <string.h>

static const size_t MIB = 1 << 20, GIB = 1 << 30;

/* ---- many blocks alive ---- */

enum { ALIVE = 2000, WARM_UP = 500, MEASURED = 4000 };

/* 51.2 MiB in the middle. */
static size_t alike(uint64_t *state) {
    return 48 * MIB + (size_t)(bench_random(state) % (MIB * 32 / 5));
}

static size_t varied(uint64_t *state) {
    size_t low = (MIB + MIB / 14) << bench_random(state) % 8;
    return low + bench_random(state) % low;
}

static uint64_t in_driver(void) {
    struct vpool_stats stats = {.size = sizeof stats};
    return vpool_stats(0, &stats) ? 0 : stats.driver_ns;
}

static void alive(bench_stream stream, size_t (*draw)(uint64_t *state)) {
    static bench_block blocks[ALIVE];
    uint64_t state = 1, sum = 0, worst = 0;
    for (int i = 0; i < ALIVE; i++)
        blocks[i] = gpu_alloc_on(stream, draw(&state));
    for (int i = -WARM_UP; i < MEASURED; i++) {
        bench_block *block = &blocks[bench_random(&state) % ALIVE];
        size_t size = draw(&state);
        gpu_free_on(stream, *block);
        uint64_t driver = in_driver(), begin = vp_clock_ns();
        *block = gpu_alloc_on(stream, size);
        uint64_t whole = vp_clock_ns() - begin, calls = in_driver() - driver, own = whole > calls ? whole - calls : 0;
        if (i < 0)
            continue;
        sum += own;
        worst = own > worst ? own : worst;
    }
    printf("{\"ok\": true, \"mean\": %.1f, \"worst\": %llu}\n", (double)sum / MEASURED, (unsigned long long)worst);
}

/* ---- one large request ---- */

enum { FREE_RUN = 5 }; /* handles in a piece */

static void large(bench_stream stream) {
    static bench_block blocks[16384];
    const size_t handle = 8 * MIB, pieces = 100 * GIB / (FREE_RUN * handle);
    for (size_t i = 0; i < pieces * (FREE_RUN + 1); i++)
        blocks[i] = gpu_alloc_on(stream, handle);
    for (size_t i = 0; i < pieces * (FREE_RUN + 1); i++)
        if (i % (FREE_RUN + 1))
            gpu_free_on(stream, blocks[i]);
    gpu_synchronize();
    uint64_t before = vp_sim_cost_ns();
    gpu_alloc_on(stream, 50 * GIB);
    printf("{\"ok\": true, \"modelled\": %llu}\n", (unsigned long long)(vp_sim_cost_ns() - before));
}

int main(int argc, char **argv) {
    const char *kind = argc == 2 ? argv[1] : "";
    bool is_large = !strcmp(kind, "large"), is_varied = !strcmp(kind, "varied");
    if (!is_large && !is_varied && strcmp(kind, "alike")) {
        fprintf(stderr, "usage: bench_slow alike|varied|large\n");
        return 2;
    }
    bench_capacity = is_large ? "192G" : "1T";
    gpu_open();
    bench_stream stream = gpu_stream_create();
    if (is_large)
        large(stream);
    else
        alive(stream, is_varied ? varied : alike);
    vp_api_exit();
    return 0;
}
