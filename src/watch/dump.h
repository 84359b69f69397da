/* Dumps: what every pool of the process looked like at one moment, in a file. docs/dumps.md tells what is in it.
 *
 * * A dump is a snapshot taken under the library's lock, between two operations; it is added up and written without the
 * lock. No driver call is made for one, but for the figures of the device that go with an allocation which failed. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "process/process.h"
#include "watch/plans.h"
#include "watch/snapshot.h"

#include <stdatomic.h>

enum vp_dump_reason { VP_DUMP_EXIT, VP_DUMP_OOM, VP_DUMP_SIGNAL, VP_DUMP_EVERY, VP_DUMP_REQUEST };
extern const char *const vp_dump_reasons[];

/* ---- when: what VPOOL_DUMP says ---- */

struct vp_dump_plan {
    bool when[VP_DUMP_EVERY + 1]; /* by reason */
    uint64_t every_ms;
};

/* Reads a list of words. Each one that is none is left out; the first such begins at `*wrong` and ends at a comma or
 * the end, else NULL. */
void vp_dump_parse(const char *text, struct vp_dump_plan *plan, const char **wrong);
/* That of this process, once the library opens; the wrong words are told then. */
extern struct vp_dump_plan vp_dump_plan;
void vp_dump_open(void);

/* ---- what ---- */

struct vp_dump_device {
    struct vp_snapshot snap;
    struct vp_digest digest;
    bool stitches;               /* the policy builds one range of chunks that lie apart */
    size_t limit;                /* of what the pool may hold (VPOOL_LIMIT); 0: none */
    size_t free, total;          /* of the device; total 0: not known */
    struct vp_plan_figures plan; /* VPOOL_PLAN */
    int pci[3];                  /* where the device is, as domain, bus and number there; only for the request's */
};

/* The allocation that failed, or that a dump was asked for with. */
struct vp_dump_request {
    CUdevice device;
    size_t asked;
    uint64_t stream; /* as in a snapshot */
    bool cache;      /* it was PyTorch's cache over bare segments */
};

struct vp_dump {
    enum vp_dump_reason reason;
    unsigned number;
    struct vp_dump_request request; /* out of memory */
    int count;                      /* of devices */
    size_t bytes;                   /* of this mapping */
    struct vp_dump_device device[];
};

/* Takes a snapshot of all pools and adds it up. `request` NULL: nothing failed; else the figures of its device are
 * asked for, in the calling thread's context. NULL: there is no pool and nothing was passed on; or no lock within a
 * second, or no memory, which is told once. */
struct vp_dump *vp_dump_take(enum vp_dump_reason reason, const struct vp_dump_request *request);
void vp_dump_free(struct vp_dump *dump);

/* ---- where: files ---- */

/* Starts what VPOOL_DUMP asks for: a thread, if there is anything to do for it, and a handler for the signal, if the
 * program has none. Once, when the program has its driver. True: who asks for a dump is answered. */
bool vp_dump_start(void);
/* Other processes ask by raising a word that they share with this one, and waking its futex: no signal, which by then
 * might be the program's own. NULL: there is none any more. */
void vp_dump_hear(atomic_uint_least32_t *word);

/* What it is made of. Between a successful lock and its unlock the thread gets no signals; others wait up to 1 s. */
extern struct vp_lock vp_dump_guard;
bool vp_dump_lock(void) VP_TRIES(vp_dump_guard);
/* Writes the file or files. What goes wrong is told once. */
void vp_dump_write(struct vp_dump *dump) VP_REQUIRES(vp_dump_guard);
void vp_dump_unlock(void) VP_RELEASES(vp_dump_guard);

/* One that was asked for and not made yet, and the last, if it is wanted; waits at most a second for one under way.
 * None is made from here on. */
void vp_dump_end(void);

/* ---- dump_write.c ---- */

/* Bytes that the pool could still take from the device, whole granules; 0 where that is not known. */
size_t vp_dump_fresh(const struct vp_dump_device *d);
/* The largest block that could be had now without waiting, give or take what lies at the edges: one stretch, or all
 * that is idle in one range with what the device has left. */
size_t vp_dump_largest(const struct vp_dump_device *d);

/* Into an open file; `device` -1: all. 0 or a negative errno. */
int vp_dump_json(const struct vp_dump *dump, int device, int fd);
int vp_dump_text(const struct vp_dump *dump, int device, int fd);

/* ---- oom.c ---- */

/* An allocation failed, on that timeline (0: cudaMalloc): explains it on stderr, and dumps if that is wanted; both a
 * few times in a process. Not under the lock. */
void vp_oom_explain(CUdevice device, size_t asked, uint64_t timeline_id);
/* The process ends: how many more there were. */
void vp_oom_end(void);
/* In the child of a fork: what failed there is its parent's to tell. */
void vp_oom_leave_to_parent(void);
