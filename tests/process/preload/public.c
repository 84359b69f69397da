/* Guests that use the public interface, which they find by dlsym and are not linked to. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <vpool.h>

#include "guest.h"

enum { MIB = 1 << 20 };

static __typeof__(&vpool_version) version;
static __typeof__(&vpool_stats) stats_of;
static __typeof__(&vpool_trim) trim;
static __typeof__(&vpool_mark) mark;
static __typeof__(&vpool_snapshot) snapshot;

static void find(void) {
    version = (__typeof__(version))dlsym(RTLD_DEFAULT, "vpool_version");
    stats_of = (__typeof__(stats_of))dlsym(RTLD_DEFAULT, "vpool_stats");
    trim = (__typeof__(trim))dlsym(RTLD_DEFAULT, "vpool_trim");
    mark = (__typeof__(mark))dlsym(RTLD_DEFAULT, "vpool_mark");
    snapshot = (__typeof__(snapshot))dlsym(RTLD_DEFAULT, "vpool_snapshot");
}

static void start(void) {
    CUcontext context;

    CHECK_OK(cuInit(0));
    CHECK_OK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK_OK(cuCtxSetCurrent(context));
}

static void is_not_there_without_the_library(void) {
    find();
    CHECK(!version && !stats_of && !trim && !mark && !snapshot);
}

static void tells_errors(void) {
    struct vpool_stats stats = {.size = sizeof(stats), .allocs = 77}, small = {.size = 8};

    find();
    CHECK(strchr(version(), '.'));
    for (int used = 0; used < 2; used++) {
        CHECK(stats_of(0, NULL) == -EINVAL);
        CHECK(stats_of(0, &small) == -EINVAL);
        CHECK(stats_of(-1, &stats) == -EINVAL);
        CHECK(stats_of(1000, &stats) == -EINVAL);
        CHECK(trim(-1, 0) == -EINVAL);
        CHECK(trim(1000, 0) == -EINVAL);
        CHECK(mark(NULL) == -EINVAL);
        CHECK(mark("") == -EINVAL);
        CHECK(mark("nobody records") == -ENODEV);
        CHECK(snapshot(-1) == -EINVAL);
        CHECK(stats_of(used ? 63 : 0, &stats) == -ENODEV);
        CHECK(trim(used ? 63 : 0, 0) == -ENODEV);
        CHECK(stats.allocs == 77); /* untouched */
        if (!used) {
            CUdeviceptr ptr;

            CHECK(snapshot(STDOUT_FILENO) == -ENODEV);

            start();
            CHECK_OK(cuMemAlloc(&ptr, MIB));
        }
    }
}

/* A struct of a later version: what this one does not know is 0. */
static void tells_figures(void) {
    struct {
        struct vpool_stats known;
        uint64_t later[4];
    } stats = {.known.size = sizeof(stats), .later = {1, 2, 3, 4}};
    CUdeviceptr a, b;

    find();
    start();
    CHECK_OK(cuMemAlloc(&a, 3 * MIB));
    CHECK_OK(cuMemAllocAsync(&b, 5 * MIB, NULL));
    CHECK_OK(cuMemFreeAsync(b, NULL));
    CHECK_OK(cuCtxSynchronize());
    CHECK(stats_of(0, &stats.known) == 0);
    CHECK(stats.known.size == sizeof(stats) && !stats.later[0] && !stats.later[3]);
    CHECK(stats.known.allocs == 2 && stats.known.frees == 1);
    CHECK(stats.known.live_bytes == 3 * MIB && stats.known.peak_live_bytes == 8 * MIB);
    CHECK(stats.known.held_bytes >= 8 * MIB && stats.known.peak_held_bytes == stats.known.held_bytes);

    uint64_t held = stats.known.held_bytes;
    int64_t given = trim(0, 0);
    CHECK(given > 0);
    CHECK(stats_of(0, &stats.known) == 0);
    CHECK(stats.known.held_bytes == held - (uint64_t)given);
    CHECK(trim(0, 0) == 0);
}

/* VPOOL_DUMP is not set. */
static void takes_snapshots(void) {
    char text[65536] = "";
    CUdeviceptr ptr;
    int file = memfd_create("snapshot", 0);

    find();
    start();
    CHECK_OK(cuMemAlloc(&ptr, 3 * MIB));
    CHECK(snapshot(file) == 0);
    CHECK(pread(file, text, sizeof(text) - 1, 0) > 0);
    CHECK(strstr(text, "\"reason\": \"request\"") || strstr(text, "\"reason\":\"request\""));
    CHECK(strstr(text, "3145728"));
    CHECK(snapshot(open("/dev/null", O_RDONLY)) == -EBADF);
    CHECK(snapshot(file) == 0);
}

/* Through the real doors: what sleeps comes back, and its blocks are freed as ever. */
static void sleeps_and_wakes(void) {
    __typeof__(&vpool_pause) pause_device = (__typeof__(pause_device))dlsym(RTLD_DEFAULT, "vpool_pause");
    __typeof__(&vpool_resume) resume_device = (__typeof__(resume_device))dlsym(RTLD_DEFAULT, "vpool_resume");
    struct vpool_stats stats = {.size = sizeof(stats)};
    unsigned char bytes[64];
    CUstream stream;
    CUdeviceptr a, b;

    find();
    CHECK(pause_device(0) == -ENODEV);
    start();
    CHECK_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_OK(cuMemAlloc(&a, 3 * MIB));
    CHECK_OK(cuMemAllocAsync(&b, 5 * MIB, stream));
    CHECK_OK(cuMemsetD8Async(a, 11, 3 * MIB, stream));
    CHECK_OK(cuMemsetD8Async(b, 22, 5 * MIB, stream));
    CHECK(pause_device(0) == 0);
    CHECK(stats_of(0, &stats) == 0 && stats.held_bytes == 0 && stats.live_bytes == 8 * MIB);
    CHECK(resume_device(0) == 0);
    CHECK_OK(cuMemcpyDtoH(bytes, a + 3 * MIB - sizeof(bytes), sizeof(bytes)));
    CHECK(bytes[0] == 11 && bytes[63] == 11);
    CHECK_OK(cuMemcpyDtoH(bytes, b, sizeof(bytes)));
    CHECK(bytes[0] == 22);
    CHECK(pause_device(0) == 0);
    CHECK_OK(cuMemFreeAsync(b, stream));
    CHECK_OK(cuMemFree(a));
    CHECK(resume_device(0) == 0);
    CHECK(stats_of(0, &stats) == 0 && stats.held_bytes == 0 && stats.live_bytes == 0);
}

/* 1,000 idle chunks of 8 MiB, each beside a live block, and a request of all of them, which is made anew in part; the
 * excess is of no use to anyone, and goes back while the program waits. */
static void what_was_made_anew_goes_back(void) {
    enum { CHUNKS = 1000, LIVE = 2 * CHUNKS };
    static CUdeviceptr block[LIVE];
    struct vpool_stats stats = {.size = sizeof(stats)};
    CUstream stream;
    CUdeviceptr large;

    find();
    start();
    CHECK_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < LIVE; i++)
        CHECK_OK(cuMemAllocAsync(&block[i], 8 * MIB, stream));
    for (int i = 0; i < LIVE; i += 2)
        CHECK_OK(cuMemFreeAsync(block[i], stream));
    CHECK_OK(cuMemAllocAsync(&large, (size_t)CHUNKS * 8 * MIB, stream));
    CHECK(stats_of(0, &stats) == 0 && stats.held_bytes > (LIVE + CHUNKS / 2) * UINT64_C(8) * MIB);
    for (int i = 0; i < 100; i++)
        CHECK_OK(cuStreamSynchronize(stream));
    CHECK(stats_of(0, &stats) == 0 && stats.held_bytes <= (LIVE + CHUNKS / 10) * UINT64_C(8) * MIB);
    CHECK_OK(cuMemFreeAsync(large, stream));
}

static void *mark_often(void *name) {
    for (int i = 0; i < 500; i++)
        CHECK(mark(name) == 0);
    return NULL;
}

/* VPOOL_TRACE is set. */
static void marks(void) {
    CUdeviceptr ptr;
    pthread_t threads[2];
    char name[300];

    find();
    start();
    CHECK_OK(cuMemAlloc(&ptr, MIB));
    CHECK(mark("step 1") == 0);
    CHECK_OK(cuMemFree(ptr));
    CHECK(mark("a,b\"c\nd\x1b") == 0);
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = 0;
    CHECK(mark(name) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, mark_often, (void *)(i ? "one" : "two")) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

GUEST_MAIN(GUEST(is_not_there_without_the_library), GUEST(tells_errors), GUEST(tells_figures), GUEST(takes_snapshots),
           GUEST(what_was_made_anew_goes_back), GUEST(sleeps_and_wakes), GUEST(marks))
