/* Bare segments in a second run: handles lie ahead at all addresses at which blocks come in turn. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bare_test.h"

#include "base/clock.h"
#include "base/os_memory.h"
#include "memory/chunk.h"
#include "pool/learnt/ahead.h"
#include "pool/learnt/learn.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Blocks that come in turn, in segments of their own; what they have in all while one is there; rounds that fill two
 * windows. */
enum { BLOCKS = 3, ROUNDS = 12 };
static const size_t BLOCK = 4 * MiB, MORE = 8 * MiB;

static CUdeviceptr blocks[BLOCKS], more;
static CUstream stream;
static struct vp_learnt plan; /* then the pool's */
static struct vp_ahead_batch batch;

/* A process begins, with a block of another kind, so that there is a pool. */
static void begin(void) {
    door_open(SIM);
    stream = door_stream(CU_STREAM_NON_BLOCKING);
    cu_ok(door_free(door_malloc(PAGE)));
    pool_of(0)->learn = vp_learn_create();
    cr_assert(pool_of(0)->learn);
}

static void make_segments(void) {
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = segment(BLOCK, stream);
    more = segment(MORE, stream);
}

/* Its blocks come and go, one after the other, and have their own contents. */
static void go_round(int rounds) {
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < BLOCKS; i++) {
            use(blocks[i], BLOCK, stream);
            cu_ok(cuMemsetD8Async(blocks[i], (unsigned char)(i + 1), BLOCK, stream));
            cu_ok(cuStreamSynchronize(stream));
            cr_assert_eq(((unsigned char *)blocks[i])[BLOCK - 1], i + 1);
            unuse(blocks[i], BLOCK);
        }
}

/* The last block takes more than all that came before: what is made for it is the last part. */
static size_t learn_text(char *text) {
    struct vp_learnt learnt = {.device_count = 1};
    void *arrays;
    size_t bytes;
    begin();
    make_segments();
    go_round(ROUNDS);
    use(more, MORE, stream);
    cr_assert_eq(vp_learn_sum_up(pool_of(0), vp_clock_ns() + VP_LEARN_NS, &learnt.device[0], &arrays, &bytes), 0);
    const size_t length = vp_learnt_print(&learnt, text);
    vp_os_give(arrays, bytes);
    unuse(more, MORE);
    door_close();
    return length;
}

/* By a process of its own. */
static void learn_by(size_t (*run)(char *text)) {
    size_t *shared = mmap(NULL, sizeof *shared + VP_LEARNT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                          -1, 0);
    char *const text = (char *)(shared + 1);
    const char *why;
    unsigned line;
    int status;
    cr_assert_neq(shared, MAP_FAILED);
    const pid_t child = fork();
    if (!child) {
        *shared = run(text);
        _exit(0);
    }
    cr_assert(waitpid(child, &status, 0) == child && !status);
    cr_assert_eq(vp_learnt_parse(text, *shared, &plan, &why, &line), 0, "line %u: %s", line, why);
    munmap(shared, sizeof *shared + VP_LEARNT_BYTES);
}

static void learn(void) {
    learn_by(learn_text);
}

static void begin_with_plan(void) {
    struct vp_learnt copy = plan;
    begin();
    cr_assert_eq(vp_ahead_start(pool_of(0), &copy, true), 0);
    make_segments();
}

static bool make_one(void) {
    if (!vp_ahead_begin(pool_of(0)->ahead, &batch))
        return false;
    vp_ahead_make(pool_of(0)->mem.drv, &batch);
    vp_ahead_end(pool_of(0)->ahead, &batch, true);
    cr_assert(vp_pool_check(pool_of(0), stderr));
    return true;
}

static unsigned long calls(void) {
    return maps() + vp_sim_calls("cuMemSetAccess") + vp_sim_calls("cuMemCreate");
}

static uint64_t planned(const struct vp_learnt_device *d) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < d->run_count; i++)
        bytes += d->runs[i].zone == VP_ZONE_BARE ? d->runs[i].size * d->runs[i].count : 0;
    return bytes;
}

static uint64_t again(const struct vp_learnt_device *d) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < d->again_count; i++)
        bytes += d->agains[i].size * d->agains[i].count;
    return bytes;
}

Test(bare, blocks_that_come_in_turn_share_their_handles_in_a_plan) {
    learn();
    const struct vp_learnt_device *d = &plan.device[0];
    cr_assert_leq(planned(d), d->peak_held);
    cr_assert_eq(planned(d) + again(d), BLOCKS * BLOCK + MORE, "each address has one");
    cr_assert_geq(again(d), 2 * BLOCK);
    cr_assert_eq(d->window_count, (BLOCKS * ROUNDS + 1) / VP_LIFETIMES_WINDOW);
    vp_learnt_finish(&plan);
}

Test(bare, a_block_under_which_handles_were_mapped_again_takes_no_call) {
    learn();
    begin_with_plan();
    while (make_one())
        continue;
    const size_t made = held();
    const unsigned long before = calls();
    cr_assert_eq(pool_of(0)->ahead->next_again, plan.device[0].again_count);
    go_round(ROUNDS);
    cr_assert_eq(calls(), before, "%lu", calls() - before);
    cr_assert_leq(held(), made);
    while (make_one())
        continue;
    const unsigned long late = maps();
    use(more, MORE, stream);
    cr_assert_eq(maps(), late, "in step the last part is made, too: %lu", maps() - late);
    cr_assert_leq(pool_of(0)->mem.stats.peak_held_bytes, plan.device[0].peak_held, "%zu pages more",
                  (pool_of(0)->mem.stats.peak_held_bytes - plan.device[0].peak_held) / PAGE);
    unuse(more, MORE);
    cr_assert(vp_ahead_blocks_in_step(pool_of(0)->ahead) == VP_AHEAD_IN_STEP);
    door_close();
}

/* Such a run knows less than the plan that it followed, and leaves that as it is. */
Test(bare, a_run_that_is_cut_short_is_told_from_one_that_does_something_else) {
    learn();
    begin_with_plan();
    struct vp_ahead *p = pool_of(0)->ahead;
    cr_assert_eq(p->plan.window_count, 2);
    cr_assert(vp_ahead_blocks_cut_short(p));
    go_round(VP_LIFETIMES_WINDOW / BLOCKS);
    cr_assert(vp_ahead_blocks_cut_short(p));
    go_round(1);
    cr_assert_not(vp_ahead_blocks_cut_short(p), "that was half of the way");
    p->plan.window_count = 2 * VP_LIFETIMES_WINDOW; /* of a longer run, which began otherwise */
    p->plan.windows[0]++;
    cr_assert(vp_ahead_blocks_cut_short(p));
    go_round(VP_LIFETIMES_WINDOW);
    for (int i = 0; i < 4; i++)
        p->plan.windows[i] = i ? 1 : p->plan.windows[i];
    cr_assert_not(vp_ahead_blocks_cut_short(p));
    door_close();
}

Test(bare, for_blocks_of_other_sizes_no_more_is_made) {
    learn();
    begin_with_plan();
    pool_of(0)->ahead->trusted = false;
    for (int i = 0; i < 2 * VP_LIFETIMES_WINDOW; i++) {
        use(blocks[0], MiB + (size_t)i % 3 * PAGE, stream);
        unuse(blocks[0], MiB + (size_t)i % 3 * PAGE);
    }
    const size_t before = held();
    while (make_one())
        continue;
    cr_assert_leq(held(), before + PAGE, "but for what other blocks may want: %zu", (held() - before) / PAGE);
    cr_assert(vp_ahead_blocks_in_step(pool_of(0)->ahead) == VP_AHEAD_OUT_OF_STEP);
    cr_assert_not(vp_ahead_blocks_kin(pool_of(0)->ahead));
    door_close();
}

/* Begins to map some handles again. */
static void begin_again(void) {
    learn();
    begin_with_plan();
    do
        cr_assert(vp_ahead_begin(pool_of(0)->ahead, &batch));
    while (!batch.again &&
           (vp_ahead_make(pool_of(0)->mem.drv, &batch), vp_ahead_end(pool_of(0)->ahead, &batch, true), true));
    cr_assert_gt(batch.count, 1);
}

static struct vp_chunk *chunk_of(unsigned i) {
    const struct vp_learnt_again *a = &plan.device[0].agains[batch.run];
    return vp_mapping_at(&pool_of(0)->mem, pool_of(0)->bare->base + a->from + i * a->size)->chunk;
}

/* A chunk goes back to the device, as in a pause that has waited too long for the builder, and another one may get its
 * handle's number and its place. */
static void replace(unsigned i) {
    struct vp_memory *mem = &pool_of(0)->mem;
    struct vp_chunk *chunk = chunk_of(i);
    const CUdeviceptr at = chunk->current->addr;
    const size_t size = chunk->size;
    mem->kept_count = 0;
    cr_assert(vp_chunk_give_back(mem, chunk));
    cr_assert_eq(vp_chunk_create(mem, size, false, &chunk), 0);
    cr_assert_eq(vp_stitch_map(mem, &chunk, 1, at), 0);
}

Test(bare, a_handle_that_went_before_it_was_mapped_again_is_not) {
    begin_again();
    replace(0);
    const size_t before = held();
    const CUdeviceptr to = batch.addr;
    vp_ahead_make(pool_of(0)->mem.drv, &batch);
    vp_ahead_end(pool_of(0)->ahead, &batch, true);
    cr_assert(vp_pool_check(pool_of(0), stderr));
    cr_assert_null(vp_mapping_at(&pool_of(0)->mem, to));
    cr_assert_eq(held(), before);
    go_round(2);
    door_close();
}

Test(bare, a_handle_that_went_while_it_was_mapped_again_is_let_go_of) {
    begin_again();
    const size_t before = held();
    const CUdeviceptr to = batch.addr;
    const size_t size = batch.size;
    vp_ahead_make(pool_of(0)->mem.drv, &batch);
    replace(1);
    vp_ahead_end(pool_of(0)->ahead, &batch, true);
    cr_assert(vp_pool_check(pool_of(0), stderr));
    cr_assert_not_null(vp_mapping_at(&pool_of(0)->mem, to));
    cr_assert_null(vp_mapping_at(&pool_of(0)->mem, to + size));
    cr_assert_eq(held(), before);
    go_round(2);
    door_close();
}

/* The driver is never asked to map what was released. */
Test(bare, a_handle_is_not_released_while_it_is_mapped_again) {
    begin_again();
    struct vp_memory *mem = &pool_of(0)->mem;
    struct vp_chunk *const chunk = chunk_of(0);
    cr_assert_not(vp_chunk_give_back(mem, chunk));
    vp_ahead_make(mem->drv, &batch);
    cr_assert_not(vp_chunk_give_back(mem, chunk));
    vp_ahead_end(pool_of(0)->ahead, &batch, true);
    cr_assert_eq(vp_mapping_at(mem, batch.addr)->chunk, chunk);
    cr_assert(vp_chunk_give_back(mem, chunk));
    cr_assert(vp_pool_check(pool_of(0), stderr));
    door_close();
}

/* The program's thread may have found meanwhile that the device refuses some. */
Test(bare, what_is_mapped_again_tells_nothing_of_what_the_device_creates) {
    begin_again();
    CUmemAllocationProp *prop = &pool_of(0)->mem.prop;
    vp_ahead_make(pool_of(0)->mem.drv, &batch);
    cr_assert_neq(prop->requestedHandleTypes, 0);
    prop->requestedHandleTypes = 0;
    vp_ahead_end(pool_of(0)->ahead, &batch, true);
    cr_assert_eq(prop->requestedHandleTypes, 0);
    door_close();
}

static void refused(const char *name, long nth) {
    begin_again();
    const size_t before = held();
    vp_sim_fail(name, nth, CUDA_ERROR_OUT_OF_MEMORY);
    vp_ahead_make(pool_of(0)->mem.drv, &batch);
    vp_ahead_end(pool_of(0)->ahead, &batch, true);
    cr_assert(vp_pool_check(pool_of(0), stderr));
    cr_assert_eq(held(), before);
    cr_assert_eq(pool_of(0)->ahead->next_again, plan.device[0].again_count, "no more is tried");
    go_round(2);
    door_close();
}

Test(bare, what_the_driver_refuses_to_map_again_is_left) {
    refused("cuMemMap", 2);
}

Test(bare, what_the_driver_refuses_to_open_again_is_left) {
    refused("cuMemSetAccess", 1);
}

/* ---- what is learnt ---- */

enum { THREE = 3 };
static CUdeviceptr three[THREE];

/* Each two of three blocks are there at the same time, but never all three. */
static size_t learn_pairs(char *text) {
    struct vp_learnt learnt = {.device_count = 1};
    void *arrays;
    size_t bytes;
    begin();
    for (int i = 0; i < THREE; i++)
        three[i] = segment(BLOCK, stream);
    for (int i = 0; i < 2 * THREE; i++) {
        const int a = i % THREE, b = (i + 1) % THREE;
        use(three[a], BLOCK, stream);
        use(three[b], BLOCK, stream);
        unuse(three[a], BLOCK);
        unuse(three[b], BLOCK);
    }
    cr_assert_eq(vp_learn_sum_up(pool_of(0), vp_clock_ns() + VP_LEARN_NS, &learnt.device[0], &arrays, &bytes), 0);
    const size_t length = vp_learnt_print(&learnt, text);
    vp_os_give(arrays, bytes);
    door_close();
    return length;
}

Test(bare, blocks_that_cannot_all_share_take_no_more_than_was_held) {
    learn_by(learn_pairs);
    const struct vp_learnt_device *d = &plan.device[0];
    cr_assert_lt(d->peak_held, THREE * BLOCK, "the cache itself got by with less");
    cr_assert_leq(planned(d), d->peak_held);
    cr_assert_eq(planned(d) + again(d), THREE * BLOCK, "each address has one: %zu MiB",
                 (size_t)(planned(d) + again(d)) / MiB);
    vp_learnt_finish(&plan);
}

/* Blocks that touch too many slots in all are told where they lay, at once. */
Test(bare, what_is_too_much_to_share_takes_no_time) {
    struct vp_learnt_device learnt;
    void *arrays;
    size_t bytes;
    begin();
    make_segments();
    go_round(1);
    struct vp_lifetimes *l = pool_of(0)->bare->lifetimes;
    for (uint32_t i = atomic_load(&l->count); i < VP_LIFETIMES; i++)
        vp_lifetimes_begin(l, 0, (uint64_t)4 << 30);
    const uint64_t from = vp_clock_ns();
    cr_assert_eq(vp_learn_sum_up(pool_of(0), from + VP_LEARN_NS, &learnt, &arrays, &bytes), 0);
    const uint64_t took = vp_clock_ns() - from;
    cr_assert_lt(took, VP_LEARN_NS + VP_LEARN_NS / 2, "%llu ms", (unsigned long long)took / 1000000);
    cr_assert_eq(learnt.again_count, 0);
    cr_assert_eq(learnt.window_count, VP_LIFETIMES_WINDOWS);
    cr_assert_geq(planned(&learnt), BLOCK);
    vp_os_give(arrays, bytes);
    door_close();
}

/* Where nothing repeats, what rested longest is taken first; but not what the plan wants next. */
Test(bare, memory_where_a_block_comes_soon_by_the_plan_is_taken_last) {
    begin();
    make_segments();
    use(blocks[0], BLOCK, stream);
    use(blocks[1], BLOCK, stream);
    unuse(blocks[0], BLOCK);
    unuse(blocks[1], BLOCK);
    struct vp_bare *bare = pool_of(0)->bare;
    for (int i = 0; i < 2; i++)
        for (size_t page = vp_bare_page(bare, blocks[i]); page < vp_bare_page(bare, blocks[i] + BLOCK); page++)
            bare->slots[page / VP_SLOT_PAGES].expects = vp_bare_past_now(&bare->past) + (i ? 1000 : 2);
    use(blocks[2], BLOCK, stream);
    const size_t first = BLOCK - vp_bare_lacking(bare, blocks[0], BLOCK) * PAGE,
                 second = BLOCK - vp_bare_lacking(bare, blocks[1], BLOCK) * PAGE;
    cr_assert_gt(first, second, "%zu and %zu KiB", first / KiB, second / KiB);
    unuse(blocks[2], BLOCK);
    door_close();
}

/* ---- plans that no run has written ---- */

static const size_t SLOT = VP_SLOT_PAGES * PAGE;

/* One handle, which may be mapped again, and others far from it. */
static void make_by(struct vp_learnt_run run, struct vp_learnt_again again) {
    static struct vp_learnt_run runs[2];
    static struct vp_learnt_again agains[1];
    static struct vp_learnt_slot no_slot;
    static uint32_t no_request;
    struct vp_learnt learnt = {.device_count = 1};
    runs[0] = run;
    runs[1] = (struct vp_learnt_run){64 * MiB, SLOT, 32, 5, VP_ZONE_BARE};
    agains[0] = again;
    learnt.device[0] = (struct vp_learnt_device){.granularity = PAGE,
                                                 .peak_live = 64 * MiB,
                                                 .peak_held = 64 * MiB,
                                                 .runs = runs,
                                                 .slots = &no_slot,
                                                 .requests = &no_request,
                                                 .agains = agains,
                                                 .run_count = 2,
                                                 .again_count = again.count};
    cr_assert_eq(vp_ahead_start(pool_of(0), &learnt, true), 0);
    while (make_one())
        continue;
}

/* Whose segment ends takes its memory with it, but none of the next segment's blocks. */
static void end_beside_another(CUdeviceptr ends, CUdeviceptr stays) {
    const CUdeviceptr others = segment(32 * MiB, stream);
    use(stays, 2 * PAGE, stream);
    cu_ok(cuMemsetD8Async(stays, 7, 2 * PAGE, stream));
    cu_ok(door_free(ends));
    use(others, 32 * MiB, stream);
    cu_ok(cuMemsetD8Async(others, 9, 32 * MiB, stream));
    cu_ok(cuStreamSynchronize(stream));
    cr_assert_eq(*(unsigned char *)stays, 7);
    unuse(stays, 2 * PAGE);
    unuse(others, 32 * MiB);
    door_close();
}

Test(bare, a_handle_in_two_slots_is_not_made_ahead) {
    begin();
    const CUdeviceptr ends = segment(SLOT, stream), stays = segment(SLOT, stream);
    cr_assert_eq(stays, ends + SLOT);
    make_by((struct vp_learnt_run){2 * PAGE, SLOT, 1, 0, VP_ZONE_BARE}, (struct vp_learnt_again){0});
    end_beside_another(ends, stays);
}

Test(bare, a_handle_of_more_than_a_slot_is_not_made_ahead) {
    begin();
    const CUdeviceptr ends = segment(SLOT, stream), stays = segment(SLOT, stream);
    make_by((struct vp_learnt_run){0, 2 * SLOT, 1, 0, VP_ZONE_BARE}, (struct vp_learnt_again){0});
    end_beside_another(ends, stays);
}

Test(bare, a_handle_is_not_mapped_again_in_two_slots) {
    begin();
    segment(SLOT, stream);
    const CUdeviceptr ends = segment(SLOT, stream), stays = segment(SLOT, stream);
    make_by((struct vp_learnt_run){0, SLOT, 1, 0, VP_ZONE_BARE}, (struct vp_learnt_again){0, 6 * PAGE, SLOT, 1, 1});
    end_beside_another(ends, stays);
}

Test(bare, handles_made_ahead_are_slots_whatever_the_largest_handle_may_be) {
    setenv("VPOOL_HANDLE", "128K", 1);
    begin();
    const CUdeviceptr at = segment(SLOT, stream);
    make_by((struct vp_learnt_run){0, SLOT, 1, 0, VP_ZONE_BARE}, (struct vp_learnt_again){0});
    const struct vp_mapping *m = vp_mapping_at(&pool_of(0)->mem, at);
    cr_assert(m && m->chunk->size == SLOT);
    door_close();
}
