/* What VPOOL_WAIT means to a stream's request. One place for the library and for `vpool replay`. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/options.h"
#include "pool/pool.h"

/* `usual`: what is done where the choice is left to the library. */
static inline int vp_waits_of(int choice, int usual) {
    switch (choice) {
    case VP_WAIT_NEVER: return VP_WAITS_NEVER;
    case VP_WAIT_LATE: return VP_WAITS_LATE;
    case VP_WAIT_EARLY: return VP_WAITS_EARLY;
    default: return usual;
    }
}
