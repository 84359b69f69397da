/* Who may have which bytes, and when: for each rule a program that goes wrong when the rule is broken. Owners
 * fill their block when they get it and read it back just before they free it; streams are held so that a
 * missing order shows as another's bytes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "rules_test.h"

#include "../common/owners.h"

#include "process/state.h"
#include "pool/parking.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- stream-ordered memory ---- */

Test(rules, a_stream_waits_for_another_on_the_gpu) {
    setenv("VPOOL_WAIT", "early", 1);
    door_open(SIM);
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    two_streams_free(s, f);
    struct holder a = take(f);
    give(&a, f);
    struct holder b = take(s);
    cr_assert(b.ptr == a.ptr && waits() == 1, "early waits save memory");
    duel(&a, &b, f);
}

/* One stream fills buffers, and another, which allocates none, frees them. */
Test(rules, a_stream_that_allocates_waits_for_one_that_only_frees) {
    setenv("VPOOL_WAIT", "early", 1);
    door_open(SIM);
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    struct holder a = holder_of(door_take(SIZE, s), f);
    give(&a, f);
    struct holder b = take(s);
    cr_assert(b.ptr == a.ptr && waits() == 1, "early waits save memory");
    duel(&a, &b, f);
}

/* F's memory has no event of its own; what F queued since waits for S. An event recorded now would come
 * behind that. */
Test(rules, a_wait_never_aims_at_a_late_event) {
    door_open(SIM);
    CUstream f = door_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    unsigned *flag;
    cu_ok(cuMemAllocHost((void **)&flag, sizeof *flag));
    *flag = 0;
    struct holder a = take(f);
    give(&a, f);
    cu_ok(cuStreamWaitValue32(f, (CUdeviceptr)flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    struct holder b = take(s);
    cr_assert(apart(&a, &b) && waits() == 0);
    cu_ok(cuStreamWriteValue32(s, (CUdeviceptr)flag, 1, 0));
    duel(&a, &b, f);
}

/* With an event at the free itself the same program may share, and still ends. */
Test(rules, a_wait_aims_at_the_free) {
    setenv("VPOOL_WAIT", "early", 1);
    door_open(SIM);
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    unsigned *flag;
    cu_ok(cuMemAllocHost((void **)&flag, sizeof *flag));
    *flag = 0;
    two_streams_free(s, f);
    struct holder a = take(f);
    give(&a, f);
    cu_ok(cuStreamWaitValue32(f, (CUdeviceptr)flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    struct holder b = take(s);
    cr_assert(b.ptr == a.ptr && waits() == 1);
    cu_ok(cuStreamWriteValue32(s, (CUdeviceptr)flag, 1, 0));
    duel(&a, &b, f);
}

/* Chunks of F's memory are joined elsewhere for S: what waits for the bytes goes with them. */
Test(rules, conditions_travel_with_the_bytes) {
    /* Else the host waits first, for as long as it takes to give F up. */
    setenv("VPOOL_WAIT", "late", 1);
    door_open("capacity=9M,granularity=64K,lazy=0,timeout=300");
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    two_streams_free(s, f);
    struct holder a = take(f);
    CUdeviceptr wall = door_take(SIZE, s), c = door_take(SIZE, f);
    door_take(SIZE, s);
    give(&a, f);
    cu_ok(door_free_async(c, f));
    CUdeviceptr both = door_take(2 * SIZE, s);
    cr_assert(both != a.ptr && both != c && wall && waits() > 0);
    struct holder b = holder_of(both, s), d = holder_of(both + SIZE, s);
    vp_sim_step(1000);
    vp_sim_release(f);
    cu_ok(cuCtxSynchronize());
    check_live(&b);
    check_live(&d);
    duel(&a, &b, f);
}

/* ---- who is held up ---- */

/* The library asks for what was freed on the legacy stream, at a time of its own. */
static void ask_late(void) {
    cr_assert(vp_enter());
    vp_timelines_poll(&vp_state.timelines, true);
    vp_leave();
}

/* An event on the legacy stream would make B wait for A, and A may be waiting for what B has yet to do. Beside a
 * capture, when there are no barriers, as well. */
Test(rules, a_late_event_on_the_legacy_stream_holds_nobody_up) {
    door_open(SIM);
    CUstream a = door_stream(CU_STREAM_DEFAULT), b = door_stream(CU_STREAM_DEFAULT),
             capture = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr work = door_take(512, a), sign = door_take(512, b);
    for (int i = 0; i < 2; i++) {
        CUdeviceptr freed = door_take(SIZE, CU_STREAM_LEGACY);
        vp_sim_fail("cuEventRecord", 1, CUDA_ERROR_OUT_OF_MEMORY); /* that of the free itself */
        cu_ok(door_free_async(freed, CU_STREAM_LEGACY));
        vp_sim_fail("cuEventRecord", 0, CUDA_SUCCESS);
        cr_assert(vp_enter());
        vp_parking_flush(vp_state.pools[0], VP_FLUSH_ALL);
        vp_leave();
        cr_assert(vp_timelines_open(&vp_state.timelines));
        cu_ok(cuCtxSynchronize());
        vp_sim_hold(a);
        cu_ok(cuMemsetD8Async(work, 1, 512, a));
        if (i)
            cu_ok(door_begin_capture(capture, CU_STREAM_CAPTURE_MODE_RELAXED));
        ask_late();
        cu_ok(cuMemsetD8Async(sign, 1, 512, b));
        cu_ok(cuStreamSynchronize(b));
        vp_sim_release(a);
        cu_ok(cuStreamSynchronize(a));
        /* And once nothing holds them up, it is known that the legacy stream is through. */
        ask_late();
        cr_assert(!vp_timelines_open(&vp_state.timelines));
        if (i)
            cu_ok(door_end_capture(capture, NULL));
    }
    door_close();
}

static const char OLD[] = "capacity=64M,granularity=64K,lazy=0,timeout=300,driver=12000";

/* Where there are no barriers, what cudaFree has got waits for that stream, too. */
Test(rules, a_late_event_of_old_drivers_holds_nobody_up) {
    door_open(OLD);
    CUstream a = door_stream(CU_STREAM_DEFAULT), b = door_stream(CU_STREAM_DEFAULT);
    CUdeviceptr work = door_take(512, a), sign = door_take(512, b);
    for (int i = 0; i < 2; i++) {
        CUdeviceptr freed = i ? door_take(SIZE, CU_STREAM_LEGACY) : door_malloc(512);
        vp_sim_fail("cuEventRecord", 1, CUDA_ERROR_OUT_OF_MEMORY);
        cu_ok(i ? door_free_async(freed, CU_STREAM_LEGACY) : door_free(freed));
        vp_sim_fail("cuEventRecord", 0, CUDA_SUCCESS);
        cr_assert(vp_enter());
        vp_parking_flush(vp_state.pools[0], VP_FLUSH_ALL);
        vp_leave();
        cr_assert(vp_timelines_open(&vp_state.timelines));
        cu_ok(cuCtxSynchronize());
        vp_sim_hold(a);
        cu_ok(cuMemsetD8Async(work, 1, 512, a));
        ask_late();
        cu_ok(cuMemsetD8Async(sign, 1, 512, b));
        cu_ok(cuStreamSynchronize(b));
        vp_sim_release(a);
        cu_ok(cuStreamSynchronize(a));
        ask_late();
        cr_assert(!vp_timelines_open(&vp_state.timelines));
    }
    door_close();
}

/* What one stream has to do by then is over, while another has always something to do. */
static void never_rests(CUstream a, CUstream b) {
    CUdeviceptr work = door_take(512, b), next = door_take(512, b), freed = door_malloc(512);
    cu_ok(cuCtxSynchronize());
    vp_sim_hold(a);
    cu_ok(cuMemsetD8Async(work, 1, 512, a));
    cu_ok(door_free(freed));
    ask_late();
    vp_sim_hold(b);
    cu_ok(cuMemsetD8Async(next, 1, 512, b));
    ask_late();
    cr_assert(vp_timelines_open(&vp_state.timelines), "the work before it is under way");
    vp_sim_release(a);
    cu_ok(cuStreamSynchronize(a));
    ask_late();
    cr_assert(!vp_timelines_open(&vp_state.timelines), "what came after it is not waited for");
    vp_sim_release(b);
}

Test(rules, blocking_streams_that_never_rest_keep_no_memory_of_old_drivers) {
    door_open(OLD);
    CUstream a = door_stream(CU_STREAM_DEFAULT), b = door_stream(CU_STREAM_DEFAULT);
    never_rests(a, b);
    /* Any blocking stream's event tells of the legacy stream: without them ours does. */
    cu_ok(door_stream_destroy(a));
    cu_ok(door_stream_destroy(b));
    never_rests(CU_STREAM_LEGACY, door_stream(CU_STREAM_NON_BLOCKING));
    door_close();
}

/* Nobody can name it any more. */
Test(rules, a_destroyed_blocking_stream_is_waited_for_on_old_drivers) {
    uint32_t *flag;
    door_open(OLD);
    cu_ok(cuMemAllocHost((void **)&flag, sizeof *flag));
    *flag = 0;
    CUstream a = door_stream(CU_STREAM_DEFAULT);
    CUdeviceptr freed = door_malloc(512);
    cu_ok(cuStreamWaitValue32(a, (CUdeviceptr)(uintptr_t)flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    cu_ok(door_stream_destroy(a));
    cu_ok(door_free(freed));
    ask_late();
    ask_late();
    cr_assert(vp_timelines_open(&vp_state.timelines));
    *flag = 1;
    cu_ok(cuCtxSynchronize());
    ask_late();
    ask_late();
    cr_assert(!vp_timelines_open(&vp_state.timelines));
    door_close();
}

/* No other thread can name a thread's own stream, and none of ours comes behind it. */
Test(rules, threads_own_streams_are_waited_for_on_old_drivers) {
    door_open(OLD);
    CUdeviceptr work = door_take(512, door_stream(CU_STREAM_DEFAULT)), freed = door_malloc(512);
    vp_sim_hold(CU_STREAM_PER_THREAD);
    cu_ok(cuMemsetD8Async(work, 1, 512, CU_STREAM_PER_THREAD));
    vp_api_worked(CU_STREAM_PER_THREAD);
    cu_ok(door_free(freed));
    ask_late();
    ask_late();
    cr_assert(vp_timelines_waiting(&vp_state.timelines, UINT64_MAX));
    vp_sim_release(CU_STREAM_PER_THREAD);
    cu_ok(cuCtxSynchronize());
    ask_late();
    cr_assert(!vp_timelines_waiting(&vp_state.timelines, UINT64_MAX));
    door_close();
}

static void *release_later(void *stream) {
    usleep(300000); /* longer than a capture is waited for */
    vp_sim_release(stream);
    return NULL;
}

/* Where there are no barriers, each stream is asked by name, which may take a while. */
Test(rules, what_cudafree_has_got_is_waited_for_on_old_drivers) {
    enum { BLOCKS = 60 };
    CUdeviceptr block[BLOCKS];
    pthread_t thread;
    door_open("capacity=64M,granularity=64K,lazy=0,timeout=3000,driver=12000");
    CUstream a = door_stream(CU_STREAM_DEFAULT);
    CUdeviceptr work = door_take(512, a);
    for (int i = 0; i < BLOCKS; i++)
        block[i] = door_malloc(1000 << 10);
    vp_sim_hold(a);
    cu_ok(cuMemsetD8Async(work, 1, 512, a));
    for (int i = 0; i < BLOCKS; i++)
        cu_ok(door_free(block[i]));
    cr_assert(!pthread_create(&thread, NULL, release_later, a));
    cu_ok(door_free(door_malloc(58 << 20)));
    pthread_join(thread, NULL);
    door_close();
}

/* What is freed on the legacy stream comes behind all blocking streams, and before what they do next, as commands there
 * do: B needs no other command there to use what A used. Neither through the cache nor past it. */
static void legacy_commands(size_t size, const char *check) {
    setenv("VPOOL_CHECK", check, 1); /* with it there are no short ways */
    door_open(SIM);
    CUstream a = door_stream(CU_STREAM_DEFAULT), b = door_stream(CU_STREAM_DEFAULT);
    for (int i = 0; i < 3; i++) {
        CUdeviceptr first = door_take(size, CU_STREAM_LEGACY);
        unsigned char byte;
        cu_ok(cuCtxSynchronize());
        vp_sim_hold(a);
        cu_ok(cuMemsetD8Async(first, 1, size, a));
        cu_ok(door_free_async(first, CU_STREAM_LEGACY));
        CUdeviceptr next = door_take(size, CU_STREAM_LEGACY);
        cr_assert_eq(next, first, "it is had at once");
        cu_ok(cuMemsetD8Async(next, 2, size, b));
        vp_sim_step(1000);
        vp_sim_release(a);
        cu_ok(cuCtxSynchronize());
        cu_ok(cuMemcpyDtoH(&byte, next, 1));
        cr_assert_eq(byte, 2);
        cu_ok(door_free_async(next, CU_STREAM_LEGACY));
    }
    door_close();
}

Test(rules, memory_of_the_legacy_stream_is_ready_for_blocking_streams) {
    legacy_commands(SIZE, "1");
}

Test(rules, memory_of_the_legacy_streams_cache_is_ready_for_blocking_streams) {
    legacy_commands(512, "0");
}

/* A free on a blocking stream comes behind what the legacy one has had before, for whoever waits for that stream: what
 * is allocated there again is then anybody's. */
static void behind_the_legacy_stream(size_t size, const char *check) {
    setenv("VPOOL_CHECK", check, 1);
    door_open(SIM);
    CUstream a = door_stream(CU_STREAM_DEFAULT);
    cu_ok(door_free_async(door_take(512, CU_STREAM_LEGACY), CU_STREAM_LEGACY));
    for (int i = 0; i < 3; i++) {
        CUdeviceptr first = door_take(size, a);
        cu_ok(cuCtxSynchronize());
        vp_sim_hold(CU_STREAM_LEGACY);
        cu_ok(cuMemsetD8Async(first, 1, size, CU_STREAM_LEGACY));
        cu_ok(door_free_async(first, a));
        CUdeviceptr next = door_take(size, a);
        cr_assert_eq(next, first, "it is had at once");
        cr_assert_eq(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
        vp_sim_release(CU_STREAM_LEGACY);
        cu_ok(cuStreamSynchronize(a));
        cu_ok(door_free_async(next, a));
    }
    door_close();
}

Test(rules, memory_of_a_blocking_stream_is_ready_behind_the_legacy_one) {
    behind_the_legacy_stream(SIZE, "1");
}

Test(rules, memory_of_a_blocking_streams_cache_is_ready_behind_the_legacy_one) {
    behind_the_legacy_stream(512, "0");
}

/* A free on the legacy stream is a command that frees on blocking streams come behind in their turn, and by it what
 * other blocking streams have had. */
Test(rules, a_free_on_the_legacy_stream_passes_on_what_it_comes_behind) {
    door_open(SIM);
    CUstream a = door_stream(CU_STREAM_DEFAULT), b = door_stream(CU_STREAM_DEFAULT);
    CUdeviceptr work = door_take(512, a);
    cu_ok(cuMemsetD8Async(work, 1, 512, CU_STREAM_LEGACY));
    for (int i = 0; i < 3; i++) {
        CUdeviceptr one = door_take(512, CU_STREAM_LEGACY), two = door_take(512, b);
        cu_ok(cuCtxSynchronize());
        vp_sim_hold(a);
        cu_ok(cuMemsetD8Async(work, 1, 512, a));
        cu_ok(door_free_async(one, CU_STREAM_LEGACY));
        cu_ok(door_free_async(two, b));
        cr_assert_eq(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
        vp_sim_release(a);
        cu_ok(cuStreamSynchronize(b));
    }
    door_close();
}

/* Once a free was a command, no other need be, until the streams that it is to come behind have had work again. */
static void one_command(CUstream freed_on, CUstream works) {
    const unsigned frees = 20;
    CUdeviceptr work = door_take(512, works);
    for (int i = 0; i < 3; i++) {
        const uint64_t before = vp_state.timelines.stats[0].records;
        cu_ok(cuMemsetD8Async(work, 1, 512, works));
        for (unsigned n = 0; n < frees; n++) {
            CUdeviceptr block = door_take(512, freed_on);
            cu_ok(cuMemsetD8Async(block, 2, 512, freed_on));
            cu_ok(door_free_async(block, freed_on));
        }
        const uint64_t commands = vp_state.timelines.stats[0].records - before;
        cr_assert(commands >= 1 && commands <= 2, "%u", (unsigned)commands);
    }
    cu_ok(cuCtxSynchronize());
    cu_ok(door_free_async(work, works));
}

Test(rules, frees_are_commands_only_behind_new_work) {
    door_open(SIM);
    CUstream a = door_stream(CU_STREAM_DEFAULT);
    one_command(a, CU_STREAM_LEGACY);
    one_command(CU_STREAM_LEGACY, a);
    one_command(CU_STREAM_PER_THREAD, CU_STREAM_LEGACY);
    door_close();
}

/* ---- which stream ---- */

/* Work of F that cannot run before `held` does, and goes on after F is destroyed. */
static void chain(CUstream f, CUstream held) {
    CUevent event;
    cu_ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    cu_ok(cuMemsetD8Async(door_take(512, held), 0, 1, held));
    cu_ok(cuEventRecord(event, held));
    cu_ok(cuStreamWaitEvent(f, event, 0));
    cu_ok(cuEventDestroy(event));
}

Test(rules, a_handle_given_out_again_is_another_stream) {
    door_open(SIM);
    CUstream g = held_stream(CU_STREAM_NON_BLOCKING), f = door_stream(CU_STREAM_NON_BLOCKING);
    chain(f, g);
    struct holder a = take(f);
    give(&a, f);
    cu_ok(door_stream_destroy(f));
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    cr_assert_eq(s, f);
    struct holder b = take(s);
    duel(&a, &b, g);
}

/* The open points of a destroyed stream are covered by an event, and nobody uses its handle. */
Test(rules, a_destroyed_stream_leaves_an_event) {
    door_open(SIM);
    CUstream g = held_stream(CU_STREAM_NON_BLOCKING), f = door_stream(CU_STREAM_NON_BLOCKING);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    chain(f, g);
    struct holder a = take(f);
    give(&a, f);
    cu_ok(door_stream_destroy(f));
    struct holder b = take_sync(s);
    cr_assert(apart(&a, &b));
    vp_sim_step(1000);
    vp_sim_release(g);
    cu_ok(cuCtxSynchronize());
    CUdeviceptr c = door_malloc(SIZE);
    cr_assert_eq(c, a.ptr, "and comes back when that is done");
    duel(&a, &b, g);
}

/* A stream that captures does not tell its id, and may be destroyed all the same. */
Test(rules, a_stream_destroyed_while_it_captures) {
    door_open(SIM);
    CUstream g = held_stream(CU_STREAM_NON_BLOCKING), f = door_stream(CU_STREAM_NON_BLOCKING);
    chain(f, g);
    struct holder a = take(f);
    give(&a, f);
    cu_ok(door_begin_capture(f, CU_STREAM_CAPTURE_MODE_RELAXED));
    cu_ok(door_stream_destroy(f));
    cr_assert_eq(atomic_load(&vp_state.timelines.captures), 0);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    cr_assert_eq(s, f);
    struct holder b = take(s);
    duel(&a, &b, g);
}

/* A context ends and another begins under its handle, both unseen. What is queued in the new one does not count as done
 * when the old one's end comes to light: with a stream's memory, and with cudaFree. */
static void follow_unseen(void) {
    CUcontext old = door_open(SIM), new;
    cu_ok(door_free(door_malloc(SIZE)));
    cu_ok(cuDevicePrimaryCtxReset(0));
    cu_ok(cuDevicePrimaryCtxRetain(&new, 0));
    cr_assert_eq(new, old);
}

static void memory_stays(const struct holder *a, CUstream held) {
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    struct holder b = take_sync(s), c = take_sync(s);
    cr_assert(apart(a, &b) && apart(a, &c));
    vp_sim_step(1000);
    vp_sim_release(held);
    cu_ok(cuCtxSynchronize());
    check(a);
    check_live(&b);
    check_live(&c);
}

Test(rules, a_context_that_follows_unseen_has_streams_of_its_own) {
    follow_unseen();
    CUstream g = held_stream(CU_STREAM_NON_BLOCKING);
    struct holder a = take(g);
    give(&a, g);
    memory_stays(&a, g);
}

Test(rules, a_context_that_follows_unseen_has_a_barrier_of_its_own) {
    follow_unseen();
    vp_sim_hold(CU_STREAM_LEGACY);
    struct holder a = take_sync(CU_STREAM_LEGACY);
    give_sync(&a);
    memory_stays(&a, CU_STREAM_LEGACY);
}

static void *without_ids(const char *name, void *unused) {
    return strcmp(name, "cuCtxGetId") ? doors_lookup(name, unused) : NULL;
}

/* By a route without a door; what it has queued goes on. The driver says that its handle is none, and has no ids to
 * tell that the context is still the same: that is not taken for dead, with all that its streams have queued. */
Test(rules, a_stream_that_ends_unseen_does_not_end_its_context) {
    cr_assert(!vp_api_open(without_ids, NULL));
    door_open(SIM);
    CUstream g = held_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    CUstream f = door_stream(CU_STREAM_NON_BLOCKING);
    two_streams_free(s, g);
    struct holder a = take(g);
    give(&a, g);
    cu_ok(door_free_async(door_take(64 * KiB, f), f));
    cu_ok(cuStreamDestroy(f));
    struct holder b = take_sync(s), c = take_sync(s);
    cr_assert(apart(&a, &b) && apart(&a, &c));
    vp_sim_step(1000);
    vp_sim_release(g);
    cu_ok(cuCtxSynchronize());
    check(&a);
    check_live(&b);
    check_live(&c);
}

static pthread_barrier_t step;
static struct holder threads_owner;

static void *free_on_own_default_stream(void *ctx) {
    cu_ok(cuCtxSetCurrent(ctx));
    vp_sim_hold(CU_STREAM_PER_THREAD);
    threads_owner = take(CU_STREAM_PER_THREAD);
    give(&threads_owner, CU_STREAM_PER_THREAD);
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    vp_sim_release(CU_STREAM_PER_THREAD);
    cu_ok(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    return NULL;
}

Test(rules, a_per_thread_stream_is_another_in_each_thread) {
    pthread_t thread;
    CUcontext ctx = door_open(SIM);
    pthread_barrier_init(&step, NULL, 2);
    cr_assert(!pthread_create(&thread, NULL, free_on_own_default_stream, ctx));
    pthread_barrier_wait(&step);
    struct holder b = take(CU_STREAM_PER_THREAD), c = take_sync(CU_STREAM_PER_THREAD);
    vp_sim_step(1000);
    pthread_barrier_wait(&step);
    pthread_join(thread, NULL);
    cu_ok(cuCtxSynchronize());
    check(&threads_owner);
    check_live(&b);
    check_live(&c);
    door_close();
}

static pthread_key_t late_key;
static uint32_t *early_flag, *late_flag;

/* A destructor that runs after ours: the thread's own stream was taken for ended, and is used once more. */
static void use_after_the_end(void *unused) {
    (void)unused;
    cu_ok(cuStreamWaitValue32(CU_STREAM_PER_THREAD, (CUdeviceptr)(uintptr_t)late_flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    threads_owner = take(CU_STREAM_PER_THREAD);
    give(&threads_owner, CU_STREAM_PER_THREAD);
}

static void *end_and_go_on(void *ctx) {
    cu_ok(cuCtxSetCurrent(ctx));
    cu_ok(cuStreamWaitValue32(CU_STREAM_PER_THREAD, (CUdeviceptr)(uintptr_t)early_flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    for (int i = 0; i < 8; i++)
        cu_ok(door_free_async(door_take(SIZE, CU_STREAM_PER_THREAD), CU_STREAM_PER_THREAD));
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    pthread_setspecific(late_key, ctx);
    return NULL;
}

/* Its points are counted anew then: what a stream has waited for before is none of them. */
Test(rules, a_stream_that_comes_back_is_waited_for_anew) {
    pthread_t thread;
    setenv("VPOOL_WAIT", "early", 1);
    CUcontext ctx = door_open("capacity=64M,granularity=64K,lazy=0,timeout=5000");
    cu_ok(cuMemAllocHost((void **)&early_flag, sizeof *early_flag));
    cu_ok(cuMemAllocHost((void **)&late_flag, sizeof *late_flag));
    *early_flag = *late_flag = 0;
    cr_assert(!pthread_key_create(&late_key, use_after_the_end));
    CUstream f = door_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    two_streams_free(f, s);
    pthread_barrier_init(&step, NULL, 2);
    cr_assert(!pthread_create(&thread, NULL, end_and_go_on, ctx));
    pthread_barrier_wait(&step);
    struct holder b = take(s);
    cr_assert_eq(waits(), 1);
    *early_flag = 1;
    pthread_barrier_wait(&step);
    pthread_join(thread, NULL);
    struct holder c = take(s);
    cr_assert_eq(c.ptr, threads_owner.ptr, "early waits save memory");
    vp_sim_step(1000);
    usleep(50000);
    *late_flag = 1;
    cu_ok(cuCtxSynchronize());
    check(&threads_owner);
    check_live(&b);
    check_live(&c);
    door_close();
}
