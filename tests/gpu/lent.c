/* Two processes that need most of one device in turns: each fills its share, looks at its bytes and frees all, and
 * keeps what it freed. Without lending the second finds too little. Prints one JSON object: how many allocations
 * failed, and how long those took that had to have what the other keeps.
 *
 * It fills and copies only: it also runs on the simulated driver (shared=FILE), whose times say nothing.
 *
 * A process that has lent something is spared for five seconds, so turns begin with a pause: what alternates faster
 * than that waits for it.
 *
 * usage: lent [PERCENT [ROUNDS [MS]]]     of the device's memory, 60; 2 rounds; ms between turns, 5200 */
/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/wait.h>
#include <unistd.h>

#define FUNCTIONS(X)                                                                                                   \
    X(cuInit) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuMemAllocAsync) X(cuMemFreeAsync) X(cuMemGetInfo_v2)                    \
        X(cuStreamCreate) X(cuStreamSynchronize) X(cuMemsetD32Async) X(cuMemcpyDtoH_v2)

#include "found.h"

enum { BLOCKS_MOST = 4096, BLOCKS = 320 };

/* What one turn of a process was like. */
struct turn {
    size_t failed, wrong, taken; /* bytes that the device did not have when the turn began */
    double took;                 /* s for these */
};

static CUstream start(void) {
    if (!find_driver())
        exit(1);
    return need_stream();
}

static size_t unused(size_t *total) {
    size_t free_bytes;
    NEED(cuMemGetInfo_v2, &free_bytes, total);
    return free_bytes;
}

static struct turn take_turn(CUstream stream, unsigned percent, unsigned word) {
    static CUdeviceptr block[BLOCKS_MOST];
    struct turn turn = {0};
    size_t total, there = unused(&total), bytes = total / BLOCKS / 4096 * 4096;
    size_t n = (size_t)BLOCKS * percent / 100, at = 0;
    if (word)
        there = there > bytes ? there - bytes : 0; /* the last of it may have to be asked for, too */
    for (size_t i = 0; i < n; i++) {
        double begin = now();
        bool lent = (i + 1) * bytes > there;
        if (p_cuMemAllocAsync(&block[at], bytes, stream)) {
            turn.failed++;
            continue;
        }
        turn.took += lent ? now() - begin : 0;
        turn.taken += lent ? bytes : 0;
        NEED(cuMemsetD32Async, block[at], word + (unsigned)at, bytes / 4, stream);
        at++;
    }
    for (size_t i = 0; i < at; i++) {
        unsigned seen[2];
        NEED(cuStreamSynchronize, stream);
        NEED(cuMemcpyDtoH_v2, &seen[0], block[i], sizeof seen[0]);
        NEED(cuMemcpyDtoH_v2, &seen[1], block[i] + bytes - 4, sizeof seen[1]);
        turn.wrong += seen[0] != word + i || seen[1] != word + i;
        NEED(cuMemFreeAsync, block[i], stream);
    }
    NEED(cuStreamSynchronize, stream);
    return turn;
}

/* One of the two: a turn for each byte that comes. */
static int process(int go, int done, unsigned percent, unsigned word) {
    CUstream stream = start();
    char byte;
    while (read(go, &byte, 1) == 1) {
        struct turn turn = take_turn(stream, percent, word);
        if (write(done, &turn, sizeof turn) != sizeof turn)
            return 1;
    }
    return 0;
}

int main(int argc, char **argv) {
    const unsigned percent = argc > 1 ? (unsigned)atoi(argv[1]) : 60;
    const int rounds = argc > 2 ? atoi(argv[2]) : 2, rest_ms = argc > 3 ? atoi(argv[3]) : 5200;
    int go[2][2], done[2][2];
    struct turn all = {0};
    double worst = 0;
    for (int i = 0; i < 2; i++) {
        if (pipe(go[i]) || pipe(done[i]))
            return 1;
        if (fork() == 0) {
            close(go[i][1]);
            if (i)
                close(go[0][1]);
            _exit(process(go[i][0], done[i][1], percent, (unsigned)i << 16));
        }
        close(go[i][0]);
        close(done[i][1]);
    }
    bool ok = true;
    for (int k = 0; k < 2 * rounds && ok; k++) {
        struct turn turn;
        usleep(k ? (useconds_t)rest_ms * 1000 : 0);
        ok = write(go[k % 2][1], "", 1) == 1 && read(done[k % 2][0], &turn, sizeof turn) == sizeof turn;
        if (!ok)
            break;
        all.failed += turn.failed;
        all.wrong += turn.wrong;
        all.taken += turn.taken;
        double each = turn.taken ? turn.took * 10737418240.0 / (double)turn.taken : 0;
        worst = each > worst ? each : worst;
        fprintf(stderr, "turn %d: %.1f MiB that the device did not have, in %.1f ms\n", k + 1,
                (double)turn.taken / 1048576, 1e3 * turn.took);
    }
    for (int i = 0; i < 2; i++)
        close(go[i][1]);
    for (int status; wait(&status) > 0;)
        ok &= !status;
    printf("{\"failed\": %zu, \"wrong\": %zu, \"lent_bytes\": %zu, \"worst_ms_10gib\": %.2f, \"ok\": %s}\n", all.failed,
           all.wrong, all.taken, 1e3 * worst, ok && !all.wrong ? "true" : "false");
    return !ok || all.wrong;
}
