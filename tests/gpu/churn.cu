/* Allocates, computes and frees in a fixed order, and prints a checksum of everything computed: the same
 * whatever the allocator.
 *
 * usage: churn [STEPS]      prints one JSON object */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common.cuh"

#include <cstring>

enum { SLOTS = 96, STREAMS = 3 };

struct slot {
    unsigned char *data;
    size_t bytes;
    uint32_t pattern;
    int stream;
    bool async;
};

static cudaStream_t streams[STREAMS];
static struct slot slots[SLOTS];
static struct random_numbers numbers = {7};
static unsigned long long *sum; /* on the device */
static struct wrong *wrong;     /* likewise */
static size_t live, peak_live, allocs;

/* Wrapping sums do not depend on the order of their terms. */
__global__ static void add_up(const unsigned char *block, size_t bytes, unsigned long long *sum) {
    unsigned long long mine = 0;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < bytes; i += (size_t)gridDim.x * blockDim.x)
        mine += block[i] * (i % 251 + 1);
    atomicAdd(sum, mine);
}

static void slot_fill(struct slot *s) {
    int kind = (int)numbers.below(10);
    s->bytes = kind < 5   ? numbers.size_between(4, 16)
               : kind < 9 ? numbers.size_between(16, 23)
                          : numbers.size_between(23, 26);
    s->async = numbers.chance(60);
    s->stream = (int)numbers.below(STREAMS);
    s->pattern = (uint32_t)numbers.next();
    if (s->async)
        CHECK(cudaMallocAsync(&s->data, s->bytes, streams[s->stream]));
    else
        CHECK(cudaMalloc(&s->data, s->bytes));
    allocs++;
    live += s->bytes;
    if (live > peak_live)
        peak_live = live;
    pattern_write_on(streams[s->stream], s->data, s->bytes, s->pattern);
}

static void slot_empty(struct slot *s) {
    cudaStream_t stream = streams[s->stream];
    pattern_verify_on(stream, s->data, s->bytes, s->pattern, wrong);
    add_up<<<pattern_grid(s->bytes), 256, 0, stream>>>(s->data, s->bytes, sum);
    CHECK(cudaGetLastError());
    if (s->async)
        CHECK(cudaFreeAsync(s->data, stream));
    else
        CHECK(cudaFree(s->data)); /* with its last kernels still queued */
    live -= s->bytes;
    s->data = NULL;
}

/* Gives `to` the contents of `from`, each on its own stream. */
static void slot_copy(struct slot *to, struct slot *from) {
    static cudaEvent_t ready, done;
    if (!ready) {
        CHECK(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
        CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    }
    size_t bytes = to->bytes < from->bytes ? to->bytes : from->bytes;
    CHECK(cudaEventRecord(ready, streams[from->stream]));
    CHECK(cudaStreamWaitEvent(streams[to->stream], ready, 0));
    CHECK(cudaMemcpyAsync(to->data, from->data, bytes, cudaMemcpyDeviceToDevice, streams[to->stream]));
    CHECK(cudaEventRecord(done, streams[to->stream]));
    CHECK(cudaStreamWaitEvent(streams[from->stream], done, 0));
    add_up<<<pattern_grid(bytes), 256, 0, streams[to->stream]>>>(to->data, bytes, sum);
    CHECK(cudaGetLastError());
    pattern_write_on(streams[to->stream], to->data, to->bytes, to->pattern);
}

int main(int argc, char **argv) {
    int steps = argc > 1 ? atoi(argv[1]) : 20000;
    unsigned long long checksum;
    struct wrong found;

    streams[0] = 0; /* the default stream, a blocking and a non-blocking one */
    CHECK(cudaStreamCreate(&streams[1]));
    CHECK(cudaStreamCreateWithFlags(&streams[2], cudaStreamNonBlocking));
    CHECK(cudaMalloc(&sum, sizeof *sum));
    CHECK(cudaMalloc(&wrong, sizeof *wrong));
    CHECK(cudaMemset(sum, 0, sizeof *sum));
    CHECK(cudaMemset(wrong, 0, sizeof *wrong));
    CHECK(cudaDeviceSynchronize());

    double start = now_s();
    for (int step = 0; step < steps; step++) {
        struct slot *s = &slots[numbers.below(SLOTS)], *other = &slots[numbers.below(SLOTS)];
        if (s->data && other->data && s != other && numbers.chance(20))
            slot_copy(s, other);
        else if (s->data)
            slot_empty(s);
        else
            slot_fill(s);
        if (step % 512 == 511)
            CHECK(cudaDeviceSynchronize());
    }
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].data)
            slot_empty(&slots[i]);
    CHECK(cudaDeviceSynchronize());
    double seconds = now_s() - start;

    CHECK(cudaMemcpy(&checksum, sum, sizeof checksum, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(&found, wrong, sizeof found, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(sum));
    CHECK(cudaFree(wrong));
    printf("{\"ok\": %s, \"checksum\": \"%016llx\", \"mismatches\": %llu, \"allocs\": %zu, \"peak_live_bytes\": %zu, "
           "\"seconds\": %.3f, \"ops_per_s\": %.0f}\n",
           found.count ? "false" : "true", checksum, found.count, allocs, peak_live, seconds, steps / seconds);
    return found.count ? 1 : 0;
}
