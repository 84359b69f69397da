/* Reads files, gzipped ones through zlib; a build without zlib runs the program gzip. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/read/source.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef VP_HAVE_ZLIB
#include <zlib.h>
#endif

static ssize_t peek(int fd, char *head, size_t room) {
    int ends[2];
    ssize_t n = pread(fd, head, room, 0);
    if (n >= 0 || errno != ESPIPE)
        return n;
    n = recv(fd, head, room, MSG_PEEK);
    if (n >= 0 || errno != ENOTSOCK || pipe2(ends, O_CLOEXEC) < 0)
        return n;
    n = tee(fd, ends[1], room, 0);
    if (n > 0)
        n = read(ends[0], head, (size_t)n);
    close(ends[0]);
    close(ends[1]);
    return n;
}

/* Opens a file for reading. Standard input may be something that cannot be opened by its name: a socket (below ssh),
 * another user's file or pipe (below sudo), or anything where there is no /proc. It is still read from its beginning.
 */
static int open_anew(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && !strcmp(path, "/dev/stdin") && (fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)) >= 0)
        lseek(fd, 0, SEEK_SET);
    return fd;
}

/* Pipes and sockets whose first bytes were peeked at, and that are still to be read: if a named pipe was opened again,
 * it would wait for another writer. */
static struct kept {
    struct kept *next;
    const char *path;
    int fd;
} *kept;

static struct kept **find_kept(const char *path) {
    struct kept **at = &kept;
    while (*at && strcmp((*at)->path, path))
        at = &(*at)->next;
    return at;
}

int vp_source_fd(const char *path) {
    struct kept **at = find_kept(path), *here = *at;
    if (!here)
        return open_anew(path);
    const int fd = here->fd;
    *at = here->next;
    free(here);
    return fd;
}

ssize_t vp_source_peek(const char *path, char *head, size_t room) {
    struct stat about;
    const int fd = vp_source_fd(path);
    if (fd < 0)
        return -1;
    const ssize_t n = peek(fd, head, room);
    const bool once = !fstat(fd, &about) && (S_ISFIFO(about.st_mode) || S_ISSOCK(about.st_mode));
    struct kept *here = once ? malloc(sizeof *here) : NULL;
    if (here) {
        *here = (struct kept){kept, path, fd};
        kept = here;
    } else {
        close(fd);
    }
    return n;
}

/* The first byte of gzip's two decides: no trace begins with it, and a pipe may not have had more so far. */
static bool is_gzip(int fd) {
    unsigned char magic[2];
    ssize_t n = peek(fd, (char *)magic, sizeof magic);
    return n > 0 && magic[0] == 0x1f && (n < 2 || magic[1] == 0x8b);
}

#ifdef VP_HAVE_ZLIB

static ssize_t read_archive(void *cookie, char *buffer, size_t size) {
    struct vp_source *s = cookie;
    int n = gzread(s->archive, buffer, size > 1 << 20 ? 1 << 20 : (unsigned)size), what = Z_OK;
    /* For an archive that is cut off, zlib gives what there is, and reports the error only at the last byte. */
    if (n >= 0)
        gzerror(s->archive, &what);
    if (n >= 0 && (what == Z_OK || (what == Z_BUF_ERROR && n)))
        return n;
    strcpy(s->fault, "the gzip archive is damaged or cut off");
    return 0;
}

static int open_archive(struct vp_source *s, int fd) {
    const cookie_io_functions_t functions = {.read = read_archive};
    s->archive = gzdopen(fd, "rb");
    if (!s->archive) {
        close(fd);
        return -ENOMEM;
    }
    gzbuffer(s->archive, 1 << 18);
    s->file = fopencookie(s, "r", functions);
    if (s->file)
        return 0;
    gzclose(s->archive);
    return -ENOMEM;
}

#else

static void exec_gzip(int from, int to) {
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(from, 0);
    dup2(to, 1);
    dup2(null, 2);
    /* Our parent may have ignored the signal; gzip must end when nobody reads any more. */
    signal(SIGPIPE, SIG_DFL);
    execlp("gzip", "gzip", "-dc", (char *)NULL);
    _exit(127);
}

static int open_archive(struct vp_source *s, int fd) {
    int ends[2], err = 0;
    if (pipe2(ends, O_CLOEXEC) < 0) {
        err = -errno;
    } else if ((s->gzip = fork()) < 0) {
        err = -errno;
        close(ends[0]);
        close(ends[1]);
    } else {
        if (!s->gzip)
            exec_gzip(fd, ends[1]);
        close(ends[1]);
        if (!(s->file = fdopen(ends[0], "r")))
            err = -ENOMEM;
    }
    close(fd);
    return err;
}

#endif

int vp_source_open(struct vp_source *s, const char *path) {
    struct stat about;
    int fd = vp_source_fd(path), err = 0;
    *s = (struct vp_source){0};
    if (fd < 0)
        return -errno;
    if (fstat(fd, &about) < 0 || S_ISDIR(about.st_mode))
        err = -EISDIR;
    else if (is_gzip(fd))
        return open_archive(s, fd);
    else if (!(s->file = fdopen(fd, "r")))
        err = -ENOMEM;
    if (err)
        close(fd);
    return err;
}

ssize_t vp_source_head(struct vp_source *s, char *head, size_t room, bool *ended) {
    size_t n = 0;
    int c = 0;
    while (n < room - 1 && (c = getc(s->file)) != EOF && c != '\n')
        head[n++] = (char)c;
    head[n] = 0;
    *ended = c == '\n';
    return n || *ended ? (ssize_t)n : -1;
}

ssize_t vp_source_line(struct vp_source *s, char **line, size_t *room, size_t most) {
    size_t n = 0;
    for (int c = 0; c != '\n' && (c = getc_unlocked(s->file)) != EOF; (*line)[n++] = (char)c) {
        if (n + 1 >= *room) {
            const size_t larger = *room ? *room * 2 : 256;
            char *more = realloc(*line, larger);
            if (!more)
                return -ENOMEM;
            *line = more;
            *room = larger;
        }
        if (n == most) {
            ungetc(c, s->file);
            (*line)[n] = 0;
            return -E2BIG;
        }
    }
    if (n)
        (*line)[n] = 0;
    return (ssize_t)n;
}

const char *vp_source_close(struct vp_source *s) {
    int status = 0;
    const char *fault = ferror(s->file) ? "cannot be read" : NULL;
    fclose(s->file);
#ifdef VP_HAVE_ZLIB
    if (s->archive)
        gzclose(s->archive);
    if (*s->fault)
        return s->fault;
#endif
    if (!s->gzip || fault)
        return fault;
    if (waitpid(s->gzip, &status, 0) < 0)
        return "cannot be read";
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return "is compressed, and there is no gzip program to read it with";
    /* If the reader closes early, gzip ends by a signal, which is no error. */
    return WIFEXITED(status) && WEXITSTATUS(status) ? "the gzip archive is damaged or cut off" : NULL;
}
