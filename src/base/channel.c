/* Messages with descriptors between processes of one user, over a Unix socket. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/channel.h"

#include "base/clock.h"
#include "base/descriptor.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* How long a message may take: a live peer answers in microseconds, and one under a debugger must not hold us up for
 * ever. */
enum { PATIENCE_S = 5 };
static const uint64_t PATIENCE_NS = PATIENCE_S * UINT64_C(1000000000);

/* Connections that may wait to be accepted: more than GPUs in a machine. */
enum { BACKLOG = 64 };

static socklen_t address_of(const struct vp_channel_name *name, struct sockaddr_un *address) {
    char *path = address->sun_path;
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(path, sizeof address->sun_path, "%svpool-%016llx%016llx", name->in_file ? "/tmp/" : "@",
                          (unsigned long long)name->id[0], (unsigned long long)name->id[1]);
    if (!name->in_file)
        *path = 0;
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)length + name->in_file);
}

static void be_patient(int fd) {
    struct timeval patience = {.tv_sec = PATIENCE_S};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

/* Is the other side a process of this user? 0 or a negative errno. */
static int trusted(int fd) {
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return -errno;
    return peer.uid == geteuid() ? 0 : -EPERM;
}

int vp_channel_listen_again(const struct vp_channel_name *name) {
    struct sockaddr_un address;
    socklen_t size = address_of(name, &address);
    int fd = vp_descriptor_above_standard(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (fd < 0)
        return -errno;
    vp_channel_unlink(name);
    bool listens = !bind(fd, (struct sockaddr *)&address, size) && (!name->in_file || !chmod(address.sun_path, 0600)) &&
                   !listen(fd, BACKLOG);
    int err = listens ? 0 : -errno;
    if (err)
        vp_channel_unlink(name);
    return vp_descriptor_unless(err, fd);
}

int vp_channel_listen(struct vp_channel_name *name, bool files) {
    if (getrandom(name->id, sizeof name->id, 0) != (ssize_t)sizeof name->id)
        return -EIO;
    name->in_file = files;
    int fd = vp_channel_listen_again(name);
    /* A security module may forbid abstract names. */
    return fd < 0 && !files ? vp_channel_listen(name, true) : fd;
}

void vp_channel_unlink(const struct vp_channel_name *name) {
    struct sockaddr_un address;
    address_of(name, &address);
    if (name->in_file)
        unlink(address.sun_path);
}

int vp_channel_accept(int listener) {
    int fd;
    do
        fd = vp_descriptor_above_standard(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
    while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
    if (fd < 0)
        return -errno;
    be_patient(fd);
    return vp_descriptor_unless(trusted(fd), fd);
}

/* Is the call to be retried: did it fail with `err`, before that time? A timer of the program's may tick more often. */
static bool goes_on(int err, uint64_t until_ns) {
    return errno == err && vp_clock_ns() < until_ns;
}

int vp_channel_connect(const struct vp_channel_name *name) {
    const uint64_t until = vp_clock_ns() + PATIENCE_NS;
    struct sockaddr_un address;
    socklen_t size = address_of(name, &address);
    int err, fd = vp_descriptor_above_standard(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (fd < 0)
        return -errno;
    be_patient(fd);
    do
        err = connect(fd, (struct sockaddr *)&address, size) < 0 ? -errno : trusted(fd);
    while (err == -EINTR && goes_on(EINTR, until));
    return vp_descriptor_unless(err == -EINTR ? -EAGAIN : err, fd);
}

/* Room for the descriptors of one message. */
union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(VP_CHANNEL_FDS * sizeof(int))];
};

int vp_channel_send(int fd, const void *data, size_t bytes, const int *fds, size_t n) {
    union control control = {0};
    struct iovec part = {(void *)data, bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (n) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(n * sizeof *fds);
        control.align = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(n * sizeof *fds)};
        memcpy(CMSG_DATA(&control.align), fds, n * sizeof *fds);
    }
    const uint64_t until = vp_clock_ns() + PATIENCE_NS;
    ssize_t sent;
    do /* descriptors in flight of all the user's processes are limited by RLIMIT_NOFILE */
        sent = TEMP_FAILURE_RETRY(sendmsg(fd, &message, MSG_NOSIGNAL));
    while (sent < 0 && goes_on(ETOOMANYREFS, until) && !nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL));
    return sent < 0 ? -errno : 0;
}

/* Keeps the descriptors that came, up to `most`, or closes them; returns how many came. */
static size_t take_fds(struct msghdr *message, int *fds, size_t most) {
    size_t came = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++, came++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (came < most)
                fds[came] = vp_descriptor_above_standard(fd);
            else
                close(fd);
        }
    }
    return came;
}

int vp_channel_wait(int fd) {
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    const uint64_t until = vp_clock_ns() + PATIENCE_NS;
    int ready;
    do
        ready = poll(&poll_fd, 1, PATIENCE_S * 1000);
    while (ready < 0 && goes_on(EINTR, until));
    return ready > 0 ? 0 : ready && errno != EINTR ? -errno : -EAGAIN;
}

int vp_channel_receive(int fd, void *data, size_t bytes, int *fds, size_t *n) {
    union control control;
    struct iovec part = {data, bytes};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    size_t most = n ? *n : 0;
    ssize_t got = TEMP_FAILURE_RETRY(recvmsg(fd, &message, MSG_CMSG_CLOEXEC));
    if (got < 0)
        return -errno;
    size_t came = take_fds(&message, fds, most);
    if (n)
        *n = came;
    if ((size_t)got == bytes && came <= most && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
        return 0;
    for (size_t i = 0; i < came && i < most; i++)
        close(fds[i]);
    return got == 0 && !came ? -ECONNRESET : -EPROTO;
}
