/* The published allocators, built on vpool's mechanisms, for comparison with its own policy: live (libvpool-compare.so)
 * and in replays. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/policy.h"

/* vp_policy_bare is only for replays: it is not among those that a program can choose. */
extern const struct vp_policy vp_policy_bare, vp_policy_vpmm, vp_policy_bfc, vp_policy_es, vp_policy_gmlake,
    vp_policy_native, vp_policy_stalloc;
