/* Doors of the driver: modules and libraries, of which nothing is ours but that it may be tried again. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "make.h"

VP_DOORS_MODULE(VP_MAKE)
