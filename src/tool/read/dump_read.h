/* Reads dumps of a pool: JSON that says "format": "vpool-dump". */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "tool/read/stacks.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vp_dump_region {
    uint64_t addr, size, asked, stream;
    uint64_t stack; /* live: the stack that allocated it, in vp_dump_file.stacks; 0: unknown */
    enum { VP_DUMP_HOLE, VP_DUMP_ZOMBIE, VP_DUMP_FREE, VP_DUMP_LIVE } state;
    bool waits; /* free, and its condition is not met */
};

struct vp_dump_device {
    uint64_t device, live_bytes, held_bytes, free_bytes, internal, pinned, pending, idle;
    struct vp_dump_region *regions;
    size_t count, room;
};

struct vp_dump_file {
    char *text; /* the whole file, NUL at the end */
    size_t length;
    struct vp_dump_device *devices;
    size_t count;
    struct vp_stacks stacks; /* the stacks that regions name; its frames include those of holders */
};

/* Does the file begin as a dump does, rather than as a trace? False too if it cannot be read. */
bool vp_dump_is(const char *path);
/* Reads a whole dump; what it lacks is 0. 0; or -1, with one line that names file, line and fault in `message`. */
int vp_dump_read(struct vp_dump_file *dump, const char *path, char *message, size_t room);
/* Names the native frames, as vp_stacks_name() does. 0 or -ENOMEM. */
int vp_dump_name(struct vp_dump_file *dump);
void vp_dump_finish(struct vp_dump_file *dump);
