/* Makes text valid UTF-8. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/read/utf8.h"

#include "base/json.h"

void vp_utf8_repair(char *text) {
    for (unsigned char *at = (unsigned char *)text; *at;) {
        size_t length = vp_utf8_length(at);
        if (!length && *at >= 32)
            *at = '?';
        at += length ? length : 1;
    }
}
