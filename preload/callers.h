/* Whose library is meant: what a call of the program would have reached without us.
 *
 * Several copies of libcudart may live in a process, some of them private (RTLD_LOCAL) to those who loaded
 * them, and each keeps its own last error. So a forwarder goes by its return address: to the library that the
 * caller is bound to. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <link.h>
#include <stdbool.h>
#include "table.h"

/* The object that holds an address; its name is "" for the program itself. NULL: none. */
const struct link_map *vp_object_at(const void *address);

/* The definition of `symbol` that the code at `address` would be bound to: what was in the global order before it, of
 * the version that it asks for; else in the caller's own dependencies; else `handed_out` (if not NULL); else after us
 * there; else in any loaded object whose file name begins with `library`. NULL if there is none. `ours` is our own
 * definition, which is never the answer. */
void *vp_caller_find(const void *address, const char *symbol, const void *ours, void *handed_out, const char *library);

/* One libcudart. Never freed: the library is kept loaded from then on. */
struct vp_runtime {
    void *real[VP_RUNTIME_COUNT]; /* functions that it lacks answer cudaErrorSymbolNotFound */
    /* From 12.0 on cudaSetDevice makes the device's context current at once. Before, the driver may still have another
     * device's current when cudaMalloc comes, so only the runtime itself knows where to allocate. */
    bool context_is_current;
};

/* The caller's libcudart; one that lacks everything if there is none. The cost is a look into a table from the second
 * call of a place on. */
const struct vp_runtime *vp_caller_runtime(const void *address);
