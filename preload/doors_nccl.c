/* Doors of NCCL: a communicator of more than one rank ties the process to others (see vp_api_coupled), before
 * its first collective.
 *
 * Declared here, since NCCL's headers need not be there. A communicator and its configuration are pointers to
 * us.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "doors_nccl.h"

#include <stdatomic.h>
#include <stddef.h>
#include "process/process.h"
#include "callers.h"
#include "doors_list.h"
#include "early.h"

typedef int vp_nccl_result;
typedef struct {
    char internal[128];
} vp_nccl_unique_id;

enum { VP_NCCL_SYSTEM_ERROR = 2 };

#define EXPORT __attribute__((visibility("default")))
EXPORT vp_nccl_result ncclCommInitRank(void **comm, int ranks, vp_nccl_unique_id id, int rank);
EXPORT vp_nccl_result ncclCommInitRankConfig(void **comm, int ranks, vp_nccl_unique_id id, int rank, void *config);
EXPORT vp_nccl_result ncclCommInitRankScalable(void **comm, int ranks, int rank, int ids, vp_nccl_unique_id *id,
                                               void *config);
EXPORT vp_nccl_result ncclCommInitAll(void **comms, int devices, const int *list);

enum function {
#define FUNCTION(symbol) FUNCTION_##symbol,
    VP_DOORS_NCCL(FUNCTION)
#undef FUNCTION
        FUNCTION_COUNT
};

static const struct {
    const char *symbol;
    void *ours;
} doors[FUNCTION_COUNT] = {
#define DOOR(symbol) [FUNCTION_##symbol] = {#symbol, symbol},
    VP_DOORS_NCCL(DOOR)
#undef DOOR
};

/*
 * What a program has looked up in a handle. It calls through a pointer then, often from code that depends on
 * no libnccl (Python's ctypes), so the handle was the only sign of which one it means.
 */
static _Atomic(void *) handed_out[FUNCTION_COUNT];

void *vp_nccl_exchange(const char *name, void *real) {
    for (size_t i = 0; i < FUNCTION_COUNT; i++) {
        void *first = NULL;

        if (!vp_early_equal(name, doors[i].symbol) || real == doors[i].ours)
            continue;
        if (atomic_compare_exchange_strong(&handed_out[i], &first, real) || first == real)
            return doors[i].ours;
        /*
         * A second libnccl, which a door could not tell from the first: it is let through, and the worst
         * assumed.
         */
        vp_api_coupled("a second NCCL library");
    }
    return real;
}

/* The real function behind a door, for a caller at `address`; tells of a communicator of several ranks. */
static void *communicator(const void *address, enum function function, int ranks) {
    if (ranks > 1)
        vp_api_coupled("an NCCL communicator of several ranks");
    return vp_caller_find(address, doors[function].symbol, doors[function].ours,
                          atomic_load_explicit(&handed_out[function], memory_order_relaxed), "libnccl.so");
}

vp_nccl_result ncclCommInitRank(void **comm, int ranks, vp_nccl_unique_id id, int rank) {
    __typeof__(&ncclCommInitRank) real = communicator(__builtin_return_address(0), FUNCTION_ncclCommInitRank, ranks);

    return real ? real(comm, ranks, id, rank) : VP_NCCL_SYSTEM_ERROR;
}

vp_nccl_result ncclCommInitRankConfig(void **comm, int ranks, vp_nccl_unique_id id, int rank, void *config) {
    __typeof__(&ncclCommInitRankConfig) real = communicator(__builtin_return_address(0),
                                                            FUNCTION_ncclCommInitRankConfig, ranks);

    return real ? real(comm, ranks, id, rank, config) : VP_NCCL_SYSTEM_ERROR;
}

vp_nccl_result ncclCommInitRankScalable(void **comm, int ranks, int rank, int ids, vp_nccl_unique_id *id,
                                        void *config) {
    __typeof__(&ncclCommInitRankScalable) real = communicator(__builtin_return_address(0),
                                                              FUNCTION_ncclCommInitRankScalable, ranks);

    return real ? real(comm, ranks, rank, ids, id, config) : VP_NCCL_SYSTEM_ERROR;
}

vp_nccl_result ncclCommInitAll(void **comms, int devices, const int *list) {
    __typeof__(&ncclCommInitAll) real = communicator(__builtin_return_address(0), FUNCTION_ncclCommInitAll, devices);

    return real ? real(comms, devices, list) : VP_NCCL_SYSTEM_ERROR;
}
