/* Makes text from outside valid UTF-8. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Replaces invalid UTF-8 by question marks, in place. */
void vp_utf8_repair(char *text);
