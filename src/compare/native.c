/* The native policy: everything is left to CUDA. In the library there is no pool then; this file serves the replay,
 * which treats all policies alike. */
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
