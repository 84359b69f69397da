/* The configuration file, as any bytes: every line is a setting, a section, a comment or wrong, and told once; what is
 * told lies within the text; and whoever asks for all programs hears at least of what one program does. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/config.h"
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

struct heard {
    const char *text, *end;
    unsigned settings, wrongs, last, lines;
};

static void count_line(struct heard *h, unsigned line) {
    if (line <= h->last || line > h->lines)
        fuzz_fail("line %u behind line %u of %u", line, h->last, h->lines);
    h->last = line;
}

static void check_text(const struct heard *h, const char *text) {
    if (text < h->text || text > h->end || text + strlen(text) > h->end)
        fuzz_fail("a text from elsewhere");
    if (strchr(text, '\n'))
        fuzz_fail("a text of two lines");
}

static void setting(void *context, unsigned line, const char *key, const char *value) {
    struct heard *h = context;
    count_line(h, line);
    check_text(h, key);
    check_text(h, value);
    if (!*key || strchr(key, '='))
        fuzz_fail("a key that is none");
    h->settings++;
}

static void wrong(void *context, unsigned line, const char *why) {
    struct heard *h = context;
    count_line(h, line);
    h->wrongs += why != NULL;
}

static struct heard read_all(const uint8_t *data, size_t size, const struct vp_program *program) {
    char *text = fuzz_text(data, size);
    struct heard h = {.text = text, .end = text + strlen(text), .lines = 1};
    for (const char *c = text; *c; c++)
        h.lines += *c == '\n';
    vp_config_read(text, &(struct vp_config_reader){program, &h, setting, wrong});
    free(text);
    return h;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct vp_program program = {{"python3", "python3.11", "train.py", ""}};
    struct heard all = read_all(data, size, NULL), one = read_all(data, size, &program);
    if (one.settings > all.settings || one.wrongs != all.wrongs)
        fuzz_fail("%u settings of %u, %u wrong lines of %u", one.settings, all.settings, one.wrongs, all.wrongs);
    char *pattern = fuzz_text(data, size);
    (void)vp_config_matches(pattern, strlen(pattern), &program);
    if (!vp_config_matches("*", 1, &program) || vp_config_matches("", 0, &program))
        fuzz_fail("what fits all, or nothing");
    free(pattern);
    fuzz_count(0);
    return 0;
}
