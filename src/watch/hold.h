/* Whether the pools may take more of the devices: see hold.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* False: another process of the user is about to be brought back, and needs the memory; for half a minute at most. */
bool vp_hold_may_grow(void);
