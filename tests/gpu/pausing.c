/* How long a device's memory takes to go to sleep and to wake: vpool_pause() and vpool_resume(), the first time and
 * later ones, with contents and without; beside it the driver's own checkpoint of a process, where the driver has that;
 * and how soon a pause is refused in a capture and with memory exported, and a resume onto a full device. Each time
 * every block is compared with what it held, and a captured graph is replayed. Prints one JSON object.
 *
 * Fills and copies only: it also runs on the simulated driver, whose times say nothing.
 *
 * usage: pausing [MIB [ROUNDS [VPOOL]]]     32,768 MiB alive, 3 rounds; with the command, `vpool pause` and `vpool
 * resume` instead of the driver's calls */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vpool.h>

#define FUNCTIONS(X)                                                                                                   \
    X(cuInit)                                                                                                                  \
    X(cuDevicePrimaryCtxRetain)                                                                                                                  \
    X(cuCtxSetCurrent) X(cuCtxSynchronize) X(cuMemAlloc_v2) X(cuMemFree_v2) X(cuMemGetInfo_v2) X(cuStreamCreate)                       \
        X(cuStreamSynchronize) X(cuMemsetD32Async) X(cuMemHostAlloc) X(cuMemcpyDtoH_v2) X(cuStreamBeginCapture_v2)                              \
            X(cuStreamEndCapture) X(cuGraphInstantiateWithFlags) X(cuGraphLaunch) X(cuIpcGetMemHandle)

#include "found.h"

enum { MIB = 1 << 20, BLOCKS_MOST = 512, WINDOW = 4 * MIB };

static struct {
    CUdeviceptr at;
    size_t bytes;
    unsigned word;
} block[BLOCKS_MOST];
static int blocks;
static unsigned *window; /* pinned */
static CUstream stream;
static CUgraphExec graph;
static size_t wrong;

static void fill(int i, unsigned word) {
    block[i].word = word;
    NEED(cuMemsetD32Async, block[i].at, word, block[i].bytes / 4, stream);
}

/* All of every 16th block; of the others the beginning and the end. */
static void compare(void) {
    for (int i = 0; i < blocks; i++)
        for (size_t at = 0; at < block[i].bytes;) {
            size_t n = block[i].bytes - at < WINDOW ? block[i].bytes - at : WINDOW;
            NEED(cuMemcpyDtoH_v2, window, block[i].at + at, n);
            for (size_t k = 0; k < n / 4; k++)
                wrong += window[k] != block[i].word;
            bool jump = i % 16 && !at && block[i].bytes > 2 * WINDOW;
            at = jump ? block[i].bytes - WINDOW : at + n;
        }
}

static void replay(void) {
    NEED(cuGraphLaunch, graph, stream);
    block[0].word = 99;
    NEED(cuStreamSynchronize, stream);
}

/* Sizes from 2 MiB to 256 MiB, as weights, moments and caches have. */
static void furnish(size_t all) {
    CUgraph captured;
    size_t done = 0, least = all / BLOCKS_MOST;
    for (unsigned r = 12345; done < all && blocks < BLOCKS_MOST; r = r * 1103515245 + 12345) {
        size_t bytes = least + (r >> 8) % (least * 2 + 1);
        bytes = (bytes < 2 * MIB && all > 64 * (size_t)MIB ? 2 * MIB : bytes) / 4096 * 4096 + 4096;
        bytes = bytes < all - done ? bytes : all - done + 4096;
        NEED(cuMemAlloc_v2, &block[blocks].at, bytes);
        block[blocks].bytes = bytes;
        done += bytes;
        fill(blocks, r);
        blocks++;
    }
    NEED(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    NEED(cuMemsetD32Async, block[0].at, 99, block[0].bytes / 4, stream);
    NEED(cuStreamEndCapture, stream, &captured);
    NEED(cuGraphInstantiateWithFlags, &graph, captured, 0);
    NEED(cuStreamSynchronize, stream);
}

static void call(int err, const char *what) {
    if (err) {
        fprintf(stderr, "%s: %s\n", what, strerror(-err));
        exit(1);
    }
}

/* ---- the driver's checkpoint, which another process asks for ---- */

typedef CUresult checkpoint_fn(int pid, void *args);

static int checkpoint(int pid) {
    static const char *const steps[] = {"Lock", "Checkpoint", "Restore", "Unlock"};
    double took[4];
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    __typeof__(&cuInit) init = cuda ? (__typeof__(init))dlsym(cuda, "cuInit") : NULL;
    if (!init || init(0))
        return 1;
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof(name), "cuCheckpointProcess%s", steps[i]);
        checkpoint_fn *step = (checkpoint_fn *)dlsym(cuda, name);
        double begin = now();
        if (!step || step(pid, NULL))
            return 1;
        took[i] = now() - begin;
    }
    printf("\"checkpoint_out_s\": %.4f, \"checkpoint_in_s\": %.4f, ", took[0] + took[1], took[2] + took[3]);
    fflush(stdout);
    return 0;
}

/* The same by the command. */
static int by_command(const char *vpool, int pid) {
    double took[2];
    for (int i = 0; i < 2; i++) {
        char line[512];
        snprintf(line, sizeof(line), "'%s' %s %d > /dev/null", vpool, i ? "resume" : "pause", pid);
        double begin = now();
        if (system(line))
            return 1;
        took[i] = now() - begin;
    }
    printf("\"checkpoint_out_s\": %.4f, \"checkpoint_in_s\": %.4f, ", took[0], took[1]);
    fflush(stdout);
    return 0;
}

static __typeof__(&vpool_pause_with) sleep_as;
static __typeof__(&vpool_resume) wake;

/* Before CUDA begins: a fork has none. It waits for a byte. */
static pid_t start_helper(int *go, const char *vpool) {
    int ends[2];
    pid_t helper = pipe(ends) ? -1 : fork();
    if (helper == 0) {
        char byte;
        close(ends[1]);
        if (read(ends[0], &byte, 1) != 1)
            _exit(1);
        _exit(vpool ? by_command(vpool, getppid()) : checkpoint(getppid()));
    }
    *go = ends[1];
    return helper;
}

static void start(void) {
    sleep_as = (__typeof__(sleep_as))dlsym(RTLD_DEFAULT, "vpool_pause_with");
    wake = (__typeof__(wake))dlsym(RTLD_DEFAULT, "vpool_resume");
    if (!find_driver())
        exit(1);
    if (!sleep_as || !wake) {
        fprintf(stderr, "pausing: run this under libvpool.so\n");
        exit(1);
    }
    stream = need_stream();
    NEED(cuMemHostAlloc, (void **)&window, WINDOW, 0);
}

/* The times of a pause and of the resume after it; in `used` what the device then has free between. */
static void nap(int contents, double *out, double *in, size_t *unused) {
    struct vpool_pause how = {.size = sizeof(how), .contents = contents};
    size_t total;
    double begin = now();
    call(sleep_as(0, &how), "vpool_pause_with");
    *out = now() - begin;
    NEED(cuMemGetInfo_v2, unused, &total);
    begin = now();
    call(wake(0), "vpool_resume");
    *in = now() - begin;
}

/* ---- refusals ---- */

static bool refused_right = true;

static double refusal(int err, int wanted, double begin) {
    refused_right &= err == wanted;
    return now() - begin;
}

/* In a capture, which goes on. */
static double refuse_in_a_capture(void) {
    struct vpool_pause how = {.size = sizeof(how)};
    CUgraph captured;
    NEED(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    NEED(cuMemsetD32Async, block[0].at, 99, block[0].bytes / 4, stream);
    const double begin = now();
    const double took = refusal(sleep_as(0, &how), -EBUSY, begin);
    NEED(cuMemsetD32Async, block[0].at, 99, block[0].bytes / 4, stream);
    NEED(cuStreamEndCapture, stream, &captured);
    NEED(cuGraphInstantiateWithFlags, &graph, captured, 0);
    return took;
}

/* With the device full of what the program took meanwhile; then there is room. */
static double refuse_onto_a_full_device(void) {
    enum { MOST = 4096 };
    static CUdeviceptr filler[MOST];
    struct vpool_pause how = {.size = sizeof(how)};
    size_t unused, total, piece;
    int count = 0;
    call(sleep_as(0, &how), "vpool_pause_with");
    NEED(cuMemGetInfo_v2, &unused, &total);
    for (piece = unused / 64 / (2 * MIB) * (2 * MIB); count < MOST && piece; count++)
        if (p_cuMemAlloc_v2(&filler[count], piece))
            break;
    const double begin = now();
    const double took = refusal(wake(0), -ENOMEM, begin);
    while (count)
        NEED(cuMemFree_v2, filler[--count]);
    call(wake(0), "vpool_resume");
    return took;
}

/* Last: what was exported stays so. */
static double refuse_with_memory_exported(void) {
    struct vpool_pause how = {.size = sizeof(how)};
    CUipcMemHandle handle;
    CUdeviceptr shown;
    NEED(cuMemAlloc_v2, &shown, 8 * MIB);
    NEED(cuIpcGetMemHandle, &handle, shown);
    const double begin = now();
    return refusal(sleep_as(0, &how), -ENOTSUP, begin);
}

static void refuse(void) {
    const double capture = refuse_in_a_capture();
    replay();
    const double full = refuse_onto_a_full_device();
    compare();
    const double exported = refuse_with_memory_exported();
    compare();
    replay();
    printf("\"refused_ms\": %.3f, \"refused_full_ms\": %.3f, \"refused_right\": %s, ",
           1e3 * (capture > exported ? capture : exported), 1e3 * full, refused_right ? "true" : "false");
}

static void least(double *of, double value) {
    *of = !*of || value < *of ? value : *of;
}

int main(int argc, char **argv) {
    size_t all = (argc > 1 ? strtoul(argv[1], NULL, 10) : 32768) * MIB, before, asleep, total;
    int rounds = argc > 2 ? atoi(argv[2]) : 3, go, status = 1;
    double out, in, first = 0, later = 0, resume = 0, drop_out = 0, drop_in = 0;
    pid_t helper = start_helper(&go, argc > 3 ? argv[3] : NULL);
    start();
    NEED(cuMemGetInfo_v2, &before, &total);
    asleep = before;
    furnish(all);
    for (int i = 0; i < rounds; i++) {
        nap(VPOOL_KEEP, &out, &in, &asleep);
        compare();
        replay();
        least(i ? &later : &first, out);
        least(&resume, in);
    }
    for (int i = 0; i < rounds; i++) {
        nap(VPOOL_DROP, &out, &in, &asleep);
        least(&drop_out, out);
        least(&drop_in, in);
        for (int k = 0; k < blocks; k++)
            fill(k, (unsigned)(i * 1000 + k));
        NEED(cuCtxSynchronize);
        compare();
    }
    printf(
        "{\"first_pause_s\": %.4f, \"pause_s\": %.4f, \"resume_s\": %.4f, \"drop_out_s\": %.4f, \"drop_in_s\": %.4f, ",
        first, later, resume, drop_out, drop_in);
    fflush(stdout);
    if (helper > 0 && write(go, "", 1) == 1)
        waitpid(helper, &status, 0);
    compare();
    replay();
    refuse();
    printf("\"checkpoint\": %s, \"left_mib\": %.1f, \"ok\": %s}\n", status ? "false" : "true",
           (double)(before > asleep ? before - asleep : 0) / MIB, wrong ? "false" : "true");
    return wrong != 0;
}
