/* What the benchmark programs share. bench.c, pairs.c and threads.c say what is measured, and ask for memory
 * through the functions below; each program answers them in another way:
 *
 *   bench_doors     in process, through the library's api layer on the simulated driver (doors.c)
 *   bench_driver    by the driver API (driver.c)
 *   bench_runtime   by the runtime API (runtime.c)
 *
 * The last two know nothing of the library: they run bare or under LD_PRELOAD, on a GPU, or with
 * LD_LIBRARY_PATH=build/sim without one. A call that fails names itself on stderr and ends the program. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void *bench_stream;
typedef unsigned long long bench_block;

/* ---- the API that is measured ---- */

extern const char bench_api[];
/* Of the simulated device, in process; to be set before gpu_open(). */
extern const char *bench_capacity;

/* Opens device 0. CUDA's own pool is told to give nothing back, which is when it is fastest. */
void gpu_open(void);
/* Every other thread, before its first call. */
void gpu_enter(void);
void gpu_synchronize(void);

/* Non-blocking. */
bench_stream gpu_stream_create(void);
void gpu_stream_destroy(bench_stream stream);

bench_block gpu_alloc(size_t bytes);
void gpu_free(bench_block block);
bench_block gpu_alloc_on(bench_stream stream, size_t bytes);
void gpu_free_on(bench_stream stream, bench_block block);

/* Driver calls that an allocator makes, alone: how much of a figure is the driver's. */
void bench_calls(void);

/* ---- the frame ---- */

uint64_t bench_now_ns(void);

/* splitmix64: every seed is a good one. */
uint64_t bench_random(uint64_t *state);

/* Runs `batch` several times, first to warm up and then for measuring. It makes `count` operations and is
 * timed from outside; the device is waited for between batches, which is not timed. Returns the nanoseconds
 * that an operation took in the median batch. */
double bench_batches(void (*batch)(void *user, int count), void *user, int count);

/* One figure of the JSON object that the program prints. */
void bench_print(const char *name, double value);
/* Whether the command line asks for this case: it names it, or names none. */
bool bench_wanted(const char *name);

/* ---- what is measured: see the functions ---- */

void bench_pairs(void);
void bench_threads(void);
