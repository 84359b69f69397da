/* What a run has learnt, as the next one of the same program starts from it: the file behind VPOOL_PLAN.
 *
 * Text, a record a line; numbers are decimal, text is percent-encoded. docs/plans.md has the lines. A reader trusts
 * nothing: whatever the bytes are, it takes a bounded time and bounded memory, and tells what is wrong.
 *
 * A hint only: handles are made where it says, ahead of the program, and requests get the places that it names where
 * these are free (ahead.h). What it says of a program that does something else costs some idle memory for a while. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VP_LEARNT_MAGIC "vpool-learnt,"
enum { VP_LEARNT_VERSION = 1 };

/* Bounds of a file, and of each device's part in it. */
enum {
    VP_LEARNT_BYTES = 1 << 20,    /* of text */
    VP_LEARNT_DEVICES = 16,       /* in a file */
    VP_LEARNT_REQUESTS = 1 << 16, /* remembered: the first of the run */
    VP_LEARNT_SLOTS = 1 << 16,    /* different places */
    VP_LEARNT_RUNS = 1 << 13,     /* of handles */
    VP_LEARNT_HANDLES = 1 << 16,  /* in all runs together */
    VP_LEARNT_TEXT = 128          /* bytes of a name */
};
/* Largest address or size that a plan may name. */
static const uint64_t VP_LEARNT_MOST = UINT64_C(1) << 44;

/* Handles side by side: `count` of `size` bytes, from `offset` in the addresses of a zone on. */
struct vp_learnt_run {
    uint64_t offset, size;
    uint32_t count;
    uint32_t need; /* number of the request that wants them first */
    uint8_t zone;  /* enum vp_zone_name */
};

/* A place in the large zone that served requests. */
struct vp_learnt_slot {
    uint64_t size, offset;
    bool alone; /* shares no handle with others: cudaMalloc */
};

struct vp_learnt_device {
    unsigned device; /* CUDA's ordinal */
    char name[VP_LEARNT_TEXT];
    uint64_t memory, granularity;  /* bytes */
    unsigned driver;               /* version: 13000 is 13.0 */
    uint64_t peak_live, peak_held; /* of the run that was learnt from, bytes */
    bool left;                     /* by the last run, of which too little is known to plan by it */
    uint64_t total_requests;       /* of 1 MiB and more, that it made; the first are remembered */
    struct vp_learnt_run *runs;    /* in the order of `need` */
    struct vp_learnt_slot *slots;
    uint32_t *requests; /* their slots, in the order of the program */
    size_t run_count, slot_count, request_count;
};

struct vp_learnt {
    char made[VP_LEARNT_TEXT];    /* version of vpool */
    char program[VP_LEARNT_TEXT]; /* whose run it was */
    uint64_t key;                 /* what `auto` finds it by, and whose it is under a name; 0: not known */
    struct vp_learnt_device device[VP_LEARNT_DEVICES];
    unsigned device_count;
    void *mem; /* anonymous memory, of all arrays */
    size_t mem_bytes;
};

/* Reads a text, of which it keeps nothing. 0; -EINVAL: `*why` and `*line` tell what is wrong; -EPROTO: it is of a newer
 * version; -ENOMEM. */
int vp_learnt_parse(const char *text, size_t length, struct vp_learnt *out, const char **why, unsigned *line);
void vp_learnt_finish(struct vp_learnt *learnt);

/* The text of a plan, in memory of at least VP_LEARNT_BYTES; its length, or 0: it does not fit. */
size_t vp_learnt_print(const struct vp_learnt *learnt, char *text);

/* FNV-1a, as the last line has it; `from` is VP_LEARNT_HASH at first. */
static const uint64_t VP_LEARNT_HASH = UINT64_C(0xcbf29ce484222325);
uint64_t vp_learnt_hash(uint64_t from, const char *bytes, size_t count);
