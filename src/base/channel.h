/* A door in the wall between two processes of one user: a Unix socket that passes file descriptors.
 *
 * One process listens under a name that nobody can guess; another that was told the name connects, and messages go to
 * and fro, each whole or not at all. Neither talks to a process of another user. Nothing here waits for longer than a
 * few seconds. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Descriptors that one message may carry: the kernel's own limit is 253. */
enum { VP_CHANNEL_FDS = 64 };

/* Where a process listens. */
struct vp_channel_name {
    uint64_t id[2]; /* random */
    bool in_file;   /* a socket in /tmp; else an abstract name, which needs no file system */
};

/* Listens under a new name. Returns a descriptor (closed by exec) or a negative errno. `files`: in the file system even
 * where an abstract name is to be had. */
int vp_channel_listen(struct vp_channel_name *name, bool files);
/* Listens once more under the name that it chose, where the program has closed its descriptor. */
int vp_channel_listen_again(const struct vp_channel_name *name);
/* Removes what vp_channel_listen() left in the file system. */
void vp_channel_unlink(const struct vp_channel_name *name);
/* The next process that connects; one of another user is hung up on: -EPERM. Waits until there is one, or the listener
 * is shut down: -EINVAL. */
int vp_channel_accept(int listener);
/* Connects. -ECONNREFUSED or -ENOENT: nobody listens there (any more); -EPERM: another user does; -EAGAIN: no answer in
 * time. */
int vp_channel_connect(const struct vp_channel_name *name);

/* Sends one message with `n` descriptors, which stay the caller's. 0, or a negative errno. */
int vp_channel_send(int fd, const void *data, size_t bytes, const int *fds, size_t n);
/* Waits until there is something to receive. 0; -EAGAIN: nothing came in time; or another negative errno. */
int vp_channel_wait(int fd);
/* Receives one message of exactly `bytes`, with `*n` descriptors at most; `*n` then says how many came, and they are
 * the caller's. `n` NULL: none are wanted. 0; -EAGAIN: nothing came in time; -EPROTO: something else came, or more
 * descriptors than were wanted or could be taken (RLIMIT_NOFILE): none are left open; -ECONNRESET: the other side hung
 * up. */
int vp_channel_receive(int fd, void *data, size_t bytes, int *fds, size_t *n);
