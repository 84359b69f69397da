/* The table of base/options.h as text, for all that explains, sets or completes options. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/options.h"

#include <stdio.h>

enum vp_setting_kind {
    VP_SETTING_BOOL,
    VP_SETTING_INT,
    VP_SETTING_SIZE,
    VP_SETTING_SHARE,
    VP_SETTING_ENUM,
    VP_SETTING_STRING,
    VP_SETTING_FOREIGN
};

#define VP_SETTING_ONE(...) 1 +
enum { VP_SETTINGS = VP_OPTIONS(VP_SETTING_ONE) 0 };

extern const struct vp_setting {
    enum vp_setting_kind kind;
    const char *field, *variable, *fallback, *allowed, *sentence;
} vp_settings[VP_SETTINGS];

/* A sentence of the table on lines of its own, indented, broken between words. */
void vp_settings_print_sentence(FILE *out, const char *sentence);
/* For --help, and as a table in Markdown. */
void vp_settings_print_help(FILE *out);
void vp_settings_print_markdown(FILE *out);
