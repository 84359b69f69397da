/* Pairs of an allocation and a free, by one thread. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

/* Synchronous pairs are fewer: bare ones take some 200 microseconds each. */
enum { PAIRS = 2000, SYNCHRONOUS_PAIRS = 100, STREAMS = 4, SPELL = 50, PAGE = 2 << 20 };
enum { LIVE = 65536, LIVE_PAIRS = 10000 };

struct sizes {
    const char *name;
    size_t bytes;
};

static const struct sizes sizes[] = {{"4k", 4 << 10}, {"64k", 64 << 10}, {"2m", 2 << 20}, {"64m", 64 << 20}};

enum { SIZES = sizeof sizes / sizeof *sizes };

struct pairs {
    size_t bytes;
    bench_stream streams[STREAMS];
    bench_block block; /* the one that is handed over */
    long pairs, moved; /* how often it was, and how often it came from elsewhere */
};

static void same_stream(void *user, int count) {
    const struct pairs *p = user;
    for (int i = 0; i < count; i++)
        gpu_free_on(p->streams[0], gpu_alloc_on(p->streams[0], p->bytes));
}

/* The same for a while, then on the next stream: all of them are in use. */
static void several_streams(void *user, int count) {
    const struct pairs *p = user;
    for (int i = 0; i < count; i++) {
        bench_stream stream = p->streams[i / SPELL % STREAMS];
        gpu_free_on(stream, gpu_alloc_on(stream, p->bytes));
    }
}

/* Each pair on another stream than the one before: what one leaves behind does not lie ready for the next. */
static void streams_in_turn(void *user, int count) {
    const struct pairs *p = user;
    for (int i = 0; i < count; i++)
        gpu_free_on(p->streams[i % STREAMS], gpu_alloc_on(p->streams[i % STREAMS], p->bytes));
}

/* So many calls deep: for what looks at the stack. The program, the loader and the batches are frames, too. */
enum { DEEP = 12 };

__attribute__((noinline)) static int deep(const struct pairs *p, int count, int depth) {
    volatile int more = depth > 1 ? deep(p, count, depth - 1) : 0;
    if (depth == 1)
        same_stream((void *)p, count);
    return more + 1;
}

static void from_deep(void *user, int count) {
    (void)deep(user, count, DEEP);
}

static void synchronous(void *user, int count) {
    const struct pairs *p = user;
    for (int i = 0; i < count; i++)
        gpu_free(gpu_alloc(p->bytes));
}

/* What one stream frees the next one takes. Nothing else is free, and nothing is queued on any of them. */
static void hand_over(void *user, int count) {
    struct pairs *p = user;
    p->pairs += count;
    for (int i = 0; i < count; i++) {
        bench_block before = p->block;
        gpu_free_on(p->streams[i % STREAMS], before);
        p->block = gpu_alloc_on(p->streams[(i + 1) % STREAMS], p->bytes);
        p->moved += p->block != before;
    }
}

/* All cases of a kind, one for each size. */
static void measure(const char *kind, void (*batch)(void *user, int count), struct pairs *p, int count) {
    char name[64];
    for (int s = 0; s < SIZES; s++) {
        snprintf(name, sizeof name, "%s_%s", kind, sizes[s].name);
        if (!bench_wanted(kind) && !bench_wanted(name))
            continue;
        p->bytes = sizes[s].bytes;
        bench_print(name, bench_batches(batch, p, count));
    }
}

static void measure_hand_over(struct pairs *p) {
    char name[64];
    for (int s = 0; s < SIZES; s++) {
        snprintf(name, sizeof name, "handover_%s", sizes[s].name);
        if (!bench_wanted("handover") && !bench_wanted(name))
            continue;
        /* Fill a page with its like, or the next stream would find room that nobody has freed. */
        bench_block others[PAGE / 4096];
        size_t count = sizes[s].bytes < PAGE ? PAGE / sizes[s].bytes - 1 : 0;
        for (size_t i = 0; i < count; i++)
            others[i] = gpu_alloc_on(p->streams[0], sizes[s].bytes);
        p->bytes = sizes[s].bytes;
        p->block = gpu_alloc_on(p->streams[0], p->bytes);
        p->pairs = p->moved = 0;
        /* A batch ends where it began, with the block on the first stream. */
        bench_print(name, bench_batches(hand_over, p, PAIRS / STREAMS * STREAMS));
        gpu_free_on(p->streams[0], p->block);
        for (size_t i = 0; i < count; i++)
            gpu_free_on(p->streams[0], others[i]);
        snprintf(name, sizeof name, "handover_%s_same", sizes[s].name);
        bench_print(name, 100.0 * (p->pairs - p->moved) / p->pairs);
    }
}

/* ---- many live blocks ---- */

struct crowd {
    bench_stream stream;
    size_t *sizes; /* drawn in advance, as are the victims: neither is timed */
    uint32_t *victims;
    bench_block *blocks;
    size_t next;
};

static void replace(void *user, int count) {
    struct crowd *c = user;
    for (int i = 0; i < count; i++, c->next = (c->next + 1) % LIVE) {
        bench_block *block = &c->blocks[c->victims[c->next]];
        gpu_free_on(c->stream, *block);
        *block = gpu_alloc_on(c->stream, c->sizes[c->next]);
    }
}

/* From 512 bytes to 1 MiB, evenly over the sizes, or over their orders of magnitude. */
static size_t random_size(uint64_t *state, bool by_magnitude) {
    if (!by_magnitude)
        return 512 + bench_random(state) % ((1 << 20) - 512 + 1);
    size_t low = (size_t)512 << bench_random(state) % 11;
    return low + bench_random(state) % low;
}

static void measure_crowd(const char *name, bench_stream stream, bool by_magnitude) {
    if (!bench_wanted("live64k") && !bench_wanted(name))
        return;
    uint64_t state = 1;
    struct crowd c = {
        .stream = stream,
        .sizes = malloc(LIVE * sizeof *c.sizes),
        .victims = malloc(LIVE * sizeof *c.victims),
        .blocks = malloc(LIVE * sizeof *c.blocks),
    };
    for (size_t i = 0; i < LIVE; i++) {
        c.sizes[i] = random_size(&state, by_magnitude);
        c.victims[i] = (uint32_t)(bench_random(&state) % LIVE);
    }
    for (size_t i = 0; i < LIVE; i++)
        c.blocks[i] = gpu_alloc_on(stream, random_size(&state, by_magnitude));
    bench_print(name, bench_batches(replace, &c, LIVE_PAIRS));
    for (size_t i = 0; i < LIVE; i++)
        gpu_free_on(stream, c.blocks[i]);
    free(c.sizes);
    free(c.victims);
    free(c.blocks);
}

void bench_pairs(void) {
    struct pairs p = {.streams = {gpu_stream_create()}};

    /* While one stream alone is in use no event is needed; the others are born after that. */
    measure("pair", same_stream, &p, PAIRS);
    measure("deep", from_deep, &p, PAIRS);
    measure_crowd("live64k_magnitude", p.streams[0], true);
    measure_crowd("live64k_even", p.streams[0], false);
    measure("sync", synchronous, &p, SYNCHRONOUS_PAIRS);

    for (int s = 1; s < STREAMS; s++)
        p.streams[s] = gpu_stream_create();
    measure("streams", several_streams, &p, PAIRS);
    measure("inturn", streams_in_turn, &p, PAIRS);
    measure_hand_over(&p);

    gpu_synchronize();
    for (int s = 0; s < STREAMS; s++)
        gpu_stream_destroy(p.streams[s]);
}
