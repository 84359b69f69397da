/* Our own descriptors, which the program may have closed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

struct vp_descriptor vp_descriptor_of(int fd) {
    struct stat about;
    if (fd < 0 || fstat(fd, &about) < 0)
        return (struct vp_descriptor){.fd = -1};
    return (struct vp_descriptor){.fd = fd, .dev = about.st_dev, .ino = about.st_ino};
}

int vp_descriptor_unless(int err, int fd) {
    if (!err)
        return fd;
    close(fd);
    return err;
}

ssize_t vp_descriptor_read(int fd, char *text, size_t room) {
    size_t used = 0;
    for (ssize_t n; used < room && (n = TEMP_FAILURE_RETRY(read(fd, text + used, room - used))); used += (size_t)n)
        if (n < 0)
            return -errno;
    return (ssize_t)used;
}

bool vp_descriptor_is_ours(const struct vp_descriptor *descriptor) {
    struct stat about;
    return descriptor->fd >= 0 && !fstat(descriptor->fd, &about) && about.st_dev == descriptor->dev &&
           about.st_ino == descriptor->ino;
}

int vp_descriptor_close(struct vp_descriptor *descriptor) {
    const bool ours = vp_descriptor_is_ours(descriptor);
    const int fd = descriptor->fd;
    descriptor->fd = -1;
    return ours && close(fd) < 0 ? -errno : 0;
}

int vp_descriptor_above_standard(int fd) {
    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    int higher = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), err = errno;
    close(fd);
    return higher < 0 ? -err : higher;
}

int vp_descriptor_reopen(struct vp_descriptor *descriptor, const char *path, int flags) {
    struct vp_descriptor again = *descriptor;
    again.fd = vp_descriptor_above_standard(open(path, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (again.fd < 0)
        return -errno;
    if (!vp_descriptor_is_ours(&again)) {
        close(again.fd);
        return -ESTALE;
    }
    descriptor->fd = again.fd;
    return 0;
}
