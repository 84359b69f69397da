/* What the fuzz targets share. A target is a file with LLVMFuzzerTestOneInput. It is linked with libFuzzer to find
 * new inputs, and with replay.c to run those of corpus/ again as a plain test. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An input, read from its beginning; behind its end all bytes are 0. */
struct fuzz_input {
    const uint8_t *data;
    size_t size, at;
};

static inline unsigned fuzz_byte(struct fuzz_input *in) {
    return in->at < in->size ? in->data[in->at++] : 0;
}

/* Says what is wrong and ends the program, as a sanitizer's finding does. */
_Noreturn void fuzz_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* An input as a text that ends with a zero byte; the caller frees it. */
char *fuzz_text(const uint8_t *data, size_t size);

/* Inputs run so far, and what a target counts besides. At exit both are appended to the file that FUZZ_COUNTS
 * names, if any. */
void fuzz_count(uint64_t operations);
