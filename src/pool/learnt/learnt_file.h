/* The files of what runs have learnt (learnt.h): read with suspicion, written whole or not at all. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/learnt/learnt.h"

/* Reads a file. 0; -ENOENT: there is none; else a negative errno, and `why` (of `room` bytes) says what is wrong:
 * -EPERM, it is another user's, or others may write to it; -EPROTO, it is of a newer version; -EINVAL, damaged. */
int vp_learnt_load(const char *path, struct vp_learnt *out, char *why, size_t room);

/* Writes a file, mode 0600, by way of a temporary one beside it: whoever reads it finds the old one or the new one, and
 * of several that write it one after another the last one. What was there is replaced if it is a file of the user's
 * own. Where VP_LEARNT_BYTES are too few for all, the first half is written, or the first quarter, and so on: `learnt`
 * then has no more. 0 or a negative errno, with what was there as it was. */
int vp_learnt_save(const char *path, struct vp_learnt *learnt);
