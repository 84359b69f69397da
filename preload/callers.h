/* Finds which library a call is meant for: what the program would have reached without us.
 *
 * A process may have several copies of libcudart, some private (RTLD_LOCAL) to the objects that loaded them, and each
 * keeps its own last error. So a forwarder goes by its return address, to the copy that its caller is bound to. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <link.h>
#include <stdbool.h>
#include "table.h"

/* The loaded object that contains an address; the name of the program itself is "". NULL: none. */
const struct link_map *vp_object_at(const void *address);

/* The definition of `symbol` that the code at `address` would be bound to without us; NULL: none. Looked for, in this
 * order: in objects before the caller in the global scope, with the version that it asks for; in the caller's own
 * dependencies; `handed_out` (if not NULL); behind us in the global scope; in any loaded object whose file name begins
 * with `library`. `ours` is our own definition, which is never the answer. */
void *vp_caller_find(const void *address, const char *symbol, const void *ours, void *handed_out, const char *library);

/* One copy of libcudart. Never freed: the library stays loaded. */
struct vp_runtime {
    void *real[VP_RUNTIME_COUNT]; /* a function that it lacks returns cudaErrorSymbolNotFound */
    /* From 12.0 on, cudaSetDevice makes the device's context current at once. Before that, another device's context may
     * still be current in the driver when cudaMalloc is called, so only the runtime itself knows where to allocate. */
    bool context_is_current;
};

/* The copy of libcudart that the caller at `address` uses; one whose functions are all missing if there is none. From
 * the second call of a place on, this is one table look-up. */
const struct vp_runtime *vp_caller_runtime(const void *address);
