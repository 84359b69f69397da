/* Writes one JSON text to a file descriptor, piece by piece, over a buffer of the caller's: no allocation, so
 * that it works in any program and at exit.
 *
 * Each value takes a key inside an object, and NULL inside an array or at the top. Errors are kept and told
 * at the end:
 *
 *     vp_json_init(&json, fd, buffer, sizeof(buffer));
 *     vp_json_begin_object(&json, NULL);
 *     vp_json_u64(&json, "pid", pid);
 *     vp_json_end_object(&json);
 *     int error = vp_json_finish(&json); */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vp_json {
    int fd;
    int error; /* negative errno of the first failed write */
    char *buffer;
    size_t size, used;
    unsigned depth;
    unsigned row; /* depth of the object that stands on one line; 0: none does */
    bool empty;   /* nothing stands yet in the innermost object or array */
};

/* The buffer stays the caller's, and must outlive the writer; a few hundred bytes do, a page saves system
 * calls. */
void vp_json_init(struct vp_json *json, int fd, char *buffer, size_t size);

/* Writes what is left and a newline. 0, or the negative errno of the first write that failed. Does not close
 * the file. */
int vp_json_finish(struct vp_json *json);

void vp_json_begin_object(struct vp_json *json, const char *key);
void vp_json_end_object(struct vp_json *json);
/* An object that stands on one line with all that is in it: for one of many in an array, not for the whole
 * text. It ends like any other. */
void vp_json_begin_row(struct vp_json *json, const char *key);
void vp_json_begin_array(struct vp_json *json, const char *key);
void vp_json_end_array(struct vp_json *json);

/* Numbers by their keys: vp_json_numbers(&json, {"count", n}, {"bytes", bytes}). And such a row of nothing else. */
struct vp_json_number {
    const char *key; /* NULL: the end */
    uint64_t value;
};
void vp_json_put_numbers(struct vp_json *json, const struct vp_json_number *numbers);
void vp_json_put_row(struct vp_json *json, const char *key, const struct vp_json_number *numbers);
#define VP_JSON_LIST(...) ((const struct vp_json_number[]){__VA_ARGS__, {NULL, 0}})
#define vp_json_numbers(json, ...) vp_json_put_numbers(json, VP_JSON_LIST(__VA_ARGS__))
#define vp_json_row(json, key, ...) vp_json_put_row(json, key, VP_JSON_LIST(__VA_ARGS__))

/* Bytes that are no UTF-8 (a path may hold any) become U+FFFD; a NULL value becomes null. */
void vp_json_string(struct vp_json *json, const char *key, const char *value);
void vp_json_u64(struct vp_json *json, const char *key, uint64_t value);
/* Nine significant digits; what is no finite number becomes null. */
void vp_json_double(struct vp_json *json, const char *key, double value);
void vp_json_bool(struct vp_json *json, const char *key, bool value);

/* How many bytes the UTF-8 character at `at` has, or 0 where none begins there. Overlong forms, surrogates, controls
 * and what lies beyond U+10FFFF count as none, as JSON readers see it. */
size_t vp_utf8_length(const unsigned char *at);
/* Puts a character there, in up to four bytes, and tells where it ends. */
char *vp_utf8_put(char *at, uint32_t character);
