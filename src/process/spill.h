/* VPOOL_SPILL: the pool grows in host memory when the device and all idle memory are used up. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "process/state.h"

/* Only larger requests spill. Smaller ones are frequent, and spilling them would free little. */
enum { VP_SPILL_ABOVE = 32 << 20 };

/* X(name, why): the reasons why a request was not spilled. */
/* clang-format off */
#define VP_SPILL_REFUSALS(X) \
    X(small, "it asks for no more than 32 MiB") \
    X(capturing, "a stream captures") \
    X(exported, "memory was exported to another process") \
    X(registered, "memory was registered with a network or another library, or shown to it as a file") \
    X(multicast, "memory was bound to a multicast object") \
    X(peers, "another device may touch the memory, or cannot") \
    X(limit, "it is more than VPOOL_SPILL allows") \
    X(host, "the host, or a control group, has too little memory left") \
    X(driver, "the driver gives no memory of the host") \
    X(unsupported, "the device, or the policy, has no memory of the host")
/* clang-format on */

enum vp_spill_refusal {
#define VP_SPILL_ENUM(name, why) VP_SPILL_##name,
    VP_SPILL_REFUSALS(VP_SPILL_ENUM)
#undef VP_SPILL_ENUM
        VP_SPILL_REFUSED_COUNT,
    VP_SPILL_MAY = VP_SPILL_REFUSED_COUNT
};

/* Refusals by device and reason. With the library's lock held. */
extern uint64_t vp_spill_refused[VP_DEVICES][VP_SPILL_REFUSED_COUNT];

/* Serves a request in host memory, if it would fail otherwise (`last`) or is due to be spilled at once. Returns 0, or
 * -ENOMEM, which is counted and logged if `last`. With the lock held. */
int vp_spill(struct vp_pool *pool, const struct vp_request *req, bool last, struct vp_region **out) VP_LOCKED
    __attribute__((cold));
/* Is this request to be spilled at once, so that some device memory stays for smaller ones, which are never spilled?
 * For tests (VPOOL_SPILL_TEST): always. */
bool vp_spill_is_due(struct vp_pool *pool, size_t asked) VP_LOCKED;
/* A spilled block was freed. */
void vp_spill_freed(struct vp_pool *pool) VP_LOCKED __attribute__((cold));
