/* Text for people. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/say.h"

#include "base/log.h"
#include "base/output.h"

#include <stdarg.h>
#include <stdio.h>

struct vp_size_text vp_size_text(uint64_t bytes) {
    static const char units[] = "KMGTPE";
    struct vp_size_text out;
    int unit = -1;
    uint64_t tenths = bytes * 10, whole = bytes;
    for (; whole >= 1024; whole /= 1024, unit++)
        tenths = whole * 10 / 1024;
    if (unit < 0)
        snprintf(out.text, sizeof out.text, "%u B", (unsigned)bytes);
    else
        snprintf(out.text, sizeof out.text, "%u.%u %ciB", (unsigned)(tenths / 10), (unsigned)(tenths % 10),
                 units[unit]);
    return out;
}

struct vp_size_text vp_size_about(uint64_t bytes) {
    uint64_t half = 0; /* of a tenth of the unit that is printed */
    for (uint64_t unit = 1024; bytes / unit >= 1 && unit < UINT64_C(1) << 60; unit *= 1024)
        half = unit / 20;
    return vp_size_text(bytes + half > bytes ? bytes + half : bytes);
}

struct vp_size_text vp_time_text(uint64_t ns) {
    struct vp_size_text out;
    const uint64_t ms = ns / 1000000, minutes = ms / 60000;
    if (minutes < 60)
        snprintf(out.text, sizeof out.text, "%u.%03u s", (unsigned)(ms / 1000), (unsigned)(ms % 1000));
    else
        snprintf(out.text, sizeof out.text, "%lu h %u min", minutes / 60, (unsigned)(minutes % 60));
    return out;
}

void vp_say_flush(struct vp_text *t) {
    if (!t->error)
        t->error = vp_output_write(t->fd, t->buffer, t->used, true);
    t->used = 0;
}

/* Formats into the buffer. Returns where the text begins in it. */
static char *__attribute__((format(printf, 2, 0))) say(struct vp_text *t, const char *format, va_list arguments) {
    if (sizeof t->buffer - t->used < 512)
        vp_say_flush(t);
    char *begin = t->buffer + t->used;
    const int wanted = vsnprintf(begin, 512, format, arguments);
    t->used += wanted < 0 ? 0 : wanted < 512 ? (size_t)wanted : 511;
    return begin;
}

void vp_say(struct vp_text *t, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    say(t, format, arguments);
    va_end(arguments);
}

void vp_say_line(struct vp_text *t, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    char *text = say(t, format, arguments);
    va_end(arguments);
    vp_log_make_plain(text);
    vp_say(t, "\n");
}
