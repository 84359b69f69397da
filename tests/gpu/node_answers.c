/* Asks CUDA about nodes of graphs that copy between two devices of which neither was given access to the other's
 * memory: plain memory, and mapped memory that its own device alone may touch, as the pool's is between devices that
 * cannot reach each other. A node is added as such, or captured into the graph from a copy that names a context for
 * each end. Then it is asked what it is, run, changed, and run again. Prints a line for each answer and, last, all of
 * them as a JSON object.
 *
 * The driver is found at run time. Each kind of node has a process of its own, since one may end in a fault. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define FUNCTIONS(X)                                                                                                   \
    X(cuInit)                                                                                                                  \
    X(cuDeviceGetCount)                                                                                                                  \
    X(cuDevicePrimaryCtxRetain)                                                                                                                  \
    X(cuCtxSetCurrent)                                                                                                                  \
    X(cuCtxSynchronize)                                                                                                                  \
    X(cuStreamCreate)                                                                                                                  \
    X(cuStreamSynchronize)                                                                                                                  \
    X(cuMemAlloc_v2)                                                                                                                  \
    X(cuMemCreate)                                                                                                                  \
    X(cuMemAddressReserve)                                                                                                                  \
    X(cuMemMap)                                                                                                                  \
    X(cuMemSetAccess)                                                                                                                  \
    X(cuMemsetD8_v2)                                                                                                                  \
    X(cuMemcpyDtoH_v2)                                                                                                                  \
    X(cuMemcpyPeerAsync)                                                                                                                  \
    X(cuStreamBeginCaptureToGraph)                                                                                                                  \
    X(cuStreamEndCapture)                                                                                                                  \
    X(cuGraphCreate)                                                                                                                  \
    X(cuGraphAddMemcpyNode)                                                                                                                  \
    X(cuGraphGetNodes)                                                                                                                  \
    X(cuGraphNodeGetType)                                                                                                                  \
    X(cuGraphMemcpyNodeGetParams)                                                                                                                  \
    X(cuGraphMemcpyNodeSetParams)                                                                                                                  \
    X(cuGraphExecMemcpyNodeSetParams)                                                                                                                  \
    X(cuGraphInstantiateWithFlags)                                                                                                                  \
    X(cuGraphLaunch)                                                                                                                  \
    X(cuGraphClone)

#include "found.h"

enum { BYTES = 2 << 20, SKIPPED = 77, ROOM = 16 << 10 };

static char *json;
static const char *asked;
static CUcontext context[2];
static CUstream stream;

static void say(const char *question, long long answer) {
    size_t length = strlen(json);
    printf("%-18s %-40s %lld\n", asked, question, answer);
    fflush(stdout);
    snprintf(json + length, ROOM - length, "%s\"%s: %s\": %lld", length ? ", " : "", asked, question, answer);
}

static CUdeviceptr take(int device, bool mapped) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    NEED(cuCtxSetCurrent, context[device]);
    if (!mapped) {
        NEED(cuMemAlloc_v2, &at, BYTES);
        return at;
    }
    NEED(cuMemCreate, &handle, BYTES, &prop, 0);
    NEED(cuMemAddressReserve, &at, BYTES, 0, 0, 0);
    NEED(cuMemMap, at, BYTES, 0, handle, 0);
    NEED(cuMemSetAccess, at, BYTES, &access, 1);
    return at;
}

static CUDA_MEMCPY3D row(CUdeviceptr dst, CUdeviceptr src) {
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = src,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = dst,
                           .WidthInBytes = BYTES,
                           .Height = 1,
                           .Depth = 1};
}

/* What arrives of a byte that is at the one end: itself, if all is well. */
static void launch(const char *question, CUgraphExec exec, CUdeviceptr dst, CUdeviceptr src) {
    unsigned char byte = 0;
    char line[64];
    NEED(cuCtxSetCurrent, context[1]);
    NEED(cuMemsetD8_v2, dst, 0, BYTES);
    NEED(cuCtxSynchronize);
    NEED(cuCtxSetCurrent, context[0]);
    NEED(cuMemsetD8_v2, src, 7, BYTES);
    NEED(cuCtxSynchronize);
    snprintf(line, sizeof(line), "%s, launch", question);
    say(line, p_cuGraphLaunch(exec, stream));
    snprintf(line, sizeof(line), "%s, end", question);
    say(line, p_cuStreamSynchronize(stream));
    NEED(cuCtxSetCurrent, context[1]);
    NEED(cuMemcpyDtoH_v2, &byte, dst + BYTES - 1, 1);
    NEED(cuCtxSetCurrent, context[0]);
    snprintf(line, sizeof(line), "%s, byte", question);
    say(line, byte);
}

static void add(CUgraph graph, bool captures, const CUDA_MEMCPY3D *p) {
    CUgraphNode node;
    CUgraph same;
    if (!captures) {
        say("add", p_cuGraphAddMemcpyNode(&node, graph, NULL, 0, p, context[0]));
        return;
    }
    say("begin", p_cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
    say("copy", p_cuMemcpyPeerAsync(p->dstDevice, context[1], p->srcDevice, context[0], BYTES, stream));
    say("end", p_cuStreamEndCapture(stream, &same));
}

static void ask(bool mapped, bool captures) {
    CUdeviceptr src = take(0, mapped), dst = take(1, mapped), other = take(1, mapped);
    CUDA_MEMCPY3D p = row(dst, src), q = row(other, src), told = {0};
    CUgraphNode node[4] = {NULL};
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_HOST;
    CUgraph graph, clone;
    CUgraphExec exec;
    size_t count = 4;
    NEED(cuCtxSetCurrent, context[0]);
    NEED(cuGraphCreate, &graph, 0);
    add(graph, captures, &p);
    NEED(cuGraphGetNodes, graph, node, &count);
    say("nodes", (long long)count);
    if (!count)
        return;
    NEED(cuGraphNodeGetType, node[0], &type);
    say("type", type);
    say("get", p_cuGraphMemcpyNodeGetParams(node[0], &told));
    say("the same addresses", told.dstDevice == dst && told.srcDevice == src);
    say("the contexts where none are", (told.reserved0 != NULL) + 2 * (told.reserved1 != NULL));
    say("clone", p_cuGraphClone(&clone, graph));
    int made = (int)p_cuGraphInstantiateWithFlags(&exec, graph, 0);
    say("instantiate", made);
    if (made)
        return;
    launch("first", exec, dst, src);
    say("change the executable's", p_cuGraphExecMemcpyNodeSetParams(exec, node[0], &q, context[0]));
    say("give it what it told", p_cuGraphMemcpyNodeSetParams(node[0], &told));
    say("change it", p_cuGraphMemcpyNodeSetParams(node[0], &q));
    made = (int)p_cuGraphInstantiateWithFlags(&exec, graph, 0);
    say("instantiate again", made);
    if (!made)
        launch("second", exec, other, src);
}

static void start(bool mapped, bool captures) {
    int count = 0;
    NEED(cuInit, 0);
    NEED(cuDeviceGetCount, &count);
    if (count < 2)
        _exit(SKIPPED);
    for (int i = 0; i < 2; i++)
        NEED(cuDevicePrimaryCtxRetain, &context[i], i);
    NEED(cuCtxSetCurrent, context[0]);
    NEED(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    ask(mapped, captures);
    _exit(0);
}

int main(void) {
    static const char *const kinds[] = {"plain, added", "plain, captured", "mapped, added", "mapped, captured"};
    json = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (json == MAP_FAILED)
        return 1;
    if (!find_driver()) {
        printf("{\"skipped\": \"a driver without all that is asked\"}\n");
        return SKIPPED;
    }
    for (int i = 0; i < 4; i++) {
        int status = 0;
        asked = kinds[i];
        fflush(stdout);
        pid_t child = fork();
        if (child == 0)
            start(i / 2, i % 2);
        if (child < 0 || waitpid(child, &status, 0) != child)
            return 1;
        if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
            printf("{\"skipped\": \"one GPU alone\"}\n");
            return SKIPPED;
        }
        say("ends with", status);
    }
    printf("{\"ok\": true, \"mismatches\": 0, \"answers\": {%s}}\n", json);
    return 0;
}
