/* Opens and writes the paths and descriptors that the user or the environment names: files, devices, pipes, stderr.
 *
 * The library writes to them from within other people's programs, often as root and in folders that others can write
 * to. So it neither follows nor overwrites anything of another user's; and no closed pipe, size limit or sleeping
 * reader may end or hold up the program. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Expands a pattern: %p is the process id, %h the host's name, %r the rank among processes started together (0: alone),
 * %n `number`, %d `device`, %% a percent sign; only those in `letters`. False: it does not fit. */
bool vp_output_name(char *out, size_t room, const char *pattern, const char *letters, unsigned number, int device);

/* Opens a file, or creates it (mode 0644), with close-on-exec; `flags` are added to those of open(2), O_RDWR and
 * O_TRUNC among them. An existing file is used only if it is safely the user's: not behind a link, with no second name,
 * and in a folder like /tmp neither another user's file nor pipe. Links to devices and pipes are followed; /dev/stderr,
 * /dev/fd/N and the like are the program's own descriptor N. A pipe without a reader is not waited for.
 *
 * Returns the descriptor or a negative errno: -ELOOP: a link to a file; -EMLINK: a second name; -EPERM: another
 * user's; -EBADF: a descriptor of the program's own, which has another file by that number by now. */
int vp_output_open(const char *path, int flags);

/* Creates a file beside `path`, to be renamed to it once it is whole. Its name, in `name`, is `path`, something unique,
 * and `ending`: no other process has it, not even one with the same id in another container or before us. `mode` as for
 * open(2). Returns the descriptor or a negative errno. */
int vp_output_beside(const char *path, const char *ending, unsigned mode, char *name, size_t room);

/* The number of the program's own descriptor that the path means, as /dev/stderr does; -1: none. */
int vp_output_own(const char *path);

/* May a file have so many bytes? Growing one beyond its limit would raise SIGXFSZ, which ends the program. */
bool vp_output_fits(uint64_t bytes);

/* Makes the file `to` bytes long, with disk space for them from `from` on, whatever signals come. 0 or a negative
 * errno. */
int vp_output_reserve(int fd, uint64_t from, uint64_t to);

/* Writes all of it. 0 or a negative errno. Raises neither SIGPIPE nor SIGXFSZ, and is no cancellation point. The reader
 * of a pipe from vp_output_open() may be slow, but not asleep: -ETIMEDOUT. `waits` false: does not wait for room where
 * the descriptor does not. */
int vp_output_write(int fd, const char *bytes, size_t count, bool waits);

/* The meaning of such an error, where strerror() would not tell. */
const char *vp_output_error(int err);

/* Is descriptor 2 meant for messages? A program that has closed it may have a file or connection of its own under that
 * number since, which messages would damage. It is if it is what vp_output_know_stderr() saw at the start; or a
 * terminal, or a pipe that is not read by a smaller number; or a file that is only written to or, if it has no name, is
 * open by another number, too. */
bool vp_output_is_stderr(void);
void vp_output_know_stderr(void);
/* The same for a path that may mean the program's own descriptor N. */
void vp_output_know(const char *path);
