/* The environment, as lines of NAME=VALUE: every value is taken or refused, none is out of the range that the table
 * allows, and the values in force, printed, are understood again as the same. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/dump.h"
#include "base/options.h"
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

enum { VARIABLES = 64, PRINTED = 64 };

/* NAME=VALUE strings, NULL at the end. */
struct environment {
    char *text, *line[VARIABLES + 1];
    size_t count;
};

static const char *lookup(void *context, const char *name) {
    const struct environment *e = context;
    size_t length = strlen(name);
    for (size_t i = 0; i < e->count; i++)
        if (!strncmp(e->line[i], name, length) && e->line[i][length] == '=')
            return e->line[i] + length + 1;
    return NULL;
}

static void pass_over(void *context, const char *line) {
    (void)context;
    if (strchr(line, '\n'))
        fuzz_fail("a message of two lines");
}

static void keep(void *context, const char *line) {
    struct environment *e = context;
    size_t length = strlen(line);
    /* What is the default is said so. */
    static const char mark[] = " (default)";
    if (e->count == PRINTED)
        return;
    char *copy = strdup(line);
    if (!copy)
        abort();
    if (length >= strlen(mark) && !strcmp(copy + length - strlen(mark), mark))
        copy[length - strlen(mark)] = 0;
    e->line[e->count++] = copy;
}

/* The words of VPOOL_DUMP. */
static void read_dump_words(const char *text) {
    struct vp_dump_plan plan = {0};
    const char *wrong = NULL;
    vp_dump_parse(text, &plan, &wrong);
    if (wrong && (wrong < text || wrong > text + strlen(text)))
        fuzz_fail("a wrong word that is not in the text");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct vp_options options, again;
    struct environment given = {.text = fuzz_text(data, size)}, printed = {0};
    char *rest = given.text;
    while (rest && given.count < VARIABLES)
        given.line[given.count++] = strsep(&rest, "\n");
    vp_options_parse(&options, lookup, &given, pass_over, NULL);
    vp_options_find_unknown(given.line, pass_over, NULL);
    read_dump_words(given.text);
    vp_options_print_values(&options, keep, &printed);
    vp_options_parse(&again, lookup, &printed, NULL, NULL);
#define SAME_BOOL(field) same &= options.field == again.field;
#define SAME_INT SAME_BOOL
#define SAME_SIZE SAME_BOOL
#define SAME_SHARE SAME_BOOL
#define SAME_ENUM SAME_BOOL
#define SAME_STRING(field) /* may be longer than a line */
#define SAME_FOREIGN(field)
#define SAME(kind, field, ...) SAME_##kind(field)
    bool same = true;
    VP_OPTIONS(SAME)
    if (!same)
        fuzz_fail("the values in force are understood otherwise than they were given");
    for (size_t i = 0; i < printed.count; i++)
        free(printed.line[i]);
    free(given.text);
    fuzz_count(0);
    return 0;
}
