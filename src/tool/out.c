/* Where results go: files made whole or not at all. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail(const struct vp_out *out) {
    fprintf(stderr, "vpool %s: %s: %s\n", out->command, out->path ? out->path : "standard output", strerror(errno));
    return -1;
}

int vp_out_open(struct vp_out *out, const char *command, const char *path) {
    struct stat there;
    *out = (struct vp_out){.command = command, .path = path};
    if (!path) {
        out->file = stdout;
        return 0;
    }
    if (!stat(path, &there) && !S_ISREG(there.st_mode)) {
        out->file = fopen(path, "we");
        return out->file ? 0 : fail(out);
    }
    if (asprintf(&out->other, "%s.%d.tmp", path, (int)getpid()) < 0) {
        out->other = NULL;
        return fail(out);
    }
    int fd = open(out->other, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    out->file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!out->file) {
        fail(out);
        if (fd >= 0)
            close(fd);
        free(out->other);
        out->other = NULL;
        return -1;
    }
    return 0;
}

int vp_out_close(struct vp_out *out, bool keep) {
    int status = 0;
    if (!out->file)
        return 0;
    errno = 0;
    bool failed = ferror(out->file) | (out->path ? fclose(out->file) : fflush(out->file));
    if (keep && failed)
        status = fail(out);
    if (keep && !failed && out->other && rename(out->other, out->path) < 0) {
        status = fail(out);
        failed = true;
    }
    if (out->other && (!keep || failed))
        unlink(out->other);
    free(out->other);
    *out = (struct vp_out){0};
    return status;
}

void vp_out_string(FILE *file, const char *text) {
    putc('"', file);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 32 || c == 127 || strchr("\"\\<>&", c))
            fprintf(file, "\\u%04x", c);
        else
            putc(c, file);
    }
    putc('"', file);
}

/* ---- base64 ---- */

static void put(struct vp_base64 *b) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = b->bits << (3 - b->count) * 8;
    for (unsigned i = 0; i < 4; i++)
        putc_unlocked(i <= b->count ? digits[bits >> (18 - 6 * i) & 63] : '=', b->file);
    b->bits = b->count = 0;
}

void vp_base64_byte(struct vp_base64 *b, uint8_t byte) {
    b->bits = b->bits << 8 | byte;
    if (++b->count == 3)
        put(b);
}

void vp_base64_number(struct vp_base64 *b, uint64_t n) {
    for (; n > 127; n >>= 7)
        vp_base64_byte(b, (uint8_t)(n | 128));
    vp_base64_byte(b, (uint8_t)n);
}

void vp_base64_signed(struct vp_base64 *b, int64_t n) {
    vp_base64_number(b, (uint64_t)n << 1 ^ (uint64_t)(n >> 63));
}

void vp_base64_end(struct vp_base64 *b) {
    if (b->count)
        put(b);
}
