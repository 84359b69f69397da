/* Messages to the user, on stderr, one line each.
 *
 * The library lives in other people's programs: it is silent unless something matters or the user asks, says
 * at most so many lines, keeps errno, allocates nothing, and writes each line with one write(2), so that
 * lines of several threads and processes stay whole. Callable at any time, from a constructor on. On a terminal lines
 * are broken between words, and begin in colour unless NO_COLOR is set. One of several ranks says which. */
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

/* Which messages are shown: those at this level and more urgent ones. VP_LOG_WARN until it is set. What a terminal
 * can show is read of the environment then, as another thread of the program's may change that later. */
void vp_log_set_level(enum vp_log_level level);

/* True where a message of this level would be shown; asks before work is spent on preparing one. */
_Bool vp_log_shows(enum vp_log_level level);

/* One line, without its newline; cut at about a thousand characters. */
void vp_log(enum vp_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for what the user has asked for outright (a summary, a listing): neither level nor cap applies. */
void vp_log_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Some lines that belong together, each ended by a newline, written at once: at warn level, and uncapped. */
void vp_log_block(const char *text);

/* Control characters, which would break a line or tell a terminal what to do, become '?'. Every line is made so. */
void vp_log_make_plain(char *text);

/* Says it the first time that this line of the source is reached, and never again. */
#define vp_log_once(level, ...)                                                                                        \
    do {                                                                                                               \
        static atomic_flag vp_said = ATOMIC_FLAG_INIT;                                                                 \
        if (!atomic_flag_test_and_set(&vp_said))                                                                       \
            vp_log(level, __VA_ARGS__);                                                                                \
    } while (0)
