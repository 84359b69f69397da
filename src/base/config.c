/* The configuration file: its lines, and which of them apply to a program. See config.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/config.h"

#include "base/descriptor.h"
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- names of programs ---- */

static void copy_name(char to[VP_CONFIG_NAME], const char *path) {
    snprintf(to, VP_CONFIG_NAME, "%s", basename(path));
}

static const char *next_word(const char *word, const char *end) {
    return word < end ? word + strlen(word) + 1 : end;
}

/* Behind an option of Python's: the word that follows it, or the module it names; NULL: no script follows. Letters may
 * be joined, and W, X, c and m take an argument, in the same word or the next. */
static const char *behind_option(const char *word, const char *end) {
    if (!strcmp(word, "--check-hash-based-pycs"))
        return next_word(next_word(word, end), end);
    for (const char *letter = word + 1; *letter && word[1] != '-'; letter++) {
        const char *rest = letter[1] ? letter + 1 : next_word(word, end);
        if (*letter == 'c')
            return NULL;
        if (*letter == 'm')
            return rest < end ? rest : NULL;
        if (*letter == 'W' || *letter == 'X')
            return next_word(rest, end);
    }
    return next_word(word, end);
}

/* The script or module that Python runs: its first argument that is not an option. */
static void copy_script(char to[VP_CONFIG_NAME], const char *words, size_t length) {
    const char *end = words + length, *at = next_word(words, end);
    *to = 0;
    while (at && at < end && at[0] == '-' && at[1])
        at = behind_option(at, end);
    if (at && at < end)
        copy_name(to, at);
}

void vp_program_names(struct vp_program *out) {
    char text[4096];
    *out = (struct vp_program){0};
    copy_name(out->name[0], program_invocation_short_name);
    ssize_t n = readlink("/proc/self/exe", text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    copy_name(out->name[1], text);
    bool interpreter = !strncmp(out->name[1], "python", 6) || !strncmp(out->name[0], "python", 6);
    size_t length = interpreter ? vp_process_read_file("/proc/self/cmdline", text, sizeof text) : 0;
    if (length)
        copy_script(out->name[2], text, length);
}

/* Backtracks only to the last star, so that no pattern takes long. */
static bool is_like(const char *pattern, size_t length, const char *name) {
    const char *end = pattern + length, *star = NULL, *again = NULL;
    while (*name) {
        if (pattern < end && *pattern == '*') {
            star = ++pattern;
            again = name;
        } else if (pattern < end && (*pattern == '?' || *pattern == *name)) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star;
            name = ++again;
        } else {
            return false;
        }
    }
    while (pattern < end && *pattern == '*')
        pattern++;
    return pattern == end;
}

bool vp_config_matches(const char *pattern, size_t length, const struct vp_program *program) {
    for (int i = 0; i < VP_CONFIG_NAMES; i++)
        if (*program->name[i] && is_like(pattern, length, program->name[i]))
            return true;
    return false;
}

/* ---- lines ---- */

static const char blanks[] = " \t\r";

static char *skip(char *at) {
    return at + strspn(at, blanks);
}

/* Cuts blanks off the end of a text of `length`. */
static void cut(char *text, size_t length) {
    while (length && strchr(blanks, text[length - 1]))
        length--;
    text[length] = 0;
}

/* Reads "[a b, c]": does it name the program? *why: NULL, or what is wrong. */
static bool read_section(const char *line, const struct vp_program *program, const char **why) {
    static const char between[] = " \t\r,";
    size_t length = strlen(line);
    bool ours = !program, any = false;
    *why = length > 1 && line[length - 1] == ']' ? NULL : "a section ends in ']'";
    for (const char *at = line + 1; !*why && at < line + length - 1;) {
        size_t n = strcspn(at, " \t\r,]");
        if (at + n < line + length - 1 && !strchr(between, at[n]))
            *why = "']' within a section";
        any |= n > 0;
        ours |= n && program && vp_config_matches(at, n, program);
        at += n;
        at += strspn(at, between);
    }
    if (!*why && !any)
        *why = "a section names programs: [python3 train*]";
    return ours;
}

/* Reads a value, which may be quoted; # begins a comment if a blank stands before it. False: it is malformed. */
static bool read_value(char *at, const char **value) {
    char *end;
    *value = at;
    if (*at == '"') {
        end = strchr(at + 1, '"');
        *value = at + 1;
        if (!end || (*skip(end + 1) && *skip(end + 1) != '#'))
            return false;
        *end = 0;
        return true;
    }
    for (end = at; *end && !(*end == '#' && (end == at || strchr(blanks, end[-1]))); end++)
        continue;
    cut(at, (size_t)(end - at));
    return true;
}

static void read_setting(char *line, unsigned number, const struct vp_config_reader *reader, bool ours) {
    char *equals = strchr(line, '=');
    const char *value;
    if (!equals || equals == line) {
        reader->wrong(reader->context, number, "neither OPTION = VALUE nor [PROGRAM…]");
    } else if (!read_value(skip(equals + 1), &value)) {
        reader->wrong(reader->context, number, "quotes that do not end with the value");
    } else if (ours) {
        cut(line, (size_t)(equals - line));
        reader->setting(reader->context, number, line, value);
    }
}

void vp_config_read(char *text, const struct vp_config_reader *reader) {
    bool ours = true;
    char *next;
    unsigned number = 1;
    /* Some editors begin a text with UTF-8's byte order mark. */
    text += strncmp(text, "\xef\xbb\xbf", 3) ? 0 : 3;
    for (char *line = text; line; line = next, number++) {
        const char *why = NULL;
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        line = skip(line);
        if (*line == '[') {
            cut(line, strlen(line));
            ours = read_section(line, reader->program, &why) && !why;
            if (why)
                reader->wrong(reader->context, number, why);
        } else if (*line && *line != '#') {
            read_setting(line, number, reader, ours);
        }
    }
}

/* ---- files ---- */

int vp_config_load(const char *path, char text[VP_CONFIG_MOST]) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -errno;
    int err = fstat(fd, &st) ? -errno : S_ISREG(st.st_mode) ? 0 : -EINVAL;
    const ssize_t n = err ? err : vp_descriptor_read(fd, text, VP_CONFIG_MOST);
    err = n < 0 ? (int)n : n == VP_CONFIG_MOST ? -EFBIG : 0;
    close(fd);
    text[err ? 0 : n] = 0;
    return err ? err : memchr(text, 0, (size_t)n) ? -EINVAL : (int)n;
}

const char *vp_config_error(int err) {
    return err == -EFBIG ? "it is longer than 16 KiB" : err == -EINVAL ? "it is not a plain text file" : strerror(-err);
}
