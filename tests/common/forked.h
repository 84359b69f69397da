/* For programs whose forked children end as any process: a sanitizer's leak check is left out there. It would wait for
 * ever for the sanitizer's own lock, if another thread, the library's for one, held that when the process forked. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <unistd.h>

static pid_t forked_from;

__attribute__((constructor)) static void forked_begin(void) {
    forked_from = getpid();
}

/* Asked by the sanitizer. */
int __lsan_is_turned_off(void);
__attribute__((weak)) int __lsan_is_turned_off(void) {
    return getpid() != forked_from;
}
