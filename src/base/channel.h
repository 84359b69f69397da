/* Messages between two processes of one user, over a Unix socket that also passes file descriptors.
 *
 * One process listens under a name that nobody can guess; another, which was told the name, connects. Each message
 * arrives whole or not at all. Neither side talks to a process of another user. No call waits longer than a few
 * seconds, except vp_channel_accept(). */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Descriptors that one message may carry; the kernel allows 253. */
enum { VP_CHANNEL_FDS = 64 };

/* The address at which a process listens. */
struct vp_channel_name {
    uint64_t id[2]; /* random */
    bool in_file;   /* a socket in /tmp; else an abstract name, which needs no file system */
};

/* Listens under a new name. Returns a descriptor (close-on-exec) or a negative errno. `files`: uses the file system
 * even where abstract names are available. */
int vp_channel_listen(struct vp_channel_name *name, bool files);
/* Listens again under the name it chose, after the program has closed its descriptor. */
int vp_channel_listen_again(const struct vp_channel_name *name);
/* Removes what vp_channel_listen() left in the file system. */
void vp_channel_unlink(const struct vp_channel_name *name);
/* Waits for the next process that connects, and returns a descriptor. -EPERM: it was another user's, and was hung up
 * on; -EINVAL: the listener was shut down. */
int vp_channel_accept(int listener);
/* Connects. -ECONNREFUSED or -ENOENT: nobody listens there (any more); -EPERM: another user does; -EAGAIN: no answer in
 * time. */
int vp_channel_connect(const struct vp_channel_name *name);

/* Sends one message with `n` descriptors, which the caller keeps. 0 or a negative errno. */
int vp_channel_send(int fd, const void *data, size_t bytes, const int *fds, size_t n);
/* Waits until there is something to receive. 0; -EAGAIN: nothing came in time; or another negative errno. */
int vp_channel_wait(int fd);
/* Receives one message of exactly `bytes` with up to `*n` descriptors; `*n` becomes their number, and the caller owns
 * them. `n` NULL: none are wanted. 0; -EAGAIN: nothing came in time; -EPROTO: the message was different, or had more
 * descriptors than were wanted or fit (RLIMIT_NOFILE): none are left open; -ECONNRESET: the other side hung up. */
int vp_channel_receive(int fd, void *data, size_t bytes, int *fds, size_t *n);
