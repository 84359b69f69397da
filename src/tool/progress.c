/* Progress on a terminal. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/progress.h"

#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

/* How often the line is rewritten. */
enum { PROGRESS_NS = 200000000 };

void vp_progress_begin(struct vp_progress *p) {
    *p = (struct vp_progress){.on = isatty(STDERR_FILENO), .next = vp_clock_ns() + PROGRESS_NS};
}

bool vp_progress_due(struct vp_progress *p) {
    return p->on && vp_clock_ns() > p->next;
}

void vp_progress_show(struct vp_progress *p, const char *format, ...) {
    va_list args;
    fputc('\r', stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputs("\033[K", stderr);
    p->next = vp_clock_ns() + PROGRESS_NS;
    p->shown = true;
}

void vp_progress_end(struct vp_progress *p) {
    if (p->shown)
        fputs("\r\033[K", stderr);
    p->shown = false;
}
