/* What a run has learnt, from which the next run of the same program starts: the file behind VPOOL_PLAN.
 *
 * The file is text, one record a line; numbers are decimal, text is percent-encoded. docs/plans.md describes the lines.
 * A reader trusts nothing: whatever the bytes are, it takes bounded time and memory, and tells what is wrong.
 *
 * learn.h makes such a plan, ahead.h follows it. It is only a hint: handles are created ahead of the program where it
 * says, and requests get the places it names if these are free (ahead.h). For a program that does something else it
 * costs some idle memory for a while. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VP_LEARNT_MAGIC "vpool-learnt,"
enum { VP_LEARNT_VERSION = 2 };

/* Bounds of a file, and of each device's part in it. */
enum {
    VP_LEARNT_BYTES = 1 << 20,    /* of text */
    VP_LEARNT_DEVICES = 16,       /* in a file */
    VP_LEARNT_REQUESTS = 1 << 16, /* that are remembered, from the first on */
    VP_LEARNT_SLOTS = 1 << 16,    /* different places */
    VP_LEARNT_RUNS = 1 << 13,     /* of handles */
    VP_LEARNT_HANDLES = 1 << 16,  /* in all runs together, and mapped again */
    VP_LEARNT_AGAINS = 1 << 13,   /* stretches of addresses at which handles of bare segments are mapped again */
    VP_LEARNT_WINDOWS = 1 << 12,  /* of blocks in bare segments */
    VP_LEARNT_TEXT = 128          /* bytes of a name, with its end */
};
/* Largest address or size that a plan may name. */
static const uint64_t VP_LEARNT_MOST = UINT64_C(1) << 44;

/* Handles side by side: `count` handles of `size` bytes, from `offset` on in the addresses of a zone. */
struct vp_learnt_run {
    uint64_t offset, size;
    uint32_t count;
    uint32_t need; /* number of the first request (in bare segments, of the first large block) that needs one */
    uint8_t zone;  /* enum vp_zone_name */
};

/* Handles side by side in bare segments that are mapped a second time, or once more: for blocks that come when those of
 * the other addresses are gone. */
struct vp_learnt_again {
    uint64_t from, to, size; /* where they are made, and where else they are mapped; bytes of each */
    uint32_t count;
    uint32_t need; /* number of the first large block there */
};

/* A place in the large zone at which requests were served. */
struct vp_learnt_slot {
    uint64_t size, offset;
    bool alone; /* shares no handle with others: cudaMalloc */
};

struct vp_learnt_device {
    unsigned device; /* CUDA's ordinal */
    char name[VP_LEARNT_TEXT];
    uint64_t memory, granularity;  /* bytes */
    unsigned driver;               /* version: 13000 is 13.0 */
    uint64_t peak_live, peak_held; /* bytes; of the run that was learnt from */
    bool left;                     /* the last run left this plan, and too little is known of it for a new plan */
    uint64_t total_requests;       /* requests of 1 MiB and more in the run; only the first are remembered */
    struct vp_learnt_run *runs;    /* ordered by `need` */
    struct vp_learnt_slot *slots;
    uint32_t *requests;             /* number of each one's slot, in the program's order */
    struct vp_learnt_again *agains; /* ordered by `need` */
    uint32_t *windows;              /* of large blocks in bare segments (pool/bare/lifetimes.h), in order */
    size_t run_count, slot_count, request_count, again_count, window_count;
    size_t handle_count; /* in all runs together */
};

struct vp_learnt {
    char made[VP_LEARNT_TEXT];    /* version of vpool */
    char program[VP_LEARNT_TEXT]; /* whose run it was */
    uint64_t key;                 /* by which VPOOL_PLAN=auto finds it, and checks it under a name; 0: unknown */
    struct vp_learnt_device device[VP_LEARNT_DEVICES];
    unsigned device_count;
    void *mem; /* anonymous memory with all arrays; owned */
    size_t mem_bytes;
};

/* Parses a text and keeps no pointer to it. 0; -EINVAL: `*why` and `*line` tell what is wrong; -EPROTO: it is of a
 * newer version; -ENOMEM. */
int vp_learnt_parse(const char *text, size_t length, struct vp_learnt *out, const char **why, unsigned *line);
void vp_learnt_finish(struct vp_learnt *learnt);

/* Appends a handle to the device's runs, which have room for VP_LEARNT_RUNS, or lengthens the last one by it; beyond
 * what a file may list it is left out. */
void vp_learnt_add_run(struct vp_learnt_device *device, uint8_t zone, uint64_t offset, uint64_t size, uint32_t need);

/* Writes the text of a plan to `text`, of at least VP_LEARNT_BYTES. Returns its length; 0: it does not fit. */
size_t vp_learnt_print(const struct vp_learnt *learnt, char *text);

/* FNV-1a, for the checksum in the last line; the first `from` is VP_LEARNT_HASH. */
static const uint64_t VP_LEARNT_HASH = UINT64_C(0xcbf29ce484222325);
uint64_t vp_learnt_hash(uint64_t from, const char *bytes, size_t count);
