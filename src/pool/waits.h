/* What VPOOL_WAIT means to a stream's request. One place for the library and for `vpool replay`. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/options.h"
#include "pool/pool.h"

/* `usual`: what is done where the choice is left to the library. */
static inline int vp_waits_of(int choice, int usual) {
    static const int meant[] = {
        [VP_WAIT_NEVER] = VP_WAITS_NEVER, [VP_WAIT_LATE] = VP_WAITS_LATE, [VP_WAIT_EARLY] = VP_WAITS_EARLY};
    return choice == VP_WAIT_AUTO ? usual : meant[choice];
}
