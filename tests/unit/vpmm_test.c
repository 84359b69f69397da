/* The published VPMM policy: the cases that a faithful implementation meets. Sizes are pages (64 KiB here);
 * `pages` of them are mapped in advance, and `held` counts those mapped. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

enum { PAGE = 64 * 1024 };

static const struct {
    const char *name;
    size_t pages;
    const char *script;
} cases[] = {
    /* The scenario of the specification. */
    {"A: enough free behind", 22, "a+10 b+1 a- c+4 d+11 held=22 c@a d>b"},
    {"B: a remap suffices", 18, "a+10 b+1 a- c+4 d+11 held=18 c>b"},
    {"C: remap and grow", 15, "a+10 b+1 a- c+4 d+11 held=16 c>b"},
    {"D: the 4 fits only in front", 12, "a+10 b+1 a- c+4 d+11 held=16 c@a"},

    {"three rounds use the same pages", 8,
     "a+2 b+2 c+2 d+2 a- c- e+4 b- d- e- held=8 a+2 b+2 c+2 d+2 a- c- e+4 b- d- e- held=8 "
     "a+2 b+2 c+2 d+2 a- c- e+4 b- d- e- held=8"},
    {"neighbours unite in any order", 6,
     "a+2 b+2 c+2 b- a- d+4 d@a d- c- a+2 b+2 c+2 a- b- d+4 d@a d- c- a+2 b+2 c+2 a- c- b- d+6 d@a held=6"},
    {"own memory first, by a remap", 6, "a+2 S2 b+2 S1 c+2 a- c- S2 b- S1 mark d+4 d^b grown=0 held=6 S2 e+2 e@b"},
    {"three apart, then one page, then growth", 10, "a+2 b+2 c+2 d+2 e+2 a- c- e- f+5 held=10 g+1 held=10 h+1 held=11"},
    {"growth by what is short alone", 6, "a+2 b+2 c+2 a- b- d+4 d@a d- c- e+7 held=7"},
    {"growth from nothing", 0, "a+2 held=2 a- b+4 held=4 b- c+2 d+2 held=4 c- e+4 held=6"},
    {"five freed out of order are one", 10,
     "a+2 b+2 c+2 d+2 e+2 b- d- a- c- e- f+10 held=10 f- g+6 h+4 g- i+7 held=11"},
    {"the same address again", 0, "a+2 a- b+2 b@a"},
    /* The fault of the specification: a hole's tail is lost when new pages merge to the left. */
    {"a hole keeps its tail", 12, "a+10 b+1 a- c+4 d+11 held=16 d- c- b- e+16 held=16 e- f+17 held=17"},
    {"whole pages", 2, "a+1 b+1 held=2 a- c+1 c@a"},
};

Test(vpmm, cases) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct vp_pool_config config = {.va = 256 * MiB, .pages = cases[i].pages};
        cr_log_info("%s", cases[i].name);
        fx_open_pool("capacity=64M,granularity=64K", &vp_policy_vpmm, &config);
        fx_script(cases[i].script, PAGE);
        fx_close();
    }
}

Test(vpmm, a_full_reservation_is_followed_by_another) {
    const struct vp_pool_config config = {.va = 2 * PAGE};
    fx_open_pool("capacity=64M,granularity=64K", &vp_policy_vpmm, &config);
    cr_assert_eq(fx.pool.mem.stats.calls.reserve, 1);
    fx_script("a+1 b+1 c+1 d+1 a^b a^c a^d b^c b^d c^d held=4", PAGE);
    cr_assert_eq(fx.pool.mem.stats.calls.reserve, 2);
    fx_close();
}

/* While two streams' frees are in flight a third takes the oldest that is large enough, by a wait on the GPU. */
Test(vpmm, the_oldest_in_flight_is_waited_for) {
    const struct vp_pool_config config = {.va = 256 * MiB, .pages = 8};
    fx_open_pool("capacity=64M,granularity=64K", &vp_policy_vpmm, &config);
    fx_script("a+2 S2 b+2 S3 c+4 busy1 busy2 S2 b- S1 a- S3 mark d+2 d@b waits=1 grown=0 idle1 idle2", PAGE);
    fx_close();
}

/* A run of four is harvested by half: what is left stays what it was. */
Test(vpmm, a_leftover_keeps_its_stream_event_and_age) {
    const struct vp_pool_config config = {.va = 256 * MiB, .pages = 8};
    fx_open_pool("capacity=64M,granularity=64K", &vp_policy_vpmm, &config);
    CUdeviceptr a = fx_alloc(4 * PAGE, 1), wall = fx_alloc(1 * PAGE, 2), b = fx_alloc(2 * PAGE, 1);
    fx_alloc(1 * PAGE, 2);
    fx_busy(1);
    fx_free(b, 1);
    fx_free(a, 1);
    const struct vp_piece *p = vp_piece_at(vp_region_at(&fx.pool.mem, a), a + 3 * PAGE);
    const struct vp_point point = p->fence.first;
    const uint64_t age = p->age, stream = p->stream;
    cr_assert(point.timeline && point.waitable && stream == point.timeline->id);
    /* Five pages: the two of b, the older, and three of a. */
    CUdeviceptr c = fx_alloc(5 * PAGE, 1);
    cr_assert(c != a && fx.pool.mem.stats.held_bytes == 8 * PAGE && wall == a + 4 * PAGE);
    struct vp_region *left = vp_region_at(&fx.pool.mem, a + 3 * PAGE);
    cr_assert(left->state == VP_FREE && left->addr == a + 3 * PAGE && left->size == PAGE);
    p = left->pieces;
    cr_assert(p->stream == stream && p->age == age);
    cr_assert(p->fence.first.timeline == point.timeline && p->fence.first.seq == point.seq &&
              p->fence.first.waitable == point.waitable);
    fx_close();
}

Test(vpmm, out_of_memory_leaves_it_usable) {
    const struct vp_pool_config config = {.va = GiB};
    CUdeviceptr block[1024], all, small;
    size_t n = 0, size = 3 * MiB;
    fx_open_pool("capacity=64M,granularity=64K", &vp_policy_vpmm, &config);
    while (!fx_try(size, 1, &block[n]))
        n++;
    cr_assert_geq(n, 20);
    fx_alloc(PAGE, 1);
    cr_assert_eq(fx_try(size, 1, &small), -ENOMEM);
    for (size_t i = 0; i < n; i += 2)
        fx_free(block[i], 1);
    for (size_t i = 1; i < n; i += 2)
        fx_free(block[i], 1);
    cr_assert(!fx_try(n * size, 1, &all), "all that was freed is one piece");
    fx_close();
}

/* Blocks below a page are not VPMM's: they go to the driver, as published. */
Test(vpmm, small_blocks_are_left_to_cuda) {
    CUdeviceptr addr;
    fx_open_pool("capacity=64M,granularity=64K", &vp_policy_vpmm, NULL);
    cr_assert_eq(fx_try(PAGE - 1, 1, &addr), -EOPNOTSUPP);
    cr_assert_eq(fx_try(SIZE_MAX, 1, &addr), -ENOMEM);
    fx_close();
}

/* ---- four threads ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *worker(void *arg) {
    enum { STEPS = 200 };
    int stream = (int)(intptr_t)arg;
    unsigned seed = (unsigned)stream;
    struct {
        CUdeviceptr addr;
        bool native;
    } block[STEPS];
    int first = 0;
    cu_ok(cuCtxSetCurrent(fx.handle));
    for (int i = 0; i < STEPS; i++) {
        bool small = rand_r(&seed) % 2;
        size_t size = small ? (size_t)(1 + rand_r(&seed) % 100) * KiB : (size_t)(100 + rand_r(&seed) % 300) * MiB;
        pthread_mutex_lock(&lock);
        int err = fx_try(size, stream, &block[i].addr);
        cr_assert(err == (small ? -EOPNOTSUPP : 0));
        block[i].native = small;
        if (small)
            cu_ok(cuMemAllocAsync(&block[i].addr, size, fx.stream[stream]));
        for (int last = i < STEPS - 1 ? first + i % 2 : STEPS; first < last; first++) {
            if (block[first].native)
                cu_ok(cuMemFreeAsync(block[first].addr, fx.stream[stream]));
            else
                fx_free(block[first].addr, stream);
        }
        cr_assert(vp_pool_check(&fx.pool, stderr));
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

Test(vpmm, four_threads) {
    const struct vp_pool_config config = {.va = (size_t)1 << 42};
    pthread_t thread[4];
    fx_open_pool("backing=ledger,capacity=512G,granularity=2M", &vp_policy_vpmm, &config);
    for (intptr_t i = 0; i < 4; i++)
        cr_assert(!pthread_create(&thread[i], NULL, worker, (void *)(i + 1)));
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    size_t held = fx.pool.mem.stats.held_bytes;
    cr_assert(held > GiB && fx.pool.mem.stats.live_bytes == 0);
    fx_alloc(held, 1);
    cr_assert_eq(fx.pool.mem.stats.held_bytes, held);
    fx_close();
}
