/* Everything is left to CUDA. In the library that means no pool at all; this is for the replay, which asks
 * every policy the same. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "compare/compare.h"

#include <errno.h>

static int layout(struct vp_pool *pool, struct vp_request *req) {
    return -EOPNOTSUPP;
}

const struct vp_policy vp_policy_native = {
    .name = "native",
    .traits = {.events = VP_EVENTS_NEVER, .own_spaces = true},
    .layout = layout,
};
