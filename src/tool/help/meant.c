/* Finds the word that was probably meant by an unknown one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/options.h"
#include "tool/tool.h"

#include <getopt.h>
#include <stdbool.h>
#include <string.h>

enum { WORD = 48 };

/* Do the words differ in two swapped neighbours? That is the commonest typing error. */
static bool is_swapped(const char *a, const char *b) {
    size_t i = 0;
    while (a[i] && a[i] == b[i])
        i++;
    return a[i] && a[i + 1] && a[i] == b[i + 1] && a[i + 1] == b[i] && !strcmp(a + i + 2, b + i + 2);
}

const char *vp_tool_meant(const char *written, const char *const *words, size_t count) {
    const char *best = NULL;
    size_t length = strlen(written), best_distance = length < 4 ? 2 : 3;
    for (size_t i = 0; i < count && length < WORD; i++) {
        size_t distance = is_swapped(written, words[i]) ? 1 : vp_options_distance(written, length, words[i]);
        if (distance < best_distance) {
            best_distance = distance;
            best = words[i];
        }
    }
    return best;
}

int vp_tool_unknown(const char *command, const struct option *options, char **argv) {
    enum { MOST = 64 };
    const char *names[MOST], *written = argv[optind - 1];
    char name[WORD + 1];
    size_t count = 0, length = strcspn(written, "=");
    for (; options[count].name && count < MOST; count++)
        names[count] = options[count].name;
    if (strncmp(written, "--", 2) || length < 3 || length - 2 > WORD)
        return vp_tool_usage(command, "unknown or incomplete argument '%s'", written);
    memcpy(name, written + 2, length - 2);
    name[length - 2] = 0;
    for (size_t i = 0; i < count; i++)
        if (!strcmp(names[i], name))
            return vp_tool_usage(
                command, options[i].has_arg == no_argument ? "'--%s' takes no value" : "'--%s' needs a value", name);
    const char *meant = vp_tool_meant(name, names, count);
    return vp_tool_usage(command, "unknown argument '%s'%s%s%s", written, meant ? "; did you mean --" : "",
                         meant ? meant : "", meant ? "?" : "");
}
