/* Two threads of one cache on bare segments, others that allocate, trim, pin, capture and end streams: every byte is
 * its owner's, and a block that was let in has memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "race.h"

#include "process/bare.h"
#include "vpool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { STEPS = 2500, ROUNDS = 4, SEGMENTS = 3, UNITS = 192, BLOCKS = 24, LOOKS = 9, TAKEN = 3 };
/* The first block has the first segment's beginning to itself, and is a run of pages before long. */
enum { OWN_UNITS = 48 };
static const size_t UNIT = 32 << 10, KIB = 1 << 10;

static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int caches;
static unsigned round_no;

struct block {
    CUdeviceptr ptr;
    size_t size, first, units;
    int segment;
    unsigned char mark;
};

struct cache {
    CUstream stream;
    CUdeviceptr segment[SEGMENTS];
    bool used[SEGMENTS][UNITS];
    struct block block[BLOCKS];
    unsigned seed, refused;
};

static unsigned pick(unsigned *seed, unsigned n) {
    return (unsigned)rand_r(seed) % n;
}

static struct vp_bare_stream on(CUstream stream) {
    return (struct vp_bare_stream){.handle = stream, .known = true};
}

static void look(CUdeviceptr ptr, size_t size, unsigned char mark) {
    for (size_t i = 0; i < LOOKS; i++) {
        unsigned char seen;
        CU(cuMemcpyDtoH(&seen, ptr + i * (size - 1) / (LOOKS - 1), 1));
        CHECK(seen == mark);
    }
}

static bool place(struct cache *c, struct block *b) {
    for (b->segment = 0; b->segment < SEGMENTS; b->segment++) {
        if (!c->segment[b->segment])
            CU(vp_bare_segment(&c->segment[b->segment], UNITS * UNIT, on(c->stream)));
        size_t run = 0;
        if (b == c->block) {
            b->first = 0;
            return true;
        }
        for (size_t i = b->segment ? 0 : OWN_UNITS; i < UNITS; i++) {
            run = c->used[b->segment][i] ? 0 : run + 1;
            if (run == b->units) {
                b->first = i + 1 - run;
                return true;
            }
        }
    }
    return false;
}

static void mark_units(struct cache *c, const struct block *b, bool used) {
    for (size_t i = b->first; i < b->first + b->units; i++)
        c->used[b->segment][i] = used;
}

static void use(struct cache *c, struct block *b) {
    b->size = (pick(&c->seed, 4) ? 1 + pick(&c->seed, 40) : 1 + pick(&c->seed, 900)) * 4 * KIB + 512;
    if (b == c->block)
        b->size = OWN_UNITS * UNIT - 512;
    b->units = (b->size + UNIT - 1) / UNIT;
    pthread_mutex_lock(&cache_lock);
    CUresult res = vp_bare_room(0, b->size, on(c->stream));
    CHECK(res == CUDA_SUCCESS || res == CUDA_ERROR_OUT_OF_MEMORY);
    c->refused += res != CUDA_SUCCESS;
    if (!res && place(c, b)) {
        b->ptr = c->segment[b->segment] + b->first * UNIT;
        mark_units(c, b, true);
        CHECK(vp_bare_used(b->ptr, b->size, on(c->stream)));
    }
    pthread_mutex_unlock(&cache_lock);
    if (b->ptr)
        CU(cuMemsetD8Async(b->ptr, ++b->mark, b->size, c->stream));
}

static void unuse(struct cache *c, struct block *b, bool check) {
    if (check) {
        CU(cuStreamSynchronize(c->stream));
        look(b->ptr, b->size, b->mark);
    }
    pthread_mutex_lock(&cache_lock);
    CHECK(vp_bare_unused(b->ptr, b->size, !pick(&c->seed, 16)));
    mark_units(c, b, false);
    pthread_mutex_unlock(&cache_lock);
    b->ptr = 0;
}

/* As the cache's empty_cache. */
static void free_segments(struct cache *c) {
    pthread_mutex_lock(&cache_lock);
    for (int s = 0; s < SEGMENTS; s++) {
        bool any = !c->segment[s];
        for (int i = 0; i < UNITS; i++)
            any |= c->used[s][i];
        if (!any) {
            CU(door_free(c->segment[s]));
            c->segment[s] = 0;
        }
    }
    pthread_mutex_unlock(&cache_lock);
}

static void run_cache(int index) {
    struct cache *c = calloc(1, sizeof *c);
    c->seed = round_no * RACERS + (unsigned)index + 1;
    CU(door_stream_create(&c->stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < STEPS; i++) {
        struct block *b = &c->block[pick(&c->seed, 3) ? pick(&c->seed, BLOCKS) : 0];
        if (b->ptr)
            unuse(c, b, !pick(&c->seed, 3));
        else if (pick(&c->seed, 60))
            use(c, b);
        else
            free_segments(c);
    }
    for (int i = 0; i < BLOCKS; i++)
        if (c->block[i].ptr)
            unuse(c, &c->block[i], true);
    free_segments(c);
    CU(door_stream_destroy(c->stream));
    free(c);
    atomic_fetch_sub(&caches, 1);
}

/* By cudaMalloc, which the cache's memory serves, and the other way round. */
static void take(void) {
    CUdeviceptr taken[TAKEN] = {0};
    size_t size[TAKEN];
    unsigned seed = 9;
    for (unsigned i = 0; atomic_load(&caches); i++) {
        const unsigned at = pick(&seed, TAKEN);
        const unsigned char mark = (unsigned char)(128 + at);
        if (taken[at]) {
            look(taken[at], size[at], mark);
            CU(door_free(taken[at]));
            taken[at] = 0;
            continue;
        }
        size[at] = (1 + pick(&seed, 100)) * 64 * KIB;
        CUresult res = door_alloc(&taken[at], size[at]);
        CHECK(res == CUDA_SUCCESS || res == CUDA_ERROR_OUT_OF_MEMORY);
        if (res)
            taken[at] = 0;
        else
            CU(cuMemsetD8(taken[at], mark, size[at]));
    }
    for (int i = 0; i < TAKEN; i++)
        if (taken[i])
            CU(door_free(taken[i]));
}

static void meddle(void) {
    for (unsigned i = 0; atomic_load(&caches); i++) {
        struct vpool_stats stats = {.size = sizeof stats};
        CUstream stream;
        if (vpool_stats(0, &stats)) /* nobody has asked for memory yet */
            continue;
        if (i % 8 == 0)
            CHECK(vpool_trim(0, stats.live_bytes) >= 0);
        if (i % 50 == 0) {
            CU(door_stream_create(&stream, CU_STREAM_NON_BLOCKING));
            CU(door_begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
            CU(door_end_capture(stream, NULL));
            CU(door_stream_destroy(stream));
        }
    }
}

static void racer(int index) {
    if (index < 2)
        run_cache(index);
    else
        index == 2 ? take() : meddle();
}

int main(void) {
    race_open("granularity=64K,capacity=22M,timeout=3000");
    for (round_no = 0; round_no < ROUNDS; round_no++) {
        atomic_store(&caches, 2);
        race_run(racer);
    }
    CU(cuCtxSynchronize());
    race_close();
    return 0;
}
