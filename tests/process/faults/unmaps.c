/* A library is told of memory that goes, and asks CUDA about other memory under the lock that it takes for that.
 * libfabric writes its own function into the beginning of munmap(), and asks whether a registered buffer is still the
 * same under its lock of registrations. Whoever calls munmap() with a lock in hand for which the question waits, waits
 * for ever. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { SIZES = 20, PATIENCE = 20 };

static pthread_mutex_t registrations = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool hooked, done;
static atomic_int asked;
static CUdeviceptr registered;

/* Of the simulated driver it is not told: that has one lock, where a real one has many. */
static bool is_told(const void *caller) {
    Dl_info info;
    return hooked && dladdr(caller, &info) && strstr(info.dli_fname, "libvpool");
}

__attribute__((visibility("default"))) int munmap(void *at, size_t size) {
    if (is_told(__builtin_return_address(0))) {
        pthread_mutex_lock(&registrations);
        pthread_mutex_unlock(&registrations);
    }
    return (int)syscall(SYS_munmap, at, size);
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

int main(void) {
    pthread_t thread;
    start();
    NEED(cuMemAlloc(&registered, 1 << 20));
    hooked = true;
    NEED(pthread_create(&thread, NULL, asks, NULL));
    alarm(PATIENCE);
    for (int i = 1; i <= SIZES; i++) {
        CUdeviceptr block;
        for (const int before = asked; asked == before;)
            ;
        NEED(cuMemAlloc(&block, (size_t)i << 20));
        OK(cuMemFree(block));
    }
    done = true;
    pthread_join(thread, NULL);
    puts("allocated and freed");
    return 0;
}
