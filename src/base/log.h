/* Messages to the user, on stderr, one line each.
 *
 * The library lives in other people's programs. It is silent unless something matters or the user asks, writes a
 * limited number of lines, keeps errno, allocates nothing, and writes each line with one write(2), so that lines of
 * several threads and processes stay whole. Callable at any time, from a constructor on. On a terminal, lines are
 * broken between words and begin in colour unless NO_COLOR is set. One of several ranks names itself. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>

/* The order is that of VPOOL_LOG's choices in options.h. */
enum vp_log_level {
    VP_LOG_QUIET,
    VP_LOG_WARN,
    VP_LOG_INFO,
    VP_LOG_DEBUG,
    VP_LOG_LEVELS,
};

/* Sets which messages are shown: those of this level and more urgent ones. VP_LOG_WARN until then. Also reads from the
 * environment what the terminal can show, as another thread of the program's may change that later. */
void vp_log_set_level(enum vp_log_level level);

/* Would a message of this level be shown? Worth asking before a message is costly to prepare. */
_Bool vp_log_shows(enum vp_log_level level);

/* Writes one line; `format` has no newline. Cut at about a thousand characters. */
void vp_log(enum vp_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for what the user asked for explicitly (a summary, a listing): regardless of level and cap. */
void vp_log_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Writes some lines that belong together, each ended by a newline, at once: at warn level, without a cap. */
void vp_log_block(const char *text);

/* Replaces control characters, which would break a line or control a terminal, by '?'. Done to every line. */
void vp_log_make_plain(char *text);

/* Logs a message the first time that this line of source is reached, and never again. */
#define vp_log_once(level, ...)                                                                                        \
    do {                                                                                                               \
        static atomic_flag vp_said = ATOMIC_FLAG_INIT;                                                                 \
        if (!atomic_flag_test_and_set(&vp_said))                                                                       \
            vp_log(level, __VA_ARGS__);                                                                                \
    } while (0)
