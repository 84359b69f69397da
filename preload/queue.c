/* Doors of the driver: what is queued on streams. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "make.h"

VP_DOORS_QUEUE(VP_MAKE)
