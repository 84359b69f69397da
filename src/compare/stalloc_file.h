/* Plans as files, read into whatever memory the caller has: in a program for the policy stalloc, and by the command.
 *
 * The file is text, a record a line:
 *   vpool-plan,N                          what it is, and its version: 2 if there are lines m, else 1
 *   made,BY,TRACE                         the vpool that made it, and of what; text is percent-encoded
 *   planner,NAME                          vpool or stalloc
 *   device,NUMBER,REQUESTS,PEAK,BOUND     a device's plan begins: how many requests, bytes of addresses, lower bound
 *   p,FIRST,NAME                          a phase, which begins before that request
 *   m,NAME,LOW,HIGH,…                     a visit of a module, among the requests: what its own may use, in order
 *   r,SIZE,STREAM,OFFSET                  a request, in the order of the program
 *   end                                   nothing is behind
 * Whatever is not as it should be is an error: a plan is read whole or not at all. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "compare/stalloc.h"

enum { VP_STALLOC_VERSION = 2 };

/* The caller sets the members up to `phase`; the others must be zero. */
struct vp_stalloc_reader {
    const char *path; /* for messages */
    char *message;
    size_t message_room;
    void *context;
    /* Enlarges memory and keeps its contents. NULL: there is none. */
    void *(*grow)(void *context, void *old, size_t had, size_t wanted);
    /* Gets what the plan was made from. 0 or a negative errno. */
    int (*made)(void *context, const char *trace);
    /* Begins a device's plan. Sets where it is put, all zero (NULL: nowhere). 0; -EEXIST, -E2BIG or another errno. */
    int (*device)(void *context, uint16_t number, uint64_t bound, struct vp_stalloc_plan **plan);
    /* Gets a phase of that device. 0 or a negative errno. */
    int (*phase)(void *context, size_t first, const char *name);

    bool published; /* made by STAlloc's planner */
    size_t line;
    unsigned version;
    uint16_t number; /* of the current device */
    bool open, ended;
    size_t wanted, count; /* its requests: announced, and read so far */
    uint64_t peak;
    size_t phases; /* of that device so far */
    size_t step;   /* index of the first visit of the last step */
    struct vp_stalloc_plan *plan;
    struct {
        size_t places, modules, visits, spaces, names;
    } room;
};

/* Reads a line, and changes it. 0; -EINVAL with one line of fault in `message`; -ENOMEM; or what a callback returned.
 */
int vp_stalloc_read_line(struct vp_stalloc_reader *r, char *line, size_t length);
/* To be called after the last line. */
int vp_stalloc_read_end(struct vp_stalloc_reader *r);
/* Says what is wrong with the line. Returns -EINVAL. */
int vp_stalloc_fault(struct vp_stalloc_reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Returns the capacity, in items, that an array of `count` items has: what `grow` was asked for. */
size_t vp_stalloc_room(size_t count);

/* Reads the plan of one device from a file into anonymous memory. NULL, with a message in the log, if there is none. */
struct vp_stalloc_plan *vp_stalloc_load(const char *path, unsigned device);
/* Frees such a plan; it may be NULL. */
void vp_stalloc_unload(struct vp_stalloc_plan *plan);
