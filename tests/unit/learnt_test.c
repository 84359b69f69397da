/* What a run learns, and how the next one begins with it: the file, the places, the handles made ahead of the program.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "learnt_test.h"

#include "pool/learnt/ahead.h"
#include "pool/learnt/learn.h"
#include "pool/learnt/learnt_file.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- a program, a plan ---- */

enum { LAYERS = 20, STEPS = 4 };

/* A training: weights that stay, and in each step blocks that come and go, the largest one late. Small ones among them.
 */
static void train(int steps, size_t shift) {
    CUdeviceptr weights[LAYERS], layer[LAYERS];
    for (int i = 0; i < LAYERS; i++)
        weights[i] = take(12 * MiB + (size_t)i * MiB / 2 + shift);
    for (int step = 0; step < steps; step++) {
        for (int i = 0; i < LAYERS; i++) {
            CUdeviceptr small = take(64 * KiB);
            layer[i] = take(6 * MiB + (size_t)i * 256 * KiB + shift);
            fx_free(small, 1);
        }
        CUdeviceptr huge = take(100 * MiB + shift);
        for (int i = 0; i < LAYERS; i++)
            fx_free(layer[i], 1);
        fx_free(huge, 1);
    }
    for (int i = 0; i < LAYERS; i++)
        fx_free(weights[i], 1);
}

static void learn_and_close(int steps) {
    open_learning();
    train(steps, 0);
    save_plan();
    fx_close();
}

Test(learnt, the_second_run_has_all_its_places_and_calls_the_driver_in_the_background_alone) {
    learn_and_close(STEPS);
    fx_open_pool(LEDGER, &vp_policy_vpool, &config);
    cr_assert_eq(begin_with_plan(true), 0);
    cr_assert_gt(build_all(), 0);
    builds = true;
    const uint64_t calls = fx_calls();
    train(STEPS, 0);
    const struct vp_ahead *a = fx.pool.ahead;
    cr_assert_eq(fx_calls(), calls);
    cr_assert_eq(a->served, a->requests);
    cr_assert_eq(fx.pool.mem.stats.driver_ns, 0);
    cr_assert(vp_ahead_fitted(a));
    cr_assert_leq(fx.pool.mem.stats.peak_held_bytes, a->plan.peak_held + 2 * MiB);
    close_with_plan();
}

/* A stream's cache would hand them out, unseen, and at places that the plan has for others. */
Test(learnt, large_blocks_that_come_and_go_are_learnt_and_placed_each_time) {
    enum { TIMES = 6 };
    open_learning();
    for (int i = 0; i < TIMES; i++)
        fx_free(fx_alloc(8 * MiB, 1), 1);
    cr_assert_eq(fx.pool.learn->count, TIMES);
    save_plan();
    fx_close();
    fx_open_pool(LEDGER, &vp_policy_vpool, &config);
    cr_assert_eq(begin_with_plan(true), 0);
    build_all();
    for (int i = 0; i < TIMES; i++)
        fx_free(fx_alloc(8 * MiB, 1), 1);
    cr_assert_eq(fx.pool.ahead->served, TIMES);
    /* The plan is through, and its blocks are as any others. */
    for (int i = 0; i < TIMES; i++)
        fx_free(fx_alloc(8 * MiB, 1), 1);
    cr_assert_lt(fx.pool.ahead->requests, 2 * TIMES);
    close_with_plan();
}

Test(learnt, a_longer_run_goes_round_in_the_steps_of_the_plan) {
    learn_and_close(STEPS);
    fx_open_pool(LEDGER, &vp_policy_vpool, &config);
    cr_assert_eq(begin_with_plan(true), 0);
    build_all();
    builds = true;
    const uint64_t calls = fx_calls();
    train(5 * STEPS, 0);
    cr_assert_eq(fx_calls(), calls);
    cr_assert_gt(fx.pool.ahead->served, fx.pool.ahead->requests * 9 / 10);
    close_with_plan();
}

Test(learnt, handles_that_are_not_there_in_time_are_made_for_the_request) {
    learn_and_close(STEPS);
    fx_open_pool(LEDGER, &vp_policy_vpool, &config);
    cr_assert_eq(begin_with_plan(true), 0);
    train(STEPS, 0);
    cr_assert_eq(fx.pool.ahead->served, fx.pool.ahead->requests);
    cr_assert_gt(fx.pool.ahead->lacking, 0);
    cr_assert(vp_pool_check(&fx.pool, stderr));
    close_with_plan();
}

/* ---- a builder that is slow ---- */

static struct vp_ahead_batch in_hand;

static bool hand_over(struct vp_pool *pool) {
    if (!pool->ahead->under_way)
        return false;
    vp_ahead_make(&fx.drv, &in_hand);
    vp_ahead_end(pool->ahead, &in_hand, true);
    return true;
}

/* It takes up the next batch before each request, and is done only when somebody waits for it. */
static CUdeviceptr take_from_slow(size_t size) {
    vp_ahead_begin(fx.pool.ahead, &in_hand);
    return fx_alloc(size, 1);
}

Test(learnt, a_place_that_is_not_made_yet_is_made_though_the_builder_makes_something_else) {
    enum { BLOCKS = 24 };
    open_learning();
    for (int i = 0; i < BLOCKS; i++) {
        take(64 * KiB);
        take(600 * MiB / BLOCKS + (size_t)i * 512 * KiB);
    }
    save_plan();
    fx_close();
    fx_open_pool(LEDGER, &vp_policy_vpool, &config);
    cr_assert_eq(begin_with_plan(true), 0);
    fx.pool.config.await_ahead = hand_over;
    for (int i = 0; i < BLOCKS; i++) {
        take_from_slow(64 * KiB);
        take_from_slow(600 * MiB / BLOCKS + (size_t)i * 512 * KiB);
    }
    hand_over(&fx.pool);
    cr_assert_eq(fx.pool.ahead->served, BLOCKS, "%lu", fx.pool.ahead->served);
    cr_assert(vp_pool_check(&fx.pool, stderr));
    close_with_plan();
}

/* Handles that were made for a block of a gigabyte, after so many blocks that the plan does not know. */
static uint64_t made_for_a_large_block(int strangers) {
    enum { LONG = 8 };
    static const size_t KEPT = 600 * MiB; /* most of what is held by then, which bounds what is made */
    open_learning();
    train(LONG, 0);
    take(KEPT);
    take(1024 * MiB);
    save_plan();
    fx_close();
    fx_open_pool(LEDGER, &vp_policy_vpool, &config);
    cr_assert_eq(begin_with_plan(true), 0);
    train(LONG, 0);
    take(KEPT);
    for (int i = 0; i < strangers; i++)
        fx_free(take(5 * MiB + (size_t)i * 64 * KiB), 1);
    const uint64_t before = fx.pool.mem.stats.calls.create;
    cr_assert_eq(vp_ahead_in_step(fx.pool.ahead), VP_AHEAD_IN_STEP);
    take(1024 * MiB);
    const uint64_t made = fx.pool.mem.stats.calls.create - before;
    cr_assert(vp_pool_check(&fx.pool, stderr));
    close_with_plan();
    return made;
}

Test(learnt, where_all_is_as_it_was_fewer_and_larger_handles_are_made) {
    const uint64_t exact = made_for_a_large_block(0), other = made_for_a_large_block(8);
    cr_assert_leq(4 * exact, other, "%lu %lu", exact, other);
}

Test(learnt, a_program_that_does_something_else_has_little_made_for_it) {
    learn_and_close(STEPS);
    fx_open_pool(LEDGER, &vp_policy_vpool, &config);
    train(STEPS, 3 * KiB);
    const uint64_t held = fx.pool.mem.stats.peak_held_bytes;
    fx_close();
    fx_open_pool(LEDGER, &vp_policy_vpool, &config);
    cr_assert_eq(begin_with_plan(false), 0);
    build_all();
    train(STEPS, 3 * KiB);
    build_all();
    cr_assert_eq(vp_ahead_in_step(fx.pool.ahead), VP_AHEAD_OUT_OF_STEP);
    cr_assert_eq(fx.pool.ahead->served, 0);
    cr_assert_leq(fx.pool.mem.stats.peak_held_bytes, held + 16 * MiB);
    vp_ahead_stop(fx.pool.ahead);
    close_with_plan();
}

/* A block of the plan's is in use where another's place is: who has which bytes is as ever. */
Test(learnt, a_place_that_is_taken_is_not_given_again) {
    learn_and_close(1);
    fx_open_pool(LEDGER, &vp_policy_vpool, &config);
    cr_assert_eq(begin_with_plan(true), 0);
    build_all();
    CUdeviceptr twice[2];
    for (int i = 0; i < 2; i++)
        twice[i] = fx_alloc(12 * MiB, 1);
    cr_assert_neq(twice[0], twice[1]);
    fx.pool.ahead->at = fx.pool.ahead->next_request = 0;
    fx.pool.ahead->taken = 0;
    CUdeviceptr third = fx_alloc(12 * MiB, 1);
    cr_assert_neq(third, twice[0]);
    cr_assert_neq(third, twice[1]);
    fx_free(third, 1);
    fx_free(twice[0], 1);
    fx_free(twice[1], 1);
    close_with_plan();
}

/* Work on it is hardly over: where that costs next to nothing, another stream's block has a place of its own. */
Test(learnt, what_one_stream_has_just_left_is_no_place_for_another) {
    enum { COUNT = 1600 };
    static struct vp_learn_item items[COUNT];
    uint64_t end;
    for (uint32_t i = 0; i < COUNT; i++)
        items[i] = (struct vp_learn_item){.size = 64 * KiB, .begin = i, .end = i + 1, .stream = 1};
    items[0].size = items[30].size = 100 * MiB;
    items[0].end = 10;
    struct vp_learn_item *other = &items[12];
    *other = (struct vp_learn_item){.size = 32 * MiB, .begin = 12, .end = 20, .stream = 2};
    for (int peak = 0; peak < 2; peak++) {
        items[1500].size = peak ? 140 * MiB : 64 * KiB;
        cr_assert_eq(vp_learn_place(items, COUNT, 2 * MiB, 0, UINT64_MAX, &end), 0);
        cr_assert_eq(other->offset >= items[0].offset + items[0].size, peak, "%lu MiB", other->offset / MiB);
        cr_assert_leq(end, (peak ? 141 : 101) * MiB);
    }
    /* Nor where the run itself has held less. */
    cr_assert_eq(vp_learn_place(items, COUNT, 2 * MiB, 0, 100 * MiB, &end), 0);
    cr_assert_lt(other->offset, items[0].offset + items[0].size);
}

/* What another stream has freed, and what it may still use, is not the plan's to give. */
Test(learnt, a_place_that_another_stream_still_uses_waits) {
    learn_and_close(1);
    fx_open_pool(LEDGER, &vp_policy_vpool, &config);
    cr_assert_eq(begin_with_plan(true), 0);
    build_all();
    fx.waits = VP_WAITS_NEVER;
    fx_busy(2);
    CUdeviceptr a = fx_alloc(12 * MiB, 2);
    cr_assert_eq(fx.pool.ahead->served, 1);
    fx_free(a, 2);
    fx.pool.ahead->at = fx.pool.ahead->next_request = 0;
    fx.pool.ahead->taken = 0;
    CUdeviceptr b = fx_alloc(12 * MiB, 1);
    cr_assert_neq(a, b);
    fx_idle(2);
    fx_free(b, 1);
    close_with_plan();
}

/* Thousands of them, for moments and for long: their list is put in order now and then. */
Test(learnt, places_of_blocks_that_are_alive_at_once_share_no_byte) {
    enum { COUNT = 2000 };
    static struct vp_learn_item items[COUNT];
    uint64_t end;
    srand(4);
    for (uint32_t i = 0; i < COUNT; i++) {
        const uint32_t last = i + 1 + (uint32_t)rand() % (i % 16 ? 40 : COUNT / 2);
        const size_t size = (1 + (size_t)rand() % 100) * VP_QUANTUM;
        items[i] = (struct vp_learn_item){.size = size, .begin = i, .end = last < COUNT ? last : COUNT, .stream = 1};
    }
    cr_assert_eq(vp_learn_place(items, COUNT, 2 * MiB, 0, UINT64_MAX, &end), 0);
    int overlaps = 0;
    for (int i = 0; i < COUNT; i++)
        for (int j = 0; j < i; j++)
            overlaps += items[i].begin < items[j].end && items[j].begin < items[i].end &&
                        items[i].offset < items[j].offset + items[j].size &&
                        items[j].offset < items[i].offset + items[i].size;
    cr_assert_eq(overlaps, 0);
}

Test(learnt, no_more_is_made_than_the_limit_allows) {
    struct vp_pool_config limited = config;
    learn_and_close(STEPS);
    limited.limit = 100 * MiB;
    fx_open_pool(LEDGER, &vp_policy_vpool, &limited);
    cr_assert_eq(begin_with_plan(true), 0);
    build_all();
    cr_assert_leq(fx.pool.mem.stats.held_bytes, limited.limit);
    CUdeviceptr one = fx_alloc(12 * MiB, 1);
    build_all();
    cr_assert_leq(fx.pool.mem.stats.held_bytes, limited.limit);
    fx_free(one, 1);
    close_with_plan();
}

/* Whichever call fails: nothing is lost, and the program is served. */
static unsigned failing, calls_so_far;
static CUresult(CUDAAPI *real_map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
static CUresult(CUDAAPI *real_create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                                      unsigned long long);
static CUresult(CUDAAPI *real_access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);

static CUresult CUDAAPI map_or_fail(CUdeviceptr at, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                                    unsigned long long flags) {
    return calls_so_far++ == failing ? CUDA_ERROR_UNKNOWN : real_map(at, size, offset, handle, flags);
}

static CUresult CUDAAPI create_or_fail(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *prop,
                                       unsigned long long flags) {
    return calls_so_far++ == failing ? CUDA_ERROR_OUT_OF_MEMORY : real_create(out, size, prop, flags);
}

static CUresult CUDAAPI access_or_fail(CUdeviceptr at, size_t size, const CUmemAccessDesc *desc, size_t count) {
    return calls_so_far++ == failing ? CUDA_ERROR_UNKNOWN : real_access(at, size, desc, count);
}

Test(learnt, a_builder_that_fails_loses_nothing) {
    learn_and_close(STEPS);
    for (failing = 0; failing < 40; failing++) {
        calls_so_far = 0;
        fx_open_pool(LEDGER, &vp_policy_vpool, &config);
        real_map = fx.drv.cuMemMap;
        real_create = fx.drv.cuMemCreate;
        real_access = fx.drv.cuMemSetAccess;
        fx.drv.cuMemMap = map_or_fail;
        fx.drv.cuMemCreate = create_or_fail;
        fx.drv.cuMemSetAccess = access_or_fail;
        size_t before, after, total;
        cr_assert_eq(begin_with_plan(true), 0);
        cu_ok(fx.drv.cuMemGetInfo_v2(&before, &total));
        build_all();
        cu_ok(fx.drv.cuMemGetInfo_v2(&after, &total));
        cr_assert_eq(before - after, fx.pool.mem.stats.held_bytes, "what is held is there, and no more");
        fx.drv.cuMemMap = real_map;
        fx.drv.cuMemCreate = real_create;
        fx.drv.cuMemSetAccess = real_access;
        train(1, 0);
        cr_assert(vp_pool_check(&fx.pool, stderr));
        fx_close();
    }
    unlink(path);
}

/* ---- what others want meanwhile ---- */

static struct vp_ahead *follow_plan(void) {
    learn_and_close(STEPS);
    fx_open_pool(LEDGER, &vp_policy_vpool, &config);
    cr_assert_eq(begin_with_plan(true), 0);
    return fx.pool.ahead;
}

Test(learnt, a_run_that_gave_all_back_is_learnt) {
    open_learning();
    train(STEPS, 0);
    vp_pool_trim(&fx.pool, 0);
    cr_assert_eq(fx.pool.mem.stats.held_bytes, 0);
    save_plan();
    fx_close();
    fx_open_pool(LEDGER, &vp_policy_vpool, &config);
    cr_assert_eq(begin_with_plan(true), 0);
    train(STEPS, 0);
    cr_assert_eq(fx.pool.ahead->served, fx.pool.ahead->requests);
    close_with_plan();
}

Test(learnt, a_context_does_not_end_while_it_is_asked_what_is_free) {
    struct vp_ahead *plan = follow_plan();
    struct vp_ahead_batch batch;
    fx.context->primary = true;
    cr_assert(vp_ahead_begin(plan, &batch) && batch.context == fx.context);
    cr_assert_eq(fx.context->waiters, 1);
    vp_ahead_make(&fx.drv, &batch);
    vp_ahead_end(plan, &batch, true);
    cr_assert_eq(fx.context->waiters, 0);
    close_with_plan();
}

static bool never(CUdevice device) {
    return false;
}

Test(learnt, nothing_is_made_while_another_process_wakes) {
    struct vp_ahead *plan = follow_plan();
    struct vp_ahead_batch batch;
    CUdeviceptr addr;
    fx.pool.mem.may_grow = never;
    cr_assert_not(vp_ahead_begin(plan, &batch));
    cr_assert_eq(fx_try(12 * MiB, 1, &addr), -ENOMEM);
    fx.pool.mem.may_grow = NULL;
    cr_assert_gt(build_all(), 0);
    close_with_plan();
}

Test(learnt, what_was_given_back_is_not_made_again_unasked) {
    struct vp_ahead *plan = follow_plan();
    cr_assert_gt(build_all(), 0);
    vp_pool_trim(&fx.pool, 0);
    cr_assert_eq(build_all(), 0);
    CUdeviceptr addr = fx_alloc(12 * MiB, 1);
    cr_assert_gt(build_all(), 0);
    fx_free(addr, 1);
    vp_ahead_stop(plan);
    close_with_plan();
}

Test(learnt, what_comes_too_late_for_a_pause_does_not_stay) {
    struct vp_ahead *plan = follow_plan();
    struct vp_ahead_batch batch;
    cr_assert(vp_ahead_begin(plan, &batch));
    vp_ahead_make(&fx.drv, &batch);
    fx.pool.mem.asleep = 1;
    vp_ahead_end(plan, &batch, true);
    fx.pool.mem.asleep = 0;
    cr_assert_eq(fx.pool.mem.stats.held_bytes, 0);
    cr_assert_eq(vp_sim_used_vmm(0), 0);
    cr_assert_gt(build_all(), 0);
    close_with_plan();
}

/* Whatever a file says. */
Test(learnt, a_place_beyond_all_addresses_is_none) {
    struct vp_ahead *plan = follow_plan();
    struct vp_ahead_batch batch;
    plan->plan.slots[plan->plan.requests[0]].offset = VP_LEARNT_MOST - 12 * MiB;
    cr_assert(vp_ahead_begin(plan, &batch));
    CUdeviceptr addr = fx_alloc(12 * MiB, 1);
    cr_assert_eq(plan->served, 0);
    vp_ahead_make(&fx.drv, &batch);
    vp_ahead_end(plan, &batch, true);
    fx_free(addr, 1);
    close_with_plan();
}

/* ---- the file ---- */

static int load(char *why, size_t room) {
    struct vp_learnt learnt;
    int err = vp_learnt_load(path, &learnt, why, room);
    if (!err)
        vp_learnt_finish(&learnt);
    return err;
}

Test(learnt, a_plan_is_its_owners_alone_and_read_from_no_other) {
    char why[256], link_path[80];
    struct stat st;
    learn_and_close(1);
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_eq(st.st_mode & 07777, 0600);
    cr_assert_eq(load(why, sizeof why), 0);
    chmod(path, 0620);
    cr_assert_eq(load(why, sizeof why), -EPERM);
    chmod(path, 0602);
    cr_assert_eq(load(why, sizeof why), -EPERM);
    chmod(path, 0600);
    if (!chown(path, 12345, (gid_t)-1)) {
        cr_assert_eq(load(why, sizeof why), -EPERM);
        cr_assert_str_eq(why, "it belongs to another user");
        cr_assert_eq(chown(path, geteuid(), (gid_t)-1), 0);
    }
    snprintf(link_path, sizeof link_path, "%s.link", path);
    cr_assert_eq(symlink(path, link_path), 0);
    struct vp_learnt learnt;
    cr_assert_eq(vp_learnt_load(link_path, &learnt, why, sizeof why), -ELOOP);
    unlink(link_path);
    unlink(path);
}

Test(learnt, a_plan_that_is_damaged_cut_or_newer_is_refused) {
    char why[256], text[1 << 16];
    learn_and_close(1);
    FILE *f = fopen(path, "r");
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    for (size_t at = 0; at < n; at += n / 50 + 1) {
        text[at] ^= 1;
        cr_assert_eq(truncate(path, 0), 0);
        f = fopen(path, "w");
        fwrite(text, 1, n, f);
        fclose(f);
        cr_assert_neq(load(why, sizeof why), 0, "byte %zu", at);
        text[at] ^= 1;
        f = fopen(path, "w");
        fwrite(text, 1, at, f);
        fclose(f);
        cr_assert_neq(load(why, sizeof why), 0, "cut at %zu", at);
    }
    f = fopen(path, "w");
    fprintf(f, "vpool-learnt,3\nwhatever there is then\n");
    fclose(f);
    cr_assert_eq(load(why, sizeof why), -EPROTO);
    unlink(path);
}

/* Removes what is left of files that were being written beside the plan; how many there were. */
static size_t forget_beside(void) {
    char pattern[96];
    glob_t found = {0};
    snprintf(pattern, sizeof pattern, "%s.*.new", path);
    glob(pattern, 0, NULL, &found);
    const size_t count = found.gl_pathc;
    for (size_t i = 0; i < count; i++)
        unlink(found.gl_pathv[i]);
    globfree(&found);
    return count;
}

/* A limit to the size of files stands for a full disk: the old plan stays, and nothing beside it. */
Test(learnt, a_plan_that_cannot_be_written_whole_is_not_written) {
    char why[256];
    learn_and_close(1);
    struct stat before, after;
    stat(path, &before);
    pid_t child = fork();
    if (!child) {
        struct vp_learnt learnt;
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){100, 100});
        int err = vp_learnt_load(path, &learnt, why, sizeof why);
        _exit(!err && vp_learnt_save(path, &learnt) < 0 ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    cr_assert(WIFEXITED(status) && !WEXITSTATUS(status));
    stat(path, &after);
    cr_assert_eq(before.st_ino, after.st_ino);
    cr_assert_eq(load(why, sizeof why), 0);
    cr_assert_eq(forget_beside(), 0);
    unlink(path);
}

/* Many write one file at once, and some are killed meanwhile: whoever reads finds a whole one, always. */
Test(learnt, of_many_that_write_one_plan_one_wins) {
    enum { WRITERS = 20, READS = 200 };
    char why[256];
    pid_t writer[WRITERS];
    learn_and_close(1);
    for (int i = 0; i < WRITERS; i++) {
        writer[i] = fork();
        if (!writer[i]) {
            struct vp_learnt learnt;
            if (!vp_learnt_load(path, &learnt, why, sizeof why))
                for (;;)
                    vp_learnt_save(path, &learnt);
            _exit(1);
        }
    }
    for (int i = 0; i < READS; i++)
        cr_assert_eq(load(why, sizeof why), 0, "%s", why);
    for (int i = 0; i < WRITERS; i++) {
        kill(writer[i], SIGKILL);
        waitpid(writer[i], NULL, 0);
        cr_assert_eq(load(why, sizeof why), 0, "%s", why);
    }
    forget_beside();
    unlink(path);
}

static void *save_again_and_again(void *stop) {
    struct vp_learnt learnt;
    char why[256];
    bool good = !vp_learnt_load(path, &learnt, why, sizeof why);
    while (good && !atomic_load((atomic_bool *)stop))
        good = !vp_learnt_save(path, &learnt);
    return good ? NULL : stop;
}

/* As processes of two containers have, which share a folder: here two threads. */
Test(learnt, two_with_one_process_id_write_one_plan) {
    atomic_bool stop = false;
    pthread_t writer[2];
    char why[256];
    void *failed;
    learn_and_close(1);
    for (int i = 0; i < 2; i++)
        pthread_create(&writer[i], NULL, save_again_and_again, &stop);
    for (int i = 0; i < 200; i++)
        cr_assert_eq(load(why, sizeof why), 0, "%s", why);
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++) {
        pthread_join(writer[i], &failed);
        cr_assert_null(failed);
    }
    cr_assert_eq(forget_beside(), 0);
    unlink(path);
}
