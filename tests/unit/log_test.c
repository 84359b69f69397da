/* Messages: the level decides, each is one line, those in a loop come to an end, and errno stays. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int reading_end, real_stderr;

/* stderr becomes a pipe whose other end the test reads. */
static void redirect(void) {
    int ends[2];
    cr_assert(zero(pipe(ends)));
    real_stderr = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    reading_end = ends[0];
}

static const char *restore(void) {
    static char text[65536];
    size_t used = 0;
    dup2(real_stderr, STDERR_FILENO);
    for (ssize_t got; (got = read(reading_end, text + used, sizeof(text) - 1 - used)) > 0;)
        used += (size_t)got;
    text[used] = '\0';
    return text;
}

static int count_lines(const char *text) {
    int lines = 0;
    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

Test(log, a_message_is_one_line_and_keeps_errno) {
    redirect();
    errno = ENOMEM;
    vp_log(VP_LOG_WARN, "%d of %s", 3, "these");
    int kept = errno;
    cr_expect(eq(str, (char *)restore(), "vpool: 3 of these\n"));
    cr_expect(eq(int, kept, ENOMEM));
}

Test(log, a_name_neither_breaks_a_line_nor_tells_a_terminal_what_to_do) {
    redirect();
    vp_log(VP_LOG_WARN, "%s cannot be written", "a\nvpool: b\r\033[2J\x7f\xc3\xa9");
    cr_expect(eq(str, (char *)restore(), "vpool: a?vpool: b??[2J?\xc3\xa9 cannot be written\n"));
}

Test(log, the_level_decides) {
    redirect();
    vp_log(VP_LOG_INFO, "not yet");
    vp_log_set_level(VP_LOG_INFO);
    vp_log(VP_LOG_INFO, "now");
    vp_log_set_level(VP_LOG_QUIET);
    vp_log(VP_LOG_WARN, "no more");
    vp_log_print("asked for");
    cr_expect(eq(str, (char *)restore(), "vpool: now\nvpool: asked for\n"));
}

Test(log, a_long_message_is_cut_and_still_a_line) {
    char text[5000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    redirect();
    vp_log(VP_LOG_WARN, "%s", text);
    const char *line = restore();
    cr_expect(eq(sz, strlen(line), 1024));
    cr_expect(eq(int, count_lines(line), 1));
    cr_expect(eq(str, (char *)line + 1024 - 4, "...\n"));
}

Test(log, warnings_in_a_loop_come_to_an_end) {
    redirect();
    for (int i = 0; i < 1000; i++)
        vp_log(VP_LOG_WARN, "again");
    const char *text = restore();
    cr_expect(eq(int, count_lines(text), 101));
    cr_expect(strstr(text, "suppressed") != NULL);
}

Test(log, once_is_once_for_each_place) {
    redirect();
    for (int i = 0; i < 3; i++) {
        vp_log_once(VP_LOG_WARN, "first %d", i);
        vp_log_once(VP_LOG_WARN, "second %d", i);
    }
    cr_expect(eq(str, (char *)restore(), "vpool: first 0\nvpool: second 0\n"));
}

Test(log, a_closed_stderr_is_no_trouble) {
    redirect();
    close(STDERR_FILENO);
    vp_log(VP_LOG_WARN, "to nobody");
    cr_expect(eq(str, (char *)restore(), ""));
}

/* The environment may be another thread's to change by the time that a line is due. */
Test(log, whether_in_colour_is_asked_once) {
    char text[64] = "";
    const struct winsize size = {.ws_col = 80, .ws_row = 25};
    setenv("TERM", "xterm", true);
    unsetenv("NO_COLOR");
    vp_log_set_level(VP_LOG_WARN);
    setenv("TERM", "dumb", true);
    reading_end = posix_openpt(O_RDWR | O_NOCTTY);
    cr_assert(zero(grantpt(reading_end) | unlockpt(reading_end) | ioctl(reading_end, TIOCSWINSZ, &size)));
    real_stderr = dup(STDERR_FILENO);
    int terminal = open(ptsname(reading_end), O_WRONLY | O_NOCTTY);
    dup2(terminal, STDERR_FILENO);
    vp_log(VP_LOG_WARN, "here");
    ssize_t got = read(reading_end, text, sizeof text - 1);
    dup2(real_stderr, STDERR_FILENO);
    cr_expect(gt(int, (int)got, 0));
    cr_expect(eq(str, text, "\033[1;33mvpool:\033[m here\r\n"));
}
