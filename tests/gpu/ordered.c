/* Random programs in which CUDA itself orders the users of each byte: ordered SEED STEPS.
 *
 * Six streams, the legacy one, the thread's own, two blocking and two non-blocking ones, allocate, fill, read and free
 * blocks, record events, wait for them, and are waited for by the host. Vector clocks tell what comes behind what by
 * CUDA's own rules: a block is used, or freed, only by what does. So each byte read is the one last written, whoever
 * allocates. Prints how many were read, and exits with 1 if one is wrong.
 *
 * What orders less on a device than the text says is taken as it was seen on an H200: an allocation orders nobody, and
 * who waits for a blocking stream waits for no event that stands behind the legacy one. Nor is a wait a command, which
 * one for an event of the past is not. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#define FUNCTIONS(X)                                                                                                   \
    X(cuInit) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuCtxSynchronize) X(cuStreamCreate)                                     \
        X(cuStreamSynchronize) X(cuStreamWaitEvent) X(cuEventCreate) X(cuEventRecord) X(cuEventDestroy_v2)                                \
            X(cuMemAllocAsync) X(cuMemFreeAsync) X(cuMemsetD8Async) X(cuMemcpyDtoHAsync_v2) X(cuMemHostAlloc)

#include "found.h"

enum { LEGACY, OWN, A, B, N, M, STREAMS };
enum { BLOCKS = 2, USES = 256, READS = 20000, SMALL = 512, LARGE = 1 << 20 };

/* What of each stream is over: so many of its commands. */
struct clock {
    unsigned of[STREAMS];
};

/* A command: of a stream the so manieth; 0: none. */
struct point {
    int stream;
    unsigned tick;
};

static struct {
    CUstream handle;
    struct clock clock;
    unsigned ticks;
} streams[STREAMS];
static struct clock host, legacy_commands;

static struct block {
    CUdeviceptr ptr; /* 0: none */
    size_t size;
    unsigned char byte;
    struct point start, written, uses[USES];
    int used;
} blocks[BLOCKS];

static unsigned char *bytes, wanted[READS];
static unsigned reads, frees;
static unsigned long long state;

static unsigned pick(unsigned below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % below;
}

static void join(struct clock *to, const struct clock *from) {
    for (int s = 0; s < STREAMS; s++)
        if (to->of[s] < from->of[s])
            to->of[s] = from->of[s];
}

static bool is_blocking(int s) {
    return s == OWN || s == A || s == B;
}

/* What the next command of a stream comes behind. */
static struct clock before(int s) {
    struct clock clock = streams[s].clock;
    join(&clock, &host);
    for (int other = 0; s == LEGACY && other < STREAMS; other++)
        if (is_blocking(other))
            join(&clock, &streams[other].clock);
    if (is_blocking(s))
        join(&clock, &legacy_commands);
    return clock;
}

static bool is_behind(int s, struct point point) {
    return !point.tick || before(s).of[point.stream] >= point.tick;
}

static struct point command(int s) {
    streams[s].clock = before(s);
    streams[s].clock.of[s] = ++streams[s].ticks;
    if (s == LEGACY)
        legacy_commands = streams[s].clock;
    return (struct point){s, streams[s].ticks};
}

static bool is_last(int s, const struct block *block) {
    for (int i = 0; i < block->used; i++)
        if (!is_behind(s, block->uses[i]))
            return false;
    return is_behind(s, block->start);
}

static void allocate(int s, struct block *block) {
    static unsigned char byte;

    *block = (struct block){.size = pick(2) ? SMALL : LARGE, .byte = byte = (unsigned char)(byte % 250 + 1)};
    NEED(cuMemAllocAsync, &block->ptr, block->size, streams[s].handle);
    join(&streams[s].clock, &host);
    streams[s].clock.of[s] = ++streams[s].ticks;
    block->start = (struct point){s, streams[s].ticks};
}

static void use(int s, struct block *block) {
    if (block->used == USES || !is_behind(s, block->start) || !is_behind(s, block->written))
        return;
    if (block->written.tick && pick(2) && reads < READS) {
        NEED(cuMemcpyDtoHAsync_v2, bytes + reads, block->ptr + (pick(2) ? block->size - 1 : 0), 1, streams[s].handle);
        wanted[reads++] = block->byte;
    } else if (is_last(s, block)) {
        NEED(cuMemsetD8Async, block->ptr, block->byte, block->size, streams[s].handle);
        block->written = (struct point){s, streams[s].ticks + 1};
    } else {
        return;
    }
    block->uses[block->used++] = command(s);
}

static void release(int s, struct block *block) {
    if (!is_last(s, block))
        return;
    NEED(cuMemFreeAsync, block->ptr, streams[s].handle);
    command(s);
    block->ptr = 0;
    frees++;
}

static void pass_on(int from, int to) {
    struct clock recorded, own = streams[from].clock;
    CUevent event;

    NEED(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    NEED(cuEventRecord, event, streams[from].handle);
    command(from);
    recorded = streams[from].clock;
    if (from != LEGACY)
        streams[from].clock = own;
    NEED(cuStreamWaitEvent, streams[to].handle, event, 0);
    join(&streams[to].clock, &recorded);
    NEED(cuEventDestroy_v2, event);
}

static void wait_for(int s) {
    NEED(cuStreamSynchronize, streams[s].handle);
    for (int other = 0; s == LEGACY && other < STREAMS; other++)
        if (is_blocking(other))
            join(&host, &streams[other].clock);
    join(&host, &streams[s].clock);
}

static void step(void) {
    const unsigned what = pick(1000);
    const int s = (int)pick(STREAMS);
    struct block *block = &blocks[pick(BLOCKS)];

    if (what >= 995) {
        NEED(cuCtxSynchronize);
        for (int other = 0; other < STREAMS; other++)
            join(&host, &streams[other].clock);
    } else if (what >= 870) {
        wait_for(s);
    } else if (what >= 850) {
        pass_on(s, (int)pick(STREAMS));
    } else if (!block->ptr) {
        allocate(s, block);
    } else if (what >= 600) {
        release(s, block);
    } else {
        use(s, block);
    }
}

int main(int argc, char **argv) {
    unsigned wrong = 0;

    if (argc != 3) {
        fprintf(stderr, "usage: ordered SEED STEPS\n");
        return 2;
    }
    if (!find_driver()) {
        fprintf(stderr, "no driver, or one that lacks a function\n");
        return 1;
    }
    state = strtoull(argv[1], NULL, 10);
    streams[N].handle = need_stream();
    NEED(cuStreamCreate, &streams[M].handle, CU_STREAM_NON_BLOCKING);
    NEED(cuStreamCreate, &streams[A].handle, CU_STREAM_DEFAULT);
    NEED(cuStreamCreate, &streams[B].handle, CU_STREAM_DEFAULT);
    streams[LEGACY].handle = CU_STREAM_LEGACY;
    streams[OWN].handle = CU_STREAM_PER_THREAD;
    NEED(cuMemHostAlloc, (void **)&bytes, READS, 0);
    for (long steps = strtol(argv[2], NULL, 10); steps > 0; steps--)
        step();
    NEED(cuCtxSynchronize);
    for (unsigned i = 0; i < reads; i++)
        wrong += bytes[i] != wanted[i];
    printf("{\"ok\": %s, \"freed\": %u, \"read\": %u, \"wrong\": %u}\n", wrong ? "false" : "true", frees, reads, wrong);
    return wrong != 0;
}
