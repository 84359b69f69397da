/* Messages on stderr: one line each, a limited number of each level. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/json.h"
#include "base/output.h"
#include "base/process.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define PREFIX "vpool: "

/* Long enough for a path and a sentence about it; short enough for the stack of any thread. */
#define LINE_SIZE 1024

/* How many lines of each level a process may write. A warning in a loop must not bury the program's own output; users
 * who ask for details get more. */
static const unsigned cap[VP_LOG_LEVELS] = {
    [VP_LOG_WARN] = 100,
    [VP_LOG_INFO] = 1000,
    [VP_LOG_DEBUG] = 100000,
};

static atomic_int shown_level = VP_LOG_WARN;
static atomic_bool coloured;
static atomic_uint said[VP_LOG_LEVELS];

/* Set while this thread is writing: write(2) may be wrapped by somebody, and lead back here. The initial-exec model
 * needs no call that could allocate. */
static _Thread_local bool busy __attribute__((tls_model("initial-exec")));

/* Writes all at once. A failure can be reported to nobody. */
static void say(const char *text, size_t length) {
    if (busy)
        return;
    busy = true;
    int kept = errno;
    if (vp_output_is_stderr())
        (void)vp_output_write(STDERR_FILENO, text, length, false);
    errno = kept;
    busy = false;
}

/* ---- on a terminal ---- */

/* The width of the terminal; 0: stderr is none, and lines are not broken. */
static size_t terminal_width(void) {
    struct winsize size;
    int kept = errno;
    bool terminal = !ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
    errno = kept;
    return terminal ? size.ws_col : 0;
}

/* Copies a line in pieces that end between words, all but the first indented. Leaves a word that is too long to the
 * terminal. Returns the end of the copy. */
static char *wrap(char *out, const char *end, const char *line, size_t width) {
    static const char indent[] = "         ";
    size_t column = 0;
    for (const char *word = line; *word;) {
        size_t blanks = strspn(word, " "), length = strcspn(word + blanks, " "), columns = blanks;
        for (size_t i = blanks; i < blanks + length; i++)
            columns += (word[i] & 0xc0) != 0x80;
        bool turns = column > sizeof indent && column + columns > width;
        if (out + sizeof indent + blanks + length >= end)
            return out;
        if (turns) {
            out = stpcpy(stpcpy(out, "\n"), indent);
            column = sizeof indent - 1;
            columns -= blanks;
            word += blanks;
            blanks = 0;
        }
        column += columns;
        out = mempcpy(out, word, blanks + length);
        word += blanks + length;
    }
    return out;
}

/* ---- lines ---- */

/* Begins a line; a process of several that were started together says which it is. */
static size_t begin_line(char *line, size_t room) {
    char rank[16];
    int n = vp_process_rank(rank, sizeof rank)
                ? snprintf(line, room, PREFIX "rank %s, %.32s %d: ", rank, program_invocation_short_name, (int)getpid())
                : snprintf(line, room, PREFIX);
    return (size_t)n;
}

void vp_log_make_plain(char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
}

static void __attribute__((format(printf, 2, 0))) say_line(bool warning, const char *format, va_list arguments) {
    char line[LINE_SIZE], shown[LINE_SIZE + LINE_SIZE / 2], *end = shown;
    size_t used = begin_line(line, sizeof line);
    size_t room = sizeof(line) - used, width = terminal_width();
    int wanted = vsnprintf(line + used, room, format, arguments);
    if (wanted >= (int)room) {
        used = (size_t)vp_utf8_fit(line, sizeof(line) - 4);
        used = (size_t)(stpcpy(line + used, "...") - line);
    } else if (wanted > 0) {
        used += (size_t)wanted;
    }
    line[used] = '\0';
    vp_log_make_plain(line);
    if (width) {
        const char *rest = line;
        if (atomic_load_explicit(&coloured, memory_order_relaxed)) {
            end = stpcpy(stpcpy(stpcpy(end, warning ? "\033[1;33m" : "\033[1m"), "vpool:"), "\033[m");
            rest += strlen("vpool:");
            width -= width > strlen("vpool:") ? strlen("vpool:") : 0;
        }
        end = wrap(end, shown + sizeof shown - 1, rest, width);
    } else {
        end = mempcpy(end, line, used);
    }
    *end++ = '\n';
    say(shown, (size_t)(end - shown));
}

void vp_log_block(const char *text) {
    if (vp_log_shows(VP_LOG_WARN))
        say(text, strlen(text));
}

void vp_log_set_level(enum vp_log_level level) {
    const char *none = secure_getenv("NO_COLOR"), *kind = secure_getenv("TERM");
    atomic_store_explicit(&coloured, (!none || !*none) && kind && strcmp(kind, "dumb"), memory_order_relaxed);
    atomic_store_explicit(&shown_level, (int)level, memory_order_relaxed);
}

bool vp_log_shows(enum vp_log_level level) {
    return (int)level <= atomic_load_explicit(&shown_level, memory_order_relaxed);
}

void vp_log_print(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    say_line(false, format, arguments);
    va_end(arguments);
}

void vp_log(enum vp_log_level level, const char *format, ...) {
    if (level <= VP_LOG_QUIET || level >= VP_LOG_LEVELS || !vp_log_shows(level))
        return;
    /* Reading first keeps the counter from wrapping around. */
    if (atomic_load_explicit(&said[level], memory_order_relaxed) > cap[level])
        return;
    unsigned before = atomic_fetch_add_explicit(&said[level], 1, memory_order_relaxed);
    if (before < cap[level]) {
        va_list arguments;
        va_start(arguments, format);
        say_line(level == VP_LOG_WARN, format, arguments);
        va_end(arguments);
    } else if (before == cap[level]) {
        vp_log_print("further messages of this kind are suppressed");
    }
}
