/* What the fuzz targets share: findings, texts, and the counts at exit. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fuzz_fail(const char *format, ...) {
    va_list args;
    fputs("fuzz: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    abort();
}

char *fuzz_text(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    if (!text)
        abort();
    if (size)
        memcpy(text, data, size);
    text[size] = 0;
    return text;
}

static uint64_t inputs, operations;

static void write_counts(void) {
    const char *name = getenv("FUZZ_COUNTS");
    FILE *file = name && *name ? fopen(name, "a") : NULL;
    if (file) {
        fprintf(file, "%" PRIu64 " %" PRIu64 "\n", inputs, operations);
        fclose(file);
    }
}

void fuzz_count(uint64_t done) {
    if (!inputs++)
        atexit(write_counts);
    operations += done;
}
