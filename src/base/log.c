/* Messages on stderr: one line each, at most so many of a kind. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/cancel.h"
#include "base/output.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "vpool: "

/* Long enough for a path and a sentence about it; short enough for any thread's stack. */
#define LINE_SIZE 1024

/* How many lines of each level a process may say. A warning in a loop must not bury the program's own output;
 * who asks for details gets more of them. */
static const unsigned cap[VP_LOG_LEVELS] = {
    [VP_LOG_WARN] = 100,
    [VP_LOG_INFO] = 1000,
    [VP_LOG_DEBUG] = 100000,
};

static atomic_int shown_level = VP_LOG_WARN;
static atomic_uint said[VP_LOG_LEVELS];

/* Set while this thread is in here: write(2) may be somebody's wrapper, and lead back. The initial-exec model
 * reaches it without a call that could allocate. */
static _Thread_local bool busy __attribute__((tls_model("initial-exec")));

/* All at once. Where it cannot be said, there is nobody to tell, and nowhere to tell it. */
static void say(const char *text, size_t length) {
    if (busy)
        return;
    busy = true;
    vp_cancel_hold();
    int kept = errno;
    (void)vp_output_say(STDERR_FILENO, text, length);
    errno = kept;
    busy = false;
}

static void __attribute__((format(printf, 1, 0))) say_line(const char *format, va_list arguments) {
    char line[LINE_SIZE] = PREFIX;
    size_t used = strlen(PREFIX);
    size_t room = sizeof(line) - used;
    int wanted = vsnprintf(line + used, room, format, arguments);
    if (wanted >= (int)room) {
        used = sizeof(line) - 1;
        memcpy(line + used - 3, "...", 3);
    } else if (wanted > 0) {
        used += (size_t)wanted;
    }
    line[used++] = '\n'; /* where the terminator stood */
    say(line, used);
}

void vp_log_block(const char *text) {
    if (vp_log_shows(VP_LOG_WARN))
        say(text, strlen(text));
}

void vp_log_set_level(enum vp_log_level level) {
    atomic_store_explicit(&shown_level, (int)level, memory_order_relaxed);
}

bool vp_log_shows(enum vp_log_level level) {
    return (int)level <= atomic_load_explicit(&shown_level, memory_order_relaxed);
}

void vp_log_print(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    say_line(format, arguments);
    va_end(arguments);
}

void vp_log(enum vp_log_level level, const char *format, ...) {
    if (level <= VP_LOG_QUIET || level >= VP_LOG_LEVELS || !vp_log_shows(level))
        return;
    /* The first look keeps the counter from wrapping round. */
    if (atomic_load_explicit(&said[level], memory_order_relaxed) > cap[level])
        return;
    unsigned before = atomic_fetch_add_explicit(&said[level], 1, memory_order_relaxed);
    if (before < cap[level]) {
        va_list arguments;
        va_start(arguments, format);
        say_line(format, arguments);
        va_end(arguments);
    } else if (before == cap[level]) {
        vp_log_print("further messages of this kind are suppressed");
    }
}
