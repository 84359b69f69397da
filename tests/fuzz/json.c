/* JSON: what is read, any bytes; and what is written, from any strings, which must be read as the same. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include "fuzz.h"
#include "tool/read/json_read.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct expected {
    const char *text; /* NULL: anything */
    unsigned values;
};

/* Bytes beyond ASCII may come back changed. */
static bool same(const char *a, const char *b) {
    for (; *a && *b; a++, b++)
        if (*a != *b && *a >= ' ' && *a < 127)
            return false;
    return true;
}

static void value(void *context, const char *path, const char *text) {
    struct expected *e = context;
    if (strlen(path) >= 512 || strlen(text) >= 4096)
        fuzz_fail("a path of %zu bytes, a value of %zu", strlen(path), strlen(text));
    if (e->text && !strcmp(path, "k") && !same(e->text, text))
        fuzz_fail("'%s' was written, '%s' read", e->text, text);
    e->values++;
}

static void round_trip(const char *text) {
    struct vp_json json;
    char buffer[64];
    struct expected e = {.text = text};
    int fd = memfd_create("json", MFD_CLOEXEC);
    if (fd < 0)
        abort();
    vp_json_init(&json, fd, buffer, sizeof buffer);
    vp_json_begin_object(&json, NULL);
    vp_json_string(&json, "k", text);
    vp_json_u64(&json, "n", strlen(text));
    vp_json_begin_array(&json, "list");
    vp_json_double(&json, NULL, (double)strlen(text) / 3);
    vp_json_bool(&json, NULL, *text & 1);
    vp_json_end_array(&json);
    vp_json_end_object(&json);
    if (vp_json_finish(&json))
        fuzz_fail("JSON could not be written");
    off_t size = lseek(fd, 0, SEEK_END);
    char *written = calloc((size_t)size + 1, 1);
    if (!written || pread(fd, written, (size_t)size, 0) != size)
        abort();
    close(fd);
    if (!vp_json_read(written, value, &e) || e.values != 4)
        fuzz_fail("what was written is not read: %s", written);
    free(written);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = fuzz_text(data, size);
    struct expected any = {0};
    vp_json_read(text, value, &any);
    if (size < 1024)
        round_trip(text);
    free(text);
    fuzz_count(0);
    return 0;
}
