/* Where a path or a descriptor leads that the user or the environment named: files, devices, pipes, stderr.
 *
 * The library writes there out of other people's programs, often as root and into folders that others can
 * write to. So nothing of another user's is followed or written over, and neither a closed pipe nor a limit
 * nor a reader that sleeps ends or holds up the program. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Expands a pattern: %p is the process id, %h the host's name, %r the rank among processes that were started together
 * (0: it is alone), %n `number`, %d `device`, %% a percent sign, as far as `letters` allow them. False if it does not
 * fit. */
bool vp_output_name(char *out, size_t room, const char *pattern, const char *letters, unsigned number, int device);

/* Opens what is there, or makes it (mode 0644); `flags` are added to those of open(2), O_RDWR and O_TRUNC
 * among them. A file that is there is taken only if it is the user's alone to give: no link leads to it, it
 * has no second name, and in a folder like /tmp it is no other user's, nor is a pipe. A link is followed to a device
 * or a pipe; /dev/stderr, /dev/fd/N and the like are the program's own descriptor N. A pipe that nobody
 * reads is not waited for.
 *
 * The descriptor, which no other program inherits, or a negative errno: -ELOOP a link to a file, -EMLINK a
 * second name, -EPERM another user's. */
int vp_output_open(const char *path, int flags);

/* Makes a file beside `path`, which is renamed to it once it is whole: `name` is `path`, something of the process's
 * own, and `ending`. Nobody else has it, not a process with the same id in another container or before us, either.
 * `mode` as for open(2). The descriptor, or a negative errno. */
int vp_output_beside(const char *path, const char *ending, unsigned mode, char *name, size_t room);

/* The number of the program's own descriptor that the path names, as /dev/stderr does; -1: none. */
int vp_output_own(const char *path);

/* May a file have so many bytes? Making one longer than its limit raises SIGXFSZ, which ends the program. */
bool vp_output_fits(uint64_t bytes);

/* The file has all bytes up to there, with room on the disk, whatever signals come. 0 or a negative errno. */
int vp_output_reserve(int fd, uint64_t from, uint64_t to);

/* Writes all of it. 0 or a negative errno; no SIGPIPE and no SIGXFSZ is raised, nor is it a point of cancellation. On a
 * pipe that vp_output_open() opened a reader may take its time, but not sleep: -ETIMEDOUT. `waits` false: where the
 * descriptor does not wait for room, neither do we. */
int vp_output_write(int fd, const char *bytes, size_t count, bool waits);

/* What one of those errors means, where strerror() would not say it. */
const char *vp_output_error(int err);

/* Is descriptor 2 what the program has for messages? One that has closed it may have a file of its own there since, or
 * a connection, in which they would do harm. What was there at the start is; so are terminals and pipes, and files that
 * are only written to, or have no name. vp_output_know_stderr() tells that it is the start. */
bool vp_output_is_stderr(void);
void vp_output_know_stderr(void);
