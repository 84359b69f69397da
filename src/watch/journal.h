/* A text file that grows line by line, and is whole at whatever instruction the process is killed: it then
 * holds every line that was appended, and nothing of the one being appended. Plain or, where the name ends in
 * ".gz", gzipped. (A kill, not a power cut: the pages are the kernel's.)
 *
 * Not thread-safe. No thread, no process, no signal handler; no call can raise SIGBUS or SIGXFSZ when the
 * disk is full or a limit is reached, unless somebody else makes the file shorter meanwhile. */
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

/* Creates the file or makes it empty. 0 or a negative errno: -EBUSY if another process has it open as a
 * journal, -ENODEV if it is no regular file. Nothing is left open then. */
int vp_journal_open(struct vp_journal *j, const char *path);

/* Appends a line of 1 to VP_JOURNAL_LINE bytes, the last of which is '\n', out of a buffer of VP_JOURNAL_LINE
 * bytes. 0 or a negative errno: the file cannot grow any more (-EBADF: the program has closed its descriptor, and it is
 * not to be found by its name). It is closed then, and whole, with this line. */
int vp_journal_append(struct vp_journal *j, const char *line, size_t n);

/* Lets go of a journal that a parent process has open, and will go on with: the file stays as it is. 0 or a negative
 * errno. */
int vp_journal_leave(struct vp_journal *j);

/* The file gets its true length. 0 or a negative errno; it is closed in any case. */
int vp_journal_close(struct vp_journal *j);
