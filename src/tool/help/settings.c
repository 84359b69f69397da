/* The library's options as text: see settings.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/help/settings.h"

#include <string.h>

const struct vp_setting vp_settings[VP_SETTINGS] = {
#define SETTING(kind, field, variable, fallback, allowed, sentence)                                                    \
    {VP_SETTING_##kind, #field, variable, fallback, allowed, sentence},
    VP_OPTIONS(SETTING)
#undef SETTING
};

void vp_settings_print_sentence(FILE *out, const char *sentence) {
    enum { INDENT = 6, WIDTH = 80 };
    for (size_t column = 0; *sentence;) {
        const size_t word = strcspn(sentence, " ");
        if (!column || column + 1 + word > WIDTH) {
            fprintf(out, "%s%*s", column ? "\n" : "", INDENT, "");
            column = INDENT;
        } else {
            fputc(' ', out);
            column++;
        }
        fwrite(sentence, 1, word, out);
        column += word;
        sentence += word + (sentence[word] == ' ');
    }
    fputc('\n', out);
}

void vp_settings_print_help(FILE *out) {
    for (const struct vp_setting *s = vp_settings; s < vp_settings + VP_SETTINGS; s++) {
        fprintf(out, "  %s", s->variable);
        if (*s->allowed || *s->fallback)
            fprintf(out, " (%s%s%s%s)", s->allowed, *s->allowed && *s->fallback ? "; " : "",
                    *s->fallback ? "default " : "", s->fallback);
        fputc('\n', out);
        vp_settings_print_sentence(out, s->sentence);
    }
}

void vp_settings_print_markdown(FILE *out) {
    fputs("| Variable | Allowed | Default | Meaning |\n|---|---|---|---|\n", out);
    for (const struct vp_setting *s = vp_settings; s < vp_settings + VP_SETTINGS; s++)
        fprintf(out, "| `%s` | %s | %s | %s |\n", s->variable, s->allowed, s->fallback, s->sentence);
}
