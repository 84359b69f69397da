/* Preloaded: what lies in /dev/shm/vpool-* lies in the folder $TEST_SHM instead. Waking a process holds up all others
 * of the user that have a page, and `vpool doctor` tells of each that sleeps: those of other tests are not to be met.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#undef _FILE_OFFSET_BITS /* with it one of two names is the other */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define VISIBLE __attribute__((visibility("default")))

static const char FOLDER[] = "/dev/shm";

static const char *moved(const char *path, char room[PATH_MAX]) {
    const char *to = getenv("TEST_SHM"), *rest = path + sizeof FOLDER - 1;
    if (!to || strncmp(path, FOLDER, sizeof FOLDER - 1) != 0 || (*rest && strncmp(rest, "/vpool-", 7) != 0))
        return path;
    snprintf(room, PATH_MAX, "%s%s", to, rest);
    return room;
}

static int open_moved(const char *path, int flags, int mode) {
    char room[PATH_MAX];
    return (int)syscall(SYS_openat, AT_FDCWD, moved(path, room), flags, mode);
}

static int mode_of(int flags, va_list more) {
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(more, int) : 0;
}

VISIBLE int open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const int mode = mode_of(flags, more);
    va_end(more);
    return open_moved(path, flags, mode);
}

VISIBLE int open64(const char *path, int flags, ...) __attribute__((alias("open")));

VISIBLE int unlink(const char *path) {
    char room[PATH_MAX];
    return (int)syscall(SYS_unlinkat, AT_FDCWD, moved(path, room), 0);
}

VISIBLE DIR *opendir(const char *path) {
    const int fd = open_moved(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (fd >= 0 && !entries)
        close(fd);
    return entries;
}
