/*
 * Who may have which bytes, and when: for each rule a program that goes wrong when the rule is broken. Owners
 * fill their block when they get it and read it back just before they free it; streams are held so that a
 * missing order shows as another's bytes.
 */
#include "fixture.h"

#include "../common/owners.h"

#include "api/api_private.h"
#include "pool/lane.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Plenty of memory, so that nobody is forced to share; waits that can never end are given up after 300 ms. */
static const char SIM[] = "capacity=64M,granularity=64K,lazy=0,timeout=300";

enum { SIZE = 2 << 20 };

/* ---- owners ---- */

struct holder {
    CUdeviceptr ptr;
    uint32_t mark;
    void *seen;                 /* pinned: what the last read found */
};

static struct holder holder_of(CUdeviceptr ptr, CUstream stream)
{
    static uint32_t marks;
    struct holder o = { .ptr = ptr, .mark = owner_mark(++marks) };
    cu_ok(cuMemAllocHost(&o.seen, SIZE));
    for (size_t i = 0; i < SIZE / 4; i++)
        ((uint32_t *)o.seen)[i] = o.mark;
    cu_ok(cuMemsetD32Async(ptr, o.mark, SIZE / 4, stream));
    cu_ok(cuMemcpyDtoHAsync(o.seen, ptr, SIZE, stream));
    return o;
}

/* A stream-ordered owner, and one by cudaMalloc whose work is on that stream. */
static struct holder take(CUstream stream)
{
    return holder_of(door_take(SIZE, stream), stream);
}

static struct holder take_sync(CUstream stream)
{
    return holder_of(door_malloc(SIZE), stream);
}

static void give(const struct holder *o, CUstream stream)
{
    cu_ok(door_free_async(o->ptr, stream));
    cr_assert(door_served);
}

static void give_sync(const struct holder *o)
{
    cu_ok(door_free(o->ptr));
    cr_assert(door_served);
}

static bool apart(const struct holder *a, const struct holder *b)
{
    return a->ptr + SIZE <= b->ptr || b->ptr + SIZE <= a->ptr;
}

/* Its work is over: what it has read were its own bytes. */
static void check(const struct holder *o)
{
    size_t at = owner_intruder(o->seen, SIZE, o->mark);
    cr_assert_eq(at, SIZE, "the owner of %#llx, mark %08x, saw another's byte at %zu", o->ptr, o->mark, at);
}

/* It is live still: nobody has written to its bytes since. */
static void check_live(const struct holder *o)
{
    check(o);
    cu_ok(cuMemcpyDtoH(o->seen, o->ptr, SIZE));
    check(o);
}

/* Runs all that may run beside the held stream, then that, and checks both. */
static void duel(const struct holder *old, const struct holder *new, CUstream held)
{
    vp_sim_step(1000);
    vp_sim_release(held);
    cu_ok(cuStreamSynchronize(held));
    cu_ok(cuCtxSynchronize());
    check(old);
    check_live(new);
    door_close();
}

/* A stream held from now on. */
static CUstream held_stream(unsigned flags)
{
    CUstream stream = door_stream(flags);
    vp_sim_hold(stream);
    return stream;
}

static unsigned long waits(void)
{
    return vp_sim_calls("cuStreamWaitEvent");
}

/* From the second stream that frees large blocks on, these have events of their own. */
static void two_streams_free(CUstream one, CUstream two)
{
    cu_ok(door_free_async(door_take(MiB, one), one));
    cu_ok(door_free_async(door_take(MiB, two), two));
}

/* ---- stream-ordered memory ---- */

Test(rules, a_stream_waits_for_another_on_the_gpu)
{
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

/* F's memory has no event of its own; what F queued since waits for S. An event recorded now would come
 * behind that. */
Test(rules, a_wait_never_aims_at_a_late_event)
{
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
Test(rules, a_wait_aims_at_the_free)
{
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
Test(rules, conditions_travel_with_the_bytes)
{
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
static void ask_late(void)
{
    cr_assert(vp_enter());
    vp_lines_poll(&vp_state.lines, true);
    vp_leave();
}

/*
 * An event on the legacy stream would make B wait for A, and A may be waiting for what B has yet to do. Beside a capture, when there are no barriers, as well.
 */
Test(rules, a_late_event_on_the_legacy_stream_holds_nobody_up)
{
    door_open(SIM);
    CUstream a = door_stream(CU_STREAM_DEFAULT), b = door_stream(CU_STREAM_DEFAULT), capture = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr work = door_take(512, a), sign = door_take(512, b);
    for (int i = 0; i < 2; i++) {
        cu_ok(door_free_async(door_take(SIZE, CU_STREAM_LEGACY), CU_STREAM_LEGACY));
        cr_assert(vp_enter());
        vp_lanes_flush(vp_state.pools[0], VP_FLUSH_ALL);
        vp_leave();
        cr_assert(vp_lines_open(&vp_state.lines));
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
        cr_assert(!vp_lines_open(&vp_state.lines));
        if (i)
            cu_ok(door_end_capture(capture, NULL));
    }
    door_close();
}

/* ---- which stream ---- */

/* Work of F that cannot run before `held` does, and goes on after F is destroyed. */
static void chain(CUstream f, CUstream held)
{
    CUevent event;
    cu_ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    cu_ok(cuMemsetD8Async(door_take(512, held), 0, 1, held));
    cu_ok(cuEventRecord(event, held));
    cu_ok(cuStreamWaitEvent(f, event, 0));
    cu_ok(cuEventDestroy(event));
}

Test(rules, a_handle_given_out_again_is_another_stream)
{
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
Test(rules, a_destroyed_stream_leaves_an_event)
{
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
Test(rules, a_stream_destroyed_while_it_captures)
{
    door_open(SIM);
    CUstream g = held_stream(CU_STREAM_NON_BLOCKING), f = door_stream(CU_STREAM_NON_BLOCKING);
    chain(f, g);
    struct holder a = take(f);
    give(&a, f);
    cu_ok(door_begin_capture(f, CU_STREAM_CAPTURE_MODE_RELAXED));
    cu_ok(door_stream_destroy(f));
    cr_assert_eq(atomic_load(&vp_state.lines.captures), 0);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    cr_assert_eq(s, f);
    struct holder b = take(s);
    duel(&a, &b, g);
}

/* A context ends and another begins under its handle, both unseen. What is queued in the new one does not count as done
 * when the old one's end comes to light: with a stream's memory, and with cudaFree. */
static void follow_unseen(void)
{
    CUcontext old = door_open(SIM), new;
    cu_ok(door_free(door_malloc(SIZE)));
    cu_ok(cuDevicePrimaryCtxReset(0));
    cu_ok(cuDevicePrimaryCtxRetain(&new, 0));
    cr_assert_eq(new, old);
}

static void memory_stays(const struct holder *a, CUstream held)
{
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

Test(rules, a_context_that_follows_unseen_has_streams_of_its_own)
{
    follow_unseen();
    CUstream g = held_stream(CU_STREAM_NON_BLOCKING);
    struct holder a = take(g);
    give(&a, g);
    memory_stays(&a, g);
}

Test(rules, a_context_that_follows_unseen_has_a_barrier_of_its_own)
{
    follow_unseen();
    vp_sim_hold(CU_STREAM_LEGACY);
    struct holder a = take_sync(CU_STREAM_LEGACY);
    give_sync(&a);
    memory_stays(&a, CU_STREAM_LEGACY);
}

static void *without_ids(const char *name, void *unused)
{
    return strcmp(name, "cuCtxGetId") ? doors_lookup(name, unused) : NULL;
}

/* By a route without a door; what it has queued goes on. The driver says that its handle is none, and has no ids to
 * tell that the context is still the same: that is not taken for dead, with all that its streams have queued. */
Test(rules, a_stream_that_ends_unseen_does_not_end_its_context)
{
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

static void *free_on_own_default_stream(void *ctx)
{
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

Test(rules, a_per_thread_stream_is_another_in_each_thread)
{
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
static void use_after_the_end(void *unused)
{
    (void)unused;
    cu_ok(cuStreamWaitValue32(CU_STREAM_PER_THREAD, (CUdeviceptr)(uintptr_t)late_flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    threads_owner = take(CU_STREAM_PER_THREAD);
    give(&threads_owner, CU_STREAM_PER_THREAD);
}

static void *end_and_go_on(void *ctx)
{
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
Test(rules, a_stream_that_comes_back_is_waited_for_anew)
{
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

/* ---- cudaMalloc and cudaFree ---- */

/* Memory of cudaMalloc may be used at once on any stream, one not yet born included. */
Test(rules, cudamalloc_gives_nothing_that_is_pending)
{
    door_open(SIM);
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    two_streams_free(s, f);
    struct holder a = take(f);
    give(&a, f);
    CUdeviceptr ptr = door_malloc(SIZE);
    struct holder b = holder_of(ptr, door_stream(CU_STREAM_NON_BLOCKING));
    duel(&a, &b, f);
}

static void *release_soon(void *stream)
{
    nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
    vp_sim_release(stream);
    return NULL;
}

/* Also when there is no other memory: the host waits, no stream does. */
Test(rules, cudamalloc_makes_no_stream_wait)
{
    pthread_t thread;
    door_open("capacity=3M,granularity=64K,lazy=0");
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    two_streams_free(s, f);
    struct holder a = take(f);
    give(&a, f);
    cr_assert(!pthread_create(&thread, NULL, release_soon, f));
    struct holder b = take_sync(s);
    cr_assert(!apart(&a, &b));
    pthread_join(thread, NULL);
    cr_assert_eq(waits(), 0);
    duel(&a, &b, f);
}

Test(rules, cudafree_covers_every_stream_and_does_not_stop_the_host)
{
    door_open(SIM);
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    struct holder a = take_sync(f);
    give_sync(&a);
    struct holder b = take_sync(s), c = take(s);
    vp_sim_step(1000);
    check(&b);
    check(&c);
    duel(&a, &b, f);
    check_live(&c);
}

/* The same on drivers that cannot record an event over a whole context, by streams of both kinds. */
Test(rules, cudafree_covers_every_stream_of_old_drivers)
{
    door_open("capacity=64M,granularity=64K,lazy=0,timeout=300,driver=12000");
    cr_assert(!vp_state.drv.cuCtxRecordEvent);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    for (int blocking = 0; blocking < 2; blocking++) {
        CUstream f = held_stream(blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
        struct holder a = take_sync(f);
        give_sync(&a);
        struct holder b = take_sync(s);
        duel(&a, &b, f);
    }
}

/* A block of one context, used in another, freed in the first. */
Test(rules, cudafree_covers_every_context_of_the_device)
{
    CUcontext one = door_open(SIM), two = door_context(0);
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING);
    cu_ok(cuCtxSetCurrent(one));
    CUdeviceptr ptr = door_malloc(SIZE);
    cu_ok(cuCtxSetCurrent(two));
    struct holder a = holder_of(ptr, f);
    cu_ok(cuCtxSetCurrent(one));
    give_sync(&a);
    struct holder b = take_sync(0);
    duel(&a, &b, f);
}

static CUcontext context_of(CUdevice device)
{
    CUcontext ctx = NULL;
    cu_ok(cuDevicePrimaryCtxRetain(&ctx, device));
    vp_api_context_created(ctx, true);
    return ctx;
}

/* And of all other devices: a copy needs no leave, and may be queued in a context of a third. */
Test(rules, cudafree_covers_every_device)
{
    CUcontext one = door_open("capacity=64M,granularity=64K,lazy=0,timeout=300,devices=3");
    for (CUdevice device = 1; device < 3; device++) {
        CUcontext there = context_of(device);
        cu_ok(cuCtxSetCurrent(one));
        CUdeviceptr ptr = door_malloc(SIZE), source = door_malloc(SIZE);
        cu_ok(cuMemsetD8(source, 77, SIZE));
        cu_ok(cuCtxSynchronize());
        cu_ok(cuCtxSetCurrent(there));
        CUstream f = held_stream(CU_STREAM_NON_BLOCKING);
        struct vp_copy_end to = { .ptr = ptr }, from = { .ptr = source };
        cr_assert_eq(vp_api_copy_way(f, &to, &from), VP_COPY_AS_IT_IS);
        cu_ok(cuMemcpyDtoDAsync(ptr, source, SIZE, f));
        struct holder a = holder_of(ptr, f);
        cu_ok(cuCtxSetCurrent(one));
        give_sync(&a);
        struct holder b = take_sync(0);
        duel(&a, &b, f);
    }
}

/* A copy that names a context for each end needs no access, and may be made by any device. */
Test(rules, cudafree_covers_copies_that_need_no_access)
{
    CUcontext one = door_open("capacity=64M,granularity=64K,lazy=0,timeout=300,devices=2"), there = context_of(1);
    cu_ok(cuCtxSetCurrent(one));
    CUdeviceptr ptr = door_malloc(SIZE), source;
    cu_ok(cuMemsetD8(ptr, 55, SIZE));
    cu_ok(cuCtxSynchronize());
    cu_ok(cuCtxSetCurrent(there));
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING);
    cu_ok(cuMemAlloc(&source, SIZE));
    cu_ok(cuMemsetD8(source, 77, SIZE));
    cu_ok(cuCtxSynchronize());
    vp_api_copied_between();
    cu_ok(cuMemcpyPeerAsync(ptr, one, source, there, SIZE, f));
    cu_ok(cuCtxSetCurrent(one));
    cu_ok(door_free(ptr));
    struct holder b = take_sync(0);
    cr_assert_neq(b.ptr, ptr, "the copy is still to come");
    vp_sim_release(f);
    cu_ok(cuStreamSynchronize(f));
    cu_ok(cuMemFree(source));
}

/* A device whose context is lost for good holds up nothing of another's, from then on; and what it answers is no answer of another's. */
Test(rules, a_sick_device_leaves_the_others_alone)
{
    CUcontext one = door_open("capacity=64M,granularity=64K,lazy=0,timeout=300,devices=2"), two = context_of(1);
    CUdeviceptr ptr, mine = door_malloc(SIZE);
    cu_ok(cuCtxSetCurrent(two));
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr theirs = door_malloc(SIZE);
    cu_ok(cuMemsetD8Async(theirs, 1, SIZE, f));
    cu_ok(door_free(theirs));
    cu_ok(cuCtxSetCurrent(one));
    vp_sim_step(1000);
    /* What is pending on device 0 is seen over first: the failure is of any query. */
    vp_lines_poll(&vp_state.lines, true);
    vp_sim_fail("cuEventQuery", -1, CUDA_ERROR_ILLEGAL_ADDRESS);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(door_alloc(&ptr, (i + 2) * SIZE), CUDA_SUCCESS, "a healthy device fails with another");
        cr_assert(door_served);
    }
    cu_ok(cuCtxSetCurrent(two));
    cr_assert_eq(door_alloc(&ptr, 2 * SIZE), CUDA_ERROR_ILLEGAL_ADDRESS, "its own device tells the error");
    vp_sim_fail("cuEventQuery", 0, CUDA_SUCCESS);
    vp_sim_fail("cuCtxRecordEvent", -1, CUDA_ERROR_ILLEGAL_ADDRESS);
    cu_ok(cuCtxSetCurrent(one));
    /* No barrier is asked of the lost one: this would stay open for good. Its own device's context answers. */
    vp_sim_fail("cuCtxRecordEvent", 0, CUDA_SUCCESS);
    unsigned long before = vp_sim_calls("cuCtxRecordEvent");
    cu_ok(door_free(mine));
    cr_assert_eq(vp_sim_calls("cuCtxRecordEvent"), before + 1);
    vp_sim_release(f);
}

/* Stream-ordered: freed on a stream of one context, taken on a stream of another. */
Test(rules, a_block_freed_in_one_context_is_taken_in_another)
{
    CUcontext one = door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    door_context(0);
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING);
    two_streams_free(s, f);
    struct holder a = take(f);
    give(&a, f);
    cu_ok(cuCtxSetCurrent(one));
    struct holder b = take(s);
    duel(&a, &b, f);
}

/* ---- captures ---- */

static void still_capturing(CUstream stream)
{
    CUstreamCaptureStatus status;
    cu_ok(cuStreamIsCapturing(stream, &status));
    cr_assert_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE, "the capture was destroyed");
}

static const CUstreamCaptureMode modes[] = { CU_STREAM_CAPTURE_MODE_GLOBAL,
                                             CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                             CU_STREAM_CAPTURE_MODE_RELAXED };

static atomic_bool trimmed;

static void *trim(void *context)
{
    cu_ok(cuCtxSetCurrent(context));
    vp_api_relieve();
    trimmed = true;
    return NULL;
}

/* Who has asked whether a stream captures may rely on the answer until its event is recorded: no capture begins meanwhile. */
Test(rules, a_capture_begins_alone)
{
    CUcontext context = door_open(SIM);
    CUstream capture = door_stream(CU_STREAM_DEFAULT);
    pthread_t other;
    cu_ok(door_free(door_malloc(SIZE)));
    vp_api_capture_beginning(capture);
    cr_assert(!pthread_create(&other, NULL, trim, context));
    usleep(50000);
    cr_assert(!trimmed, "another thread was let in");
    cu_ok(cuStreamBeginCapture(capture, CU_STREAM_CAPTURE_MODE_RELAXED));
    vp_api_capture_began(capture, true);
    cr_assert(!pthread_join(other, NULL) && trimmed);
    still_capturing(capture);
    cu_ok(door_end_capture(capture, NULL));
    door_close();
}

/* Everything that may be called beside a capture leaves it whole; what was freed meanwhile is not reused
 * before its work is over. */
Test(rules, a_capture_survives)
{
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 6; i++) {
        CUstream capture = door_stream(i % 2 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
        CUstream f = held_stream(CU_STREAM_NON_BLOCKING);
        two_streams_free(s, f);
        struct holder a = take_sync(f), c = take(f);
        cu_ok(door_begin_capture(capture, modes[i / 2]));
        give_sync(&a);
        give(&c, f);
        CUdeviceptr b = door_malloc(SIZE), d = door_take(SIZE, s);
        vp_api_relieve();
        CUdeviceptr e = door_malloc(3 * SIZE);
        still_capturing(capture);
        cr_assert(b + SIZE <= a.ptr || b >= a.ptr + SIZE);
        cu_ok(door_end_capture(capture, NULL));
        struct holder late = holder_of(d, s), now = holder_of(b, s);
        vp_sim_step(1000);
        vp_sim_release(f);
        cu_ok(cuCtxSynchronize());
        check(&c);
        check_live(&late);
        duel(&a, &now, f);
        cu_ok(door_free(e));
        cu_ok(door_free(b));
        cu_ok(door_free(d));
    }
}

/* What was freed during a capture comes back after it. */
Test(rules, quarantine_ends_with_the_capture)
{
    door_open(SIM);
    CUstream capture = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr a = door_malloc(SIZE);
    cu_ok(door_begin_capture(capture, CU_STREAM_CAPTURE_MODE_GLOBAL));
    cu_ok(door_free(a));
    cr_assert_neq(door_malloc(SIZE), a);
    cu_ok(door_end_capture(capture, NULL));
    cr_assert_eq(door_malloc(SIZE), a);
    door_close();
}

Test(rules, freeing_our_pointer_on_a_capturing_stream_leaves_it_live)
{
    struct vp_pool *pool;
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    struct holder a = take(s);
    cu_ok(cuStreamSynchronize(s));
    cu_ok(door_begin_capture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    cr_assert_neq(door_free_async(a.ptr, s), CUDA_SUCCESS);
    cr_assert(!door_served && vp_state_find(a.ptr, &pool));
    door_end_capture(s, NULL);
    struct holder b = take(s);
    cr_assert(apart(&a, &b));
    give(&a, s);
    duel(&a, &b, s);
}

/* ---- no byte twice ---- */

/* The old range of a chunk is wanted again while the chunk is live in a newer one. */
Test(rules, a_live_chunk_is_not_taken_back)
{
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    struct holder a = take(s);
    CUdeviceptr wall = door_take(SIZE, s);
    struct holder c = take(s);
    door_take(SIZE, s);
    give(&a, s);
    give(&c, s);
    CUdeviceptr both = door_take(2 * SIZE, s);
    cr_assert(both > wall, "stitched of a and c");
    cu_ok(cuMemsetD8Async(both, 77, 2 * SIZE, s));
    struct holder d = take(s), e = take(s);
    unsigned char *seen;
    cu_ok(cuMemAllocHost((void **)&seen, 2 * SIZE));
    cu_ok(cuMemcpyDtoH(seen, both, 2 * SIZE));
    for (size_t i = 0; i < 2 * SIZE; i++)
        cr_assert_eq(seen[i], 77, "byte %zu was written through another address", i);
    duel(&d, &e, s);
}

/* An old mapping stays while work queued before the free may use it. */
Test(rules, nothing_is_unmapped_under_queued_work)
{
    door_open(SIM);
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    struct holder a = take(f);
    CUdeviceptr wall = door_take(SIZE, s), c = door_take(SIZE, f);
    give(&a, f);
    cu_ok(door_free_async(c, f));
    CUdeviceptr both = door_take(2 * SIZE, f);
    cu_ok(door_free_async(both, f));
    vp_api_relieve();
    cr_assert_eq(vp_sim_violations(), 0);
    struct holder b = holder_of(wall, s);
    duel(&a, &b, f);
}

/* ---- what may hold a stream up ---- */

/* What holds a stream up cannot always be seen, and a wait that is queued cannot be withdrawn: by default none is. */
Test(rules, by_default_no_stream_waits)
{
    door_open(SIM);
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    two_streams_free(s, f);
    struct holder a = take(f);
    give(&a, f);
    struct holder b = take(s);
    cr_assert(apart(&a, &b) && waits() == 0);
    cr_assert_eq(vp_sim_calls("cuStreamWaitEvent"), 0);
    duel(&a, &b, f);
}

Test(rules, streams_wait_when_growing_fails)
{
    setenv("VPOOL_WAIT", "late", 1);
    door_open("capacity=3M,granularity=64K,lazy=0,timeout=300");
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    two_streams_free(s, f);
    struct holder a = take(f);
    give(&a, f);
    struct holder b = take(s);
    cr_assert(!apart(&a, &b) && waits() > 0);
    duel(&a, &b, f);
}

/* Under a published policy, which waits early, what ties the process to others still delays that. */
Test(rules, coupled_processes_grow_before_they_wait)
{
    setenv("VPOOL_POLICY", "vpmm", 1);
    door_open(SIM);
    vp_api_coupled("a test");
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    two_streams_free(s, f);
    struct holder a = take(f);
    give(&a, f);
    struct holder b = take(s);
    cr_assert(apart(&a, &b) && waits() == 0);
    duel(&a, &b, f);
}

static void until(void *flag)
{
    while (!atomic_load((atomic_bool *)flag))
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

/* F's host function waits for what the program does after S is done: were S behind F, that would be for ever.
 */
Test(rules, nobody_waits_early_behind_a_host_function)
{
    static atomic_bool go;
    setenv("VPOOL_WAIT", "early", 1);
    door_open(SIM);
    CUstream f = door_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    two_streams_free(s, f);
    struct holder a = take(f);
    vp_api_host_function(f);
    cu_ok(cuLaunchHostFunc(f, until, &go));
    give(&a, f);
    struct holder b = take(s);
    cu_ok(cuStreamSynchronize(s));
    atomic_store(&go, true);
    cu_ok(cuStreamSynchronize(f));
    duel(&a, &b, f);
}

Test(rules, a_pool_without_internal_dependencies_never_waits)
{
    pthread_t thread;
    CUmemoryPool mempool;
    CUresult res;
    int no = 0;
    door_open("capacity=3M,granularity=64K,lazy=0");
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    two_streams_free(s, f);
    cu_ok(cuDeviceGetDefaultMemPool(&mempool, 0));
    cr_assert(
        vp_api_pool_set_attribute(mempool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &no, &res) &&
        !res);
    struct holder a = take(f);
    give(&a, f);
    cr_assert(!pthread_create(&thread, NULL, release_soon, f));
    struct holder b = take(s);
    pthread_join(thread, NULL);
    cr_assert(!apart(&a, &b) && waits() == 0, "the host waited");
    duel(&a, &b, f);
}

/* ---- errors ---- */

Test(rules, a_query_that_fails_is_an_error_and_not_done)
{
    CUdeviceptr ptr = 0;
    door_open(SIM);
    CUstream f = held_stream(CU_STREAM_NON_BLOCKING), s = door_stream(CU_STREAM_NON_BLOCKING);
    two_streams_free(s, f);
    struct holder a = take(f);
    give(&a, f);
    vp_sim_fail("cuEventQuery", -1, CUDA_ERROR_LAUNCH_FAILED);
    cr_assert_eq(door_alloc(&ptr, SIZE), CUDA_ERROR_LAUNCH_FAILED);
    cr_assert(door_served && !ptr);
    vp_sim_fail("cuEventQuery", 0, CUDA_SUCCESS);
    struct holder b = take_sync(s);
    duel(&a, &b, f);
}
