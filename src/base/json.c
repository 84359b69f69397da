/* Writes JSON to a descriptor, without allocating. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include "base/output.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void flush(struct vp_json *json) {
    if (!json->error)
        json->error = vp_output_write(json->fd, json->buffer, json->used, true);
    json->used = 0;
}

static void put(struct vp_json *json, const char *bytes, size_t count) {
    while (count) {
        if (json->used == json->size)
            flush(json);
        size_t room = json->size - json->used;
        size_t part = count < room ? count : room;
        memcpy(json->buffer + json->used, bytes, part);
        json->used += part;
        bytes += part;
        count -= part;
    }
}

static void put_text(struct vp_json *json, const char *text) {
    put(json, text, strlen(text));
}

static void put_newline(struct vp_json *json) {
    if (json->row) {
        put_text(json, " ");
        return;
    }
    put_text(json, "\n");
    for (unsigned i = 0; i < json->depth; i++)
        put_text(json, "  ");
}

size_t vp_utf8_length(const unsigned char *at) {
    static const uint32_t least[] = {0x20, 0x80, 0x800, 0x10000};
    const unsigned more = *at < 0x80 ? 0 : *at >> 5 == 6 ? 1 : *at >> 4 == 14 ? 2 : *at >> 3 == 30 ? 3 : 4;
    if (more > 3)
        return 0;
    uint32_t character = more ? *at & 0x3fu >> more : *at;
    for (unsigned i = 1; i <= more; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        character = character << 6 | (at[i] & 0x3f);
    }
    const bool half = character >= 0xd800 && character < 0xe000;
    return character < least[more] || half || character > 0x10ffff ? 0 : more + 1;
}

int vp_utf8_fit(const char *text, int most) {
    int n = (int)strnlen(text, (size_t)most);
    /* A character has at most three bytes behind its first. */
    for (int back = 0; n == most && back < 4 && back <= n; back++)
        if (((unsigned char)text[n - back] & 0xc0) != 0x80)
            return n - back;
    return n;
}

char *vp_utf8_put(char *at, uint32_t character) {
    static const unsigned char first[] = {0, 0xc0, 0xe0, 0xf0};
    int more = character < 0x80 ? 0 : character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;
    *at++ = (char)(first[more] | character >> 6 * more);
    while (more--)
        *at++ = (char)(0x80 | (character >> 6 * more & 0x3f));
    return at;
}

static void put_string(struct vp_json *json, const char *text) {
    put_text(json, "\"");
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        size_t length = vp_utf8_length(at);
        if (*at == '"' || *at == '\\') {
            put(json, (char[]){'\\', (char)*at++}, 2);
        } else if (*at < 0x20) {
            char escape[8];
            snprintf(escape, sizeof(escape), "\\u%04x", *at++);
            put_text(json, escape);
        } else if (length) {
            put(json, (const char *)at, length);
            at += length;
        } else {
            put_text(json, "\\ufffd");
            at++;
        }
    }
    put_text(json, "\"");
}

/* Writes what stands before each value: the comma, the line's beginning, the key. */
static void begin_value(struct vp_json *json, const char *key) {
    if (!json->empty)
        put_text(json, ",");
    json->empty = false;
    if (json->depth)
        put_newline(json);
    if (key) {
        put_string(json, key);
        put_text(json, ": ");
    }
}

static void begin_group(struct vp_json *json, const char *key, const char *bracket) {
    begin_value(json, key);
    put_text(json, bracket);
    json->depth++;
    json->empty = true;
}

static void end_group(struct vp_json *json, const char *bracket) {
    json->depth--;
    if (!json->empty)
        put_newline(json);
    if (json->depth < json->row)
        json->row = 0;
    json->empty = false;
    put_text(json, bracket);
}

void vp_json_init(struct vp_json *json, int fd, char *buffer, size_t size) {
    *json = (struct vp_json){.fd = fd, .buffer = buffer, .size = size, .empty = true};
}

int vp_json_finish(struct vp_json *json) {
    put_text(json, "\n");
    flush(json);
    return json->error;
}

void vp_json_begin_object(struct vp_json *json, const char *key) {
    begin_group(json, key, "{");
}

void vp_json_begin_row(struct vp_json *json, const char *key) {
    vp_json_begin_object(json, key);
    if (!json->row)
        json->row = json->depth;
}

void vp_json_end_object(struct vp_json *json) {
    end_group(json, "}");
}

void vp_json_begin_array(struct vp_json *json, const char *key) {
    begin_group(json, key, "[");
}

void vp_json_end_array(struct vp_json *json) {
    end_group(json, "]");
}

void vp_json_string(struct vp_json *json, const char *key, const char *value) {
    begin_value(json, key);
    if (value)
        put_string(json, value);
    else
        put_text(json, "null");
}

void vp_json_u64(struct vp_json *json, const char *key, uint64_t value) {
    char digits[24];
    snprintf(digits, sizeof(digits), "%llu", (unsigned long long)value);
    begin_value(json, key);
    put_text(json, digits);
}

void vp_json_put_numbers(struct vp_json *json, const struct vp_json_number *numbers) {
    for (; numbers->key; numbers++)
        vp_json_u64(json, numbers->key, numbers->value);
}

void vp_json_put_row(struct vp_json *json, const char *key, const struct vp_json_number *numbers) {
    vp_json_begin_row(json, key);
    vp_json_put_numbers(json, numbers);
    vp_json_end_object(json);
}

void vp_json_double(struct vp_json *json, const char *key, double value) {
    char digits[40];
    begin_value(json, key);
    if (!isfinite(value)) {
        put_text(json, "null");
        return;
    }
    /* In the program's locale the decimal point may be another character, even of several bytes. */
    snprintf(digits, sizeof(digits), "%.9g", value);
    char *end = digits;
    bool in_point = false;
    for (const char *at = digits; *at; at++) {
        bool plain = strchr("0123456789+-e", *at) != NULL;
        if (plain)
            *end++ = *at;
        else if (!in_point)
            *end++ = '.';
        in_point = !plain;
    }
    put(json, digits, (size_t)(end - digits));
}

void vp_json_bool(struct vp_json *json, const char *key, bool value) {
    begin_value(json, key);
    put_text(json, value ? "true" : "false");
}
