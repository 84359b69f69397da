/* The policies of libvpool.so: vpool's own alone. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/policy.h"

const struct vp_policy *const vp_policies[VP_POLICY_CHOICES] = {[VP_POLICY_VPOOL] = &vp_policy_vpool};
