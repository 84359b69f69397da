/* Files of what runs have learnt (learnt.h): read with suspicion, written whole or not at all. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/learnt/learnt.h"

/* Reads a file. 0; -ENOENT: there is none; else a negative errno and, in `why` (of `room` bytes), what is wrong:
 * -EPERM: another user owns it, or others may write to it; -EPROTO: it is of a newer version; -EINVAL: damaged. */
int vp_learnt_load(const char *path, struct vp_learnt *out, char *why, size_t room);

/* Writes a file, mode 0600, through a temporary file beside it: a reader finds either the old or the new contents, and
 * of several writers the last one wins. An existing file is replaced if it belongs to the user. If not all fits into
 * VP_LEARNT_BYTES, only the first half of the requests, or quarter, and so on, is written, and `learnt` is cut to that.
 * 0 or a negative errno; the old file then stays. */
int vp_learnt_save(const char *path, struct vp_learnt *learnt);
