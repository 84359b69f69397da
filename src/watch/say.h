/* Text for people, put together without allocating: in dumps and in what is said of out of memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* "1.5 GiB": for people, in any locale. */
struct vp_size_text {
    char text[24];
};
struct vp_size_text vp_size_text(uint64_t bytes);
#define VP_SIZE(bytes) vp_size_text(bytes).text

/* Text that is written as it fills. Nothing said at once is longer than 512 bytes. */
struct vp_text {
    int fd, error;
    size_t used;
    char buffer[8192];
};
void vp_say(struct vp_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same as a line of its own, whatever names it has: their control characters, which would break it or tell a
 * terminal what to do, stand as '?'. */
void vp_say_line(struct vp_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Writes what there is. */
void vp_say_flush(struct vp_text *t);
