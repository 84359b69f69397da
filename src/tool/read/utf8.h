/* Text of others that must be UTF-8 from here on. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* In place: what is no UTF-8 becomes question marks. */
void vp_utf8_repair(char *text);
