/* What an allocation and a free cost where there is little of something, and where there is 16 times as much.
 *
 * usage: bench_grow KIND
 *   regions   blocks of 1.3 MiB, every second one freed: 2,000
 *   chunks    handles of 8 MiB under live blocks: 1,000
 *   streams   with a block freed on each: 64
 *   spaces    reservations of addresses, filled: 4; needs VPOOL_VA=1G
 *   threads   that have freed on their own default streams, and ended: 64
 *   holes     addresses with nothing mapped, each between two blocks: 1,000
 *   nothing   is what two measurements differ by themselves
 *
 * Prints one JSON object: host nanoseconds of a pair beside the driver's calls, before and after. The pairs are of
 * sizes that hardly come again, on one stream, with 64 blocks alive: of 3 to 12 MiB, for most of which a free range is
 * found (`fit`), and of 48 to 52 MiB, for most of which one must be built (`build`). And those of an allocation of some
 * 100 MiB of fresh memory (`fresh`). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"
#include "check.h"

#include "../common/doors.h"
#include "base/clock.h"
#include "process/process.h"
#include "vpool.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

enum { GROWTH = 16, ALIVE = 64, BATCH = 400, BATCHES = 7, WARM_UP = 6 };

static const size_t MIB = 1 << 20;

/* ---- what grows ---- */

static void regions(size_t from, size_t to) {
    static bench_block odd[2000 * GROWTH];
    static bench_stream stream;
    stream = stream ? stream : gpu_stream_create();
    for (size_t i = from; i < to; i++) {
        bench_block block = gpu_alloc_on(stream, 13 * MIB / 10);
        if (i % 2)
            odd[i] = block;
    }
    for (size_t i = from; i < to; i++)
        if (i % 2)
            gpu_free_on(stream, odd[i]);
}

static void chunks(size_t from, size_t to) {
    static bench_stream stream;
    stream = stream ? stream : gpu_stream_create();
    for (size_t i = from; i < to; i += 8)
        gpu_alloc_on(stream, 64 * MIB);
}

static void streams(size_t from, size_t to) {
    for (size_t i = from; i < to; i++) {
        bench_stream stream = gpu_stream_create();
        gpu_free_on(stream, gpu_alloc_on(stream, 2 * MIB));
    }
}

static void spaces(size_t from, size_t to) {
    static bench_stream stream;
    stream = stream ? stream : gpu_stream_create();
    for (size_t i = from; i < to; i++)
        gpu_alloc_on(stream, 900 * MIB);
}

static void *thread(void *unused) {
    gpu_enter();
    gpu_free_on(CU_STREAM_PER_THREAD, gpu_alloc_on(CU_STREAM_PER_THREAD, 2 * MIB));
    return unused;
}

static void threads(size_t from, size_t to) {
    for (size_t i = from; i < to; i++) {
        pthread_t id;
        if (pthread_create(&id, NULL, thread, NULL))
            exit(1);
        pthread_join(id, NULL);
    }
}

static void give_back_all(void) {
    gpu_synchronize();
    if (vpool_trim(0, 0) < 0)
        exit(1);
}

static void holes(size_t from, size_t to) {
    static bench_block odd[1000 * GROWTH];
    static bench_stream stream;
    stream = stream ? stream : gpu_stream_create();
    for (size_t i = from; i < to; i++) {
        gpu_alloc_on(stream, 2 * MIB);
        odd[i] = gpu_alloc_on(stream, 6 * MIB);
    }
    for (size_t i = from; i < to; i++)
        gpu_free_on(stream, odd[i]);
    give_back_all();
}

/* How much two measurements differ by themselves. */
static void nothing(size_t from, size_t to) {
    (void)from, (void)to;
}

static const struct kind {
    const char *name;
    size_t few;
    void (*grow)(size_t from, size_t to);
} kinds[] = {
    {"regions", 2000, regions}, {"chunks", 1000, chunks}, {"streams", 64, streams}, {"spaces", 4, spaces},
    {"threads", 64, threads},   {"holes", 1000, holes},   {"nothing", 0, nothing},
};

/* ---- what it is measured by ---- */

struct pairs {
    const char *name;
    size_t least, spread;
    bench_stream stream;
    bench_block blocks[ALIVE];
    uint64_t state;
};

static size_t draw(struct pairs *p) {
    return p->least + (size_t)(bench_random(&p->state) % p->spread);
}

static uint64_t in_driver(void) {
    struct vpool_stats stats = {.size = sizeof stats};
    return vpool_stats(0, &stats) ? 0 : stats.driver_ns;
}

/* What was made beyond what is kept goes back beside the program: that is over when the driver has had no call for a
 * moment. */
static void settle(void) {
    uint64_t before;
    do {
        before = in_driver();
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    } while (in_driver() != before);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Of the batches: what else the machine has to do adds to some, and what goes back beside them is taken from others. */
static double median(double batches[BATCHES]) {
    qsort(batches, BATCHES, sizeof *batches, by_value);
    return batches[BATCHES / 2];
}

static double own(uint64_t whole, uint64_t calls, size_t count) {
    return whole > calls ? (double)(whole - calls) / (double)count : 0;
}

static double measure(struct pairs *p) {
    double batches[BATCHES];
    settle();
    for (int b = 0; b < BATCHES; b++) {
        uint64_t driver = in_driver(), begin = vp_clock_ns();
        for (int i = 0; i < BATCH; i++) {
            bench_block *block = &p->blocks[bench_random(&p->state) % ALIVE];
            gpu_free_on(p->stream, *block);
            *block = gpu_alloc_on(p->stream, draw(p));
        }
        batches[b] = own(vp_clock_ns() - begin, in_driver() - driver, BATCH);
    }
    return median(batches);
}

/* A block for which there is no memory yet. */
static double measure_fresh(bench_stream stream) {
    bench_block made[ALIVE];
    double batches[BATCHES];
    for (int b = 0; b < BATCHES; b++) {
        settle();
        uint64_t driver = in_driver(), begin = vp_clock_ns();
        for (size_t i = 0; i < ALIVE; i++)
            made[i] = gpu_alloc_on(stream, 100 * MIB + i * (MIB / 16));
        batches[b] = own(vp_clock_ns() - begin, in_driver() - driver, ALIVE);
        for (size_t i = 0; i < ALIVE; i++)
            gpu_free_on(stream, made[i]);
        give_back_all();
    }
    return median(batches);
}

int main(int argc, char **argv) {
    const struct kind *kind = NULL;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds && argc == 2; k++)
        if (!strcmp(kinds[k].name, argv[1]))
            kind = &kinds[k];
    if (!kind) {
        fprintf(stderr, "usage: bench_grow regions|chunks|streams|spaces|threads|holes|nothing\n");
        return 2;
    }
    gpu_open();
    struct pairs pairs[] = {{.name = "fit", .least = 3 * MIB, .spread = 9 * MIB},
                            {.name = "build", .least = 48 * MIB, .spread = 4 * MIB}};
    double before[2];
    for (int p = 0; p < 2; p++) {
        pairs[p].stream = gpu_stream_create();
        for (int i = 0; i < ALIVE; i++)
            pairs[p].blocks[i] = gpu_alloc_on(pairs[p].stream, draw(&pairs[p]));
    }
    kind->grow(0, kind->few);
    const double fresh_before = measure_fresh(pairs[1].stream);
    for (int i = 0; i < WARM_UP; i++) /* until the blocks lie as scattered as they will */
        for (int p = 0; p < 2; p++)
            measure(&pairs[p]);
    for (int p = 0; p < 2; p++)
        before[p] = measure(&pairs[p]);
    kind->grow(kind->few, kind->few * GROWTH);
    printf("{\"ok\": true");
    for (int p = 0; p < 2; p++)
        printf(", \"%s before\": %.1f, \"%s after\": %.1f", pairs[p].name, before[p], pairs[p].name,
               measure(&pairs[p]));
    printf(", \"fresh before\": %.1f, \"fresh after\": %.1f}\n", fresh_before, measure_fresh(pairs[1].stream));
    vp_api_exit();
    return 0;
}
