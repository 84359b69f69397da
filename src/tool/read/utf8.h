/* Makes text from outside valid UTF-8. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* In place: what is no UTF-8 becomes question marks. */
void vp_utf8_repair(char *text);
