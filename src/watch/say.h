/* Text for people, composed without allocation: for dumps and out-of-memory messages. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* "1.5 GiB": for people, in any locale. Rounded down, so that no part is as large as the whole; the second is rounded
 * to the nearest, as in the tables of the command. */
struct vp_size_text {
    char text[24];
};
struct vp_size_text vp_size_text(uint64_t bytes);
struct vp_size_text vp_size_about(uint64_t bytes);
#define VP_SIZE(bytes) vp_size_text(bytes).text
#define VP_ABOUT(bytes) vp_size_about(bytes).text

/* "12.345 s"; from an hour on "30 h 18 min". */
struct vp_size_text vp_time_text(uint64_t ns);
#define VP_TIME(ns) vp_time_text(ns).text

/* A buffer of text, written whenever it is full. One call adds 512 bytes at most. */
struct vp_text {
    int fd, error;
    size_t used;
    char buffer[8192];
};
void vp_say(struct vp_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds a line. Control characters in it, which would break it or control a terminal, become '?'. */
void vp_say_line(struct vp_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Writes the rest of the buffer. */
void vp_say_flush(struct vp_text *t);
