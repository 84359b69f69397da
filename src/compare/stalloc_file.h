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

/* The caller fills in what comes first; the rest is all zero then. */
struct vp_stalloc_reader {
    const char *path; /* for messages */
    char *message;
    size_t message_room;
    void *context;
    /* More room, with what was there; NULL: there is none. */
    void *(*grow)(void *context, void *old, size_t had, size_t wanted);
    /* What it was made of. 0 or a negative errno. */
    int (*made)(void *context, const char *trace);
    /* A device's plan begins: where it is to be put, all zero (NULL: nowhere). 0; -EEXIST, -E2BIG or another errno. */
    int (*device)(void *context, uint16_t number, uint64_t bound, struct vp_stalloc_plan **plan);
    /* A phase of that device. 0 or a negative errno. */
    int (*phase)(void *context, size_t first, const char *name);

    bool published; /* by STAlloc's planner */
    size_t line;
    unsigned version;
    uint16_t number; /* of the device that is open */
    bool open, ended;
    size_t wanted, count; /* its requests: promised, and read */
    uint64_t peak;
    size_t phases; /* of that device, so far */
    size_t step;   /* of the visits, the first of the last step */
    struct vp_stalloc_plan *plan;
    struct {
        size_t places, modules, visits, spaces, names;
    } room;
};

/* One line, which is changed; -EINVAL with one line of fault in `message`, -ENOMEM, or what a callback said. */
int vp_stalloc_read_line(struct vp_stalloc_reader *r, char *line, size_t length);
/* After the last line. */
int vp_stalloc_read_end(struct vp_stalloc_reader *r);
/* Says what is wrong with the line. -EINVAL. */
int vp_stalloc_fault(struct vp_stalloc_reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Room that an array of so many items has, in items: what `grow` was asked for. */
size_t vp_stalloc_room(size_t count);

/* A whole file for one device, into anonymous memory: NULL, with one line in the log, if it is none. */
struct vp_stalloc_plan *vp_stalloc_load(const char *path, unsigned device);
/* Gives that back; NULL is none. */
void vp_stalloc_unload(struct vp_stalloc_plan *plan);
