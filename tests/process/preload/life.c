/* Guests that live and die in every way: streams and threads in numbers, signals, other programs, and ends. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/time.h>

#include "guest.h"

enum { KIB = 1 << 10, MIB = 1 << 20 };

static CUcontext context;

static void start(void) {
    CHECK_OK(cuInit(0));
    CHECK_OK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK_OK(cuCtxSetCurrent(context));
}

/* Resident bytes of this process. */
static size_t resident(void) {
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    CHECK(file && fscanf(file, "%*u %zu", &pages) == 1);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Bytes of the device that are in use, by whomever: the driver's own count, which the doors do not change. */
static size_t held(void) {
    size_t (*used)(int) = guest_symbol(dlopen("libcuda.so.1", RTLD_LAZY), "vp_sim_used");

    return used(0);
}

/* Allocates, writes and frees in the order of one stream. */
static void use_stream(CUstream stream, size_t size) {
    CUdeviceptr ptr;

    CHECK_OK(cuMemAllocAsync(&ptr, size, stream));
    CHECK_OK(cuMemsetD8Async(ptr, 1, size, stream));
    CHECK_OK(cuMemFreeAsync(ptr, stream));
}

/* ---- many streams ---- */

/* Used, destroyed and forgotten: the last thousands take no memory that the first did not. */
static void streams_come_and_go_by_the_thousand(void) {
    size_t at_first = 0, held_at_first = 0;

    start();
    for (int i = 0; i < 10000; i++) {
        CUstream stream;

        CHECK_OK(cuStreamCreate(&stream, i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
        use_stream(stream, 64 * KIB);
        CHECK_OK(cuStreamDestroy(stream));
        if (i % 64 == 0)
            CHECK_OK(cuCtxSynchronize());
        if (i == 5000) {
            at_first = resident();
            held_at_first = held();
        }
    }
    CHECK_OK(cuCtxSynchronize());
    CHECK(held() <= held_at_first + 32 * MIB);
    /* A sanitizer keeps what was freed for a while. */
    if (!dlsym(RTLD_DEFAULT, "__asan_init"))
        CHECK(resident() < at_first + 4 * MIB);
    check_served();
}

static void thousands_of_streams_live_at_once(void) {
    enum { STREAMS = 4000 };
    static CUstream streams[STREAMS];

    start();
    for (int i = 0; i < STREAMS; i++)
        CHECK_OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < STREAMS; i++)
            use_stream(streams[i], 4 * KIB);
        CHECK_OK(cuCtxSynchronize());
    }
    /* 16 MB alive at once at the very most; what each stream keeps for itself is little. */
    CHECK(held() <= 64 * MIB);
    for (int i = 0; i < STREAMS; i++)
        CHECK_OK(cuStreamDestroy(streams[i]));
    CHECK_OK(cuCtxSynchronize());
    use_stream(CU_STREAM_LEGACY, MIB);
    check_served();
}

static void *use_own_stream(void *unused) {
    CHECK_OK(cuCtxSetCurrent(context));
    for (int i = 0; i < 4; i++)
        use_stream(CU_STREAM_PER_THREAD, 64 * KIB);
    return unused;
}

/* A thread's default stream ends with it; no one can name it then, and what it freed must come back all the same. */
static void threads_end_and_leave_their_streams(void) {
    enum { AT_ONCE = 8, ROUNDS = 125 };

    start();
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[AT_ONCE];

        for (int i = 0; i < AT_ONCE; i++)
            CHECK(pthread_create(&threads[i], NULL, use_own_stream, NULL) == 0);
        for (int i = 0; i < AT_ONCE; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK_OK(cuCtxSynchronize());
    }
    CHECK(held() <= 64 * MIB);
    check_served();
}

/* ---- signals ---- */

static volatile sig_atomic_t signals;

static void count_signal(int number) {
    (void)number;
    signals++;
}

/* A profiler's and an alarm's, as fast as they come. Their handlers return, and errno is the program's. */
static void signals_during_allocations(void) {
    const struct sigaction action = {.sa_handler = count_signal};
    const struct itimerval often = {.it_interval.tv_usec = 200, .it_value.tv_usec = 200};
    unsigned char byte = 0;
    CUdeviceptr ptr;
    CUstream stream;

    start();
    CHECK_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(!sigaction(SIGALRM, &action, NULL) && !sigaction(SIGPROF, &action, NULL));
    CHECK(!setitimer(ITIMER_REAL, &often, NULL) && !setitimer(ITIMER_PROF, &often, NULL));
    for (int i = 0; signals < 300; i++) {
        size_t size = (size_t)KIB << i % 12;

        errno = 77;
        if (i % 2) {
            CHECK_OK(cuMemAllocAsync(&ptr, size, stream));
            CHECK_OK(cuMemsetD8Async(ptr, (unsigned char)i, size, stream));
            CHECK_OK(cuMemcpyDtoHAsync(&byte, ptr + size - 1, 1, stream));
            CHECK_OK(cuStreamSynchronize(stream));
            CHECK_OK(cuMemFreeAsync(ptr, stream));
        } else {
            CHECK_OK(cuMemAlloc(&ptr, size));
            CHECK_OK(cuMemsetD8(ptr, (unsigned char)i, size));
            CHECK_OK(cuMemcpyDtoH(&byte, ptr + size - 1, 1));
            CHECK_OK(cuMemFree(ptr));
        }
        CHECK(byte == (unsigned char)i);
        CHECK(errno == 77);
    }
    check_served();
}

/* ---- other programs ---- */

/* The program becomes another one, which is under the library too, and finds a device all of whose memory is free. */
static void goes_on_as_another_program(void) {
    CUdeviceptr ptr;

    start();
    CHECK_OK(cuMemAlloc(&ptr, 16 * MIB));
    execl("/proc/self/exe", "life", "uses_the_device", (char *)NULL);
    CHECK(!"another program");
}

static void uses_the_device(void) {
    CUdeviceptr ptr;

    start();
    CHECK_OK(cuMemAlloc(&ptr, 200 * MIB));
    CHECK_OK(cuMemFree(ptr));
    check_served();
}

/* ---- ends ---- */

static CUdeviceptr left[64];

/* Blocks of both kinds, some freed, some not, and work that is queued. */
static void leave_things_behind(void) {
    CUstream stream;

    start();
    CHECK_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 64; i++) {
        size_t size = (size_t)KIB << i % 12;

        CHECK_OK(i % 2 ? cuMemAlloc(&left[i], size) : cuMemAllocAsync(&left[i], size, stream));
        CHECK_OK(cuMemsetD8Async(left[i], 1, size, stream));
    }
    for (int i = 0; i < 32; i++)
        CHECK_OK(i % 4 ? cuMemFree(left[i]) : cuMemFreeAsync(left[i], stream));
    check_served();
}

static void free_what_is_left(void) {
    for (int i = 32; i < 64; i++)
        cuMemFree(left[i]);
    for (int i = 32; i < 64; i++)
        cuMemAlloc(&left[i], KIB);
}

/* After the handlers of exit(), ours among them. */
static bool frees_in_destructor;

__attribute__((destructor)) static void destroy(void) {
    if (frees_in_destructor)
        free_what_is_left();
}

static void *use_forever(void *unused) {
    CHECK_OK(cuCtxSetCurrent(context));
    for (;;) {
        use_stream(CU_STREAM_PER_THREAD, 64 * KIB);
        CHECK_OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    }
    return unused;
}

static void keep_threads_busy(void) {
    pthread_t thread;

    for (int i = 0; i < 2; i++)
        CHECK(!pthread_create(&thread, NULL, use_forever, NULL) && !pthread_detach(thread));
}

static void ends_by_returning(void) {
    leave_things_behind();
    atexit(free_what_is_left);
    frees_in_destructor = true;
}

static void ends_by_exit_while_threads_allocate(void) {
    leave_things_behind();
    keep_threads_busy();
    frees_in_destructor = true;
    exit(0);
}

static void ends_at_once(void) {
    leave_things_behind();
    keep_threads_busy();
    _exit(0);
}

static void ends_quickly(void) {
    leave_things_behind();
    keep_threads_busy();
    at_quick_exit(free_what_is_left);
    quick_exit(0);
}

static void *outlive_the_main_thread(void *main_thread) {
    CHECK(pthread_join(*(pthread_t *)main_thread, NULL) == 0);
    CHECK_OK(cuCtxSetCurrent(context));
    use_stream(CU_STREAM_PER_THREAD, MIB);
    free_what_is_left();
    exit(0);
}

static void ends_by_another_thread(void) {
    static pthread_t self;
    pthread_t other;

    leave_things_behind();
    self = pthread_self();
    CHECK(!pthread_create(&other, NULL, outlive_the_main_thread, &self));
    pthread_exit(NULL);
}

/* As std::terminate() does. The shell sees the signal. */
static void ends_by_abort(void) {
    leave_things_behind();
    keep_threads_busy();
    abort();
}

/* The device first, then the memory: destructors of libraries do it in any order. */
static void reset_the_device(void) {
    cuDevicePrimaryCtxReset(0);
}

static void ends_after_a_reset(void) {
    leave_things_behind();
    atexit(free_what_is_left);
    atexit(reset_the_device);
    frees_in_destructor = true;
}

GUEST_MAIN(GUEST(streams_come_and_go_by_the_thousand), GUEST(thousands_of_streams_live_at_once),
           GUEST(threads_end_and_leave_their_streams), GUEST(signals_during_allocations),
           GUEST(goes_on_as_another_program), GUEST(uses_the_device), GUEST(ends_by_returning),
           GUEST(ends_by_exit_while_threads_allocate), GUEST(ends_at_once), GUEST(ends_quickly),
           GUEST(ends_by_another_thread), GUEST(ends_by_abort), GUEST(ends_after_a_reset))
