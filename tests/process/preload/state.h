/* What the files of the guest `state` share, and the cases of state_devices.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "guest.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { MIB = 1 << 20 };

static CUcontext context;

static inline CUcontext retain(CUdevice device) {
    CUcontext primary;

    CHECK_OK(cuDevicePrimaryCtxRetain(&primary, device));
    CHECK_OK(cuCtxSetCurrent(primary));
    return primary;
}

static inline void start(void) {
    CHECK_OK(cuInit(0));
    context = retain(0);
}

static inline CUstream stream_new(unsigned int flags) {
    CUstream stream;

    CHECK_OK(cuStreamCreate(&stream, flags));
    return stream;
}

/* Are the bytes at both ends and in the middle of a range as they should be? */
static inline void check_bytes(CUdeviceptr ptr, size_t size, unsigned char value) {
    const size_t places[] = {0, size / 2, size - 1};
    unsigned char byte;

    for (int i = 0; i < 3; i++) {
        CHECK_OK(cuMemcpyDtoH(&byte, ptr + places[i], 1));
        CHECK(byte == value);
    }
}

static inline int64_t trim(void) {
    int64_t (*vpool_trim)(int, uint64_t) = dlsym(RTLD_DEFAULT, "vpool_trim");

    return vpool_trim ? vpool_trim(0, 0) : 0;
}

static inline void on_thread(bool other, void *(*run)(void *), void *arg) {
    pthread_t thread;

    if (!other) {
        run(arg);
        return;
    }
    CHECK(pthread_create(&thread, NULL, run, arg) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

void peers_reach_what_they_may(void);
void peers_come_before_memory(void);
void enabling_a_peer_may_fail(void);
void devices_have_pools_of_their_own(void);
void threads_without_a_context(void);
void ranks_that_wait_for_each_other(void);
