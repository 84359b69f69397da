/* The library's options as text: see settings.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/help/settings.h"

const struct vp_setting vp_settings[VP_SETTINGS] = {
#define SETTING(kind, field, variable, fallback, allowed, sentence)                                                    \
    {VP_SETTING_##kind, #field, variable, fallback, allowed, sentence},
    VP_OPTIONS(SETTING)
#undef SETTING
};

void vp_settings_print_help(FILE *out) {
    for (const struct vp_setting *s = vp_settings; s < vp_settings + VP_SETTINGS; s++) {
        fprintf(out, "  %s", s->variable);
        if (*s->allowed || *s->fallback)
            fprintf(out, " (%s%s%s%s)", s->allowed, *s->allowed && *s->fallback ? "; " : "",
                    *s->fallback ? "default " : "", s->fallback);
        fprintf(out, "\n      %s\n", s->sentence);
    }
}

void vp_settings_print_markdown(FILE *out) {
    fputs("| Variable | Allowed | Default | Meaning |\n|---|---|---|---|\n", out);
    for (const struct vp_setting *s = vp_settings; s < vp_settings + VP_SETTINGS; s++)
        fprintf(out, "| `%s` | %s | %s | %s |\n", s->variable, s->allowed, s->fallback, s->sentence);
}
