/* Files of what runs have learnt: see learnt_file.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/learnt/learnt_file.h"

#include "base/descriptor.h"
#include "base/os_memory.h"
#include "base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One byte more than a file may have: a file that fills it is too long. */
enum { ROOM = VP_LEARNT_BYTES + 1 };

/* ---- reading ---- */

/* Is it a plain file of the user's, to which nobody else may write? */
static int check(int fd, const char **why) {
    struct stat about;
    if (fstat(fd, &about))
        return -errno;
    *why = !S_ISREG(about.st_mode)               ? "it is not a regular file"
           : about.st_uid != geteuid()           ? "it belongs to another user"
           : about.st_mode & (S_IWGRP | S_IWOTH) ? "others may write to it"
                                                 : NULL;
    return *why ? -EPERM : 0;
}

int vp_learnt_load(const char *path, struct vp_learnt *out, char *why, size_t room) {
    const char *wrong = NULL;
    unsigned line = 0;
    *why = 0;
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        const int err = -errno;
        snprintf(why, room, "%s", err == -ELOOP ? "it is a link" : strerror(-err));
        return err;
    }
    int err = check(fd, &wrong);
    char *text = err ? NULL : vp_os_take(ROOM);
    if (!err && !text)
        err = -ENOMEM;
    if (!err) {
        const ssize_t n = vp_descriptor_read(fd, text, ROOM);
        err = n < 0 ? (int)n : vp_learnt_parse(text, (size_t)n, out, &wrong, &line);
    }
    if (text)
        vp_os_give(text, ROOM);
    close(fd);
    if (err && line)
        snprintf(why, room, "line %u: %s", line, wrong ? wrong : strerror(-err));
    else if (err)
        snprintf(why, room, "%s", wrong ? wrong : strerror(-err));
    return err;
}

/* ---- writing ---- */

/* Writes the text, and closes the file. */
static int fill(int fd, const char *text, size_t length) {
    int err = fchmod(fd, 0600) ? -errno : vp_output_write(fd, text, length, true);
    /* The renamed file must survive a crash. */
    if (!err && fsync(fd) && errno != EINVAL)
        err = -errno;
    if (close(fd) && !err)
        err = -errno;
    return err;
}

/* May the existing file be replaced? Not a link, device or pipe, another user's file, or one of another kind, like a
 * plan of vpool plan. */
static int replaceable(const char *path) {
    char begins[sizeof VP_LEARNT_MAGIC - 1];
    struct stat about;
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    int err = fstat(fd, &about) ? -errno : S_ISREG(about.st_mode) && about.st_uid == geteuid() ? 0 : -EPERM;
    const ssize_t n = err ? 0 : read(fd, begins, sizeof begins);
    close(fd);
    return err || !n || (n == sizeof begins && !memcmp(begins, VP_LEARNT_MAGIC, sizeof begins)) ? err : -EEXIST;
}

/* Forgets the later half of what each device remembers. False: there was nothing. */
static bool shorten(struct vp_learnt *learnt) {
    bool some = false;
    for (struct vp_learnt_device *d = learnt->device; d < learnt->device + learnt->device_count; d++) {
        some |= d->request_count || d->run_count || d->again_count || d->window_count;
        d->request_count /= 2;
        d->run_count /= 2;
        d->again_count /= 2;
        d->window_count /= 2;
        if (d->slot_count > d->request_count) /* numbered as they come: those of the first n requests are below n */
            d->slot_count = d->request_count;
    }
    return some;
}

int vp_learnt_save(const char *path, struct vp_learnt *learnt) {
    /* A path is too large for some stacks. */
    char *text = vp_os_take(VP_LEARNT_BYTES + PATH_MAX), *temporary = text + VP_LEARNT_BYTES;
    if (!text)
        return -ENOMEM;
    size_t length;
    while (!(length = vp_learnt_print(learnt, text)) && shorten(learnt))
        continue;
    int err = length ? replaceable(path) : -EFBIG;
    if (!err) {
        const int fd = vp_output_beside(path, ".new", 0600, temporary, PATH_MAX);
        err = fd < 0 ? fd : fill(fd, text, length);
        if (!err && rename(temporary, path))
            err = -errno;
        if (fd >= 0 && err)
            unlink(temporary);
    }
    vp_os_give(text, VP_LEARNT_BYTES + PATH_MAX);
    return err;
}
