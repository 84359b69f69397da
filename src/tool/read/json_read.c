/* Reads JSON values in place, without building a tree. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/read/json_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 16, PATH = 512, TEXT = 4096 };

struct reader {
    const char *at;
    vp_json_value_fn *value;
    void *context;
    char path[PATH];
};

static void skip_space(struct reader *r) {
    r->at += strspn(r->at, " \t\r\n");
}

/* Reads a string, from behind its opening quote. Escapes beyond ASCII become question marks: nothing here needs them.
 */
static bool read_string(struct reader *r, char *out, size_t room) {
    size_t n = 0;
    for (; *r->at != '"'; r->at++) {
        char c = *r->at;
        if (!c)
            return false;
        if (c == '\\') {
            static const char escapes[] = "nrtbf\"\\/", meant[] = "\n\r\t\b\f\"\\/";
            const char *escape = *++r->at ? strchr(escapes, *r->at) : NULL;
            char digits[5] = "";
            if (escape) {
                c = meant[escape - escapes];
            } else if (*r->at == 'u' && strnlen(r->at + 1, 4) == 4) {
                memcpy(digits, r->at + 1, 4);
                unsigned long code = strtoul(digits, NULL, 16);
                c = code && code < 128 ? (char)code : '?';
                r->at += 4;
            } else {
                return false;
            }
        }
        if (n + 1 < room)
            out[n++] = c;
    }
    r->at++;
    out[n] = 0;
    return true;
}

static bool read_value(struct reader *r, int depth);

static bool read_members(struct reader *r, int depth, char close) {
    size_t length = strlen(r->path);
    for (unsigned i = 0;; i++) {
        char key[128];
        snprintf(key, sizeof key, "%u", i);
        skip_space(r);
        if (!i && *r->at == close)
            break;
        if (close == '}') {
            /* The character is checked before it is skipped: it may be the end. */
            if (*r->at != '"')
                return false;
            r->at++;
            if (!read_string(r, key, sizeof key))
                return false;
            skip_space(r);
            if (*r->at != ':')
                return false;
            r->at++;
        }
        snprintf(r->path + length, sizeof r->path - length, "%s%s", length ? "." : "", key);
        bool good = read_value(r, depth + 1);
        r->path[length] = 0;
        skip_space(r);
        if (!good || (*r->at != ',' && *r->at != close))
            return false;
        if (*r->at == close)
            break;
        r->at++;
    }
    r->at++;
    return true;
}

static bool read_value(struct reader *r, int depth) {
    static const char plain[] = "+-.0123456789abcdefghijklmnopqrstuvwxyzE";
    char text[TEXT];
    skip_space(r);
    if (depth > DEPTH)
        return false;
    if (*r->at == '{' || *r->at == '[')
        return read_members(r, depth, *r->at++ == '{' ? '}' : ']');
    if (*r->at == '"') {
        r->at++;
        if (!read_string(r, text, sizeof text))
            return false;
    } else {
        size_t length = strspn(r->at, plain);
        if (!length || length >= sizeof text)
            return false;
        snprintf(text, sizeof text, "%.*s", (int)length, r->at);
        r->at += length;
    }
    r->value(r->context, r->path, text);
    return true;
}

const char *vp_json_fault(const char *text, vp_json_value_fn *value, void *context) {
    struct reader r = {.at = text, .value = value, .context = context};
    if (!read_value(&r, 0))
        return r.at;
    skip_space(&r);
    return *r.at ? r.at : NULL;
}

bool vp_json_read(const char *text, vp_json_value_fn *value, void *context) {
    return !vp_json_fault(text, value, context);
}
