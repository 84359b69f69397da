/* Doors of NCCL. A communicator of more than one rank couples the process with others (see vp_api_coupled) before its
 * first collective. Memory that is registered with a communicator is accessed by others, and must stay backed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "callers.h"
#include "lookup.h"
#include "make.h"
#include "process/bare.h"

/* Declared here, since NCCL's headers may not be installed. Communicators and configurations are opaque pointers to us.
 */
typedef int vp_nccl_result;
typedef struct {
    char internal[128];
} vp_nccl_unique_id;

enum { VP_NCCL_SYSTEM_ERROR = 2 };

static int registered(const void *ptr, size_t size) {
    vp_bare_pin((CUdeviceptr)(uintptr_t)ptr, size);
    vp_api_registered((CUdeviceptr)(uintptr_t)ptr);
    return 0;
}

/* Returns the real function behind a door, for a caller at `address`; reports a communicator of several ranks. */
static void *communicator(const void *address, const char *symbol, enum vp_nccl_door door, int ranks) {
    if (ranks > 1)
        vp_api_ranks();
    return vp_caller_find(address, symbol, vp_door_table.nccl[door], vp_lookup_handed_out(door), "libnccl.so");
}

#define MAKE(symbol, ranks, ...)                                                                                       \
    __attribute__((visibility("default"))) vp_nccl_result symbol(VP_PARAMS(__VA_ARGS__));                              \
    vp_nccl_result symbol(VP_PARAMS(__VA_ARGS__)) {                                                                    \
        __typeof__(&symbol) real = communicator(__builtin_return_address(0), #symbol, VP_NCCL_##symbol, ranks);        \
        return real ? real(VP_NAMES(__VA_ARGS__)) : VP_NCCL_SYSTEM_ERROR;                                              \
    }
VP_DOORS_NCCL(MAKE)
