/* A library is told of memory that goes, and asks CUDA about other memory under the lock that it takes for that.
 * libfabric writes its own function into the beginning of munmap(), and asks whether a registered buffer is still the
 * same under its lock of registrations. Whoever calls munmap() with a lock in hand for which the question waits, waits
 * for ever. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { SIZES = 20, BLOCKS = 3000, PATIENCE = 20 };

static pthread_mutex_t registrations = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool hooked, done;
static atomic_int asked;
static CUdeviceptr registered;

/* Of the simulated driver it is not told: that has one lock, where a real one has many. */
static bool is_told(const void *caller) {
    Dl_info info;
    return hooked && dladdr(caller, &info) && strstr(info.dli_fname, "libvpool");
}

static void forget(const void *caller) {
    if (is_told(caller)) {
        pthread_mutex_lock(&registrations);
        pthread_mutex_unlock(&registrations);
    }
}

__attribute__((visibility("default"))) int munmap(void *at, size_t size) {
    forget(__builtin_return_address(0));
    return (int)syscall(SYS_munmap, at, size);
}

__attribute__((visibility("default"))) void *mremap(void *at, size_t size, size_t to, int flags, ...) {
    forget(__builtin_return_address(0));
    return (void *)syscall(SYS_mremap, at, size, to, flags);
}

static void *asks(void *unused) {
    unsigned long long id;
    while (!done) {
        pthread_mutex_lock(&registrations);
        OK(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, registered));
        pthread_mutex_unlock(&registrations);
        asked++;
    }
    return unused;
}

static void others_ask(void) {
    for (const int before = asked; asked == before;)
        sched_yield();
}

/* Of more blocks than there is room for at first. */
static void snapshot(void) {
    static CUdeviceptr blocks[BLOCKS];
    const int null = open("/dev/null", O_WRONLY);
    int (*take)(int) = (__typeof__(take))dlsym(RTLD_DEFAULT, "vpool_snapshot");
    for (int i = 0; i < BLOCKS; i++)
        NEED(cuMemAlloc(&blocks[i], 512));
    for (int i = 0; take && i < SIZES; i++) {
        others_ask();
        NEED(take(null));
    }
    for (int i = 0; i < BLOCKS; i++)
        OK(cuMemFree(blocks[i]));
}

int main(void) {
    pthread_t thread;
    start();
    NEED(cuMemAlloc(&registered, 1 << 20));
    hooked = true;
    NEED(pthread_create(&thread, NULL, asks, NULL));
    alarm(PATIENCE);
    for (int i = 1; i <= SIZES; i++) {
        CUdeviceptr block;
        others_ask();
        NEED(cuMemAlloc(&block, (size_t)i << 20));
        OK(cuMemFree(block));
    }
    snapshot();
    done = true;
    pthread_join(thread, NULL);
    puts("allocated and freed");
    return 0;
}
