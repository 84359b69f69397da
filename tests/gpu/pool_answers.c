/* Asks CUDA about memory pools: each attribute, by each action, of each kind of pool. Prints a line for each
 * answer and, last, all of them as a JSON object. Only what must be the same under libvpool.so is asked: what a
 * pool has reserved beyond what is used, say, is the allocator's own affair.
 *
 * The driver is found at run time. Nothing is asked that a driver may answer with a crash. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define FUNCTIONS(X)                                                                                                   \
    X(cuInit) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuCtxSynchronize) X(cuDeviceGetAttribute)                                     \
        X(cuStreamCreate) X(cuStreamQuery) X(cuStreamSynchronize) X(cuEventCreate) X(cuEventRecord)                                   \
            X(cuEventSynchronize) X(cuMemcpyDtoH_v2) X(cuMemsetD8Async) X(cuMemAllocAsync) X(cuMemFreeAsync)                           \
                X(cuMemAlloc_v2) X(cuMemFree_v2) X(cuMemAllocFromPoolAsync) X(cuPointerGetAttribute)                                          \
                    X(cuDeviceGetDefaultMemPool) X(cuDeviceGetMemPool) X(cuDeviceSetMemPool) X(cuMemPoolCreate)                         \
                        X(cuMemPoolDestroy) X(cuMemPoolGetAttribute) X(cuMemPoolSetAttribute) X(cuMemPoolGetAccess)                        \
                            X(cuMemPoolSetAccess) X(cuMemPoolTrimTo) X(cuMemPoolExportToShareableHandle)                                                 \
                                X(cuMemPoolExportPointer) X(cuMemGetDefaultMemPool) X(cuMemGetMemPool)                                  \
                                    X(cuMemSetMemPool) X(cuLaunchHostFunc) X(cuStreamWaitEvent)

#include "found.h"

enum { MIB = 1 << 20, BLOCK = 32 * MIB };

static char json[64 << 10];
static size_t length;

/* An answer: its question, and a number. */
static void say(const char *pool, const char *question, long long answer) {
    printf("%-10s %-60s %lld\n", pool, question, answer);
    length += (size_t)snprintf(json + length, sizeof(json) - length, "%s\"%s: %s\": %lld", length ? ", " : "", pool,
                               question, answer);
}

static CUstream stream, other;

static const struct {
    const char *name;
    CUmemPool_attribute which;
    bool is_int;
} attributes[] = {
    {"follow", CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, true},
    {"opportunistic", CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, true},
    {"internal", CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, true},
    {"threshold", CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, false},
    {"reserved", CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, false},
    {"reserved high", CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, false},
    {"used", CU_MEMPOOL_ATTR_USED_MEM_CURRENT, false},
    {"used high", CU_MEMPOOL_ATTR_USED_MEM_HIGH, false},
};
enum { ATTRIBUTES = sizeof(attributes) / sizeof(attributes[0]) };

static unsigned long long get(CUmemoryPool pool, CUmemPool_attribute which) {
    cuuint64_t value = 0;

    NEED(cuMemPoolGetAttribute, pool, which, &value);
    return value;
}

static CUresult set(CUmemoryPool pool, CUmemPool_attribute which, cuuint64_t value) {
    return p_cuMemPoolSetAttribute(pool, which, &value); /* an int is its lower half */
}

static CUdeviceptr take(CUmemoryPool pool, size_t size, CUstream on) {
    CUdeviceptr ptr;

    NEED(cuMemAllocFromPoolAsync, &ptr, size, pool, on);
    return ptr;
}

/* Every attribute is read, and written with values that may be refused. */
static void every_attribute(const char *kind, CUmemoryPool pool) {
    char question[80];

    for (int i = 0; i < ATTRIBUTES; i++) {
        cuuint64_t value = 0, before;
        CUresult got = p_cuMemPoolGetAttribute(pool, attributes[i].which, &value);
        static const cuuint64_t tried[] = {0, 1, 5, 0};

        snprintf(question, sizeof(question), "get %s", attributes[i].name);
        say(kind, question, got);
        snprintf(question, sizeof(question), "%s at first", attributes[i].name);
        say(kind, question, (long long)value);
        before = value;
        for (int t = 0; t < 4; t++) {
            snprintf(question, sizeof(question), "set %s to %d (%d)", attributes[i].name, (int)tried[t], t);
            say(kind, question, set(pool, attributes[i].which, tried[t]));
            snprintf(question, sizeof(question), "get %s after %d (%d)", attributes[i].name, (int)tried[t], t);
            say(kind, question, (long long)get(pool, attributes[i].which));
        }
        if (i < 4)
            set(pool, attributes[i].which, before);
    }
    cuuint64_t unused = 0;
    say(kind, "get attribute 99", p_cuMemPoolGetAttribute(pool, (CUmemPool_attribute)99, &unused));
    say(kind, "set attribute 99", p_cuMemPoolSetAttribute(pool, (CUmemPool_attribute)99, &unused));
    say(kind, "get attribute 0", p_cuMemPoolGetAttribute(pool, (CUmemPool_attribute)0, &unused));
}

static void accounts(const char *kind, CUmemoryPool pool) {
    CUdeviceptr a = take(pool, BLOCK, stream), b = take(pool, 2 * BLOCK, stream);
    CUmemoryPool whose = NULL;
    char byte = 0;

    say(kind, "used by two blocks", (long long)get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    say(kind, "reserved for them", get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 3 * (size_t)BLOCK);
    say(kind, "their pool", p_cuPointerGetAttribute(&whose, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, b + MIB));
    say(kind, "it is this one", whose == pool);
    NEED(cuMemFreeAsync, a, stream);
    NEED(cuStreamSynchronize, stream);
    say(kind, "used by one", (long long)get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    say(kind, "most used", (long long)get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH));
    say(kind, "reset it", set(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0));
    say(kind, "most used since", (long long)get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH));
    say(kind, "reset the other", set(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0));
    say(kind, "most reserved since is what is",
        get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    NEED(cuMemsetD8Async, b, 42, 2 * BLOCK, stream);
    NEED(cuStreamSynchronize, stream);
    NEED(cuMemcpyDtoH_v2, &byte, b + BLOCK, 1);
    say(kind, "what was written", byte);
    say(kind, "cuMemFree of a pool's block", p_cuMemFree_v2(b));
    say(kind, "cuMemFree again", p_cuMemFree_v2(b));
    NEED(cuCtxSynchronize);
    say(kind, "trim to 0", p_cuMemPoolTrimTo(pool, 0));
    /* Not asked: what is used now. CUDA 13.0 goes on counting what cuMemFree freed, with nothing reserved any more. */
    say(kind, "reserved after it", (long long)get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    say(kind, "trim to 1 GiB", p_cuMemPoolTrimTo(pool, (size_t)1 << 30));
}

enum wait { STREAM, EVENT, CONTEXT };

/* Idle memory above a threshold that was set goes back when the program waits. */
static void thresholds(const char *kind, CUmemoryPool pool, bool keeps) {
    static const char *const names[] = {"stream", "event", "context"};
    char question[80];

    for (int how = STREAM; how <= CONTEXT; how++) {
        CUevent event;

        need(set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, ~(cuuint64_t)0), "threshold");
        NEED(cuMemFreeAsync, take(pool, 2 * BLOCK, stream), stream);
        NEED(cuStreamSynchronize, stream);
        snprintf(question, sizeof(question), "kept under the highest threshold (%s)", names[how]);
        if (keeps)
            say(kind, question, get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 2 * (size_t)BLOCK);
        need(set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 0), "threshold");
        NEED(cuMemFreeAsync, take(pool, 2 * BLOCK, stream), stream);
        switch (how) {
        case STREAM: NEED(cuStreamSynchronize, stream); break;
        case CONTEXT: NEED(cuCtxSynchronize); break;
        default:
            NEED(cuEventCreate, &event, 0);
            NEED(cuEventRecord, event, stream);
            NEED(cuEventSynchronize, event);
        }
        snprintf(question, sizeof(question), "reserved under threshold 0 (%s)", names[how]);
        say(kind, question, (long long)get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    }
}

static void accesses(const char *kind, CUmemoryPool pool) {
    CUmemAccessDesc own = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                           .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemAccessDesc shut = own, nobody = own;
    CUmemAccess_flags flags = (CUmemAccess_flags)0;

    say(kind, "get access", p_cuMemPoolGetAccess(&flags, pool, &own.location));
    say(kind, "access of its device", flags);
    say(kind, "set that again", p_cuMemPoolSetAccess(pool, &own, 1));
    shut.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    say(kind, "shut its device out", p_cuMemPoolSetAccess(pool, &shut, 1));
    nobody.location.id = 99;
    say(kind, "open it to device 99", p_cuMemPoolSetAccess(pool, &nobody, 1));
    say(kind, "get access of device 99", p_cuMemPoolGetAccess(&flags, pool, &nobody.location));
    say(kind, "access of its device still",
        p_cuMemPoolGetAccess(&flags, pool, &own.location) == CUDA_SUCCESS ? (long long)flags : -1);
}

enum { TRIES = 16 };

/* Does another stream get what one has freed? Maybe not at once: that it is over must be noticed. */
static void reuse(CUmemoryPool pool, const char *question, bool opportunistic, bool synchronize) {
    CUdeviceptr a, b[TRIES];
    CUresult query;
    bool found = false;

    need(set(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, opportunistic), "opportunistic");
    need(set(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0), "internal");
    need(set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, ~(cuuint64_t)0), "threshold");
    NEED(cuCtxSynchronize);
    NEED(cuMemPoolTrimTo, pool, 0);
    a = take(pool, 4 * MIB, stream);
    NEED(cuMemFreeAsync, a, stream);
    while ((query = p_cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY)
        continue;
    need(query, "cuStreamQuery");
    if (synchronize)
        NEED(cuStreamSynchronize, stream);
    for (int i = 0; i < TRIES; i++)
        found |= (b[i] = take(pool, 4 * MIB, other)) == a;
    say("own", question, found);
    for (int i = 0; i < TRIES; i++)
        NEED(cuMemFreeAsync, b[i], other);
}

static CUmemoryPool create(CUmemAllocationHandleType handles, size_t most) {
    CUmemPoolProps props;
    CUmemoryPool pool;

    memset(&props, 0, sizeof(props));
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.handleTypes = handles;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.maxSize = most;
    NEED(cuMemPoolCreate, &pool, &props);
    return pool;
}

static void current(CUmemoryPool def, CUmemoryPool own) {
    CUmemoryPool now = NULL, whose = NULL;
    CUdeviceptr ptr;

    say("current", "the default at first", p_cuDeviceGetMemPool(&now, 0) == CUDA_SUCCESS && now == def);
    say("current", "set", p_cuDeviceSetMemPool(0, own));
    say("current", "is set", p_cuDeviceGetMemPool(&now, 0) == CUDA_SUCCESS && now == own);
    NEED(cuMemAllocAsync, &ptr, BLOCK, stream);
    NEED(cuPointerGetAttribute, &whose, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, ptr);
    say("current", "allocates", whose == own);
    NEED(cuMemFreeAsync, ptr, stream);
    say("current", "the default is as it was", p_cuDeviceGetDefaultMemPool(&now, 0) == CUDA_SUCCESS && now == def);
    if (p_cuMemGetDefaultMemPool && p_cuMemGetMemPool && p_cuMemSetMemPool) {
        CUmemLocation place = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}, nowhere = place;
        CUmemAllocationType pinned = CU_MEM_ALLOCATION_TYPE_PINNED;

        nowhere.id = 99;
        say("current", "by place: default", p_cuMemGetDefaultMemPool(&now, &place, pinned) == 0 && now == def);
        say("current", "by place: current", p_cuMemGetMemPool(&now, &place, pinned) == 0 && now == own);
        say("current", "by place: nowhere", p_cuMemGetMemPool(&now, &nowhere, pinned));
        say("current", "by place: set", p_cuMemSetMemPool(&place, pinned, def));
        say("current", "by place: is set", p_cuDeviceGetMemPool(&now, 0) == 0 && now == def);
        NEED(cuMemAllocAsync, &ptr, BLOCK, stream);
        NEED(cuPointerGetAttribute, &whose, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, ptr);
        say("current", "by place: allocates", whose == def);
        NEED(cuMemFreeAsync, ptr, stream);
        NEED(cuDeviceSetMemPool, 0, own);
    }
    ptr = take(own, BLOCK, stream);
    say("current", "destroy the default", p_cuMemPoolDestroy(def));
    say("current", "destroy, with a block live", p_cuMemPoolDestroy(own));
    say("current", "the default again", p_cuDeviceGetMemPool(&now, 0) == CUDA_SUCCESS && now == def);
    say("current", "the block can be written", p_cuMemsetD8Async(ptr, 1, BLOCK, stream));
    say("current", "the block can be freed", p_cuMemFreeAsync(ptr, stream));
    say("current", "and all is well", p_cuCtxSynchronize());
}

/* Pools that can be exported, and blocks of others. */
static void exports(CUmemoryPool def) {
    CUmemoryPool shared = create(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), whose = NULL;
    CUmemPoolPtrExportData data;
    CUdeviceptr theirs, ours = take(def, BLOCK, stream);
    int fd = -1;

    every_attribute("shared", shared);
    accounts("shared", shared);
    theirs = take(shared, BLOCK, stream);
    NEED(cuStreamSynchronize, stream);
    say("shared", "export",
        p_cuMemPoolExportToShareableHandle(&fd, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    say("shared", "export its block", p_cuMemPoolExportPointer(&data, theirs));
    say("shared", "used", (long long)get(shared, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    NEED(cuPointerGetAttribute, &whose, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, theirs);
    say("shared", "its block is its own", whose == shared);
    say("shared", "export the default pool",
        p_cuMemPoolExportToShareableHandle(&fd, def, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    say("shared", "export a block of the default pool", p_cuMemPoolExportPointer(&data, ours));
    NEED(cuMemFreeAsync, ours, stream);
    say("shared", "free its block", p_cuMemFreeAsync(theirs, stream));
    NEED(cuStreamSynchronize, stream);
    say("shared", "destroy", p_cuMemPoolDestroy(shared));
}

static void a_largest_size(void) {
    CUmemoryPool sized = create(CU_MEM_HANDLE_TYPE_NONE, 2 * (size_t)BLOCK);
    CUdeviceptr ptr;

    accounts("sized", create(CU_MEM_HANDLE_TYPE_NONE, 8 * (size_t)BLOCK));
    say("sized", "within", p_cuMemAllocFromPoolAsync(&ptr, BLOCK, sized, stream));
    NEED(cuMemFreeAsync, ptr, stream);
    say("sized", "beyond", p_cuMemAllocFromPoolAsync(&ptr, 8 * (size_t)BLOCK, sized, stream));
    NEED(cuStreamSynchronize, stream);
    say("sized", "destroy", p_cuMemPoolDestroy(sized));
}

static atomic_bool let_go;

static void hold(void *unused) {
    (void)unused;
    while (!atomic_load(&let_go))
        usleep(100);
}

enum command { FREE, ALLOCATION, WAIT, COMMANDS };

/* Blocking streams: does what `b` is given next come behind what `a` has still to do, or, of the wait, what it waits
 * for? */
static void legacy(CUmemoryPool pool) {
    static const char *const questions[COMMANDS] = {"a free orders blocking streams", "an allocation does",
                                                    "a wait for an event does"};
    CUstream a, b;
    CUdeviceptr work = take(pool, MIB, stream), sign = take(pool, MIB, stream);
    CUevent event;

    NEED(cuStreamCreate, &a, CU_STREAM_DEFAULT);
    NEED(cuStreamCreate, &b, CU_STREAM_DEFAULT);
    NEED(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    for (int which = FREE; which < COMMANDS; which++) {
        CUstream held = which == WAIT ? stream : a;
        CUdeviceptr block = take(pool, BLOCK, NULL);

        NEED(cuCtxSynchronize);
        atomic_store(&let_go, false);
        NEED(cuLaunchHostFunc, held, hold, NULL);
        NEED(cuMemsetD8Async, work, 1, MIB, held);
        if (which == FREE) {
            NEED(cuMemFreeAsync, block, NULL);
        } else if (which == WAIT) {
            NEED(cuEventRecord, event, held);
            NEED(cuStreamWaitEvent, NULL, event, 0);
        } else {
            NEED(cuMemFreeAsync, take(pool, BLOCK, NULL), stream);
        }
        NEED(cuMemsetD8Async, sign, 1, MIB, b);
        for (int i = 0; i < 500 && p_cuStreamQuery(b) == CUDA_ERROR_NOT_READY; i++)
            usleep(100);
        say("legacy", questions[which], p_cuStreamQuery(b) == CUDA_ERROR_NOT_READY);
        atomic_store(&let_go, true);
        NEED(cuCtxSynchronize);
        if (which != FREE)
            NEED(cuMemFreeAsync, block, stream);
    }
    NEED(cuMemFreeAsync, work, stream);
    NEED(cuMemFreeAsync, sign, stream);
}

/* `spilled`: not asked is what is kept for later, which memory of the host never is (VPOOL_SPILL). */
int main(int argc, char **argv) {
    const bool spilled = argc > 1 && strcmp(argv[1], "spilled") == 0;
    CUmemoryPool def, own;

    find_driver(); /* older ones lack some, which are then not asked for */
    if (!p_cuInit || p_cuInit(0) != CUDA_SUCCESS) {
        fprintf(stderr, "no device\n");
        return 1;
    }
    stream = need_stream();
    NEED(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
    NEED(cuDeviceGetDefaultMemPool, &def, 0);
    own = create(CU_MEM_HANDLE_TYPE_NONE, 0);

    every_attribute("default", def);
    every_attribute("own", own);
    accounts("default", def);
    accounts("own", own);
    accesses("default", def);
    accesses("own", own);
    thresholds("default", def, !spilled);
    thresholds("own", own, false);
    NEED(cuMemPoolTrimTo, def, 0);
    reuse(own, "reuse, opportunistic", true, false);
    reuse(own, "reuse, not opportunistic", false, false);
    reuse(own, "reuse, not opportunistic, after a synchronise", false, true);
    legacy(own);
    exports(def);
    a_largest_size();
    current(def, own);
    printf("{\"ok\": true, \"answers\": {%s}}\n", json);
    return 0;
}
