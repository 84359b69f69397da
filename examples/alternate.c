/* Training and generation take turns on one GPU, in two processes, each asleep while the other works: what
 * reinforcement learning does between its phases.
 *
 *     trainer      weights, moments, and activations that come and go      pauses, and hands over
 *     generator    weights, and caches that grow step by step              pauses, and hands over
 *
 * Each takes more than half of the device, so that both together do not fit (less where the host could not keep them).
 * Before it hands over it calls vpool_pause(), when its turn comes vpool_resume(): addresses and contents are as they
 * were, which each checks, and so is a captured graph, which each replays. Nothing is computed: blocks are filled and
 * compared.
 *
 * Under libvpool.so alone: the two functions are found by dlsym, and without them the program says so and ends. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "vpool.h"

enum { BLOCKS = 64, SAMPLE = 4096, GROWTH = 8 };

static const char *role;
static __typeof__(&vpool_pause) sleep_now;
static __typeof__(&vpool_resume) wake_up;
static CUdeviceptr block[BLOCKS + GROWTH];
static size_t bytes[BLOCKS + GROWTH];
static unsigned value[BLOCKS + GROWTH];
static CUstream stream;
static CUgraphExec graph;

#define CHECK(call) check(call, #call)

static void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s: %s\n", role, what, why);
    exit(1);
}

static void check(CUresult result, const char *call) {
    const char *text = NULL;
    if (result == CUDA_SUCCESS)
        return;
    cuGetErrorString(result, &text);
    fail(call, text ? text : "unknown error");
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void fill(int i, unsigned with) {
    value[i] = with;
    CHECK(cuMemsetD32Async(block[i], with, bytes[i] / 4, stream));
}

/* Its first words, its last, and some between. */
static void compare(int i) {
    unsigned seen[SAMPLE / 4];
    for (int part = 0; part < 3; part++) {
        size_t at = part == 0 ? 0 : part == 1 ? bytes[i] / 8 * 4 : bytes[i] - SAMPLE;
        CHECK(cuMemcpyDtoH(seen, block[i] + at, SAMPLE));
        for (int k = 0; k < SAMPLE / 4; k++)
            if (seen[k] != value[i])
                fail("a block", "other contents than before");
    }
}

/* One replay fills the first block. */
static void capture(void) {
    CUgraph captured;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuMemsetD32Async(block[0], 12345, bytes[0] / 4, stream));
    CHECK(cuStreamEndCapture(stream, &captured));
    CHECK(cuGraphInstantiateWithFlags(&graph, captured, 0));
    CHECK(cuGraphDestroy(captured));
}

/* 60 % of the device; where the host could not keep that of both for as long as one hands over to the other, what it
 * can keep. */
static size_t as_much(void) {
    size_t unused, total, kib, can_keep = SIZE_MAX;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "r");
    CHECK(cuMemGetInfo(&unused, &total));
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %zu", &kib) == 1)
            can_keep = kib / 5 * 2 * 1024;
    if (file)
        fclose(file);
    total = total / 10 * 6;
    return can_keep < total ? can_keep : total;
}

static void begin(size_t all) {
    CUcontext context;
    CUdevice device;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (!all)
        all = as_much();
    for (int i = 0; i < BLOCKS; i++) {
        bytes[i] = all / BLOCKS / SAMPLE * SAMPLE;
        CHECK(cuMemAlloc(&block[i], bytes[i]));
        fill(i, (unsigned)(getpid() * 1000 + i));
    }
    CHECK(cuStreamSynchronize(stream));
    capture();
}

/* A step of training: activations that come and go, and weights that change. */
static void train(int round) {
    CUdeviceptr activation[GROWTH];
    for (int i = 0; i < GROWTH; i++) {
        CHECK(cuMemAllocAsync(&activation[i], bytes[0] / GROWTH, stream));
        CHECK(cuMemsetD32Async(activation[i], 7, bytes[0] / GROWTH / 4, stream));
    }
    for (int i = 0; i < BLOCKS; i += 4)
        fill(i, (unsigned)(round * 100 + i));
    for (int i = GROWTH; i-- > 0;)
        CHECK(cuMemFreeAsync(activation[i], stream));
}

/* Caches that grow: each is copied into a larger one. */
static void generate(int round) {
    for (int i = BLOCKS; i < BLOCKS + GROWTH; i++) {
        CUdeviceptr larger;
        size_t size = bytes[i] + bytes[0] / 64 / SAMPLE * SAMPLE + SAMPLE;
        CHECK(cuMemAllocAsync(&larger, size, stream));
        if (block[i])
            CHECK(cuMemFreeAsync(block[i], stream));
        block[i] = larger;
        bytes[i] = size;
        fill(i, (unsigned)(round * 1000 + i));
    }
}

static void turn(int round, bool trains) {
    for (int i = 0; i < BLOCKS + GROWTH; i++)
        if (block[i])
            compare(i);
    CHECK(cuGraphLaunch(graph, stream));
    value[0] = 12345;
    for (int step = 0; step < 3; step++)
        trains ? train(round * 10 + step) : generate(round * 10 + step);
    CHECK(cuStreamSynchronize(stream));
}

static void call(int err, const char *what) {
    if (err)
        fail(what, strerror(-err));
}

/* Its turn comes as a byte from the other, and goes on as one. */
static int play(bool trains, int rounds, size_t all, int from, int to) {
    char token = 0;
    double asleep = 0, awake = 0;
    role = trains ? "trainer" : "generator";
    sleep_now = (__typeof__(sleep_now))dlsym(RTLD_DEFAULT, "vpool_pause");
    wake_up = (__typeof__(wake_up))dlsym(RTLD_DEFAULT, "vpool_resume");
    if (!sleep_now || !wake_up)
        fail("vpool_pause", "not there: run this under libvpool.so");
    for (int round = 0; round < rounds; round++) {
        if (read(from, &token, 1) != 1)
            fail("the other process", "gone");
        double start = seconds();
        if (round == 0)
            begin(all);
        else
            call(wake_up(0), "vpool_resume");
        awake += round ? seconds() - start : 0;
        turn(round, trains);
        start = seconds();
        call(sleep_now(0), "vpool_pause");
        asleep += seconds() - start;
        if (write(to, &token, 1) != 1 && round + 1 < rounds)
            fail("the other process", "gone");
    }
    printf("%s: %d turns of %.1f MiB, %.1f ms to sleep and %.1f ms to wake each\n", role, rounds,
           (double)bytes[0] * BLOCKS / 1048576, asleep / rounds * 1e3, rounds > 1 ? awake / (rounds - 1) * 1e3 : 0);
    return 0;
}

/* usage: alternate [ROUNDS [MIB]]     each process takes so much, or 60 % of the device if the host has room for twice
 * that */
int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 4, there[2], back[2], status;
    size_t all = argc > 2 ? strtoul(argv[2], NULL, 10) << 20 : 0;
    role = "alternate";
    signal(SIGPIPE, SIG_IGN);
    if (rounds < 1 || pipe(there) || pipe(back))
        fail("alternate", "usage: alternate [ROUNDS [MIB]]");
    pid_t child = fork();
    if (child == 0) {
        close(there[1]), close(back[0]);
        return play(false, rounds, all, there[0], back[1]);
    }
    close(there[0]);
    /* The first turn is the trainer's. */
    if (child < 0 || write(back[1], "", 1) != 1)
        fail("alternate", "no second process");
    close(back[1]);
    int bad = play(true, rounds, all, back[0], there[1]);
    close(there[1]);
    bad |= waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status);
    printf("{\"turns\": %d, \"bytes\": %zu, \"ok\": %s}\n", rounds, bytes[0] * BLOCKS, bad ? "false" : "true");
    return bad;
}
