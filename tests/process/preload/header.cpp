/* The public header compiles as C++, too. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "header.c"
