/* The published allocators, on vpool's mechanisms: for comparison with its own policy, live (libvpool-compare.so) and
 * in replay. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VP_COMPARE_H
#define VP_COMPARE_H

#include "pool/policy.h"

extern const struct vp_policy vp_policy_vpmm, vp_policy_bfc, vp_policy_es, vp_policy_gmlake, vp_policy_native;

#endif
