/* A program that allocates as it is told to: a word of the command line after the other. */
#include <cuda.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        CUresult res = (call);                                                                               \
        if (res) {                                                                                           \
            fprintf(stderr, "%s: %d\n", #call, (int)res);                                                    \
            exit(99);                                                                                        \
        }                                                                                                    \
    } while (0)

enum { MIB = 1 << 20 };

static CUdeviceptr blocks[64];
static unsigned count;
static CUstream stream;

static void open_device(void) {
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static void capture(void) {
    CUgraph graph;
    CUdeviceptr ptr;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuMemAllocAsync(&ptr, MIB, stream));
    CHECK(cuStreamEndCapture(stream, &graph));
}

/* Pairs that a lane serves, for some seconds. */
static void pairs(double seconds) {
    for (long n = (long)(seconds * 1000); n > 0; n--) {
        for (int i = 0; i < 20; i++) {
            CUdeviceptr ptr;
            CHECK(cuMemAllocAsync(&ptr, 64 << 10, stream));
            CHECK(cuMemFreeAsync(ptr, stream));
        }
        usleep(1000);
    }
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *value = strchr(argv[i], '=') ? strchr(argv[i], '=') + 1 : "0";
        if (!strncmp(argv[i], "open", 4))
            open_device();
        else if (!strncmp(argv[i], "alloc=", 6))
            CHECK(cuMemAlloc(&blocks[count++], (size_t)atoi(value) * MIB));
        else if (!strncmp(argv[i], "async=", 6))
            CHECK(cuMemAllocAsync(&blocks[count++], (size_t)atoi(value) * MIB, stream));
        else if (!strcmp(argv[i], "free"))
            CHECK(cuMemFree(blocks[--count]));
        else if (!strcmp(argv[i], "capture"))
            capture();
        else if (!strncmp(argv[i], "pairs=", 6))
            pairs(atof(value));
        else if (!strncmp(argv[i], "sleep=", 6))
            usleep((useconds_t)(atof(value) * 1e6));
        else if (!strcmp(argv[i], "line"))
            getchar();
        else if (!strncmp(argv[i], "exit=", 5))
            exit(atoi(value));
        else if (!strncmp(argv[i], "kill=", 5))
            raise(atoi(value));
        else if (!strcmp(argv[i], "exec"))
            execl("/bin/sleep", "sleep", "60", (char *)NULL);
        else if (!strcmp(argv[i], "fork")) {
            /* What follows is the child's; the parent ends as it does. */
            int status = 0;
            if (fork()) {
                wait(&status);
                return WEXITSTATUS(status);
            }
        } else
            return 98;
        if (!strncmp(argv[i], "open", 4) || strchr(argv[i], '=')) {
            printf("%s\n", argv[i]);
            fflush(stdout);
        }
    }
    return 0;
}
