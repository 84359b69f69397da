/* Writes one JSON text to a file descriptor, piece by piece, through a buffer of the caller's. Allocates nothing, so
 * that it works in any program and at exit.
 *
 * Each value takes a key inside an object, and NULL inside an array or at the top. The first error is kept, and
 * returned at the end:
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
    unsigned row; /* depth of the object that is written on one line; 0: none */
    bool empty;   /* nothing has been written yet in the innermost object or array */
};

/* The buffer stays the caller's and must outlive the writer. A few hundred bytes suffice; a page saves system calls. */
void vp_json_init(struct vp_json *json, int fd, char *buffer, size_t size);

/* Writes the rest and a newline. 0, or the negative errno of the first write that failed. Does not close `fd`. */
int vp_json_finish(struct vp_json *json);

void vp_json_begin_object(struct vp_json *json, const char *key);
void vp_json_end_object(struct vp_json *json);
/* An object on one line with all its contents: for elements of an array, not for the whole text. Ends like any
 * object. */
void vp_json_begin_row(struct vp_json *json, const char *key);
void vp_json_begin_array(struct vp_json *json, const char *key);
void vp_json_end_array(struct vp_json *json);

/* Numbers by key, as in vp_json_numbers(&json, {"count", n}, {"bytes", bytes}); and a row of only such numbers. */
struct vp_json_number {
    const char *key; /* NULL: the end */
    uint64_t value;
};
void vp_json_put_numbers(struct vp_json *json, const struct vp_json_number *numbers);
void vp_json_put_row(struct vp_json *json, const char *key, const struct vp_json_number *numbers);
#define VP_JSON_LIST(...) ((const struct vp_json_number[]){__VA_ARGS__, {NULL, 0}})
#define vp_json_numbers(json, ...) vp_json_put_numbers(json, VP_JSON_LIST(__VA_ARGS__))
#define vp_json_row(json, key, ...) vp_json_put_row(json, key, VP_JSON_LIST(__VA_ARGS__))

/* Bytes that are not UTF-8 (a path may have any) become U+FFFD; a NULL value becomes null. */
void vp_json_string(struct vp_json *json, const char *key, const char *value);
void vp_json_u64(struct vp_json *json, const char *key, uint64_t value);
/* With nine significant digits; infinities and NaN become null. */
void vp_json_double(struct vp_json *json, const char *key, double value);
void vp_json_bool(struct vp_json *json, const char *key, bool value);

/* Bytes of the UTF-8 character at `at`; 0: none begins there. Overlong forms, surrogates, control characters and code
 * points beyond U+10FFFF count as none, as for JSON readers. */
size_t vp_utf8_length(const unsigned char *at);
/* So many bytes of the text fit into `most` without cutting a character. */
int vp_utf8_fit(const char *text, int most);
/* Writes a character to `at`, in up to four bytes, and returns its end. */
char *vp_utf8_put(char *at, uint32_t character);
