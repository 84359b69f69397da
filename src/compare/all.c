/* The policies of libvpool-compare.so, the tool and the tests: vpool's own and the published ones. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "compare/compare.h"

const struct vp_policy *const vp_policies[VP_POLICY_CHOICES] = {
    [VP_POLICY_VPOOL] = &vp_policy_vpool,   [VP_POLICY_VPMM] = &vp_policy_vpmm,
    [VP_POLICY_BFC] = &vp_policy_bfc,       [VP_POLICY_ES] = &vp_policy_es,
    [VP_POLICY_GMLAKE] = &vp_policy_gmlake, [VP_POLICY_STALLOC] = &vp_policy_stalloc,
    [VP_POLICY_NATIVE] = &vp_policy_native,
};
