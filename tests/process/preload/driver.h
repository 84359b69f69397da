/* What the files of the guests of the driver API share. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "guest.h"

enum { MIB = 1 << 20 };

void start(void);

/* ---- driver_shown.c ---- */

void freed_memory_is_not_shown(void);
void what_is_mapped_can_be_shown(void);
