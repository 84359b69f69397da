/* Two threads make their first calls at once. The library is being opened by the first one's, held up by a reader of
 * stderr that sleeps, when the second one makes a context: what runs there counts as what runs in any other. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

#include <fcntl.h>

enum { SIZE = 8 << 20 };

static CUcontext first, second;

static void *opens(void *unused) {
    NEED(cuDevicePrimaryCtxRetain(&first, 0));
    return NULL;
}

static void *makes_a_context(void *unused) {
    CUctxCreateParams params = {0};

    NEED(cuCtxCreate_v4(&second, &params, 0, 0));
    return NULL;
}

/* Fills the pipe that stderr is from now on. */
static int hold_up_stderr(void) {
    char page[4096] = {0};
    int ends[2];

    NEED(pipe(ends));
    NEED(fcntl(ends[1], F_SETFL, O_NONBLOCK));
    while (write(ends[1], page, sizeof page) > 0)
        continue;
    NEED(fcntl(ends[1], F_SETFL, 0));
    NEED(dup2(ends[1], STDERR_FILENO) != STDERR_FILENO);
    return ends[0];
}

static void *read_all(void *end) {
    char page[4096];

    while (read(*(int *)end, page, sizeof page) > 0)
        continue;
    return NULL;
}

int main(void) {
    pthread_t one, two, reader;
    CUdeviceptr p, q;
    unsigned char found = 0;
    int wrong = 0, end;

    NEED(cuInit(0));
    end = hold_up_stderr();
    pthread_create(&one, NULL, opens, NULL);
    usleep(100000);
    pthread_create(&two, NULL, makes_a_context, NULL);
    usleep(100000);
    pthread_create(&reader, NULL, read_all, &end);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    for (int i = 0; i < 10; i++) {
        NEED(cuCtxSetCurrent(first));
        NEED(cuMemAlloc(&p, SIZE));
        NEED(cuCtxSetCurrent(second));
        NEED(cuMemsetD8Async(p, 1, SIZE, NULL));
        NEED(cuCtxSetCurrent(first));
        NEED(cuMemFree(p));
        NEED(cuMemAlloc(&q, SIZE));
        NEED(cuMemsetD8(q, 2, SIZE));
        NEED(cuCtxSynchronize());
        NEED(cuCtxSetCurrent(second));
        NEED(cuCtxSynchronize());
        NEED(cuMemcpyDtoH(&found, q + SIZE / 2, 1));
        wrong += found != 2;
        NEED(cuMemFree(q));
    }
    printf("%d wrong\n", wrong);
    return 0;
}
