/* What a cache's block costs in vpool, told to bare segments as it is used and freed, while nothing moves.
 *
 * Prints one JSON object: nanoseconds of an allocation and a free (room, used, unused) by size; for each size from 1
 * MiB on also of a block that begins and ends within a page that its neighbours have a part of; and of a small one
 * where the device is full. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"
#include "check.h"

#include "../common/doors.h"
#include "base/clock.h"
#include "process/bare.h"
#include "sim.h"

#include <unistd.h>

enum { BATCH = 20000, BATCHES = 9 };

static const size_t KIB = 1 << 10, MIB = 1 << 20, NEIGHBOUR = 5 * (1 << 20) + 1536;

static const struct {
    const char *name;
    size_t bytes;
} sizes[] = {{"512b", 512},   {"4k", 4 << 10},   {"256k", 256 << 10}, {"1m", 1 << 20},
             {"2m", 2 << 20}, {"20m", 20 << 20}, {"100m", 100 << 20}, {"1g", 1024 << 20}};

enum { SIZES = sizeof sizes / sizeof *sizes };

static double measure(CUdeviceptr ptr, size_t bytes, struct vp_bare_stream stream) {
    double best = 1e18;
    for (int batch = 0; batch < BATCHES; batch++) {
        uint64_t begin = vp_clock_ns();
        for (int i = 0; i < BATCH; i++)
            if (vp_bare_room(0, bytes, stream) || !vp_bare_used(ptr, bytes, stream) ||
                !vp_bare_unused(ptr, bytes, false))
                abort();
        double ns = (double)(vp_clock_ns() - begin) / BATCH;
        best = ns < best ? ns : best;
    }
    return best;
}

/* With a block before it, and one behind it. */
static double measure_between(CUdeviceptr at, size_t bytes, struct vp_bare_stream stream) {
    const CUdeviceptr behind = at + NEIGHBOUR + bytes;
    CU(vp_bare_room(0, 2 * NEIGHBOUR, stream));
    vp_bare_used(at, NEIGHBOUR, stream);
    vp_bare_used(behind, NEIGHBOUR, stream);
    const double ns = measure(at + NEIGHBOUR, bytes, stream);
    vp_bare_unused(at, NEIGHBOUR, false);
    vp_bare_unused(behind, NEIGHBOUR, false);
    return ns;
}

/* Nearly all of the device is alive in blocks of 20 MiB, others have the rest, and some is idle. */
static double measure_full(CUdeviceptr ptr, size_t bytes, struct vp_bare_stream stream) {
    enum { BLOCKS = 2000, IDLE = 1 };
    const size_t block = 20 * MIB;
    CUdeviceptr full;
    size_t free_bytes, total;
    CU(vp_bare_segment(&full, BLOCKS * block, stream));
    for (int i = 0; i < BLOCKS; i++) {
        CU(vp_bare_room(0, block, stream));
        vp_bare_used(full + (size_t)i * block, block, stream);
    }
    CU(cuMemGetInfo(&free_bytes, &total));
    vp_sim_others(0, free_bytes);
    for (int i = 0; i < IDLE; i++)
        vp_bare_unused(full + (size_t)i * 7 * block, block, false);
    usleep(20000); /* nothing is counted on the device any more */
    return measure(ptr, bytes, stream);
}

int main(void) {
    CUdeviceptr small, large;
    gpu_open();
    struct vp_bare_stream stream = {.known = true};
    CU(cuStreamCreate(&stream.handle, CU_STREAM_NON_BLOCKING));
    CU(vp_bare_segment(&small, 2 * MIB, stream));
    CU(vp_bare_segment(&large, 1100 * MIB, stream));
    CU(vp_bare_room(0, 4 * MIB, stream));
    vp_bare_used(small + MIB, 4 * KIB, stream);
    printf("{\"ok\": true");
    for (int i = 0; i < SIZES; i++)
        printf(", \"%s\": %.1f", sizes[i].name, measure(sizes[i].bytes < MIB ? small : large, sizes[i].bytes, stream));
    for (int i = 0; i < SIZES; i++)
        if (sizes[i].bytes >= MIB)
            printf(", \"%s between\": %.1f", sizes[i].name, measure_between(large, sizes[i].bytes, stream));
    printf(", \"4k on a full device\": %.1f", measure_full(small, 4 * KIB, stream));
    printf("}\n");
    return 0;
}
