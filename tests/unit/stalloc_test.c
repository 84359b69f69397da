/* STAlloc's runtime: requests in the places of a plan, and what becomes of those that are not as planned. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include "compare/stalloc_file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char SIM[] = "backing=ledger,capacity=1G,granularity=2M";

static struct vp_stalloc_place places[] = {
    {4 * MiB, 0, 0}, {6 * MiB, 4 * MiB, 0}, {4 * MiB, 0, 0}, {2 * MiB, 10 * MiB, 0}};
static const struct vp_stalloc_plan plan = {.places = places, .count = 4, .peak = 12 * MiB};

/* A module is visited twice: at first all but the first 4 MiB is left to it, then the last 2 MiB alone. */
static char names[] = "module:experts";
static struct vp_stalloc_space spaces[] = {{4 * MiB, 12 * MiB}, {10 * MiB, 12 * MiB}};
static struct vp_stalloc_visit visits[] = {{.first = 0, .count = 1, .next = 2}, {.first = 1, .count = 1}};
static struct vp_stalloc_module modules[] = {{.name = 0, .first = 0, .last = 1, .repeat = 1}};
static const struct vp_stalloc_plan with_modules = {.places = places,
                                                    .count = 4,
                                                    .peak = 12 * MiB,
                                                    .modules = modules,
                                                    .visits = visits,
                                                    .spaces = spaces,
                                                    .names = names,
                                                    .module_count = 1,
                                                    .visit_count = 2,
                                                    .space_count = 2,
                                                    .names_size = sizeof names};

static CUdeviceptr base; /* of the range: its first place */

static void open_planned(const struct vp_stalloc_plan *planned, const char *sim) {
    const struct vp_pool_config config = {.va = 8 * GiB, .plan = planned};
    fx_open_pool(sim, &vp_policy_stalloc, &config);
}

static CUdeviceptr take(size_t size, int stream) {
    CUdeviceptr addr = fx_alloc(size, stream);
    base = base ? base : addr;
    return addr;
}

static bool in_range(CUdeviceptr addr) {
    return addr >= base && addr < base + 12 * MiB;
}

static void served(uint64_t placed, uint64_t missed) {
    const struct vp_stalloc_figures f = vp_stalloc_figures(&fx.pool);
    cr_assert(f.placed == placed && f.missed == missed, "%llu placed, %llu missed", (unsigned long long)f.placed,
              (unsigned long long)f.missed);
}

static unsigned depth;

static void enter(const char *name) {
    vp_stalloc_range(&fx.pool, name, 1, depth++);
}

static void leave(void) {
    vp_stalloc_range(&fx.pool, NULL, 1, --depth);
}

Test(stalloc, requests_lie_where_they_were_planned) {
    open_planned(&plan, SIM);
    cr_assert_eq(fx.pool.mem.stats.held_bytes, 12 * MiB, "the whole range is got at once");
    cr_assert_eq(fx.pool.mem.stats.live_bytes, 0);
    uint64_t before = fx_calls();
    CUdeviceptr a = take(4 * MiB, 1), b = take(6 * MiB - 100, 1);
    cr_assert_eq(b - a, 4 * MiB);
    fx_free(a, 1);
    cr_assert_eq(take(4 * MiB, 1), a);
    cr_assert_eq(fx.pool.mem.stats.live_bytes, 10 * MiB - 100);
    cr_assert_eq(take(2 * MiB, 1), a + 10 * MiB);
    fx_free(b, 1);
    fx_free(a, 1);
    cr_assert_eq(take(4 * MiB, 1), a, "and again from the first place on");
    served(5, 0);
    cr_assert_eq(fx_calls(), before);
    cr_assert_eq(fx.pool.mem.stats.peak_live_bytes, 12 * MiB - 100);
    fx_close();
}

/* Streams are not looked at; but a stream waits for what another has freed. That none is wronged is proved at the end.
 */
Test(stalloc, another_stream_gets_the_place_behind_the_free) {
    static struct vp_stalloc_place of_two[] = {{4 * MiB, 0, 0}, {6 * MiB, 4 * MiB, 1}, {4 * MiB, 0, 1}};
    const struct vp_stalloc_plan two = {.places = of_two, .count = 3, .peak = 12 * MiB};
    open_planned(&two, SIM);
    CUdeviceptr a = take(4 * MiB, 1);
    take(6 * MiB, 2);
    fx_busy(1);
    fx_free(a, 1);
    cr_assert_eq(take(4 * MiB, 2), a);
    served(3, 0);
    cr_assert_eq(fx.pool.mem.stats.waits_gpu, 1);
    fx_close();
}

/* cudaMalloc's memory may be used by anyone at once, and where nobody waits a place is not ready, either. */
Test(stalloc, a_place_that_is_not_ready_is_passed_by) {
    open_planned(&plan, SIM);
    CUdeviceptr a = take(4 * MiB, 1);
    take(6 * MiB, 2);
    fx_busy(1);
    fx_free(a, 1);
    cr_assert(!in_range(take(4 * MiB, 0)));
    served(2, 1);
    fx_close();
}

Test(stalloc, another_size_is_left_to_the_cache_and_its_place_passed_by) {
    open_planned(&plan, SIM);
    CUdeviceptr a = take(4 * MiB, 1), odd = take(7 * MiB, 1);
    cr_assert(!in_range(odd));
    cr_assert_eq(fx.pool.mem.stats.held_bytes, 32 * MiB, "what the cache has is held, too");
    fx_free(a, 1);
    cr_assert_eq(take(4 * MiB, 1), a);
    fx_free(odd, 1);
    served(2, 1);
    fx_close();
}

Test(stalloc, a_place_in_use_is_passed_by) {
    open_planned(&plan, SIM);
    take(4 * MiB, 1);
    take(6 * MiB, 1);
    cr_assert(!in_range(take(4 * MiB, 1)), "the first block still lies there");
    served(2, 1);
    fx_close();
}

Test(stalloc, the_last_step_comes_again_behind_the_last_place) {
    struct vp_stalloc_plan again = plan;
    again.repeat = 2;
    open_planned(&again, SIM);
    CUdeviceptr a = take(4 * MiB, 1);
    take(6 * MiB, 1);
    fx_free(a, 1);
    for (int step = 0; step < 3; step++) {
        CUdeviceptr c = take(4 * MiB, 1), d = take(2 * MiB, 1);
        cr_assert(c == base && d == base + 10 * MiB);
        fx_free(c, 1);
        fx_free(d, 1);
    }
    served(8, 0);
    fx_close();
}

Test(stalloc, modules_get_what_the_plan_leaves_them) {
    open_planned(&with_modules, SIM);
    take(4 * MiB, 1);
    enter("module:experts");
    CUdeviceptr a = take(5 * MiB, 1), b = take(3 * MiB, 1);
    cr_assert(a == base + 4 * MiB && b == base + 9 * MiB, "the first is all that the module may use");
    enter("module:experts.router");
    cr_assert_eq(vp_stalloc_figures(&fx.pool).missed, 0);
    cr_assert(!in_range(take(6 * MiB, 1)), "within, all is as planned, and its place is in use");
    leave();
    cr_assert(!in_range(take(MiB, 1)), "nothing is left, and the cache serves");
    fx_free(a, 1);
    fx_free(b, 1);
    leave();
    enter("module:experts");
    cr_assert_eq(take(MiB, 1), base + 10 * MiB, "the second visit may use less");
    leave();
    enter("module:experts");
    cr_assert_eq(take(MiB, 1), base + 11 * MiB, "and that comes again");
    const struct vp_stalloc_figures f = vp_stalloc_figures(&fx.pool);
    cr_assert(f.placed == 5 && f.missed == 2 && f.module_placed == 4 && f.module_missed == 1);
    fx_close();
}

/* Threads end, and others get their ids: what they left open does not stay so. */
Test(stalloc, a_range_ends_what_was_open_at_its_depth) {
    open_planned(&with_modules, SIM);
    take(4 * MiB, 1);
    enter("module:experts");
    vp_stalloc_range(&fx.pool, "another", 2, 0);
    cr_assert_eq(take(MiB, 1), base + 4 * MiB, "another thread's range ends nothing");
    vp_stalloc_range(&fx.pool, "another", 1, 0);
    cr_assert(!in_range(take(MiB, 1)), "it is no request of the module's, nor of the planned size");
    fx_close();
}

Test(stalloc, of_the_room_of_a_module_the_best_fits) {
    open_planned(&with_modules, SIM);
    take(4 * MiB, 1);
    enter("module:experts");
    CUdeviceptr a = take(3 * MiB, 1), b = take(MiB, 1), c = take(MiB + MiB / 2, 1), d = take(MiB, 1);
    fx_free(a, 1);
    fx_free(c, 1);
    cr_assert_eq(take(MiB, 1), c, "not the larger, which comes first");
    (void)b, (void)d;
    fx_close();
}

Test(stalloc, tiny_requests_have_a_pool_of_their_own) {
    enum { MANY = 5000 };
    static CUdeviceptr tiny[MANY];
    open_planned(&plan, SIM);
    for (int i = 0; i < MANY; i++) {
        tiny[i] = fx_alloc(1 + (size_t)i % 512, 1);
        cr_assert(!i || tiny[i] != tiny[i - 1]);
    }
    served(0, 0);
    cr_assert_eq(fx.pool.mem.stats.held_bytes, 16 * MiB, "two segments more");
    fx_free(tiny[7], 1);
    for (int i = MANY; i < 2 * 4096; i++)
        fx_alloc(512, 1);
    cr_assert_eq(fx_alloc(512, 1), tiny[7], "all else is taken");
    cr_assert_eq(fx.pool.mem.stats.held_bytes, 16 * MiB);
    take(4 * MiB, 1);
    served(1, 0);
    fx_close();
}

Test(stalloc, without_a_plan_or_without_room_for_it_the_cache_serves) {
    open_planned(NULL, SIM);
    fx_free(fx_alloc(4 * MiB, 1), 1);
    served(0, 1);
    fx_close();
    const struct vp_stalloc_plan large = {.places = places, .count = 4, .peak = 2 * GiB};
    open_planned(&large, SIM);
    fx_free(fx_alloc(4 * MiB, 1), 1);
    served(0, 1);
    cr_assert_eq(fx.pool.mem.stats.held_bytes, 20 * MiB);
    fx_close();
}

/* What a trim gave back is no place any more, whatever lies there since. */
Test(stalloc, a_range_that_was_given_back_places_nothing) {
    open_planned(&plan, SIM);
    fx_free(take(4 * MiB, 1), 1);
    cu_ok(fx.drv.cuCtxSynchronize());
    cr_assert_eq(vp_pool_trim(&fx.pool, 0), 12 * MiB);
    fx_free(fx_alloc(12 * MiB, 2), 2);
    for (int i = 1; i < 4; i++)
        fx_alloc(places[i].size, 1);
    served(1, 4);
    fx_close();
}

/* ---- files, as a program reads them ---- */

static struct vp_stalloc_plan *load(const char *text, unsigned device) {
    char path[] = "/tmp/vpool-plan-XXXXXX";
    int fd = mkstemp(path);
    cr_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    struct vp_stalloc_plan *loaded = vp_stalloc_load(path, device);
    unlink(path);
    return loaded;
}

#define HEAD "vpool-plan,2\nmade,0.1.0,a trace\nplanner,stalloc\n"
#define TWO                                                                                                            \
    HEAD "device,0,1,1024,1024\nr,1024,0,0\ndevice,3,3,4096,4096\np,0,step:0\nm,module:x,0,512,1024,4096\n"            \
         "r,4096,0,0\np,1,step:1\nr,512,1,512\nm,module:x\nm,module:x,512,1024\nr,1024,0,1024\nend\n"

Test(stalloc, a_file_is_read_for_a_device) {
    struct vp_stalloc_plan *p = load(TWO, 3);
    cr_assert(p && p->count == 3 && p->peak == 4096 && p->repeat == 1 && p->places[2].offset == 1024);
    cr_assert(p->module_count == 1 && p->visit_count == 3 && p->space_count == 3);
    cr_assert(vp_stalloc_module(p, "module:x") == 0 && vp_stalloc_module(p, "module:") == 1);
    cr_assert(p->modules[0].first == 0 && p->modules[0].repeat == 1 && p->visits[0].next == 2 && !p->visits[2].next);
    cr_assert(p->visits[0].count == 2 && p->spaces[1].high == 4096 && p->visits[1].count == 0);
    vp_stalloc_unload(p);
    p = load(TWO, 0);
    cr_assert(p && p->count == 1 && !p->module_count);
    cr_assert_null(load(TWO, 1));
    vp_stalloc_unload(p);
    p = load(HEAD "device,3,1,1024,1024\nr,1024,0,0\nend\n", 0);
    cr_assert(p && p->count == 1, "a plan of one device is every device's");
    vp_stalloc_unload(p);
}

Test(stalloc, a_damaged_file_places_nothing) {
    cr_assert_null(load("", 0));
    cr_assert_null(load("vpool-plan,3\n", 0));
    cr_assert_null(load(HEAD, 0));
    cr_assert_null(load(HEAD "device,0,1,1024,1024\nr,1024,0,0\nend", 0));
    cr_assert_null(load(HEAD "device,0,1,1024,1024\nr,1024,0,512\nend\n", 0));
    cr_assert_null(load(HEAD "device,0,0,1024,1024\nm,module:x,512,256\nend\n", 0));
    cr_assert_null(load(HEAD "device,0,0,1024,1024\nm,module:x,0,2048\nend\n", 0));
    cr_assert_null(load(HEAD "device,0,0,1024,1024\nm,module:x,0,1024,512,1024\nend\n", 0));
    cr_assert_null(load(HEAD "device,0,0,1024,1024\nm,module:x,0\nend\n", 0));
    cr_assert_null(vp_stalloc_load("/nowhere/plan", 0));
    cr_assert_null(vp_stalloc_load("/tmp", 0));
}
