/* Writing to what the user or the environment names: see output.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/output.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/os_memory.h"
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* How long the reader of a pipe may sleep: the program waits for it meanwhile. */
enum { READER_MS = 2000 };

bool vp_output_name(char *out, size_t room, const char *pattern, const char *letters, unsigned number, int device) {
    size_t n = 0;
    *out = 0;
    for (; *pattern; pattern++) {
        char part[HOST_NAME_MAX + 1] = {*pattern};
        if (*pattern == '%' && pattern[1] && strchr(letters, pattern[1])) {
            const char letter = *++pattern;
            if (letter == 'h' ? gethostname(part, sizeof part) : letter == 'r' && !vp_process_rank(part, sizeof part))
                strcpy(part, letter == 'h' ? "localhost" : "0");
            if (strchr("pnd", letter))
                snprintf(part, sizeof part, "%u",
                         letter == 'p'   ? (unsigned)getpid()
                         : letter == 'n' ? number
                                         : (unsigned)device);
        }
        if (n + strlen(part) >= room)
            return false;
        n += strlen(strcpy(out + n, part));
    }
    return true;
}

/* ---- the program's own descriptors ---- */

/* The own descriptor is used: opened anew by its path, a file would begin at its start, and a socket would fail. */
int vp_output_own(const char *path) {
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    if (!strcmp(path, "/dev/stdout"))
        return STDOUT_FILENO;
    if (!strcmp(path, "/dev/stderr"))
        return STDERR_FILENO;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        size_t n = strlen(folders[i]);
        if (strncmp(path, folders[i], n))
            continue;
        size_t count = strspn(path + n, "0123456789");
        if (count && count < 9 && !path[n + count])
            return atoi(path + n);
    }
    return -1;
}

/* Those with names, and those that options name: what was there at the start; no file: it was closed. */
enum { MOST_KNOWN = 8 };
static struct known {
    int number;
    struct vp_descriptor there;
} at_start[MOST_KNOWN];
static unsigned known;

static void know(int number) {
    if (known < MOST_KNOWN)
        at_start[known++] = (struct known){number, vp_descriptor_of(number)};
}

void vp_output_know_stderr(void) {
    const int place_errno = errno;
    know(STDERR_FILENO);
    know(STDOUT_FILENO);
    errno = place_errno;
}

void vp_output_know(const char *path) {
    const int place_errno = errno, number = vp_output_own(path);
    if (number >= 0)
        know(number);
    errno = place_errno;
}

static bool is_at(int fd, const struct stat *about) {
    struct stat there;
    return !fstat(fd, &there) && there.st_dev == about->st_dev && there.st_ino == about->st_ino;
}

static bool is_shared(int own, const struct stat *about) {
    enum { LOOKED_AT = 1024 };
    int fd = 0;
    while (fd < LOOKED_AT && (fd == own || !is_at(fd, about)))
        fd++;
    return fd < LOOKED_AT;
}

static bool is_read_below(int own, const struct stat *about) {
    for (int fd = 0; fd < own; fd++)
        if (is_at(fd, about) && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY)
            return true;
    return false;
}

/* Standard output or stderr may go elsewhere by now. A program that has closed it and then makes a temporary file may
 * get that by this number alone, where a capture of stderr, such as pytest's, has the file by another, too; and of a
 * pipe of its own it gets the end to read from by a smaller number. */
static bool goes_elsewhere(const struct known *own) {
    const int fd = own->number;
    struct stat about;
    if (fd > STDERR_FILENO || fstat(fd, &about) < 0)
        return false;
    if (S_ISREG(about.st_mode) && own->there.fd >= 0)
        return about.st_nlink ? (fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY : is_shared(fd, &about);
    return S_ISCHR(about.st_mode) || (S_ISFIFO(about.st_mode) && !is_read_below(fd, &about));
}

/* Is what the number means now what it meant at the start? */
static bool is_still(int number) {
    const struct known *own = at_start;
    while (own < at_start + known && own->number != number)
        own++;
    return own == at_start + known || vp_descriptor_is_ours(&own->there) || goes_elsewhere(own);
}

bool vp_output_is_stderr(void) {
    return is_still(STDERR_FILENO);
}

/* ---- opening ---- */

/* In a folder where everybody may create files and remove only their own, another user's file or pipe is a trap. The
 * kernel refuses it with fs.protected_regular and _fifos; this does so whatever their setting. Links there are refused
 * in any case. */
static bool trap(const char *path, const struct stat *file) {
    struct stat about;
    const char *slash = strrchr(path, '/');
    const size_t n = slash ? (size_t)(slash - path) + 1 : 1;
    char *folder;
    if (file->st_uid == geteuid() || n >= PATH_MAX)
        return false;
    if (!(folder = vp_os_take(PATH_MAX))) /* the stack may have only some KiB */
        return true;
    memcpy(folder, slash ? path : ".", n);
    const bool open = !stat(folder, &about) && about.st_mode & S_ISVTX && about.st_mode & S_IWOTH &&
                      about.st_uid != file->st_uid;
    vp_os_give(folder, PATH_MAX);
    return open;
}

static int check(int fd, const char *path) {
    struct stat about;
    if (fstat(fd, &about) < 0)
        return -errno;
    if (S_ISDIR(about.st_mode))
        return -EISDIR;
    if (S_ISREG(about.st_mode) && about.st_nlink > 1)
        return -EMLINK;
    return trap(path, &about) ? -EPERM : 0;
}

/* Follows a link without creating or truncating anything: only its target shows whether that would be right. */
static int follow(const char *path, int flags) {
    struct stat about;
    int fd = open(path, flags & ~(O_CREAT | O_TRUNC | O_NOFOLLOW));
    if (fd < 0)
        return errno == ENOENT ? -ELOOP : -errno;
    if (!fstat(fd, &about) && (S_ISCHR(about.st_mode) || S_ISFIFO(about.st_mode)))
        return fd;
    close(fd);
    return -ELOOP;
}

int vp_output_open(const char *path, int flags) {
    int fd = vp_output_own(path);
    if (fd >= 0 && !is_still(fd))
        return -EBADF;
    if (fd >= 0)
        return (fd = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)) < 0 ? -errno : fd;
    if ((flags & O_ACCMODE) == O_RDONLY)
        flags |= O_WRONLY;
    const int with = flags | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    /* Truncated only once it is known to be ours, not by open(2). */
    fd = open(path, with & ~O_TRUNC, 0644);
    if (fd < 0)
        return errno == ELOOP ? vp_descriptor_above_standard(follow(path, with)) : -errno;
    fd = vp_descriptor_above_standard(fd);
    if (fd < 0)
        return fd;
    int err = check(fd, path);
    if (!err && flags & O_TRUNC && ftruncate(fd, 0) < 0 && errno != EINVAL)
        err = -errno;
    return vp_descriptor_unless(err, fd);
}

int vp_output_beside(const char *path, const char *ending, unsigned mode, char *name, size_t room) {
    for (unsigned tries = 0;; tries++) {
        const unsigned own = (unsigned)(vp_clock_by(CLOCK_REALTIME) >> 4) + tries;
        if (snprintf(name, room, "%s.%d-%08x%s", path, (int)getpid(), own, ending) >= (int)room)
            return -ENAMETOOLONG;
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
        if (fd >= 0) {
            if ((fd = vp_descriptor_above_standard(fd)) < 0)
                unlink(name);
            return fd;
        }
        if (errno != EEXIST || tries == 100)
            return -errno;
    }
}

const char *vp_output_error(int err) {
    switch (err) {
    case -ELOOP: return "it is a link, and links are followed only to devices and pipes";
    case -EMLINK: return "it has a second name (a hard link)";
    case -EPERM: return "it belongs to another user";
    case -ENXIO: return "no process reads from it";
    case -ETIMEDOUT: return "its reader does not read";
    default: return strerror(-err);
    }
}

/* ---- writing ---- */

bool vp_output_fits(uint64_t bytes) {
    struct rlimit most;
    return !getrlimit(RLIMIT_FSIZE, &most) && bytes <= most.rlim_cur;
}

/* In pieces that take less than a tick each: before Linux 6.11 a signal undoes what a tmpfs has reserved. */
int vp_output_reserve(int fd, uint64_t from, uint64_t to) {
    enum { PIECE = 4 << 20 };
    int err = vp_output_fits(to) ? 0 : EFBIG;
    for (; from < to && (!err || err == EINTR); from += err ? 0 : PIECE)
        err = posix_fallocate(fd, (off_t)from, to - from < PIECE ? (off_t)(to - from) : PIECE);
    return -err;
}

static int write_all(int fd, const char *bytes, size_t count, int patience_ms) {
    while (count) {
        ssize_t wrote = write(fd, bytes, count);
        if (wrote > 0) {
            bytes += wrote;
            count -= (size_t)wrote;
        } else if (wrote == 0) {
            return -EIO;
        } else if (errno == EAGAIN) {
            int ready = poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, patience_ms);
            if (ready == 0)
                return -ETIMEDOUT;
            if (ready < 0 && errno != EINTR)
                return -errno;
        } else if (errno != EINTR) {
            return -errno;
        }
    }
    return 0;
}

/* Blocks the signals that a write may raise, and takes them back. The thread is not cancelled here, as it may hold
 * locks. */
int vp_output_write(int fd, const char *bytes, size_t count, bool waits) {
    sigset_t ours, before, pending;
    int cancel;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    sigemptyset(&ours);
    sigaddset(&ours, SIGPIPE);
    sigaddset(&ours, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &ours, &before);
    /* A signal that was pending before belongs to the program. */
    sigpending(&pending);
    if (sigismember(&pending, SIGPIPE))
        sigdelset(&ours, SIGPIPE);
    if (sigismember(&pending, SIGXFSZ))
        sigdelset(&ours, SIGXFSZ);
    int err = write_all(fd, bytes, count, waits ? READER_MS : 0);
    if (err == -EPIPE || err == -EFBIG)
        while (sigtimedwait(&ours, NULL, &(struct timespec){0}) > 0)
            ;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_setcancelstate(cancel, NULL);
    return err;
}
