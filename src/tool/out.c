/* Output files, which are made whole or not at all. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/out.h"

#include "tool/tool.h"
#include "base/json.h"
#include "base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef VP_HAVE_ZLIB
#include <zlib.h>
#else
#include <sys/wait.h>
#endif

static int fail(const struct vp_out *out) {
    fprintf(stderr, "vpool %s: %s: %s\n", out->command, out->path ? out->path : "standard output", strerror(errno));
    if (!out->path) {
        /* The error has been reported; main() need not report it again. */
        __fpurge(stdout);
        clearerr(stdout);
    }
    return -1;
}

/* ---- what is left when a signal ends the command: nothing, but for what it tells of ---- */

static char unfinished[PATH_MAX], last_words[PATH_MAX + 128];
static const int endings[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};

static void end_by_signal(int number) {
    unlink(unfinished);
    (void)!write(STDERR_FILENO, last_words, strlen(last_words));
    signal(number, SIG_DFL);
    raise(number);
}

/* A signal that was ignored when the command began stays ignored. */
static void catch_endings(void) {
    struct sigaction now;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (!sigaction(endings[i], NULL, &now) && now.sa_handler == SIG_DFL)
            signal(endings[i], end_by_signal);
}

static void guard(const char *path) {
    if (strlen(path) >= sizeof unfinished)
        return;
    strcpy(unfinished, path);
    catch_endings();
}

static void unguard(void) {
    struct sigaction now;
    *unfinished = 0;
    for (size_t i = 0; i < sizeof endings / sizeof *endings && !*last_words; i++)
        if (!sigaction(endings[i], NULL, &now) && now.sa_handler == end_by_signal)
            signal(endings[i], SIG_DFL);
}

void vp_out_last_words(const char *words) {
    snprintf(last_words, sizeof last_words, "%s", words);
    if (*words)
        catch_endings();
    else
        unguard();
}

/* ---- compressed ---- */

#ifdef VP_HAVE_ZLIB

struct archive {
    FILE *to;
    z_stream z;
};

static int deflate_all(struct archive *a, const char *text, size_t size, int how) {
    unsigned char room[1 << 14];
    a->z.next_in = (unsigned char *)text;
    a->z.avail_in = (unsigned)size;
    do {
        a->z.next_out = room;
        a->z.avail_out = sizeof room;
        if (deflate(&a->z, how) == Z_STREAM_ERROR)
            return -1;
        if (fwrite(room, 1, sizeof room - a->z.avail_out, a->to) != sizeof room - a->z.avail_out)
            return -1;
    } while (!a->z.avail_out);
    return 0;
}

static ssize_t write_archive(void *cookie, const char *text, size_t size) {
    return deflate_all(cookie, text, size, Z_NO_FLUSH) < 0 ? -1 : (ssize_t)size;
}

static int close_archive(void *cookie) {
    struct archive *a = cookie;
    int status = deflate_all(a, "", 0, Z_FINISH);
    deflateEnd(&a->z);
    free(a);
    return status;
}

int vp_out_compress(struct vp_out *out) {
    const cookie_io_functions_t functions = {.write = write_archive, .close = close_archive};
    struct archive *a = out->plain ? NULL : calloc(1, sizeof *a);
    if (out->plain)
        return 0;
    /* 16 more than the largest window means a gzip header and trailer. */
    if (!a || deflateInit2(&a->z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        free(a);
        errno = ENOMEM;
        return fail(out);
    }
    a->to = out->file;
    FILE *file = fopencookie(a, "w", functions);
    if (!file) {
        deflateEnd(&a->z);
        free(a);
        return fail(out);
    }
    out->plain = out->file;
    out->file = file;
    return 0;
}

static int wait_for_gzip(struct vp_out *out) {
    (void)out;
    return 0;
}

#else

/* Uses the program gzip, as the build has no zlib. */
int vp_out_compress(struct vp_out *out) {
    int ends[2];
    if (out->plain)
        return 0;
    fflush(out->file);
    if (pipe2(ends, O_CLOEXEC) < 0 || (out->gzip = fork()) < 0)
        return fail(out);
    if (!out->gzip) {
        dup2(ends[0], 0);
        dup2(fileno(out->file), 1);
        execlp("gzip", "gzip", "-c", (char *)NULL);
        _exit(127);
    }
    close(ends[0]);
    out->plain = out->file;
    out->file = fdopen(ends[1], "w");
    return out->file ? 0 : fail(out);
}

static int wait_for_gzip(struct vp_out *out) {
    int status = 0;
    if (!out->gzip || (waitpid(out->gzip, &status, 0) > 0 && WIFEXITED(status) && !WEXITSTATUS(status)))
        return 0;
    errno = WIFEXITED(status) && WEXITSTATUS(status) == 127 ? ENOENT : EIO;
    return -1;
}

#endif

static bool wants_gzip(const char *path) {
    size_t n = strlen(path);
    return n > 3 && !strcmp(path + n - 3, ".gz");
}

/* ---- files ---- */

static int open_beside(struct vp_out *out, const char *path) {
    sigset_t all, before;
    char name[PATH_MAX];
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    int fd = vp_output_beside(path, ".tmp", 0666, name, sizeof name);
    if (fd >= 0)
        guard(name);
    sigprocmask(SIG_SETMASK, &before, NULL);
    errno = fd < 0 ? -fd : 0;
    out->file = fd < 0 ? NULL : fdopen(fd, "w");
    out->other = out->file ? strdup(name) : NULL;
    if (out->other)
        return 0;
    fail(out);
    if (out->file)
        fclose(out->file);
    else if (fd >= 0)
        close(fd);
    out->file = NULL;
    if (fd >= 0) {
        unlink(name);
        unguard();
    }
    return -1;
}

/* Is the path written to directly, and not replaced? It is if it is no regular file, or if it names an open file, such
 * as /dev/stdout. */
static bool is_written_to(const char *path) {
    struct stat there;
    if (stat(path, &there) < 0)
        return false;
    if (!S_ISREG(there.st_mode))
        return true;
    return (!strncmp(path, "/dev/", 5) || !strncmp(path, "/proc/", 6)) && !lstat(path, &there) &&
           S_ISLNK(there.st_mode);
}

int vp_out_spare(const char *command, const char *output, char *const *inputs, int count) {
    struct stat to, from;
    if (!output || stat(output, &to) < 0 || !S_ISREG(to.st_mode))
        return 0;
    for (int i = 0; i < count; i++)
        if (!stat(inputs[i], &from) && from.st_ino == to.st_ino && from.st_dev == to.st_dev)
            return vp_tool_usage(command, "%s is an input, and would be overwritten", output);
    return 0;
}

int vp_out_open(struct vp_out *out, const char *command, const char *path) {
    *out = (struct vp_out){.command = command, .path = path};
    if (!path) {
        out->file = stdout;
        return 0;
    }
    if (is_written_to(path)) {
        out->file = fopen(path, "we");
        return out->file ? 0 : fail(out);
    }
    if (open_beside(out, path) < 0)
        return -1;
    return wants_gzip(path) ? vp_out_compress(out) : 0;
}

/* Finds why a write failed: stdio only stores that it did. As the file is not kept, one more byte may be written. */
static void find_reason(const struct vp_out *out) {
    if (out->other)
        (void)!write(fileno(out->plain ? out->plain : out->file), "", 1);
    if (!errno)
        errno = EIO;
}

int vp_out_close(struct vp_out *out, bool keep) {
    int status = 0;
    if (!out->file)
        return 0;
    errno = 0;
    bool failed = ferror(out->file);
    if (failed)
        find_reason(out);
    if (out->plain) {
        failed |= fclose(out->file) != 0;
        failed |= wait_for_gzip(out) < 0;
        out->file = out->plain;
        failed |= ferror(out->file);
    }
    failed |= (out->path ? fclose(out->file) : fflush(out->file)) != 0;
    if (keep && failed)
        status = fail(out);
    if (keep && !failed && out->other && rename(out->other, out->path) < 0) {
        status = fail(out);
        failed = true;
    }
    if (out->other && (!keep || failed))
        unlink(out->other);
    if (out->other)
        unguard();
    free(out->other);
    *out = (struct vp_out){0};
    return status;
}

/* ---- what formats share ---- */

void vp_out_string(FILE *file, const char *text) {
    putc('"', file);
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        size_t length = vp_utf8_length(at);
        if (*at < 32 || *at == 127 || strchr("\"\\<>&", *at)) {
            fprintf(file, "\\u%04x", *at++);
        } else if (length) {
            fwrite(at, 1, length, file);
            at += length;
        } else {
            fputs("\\ufffd", file);
            at++;
        }
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
