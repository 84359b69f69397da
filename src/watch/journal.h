/* A text file that grows by lines and is valid at whatever instruction the process is killed: it then has every line
 * that was appended, and no part of the line in progress. Plain, or gzipped if the name ends in ".gz". (It survives a
 * kill, not a power failure: the pages are the kernel's.)
 *
 * Not thread-safe. Uses no thread, process or signal handler. No call can raise SIGBUS or SIGXFSZ when the disk is full
 * or a limit is reached, unless something else makes the file shorter meanwhile. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/descriptor.h"

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

/* The longest line, its newline included. */
enum { VP_JOURNAL_LINE = 256 };

struct vp_journal {
    struct vp_descriptor file;
    char path[PATH_MAX]; /* to open it by where the program has closed the descriptor; empty: not known */
    bool packed;
    uint8_t *window; /* the part of the file that is mapped, from `base` on */
    off_t base;
    /* Both in the window. */
    size_t end;   /* plain: of the text; packed: where the next line's member begins */
    size_t first; /* packed: where the first member of a single line begins */
    struct vp_journal_work *work;
};

/* Creates the file, or empties it. Returns 0 or a negative errno: -EBUSY: another process has it open as a journal;
 * -ENODEV: it is not a regular file. On failure nothing stays open. */
int vp_journal_open(struct vp_journal *j, const char *path);

/* Appends a line of 1 to VP_JOURNAL_LINE bytes that ends in '\n', from a buffer of VP_JOURNAL_LINE bytes. Returns 0, or
 * a negative errno: the file cannot grow any more (-EBADF: the program has closed its descriptor, and the file is not
 * found by its name). The file is then closed, and valid, with this line. */
int vp_journal_append(struct vp_journal *j, const char *line, size_t n);

/* Detaches from a journal that a parent process continues to write: the file is unchanged. 0 or a negative errno. */
int vp_journal_leave(struct vp_journal *j);

/* Truncates the file to its true length and closes it, even on failure. 0 or a negative errno. */
int vp_journal_close(struct vp_journal *j);
