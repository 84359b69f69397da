/* Dumps: the state of every pool of the process at one moment, in a file. docs/dumps.md describes the contents.
 *
 * A dump is a snapshot taken under the library's lock, between two operations; it is summed up and written without the
 * lock. It makes no driver call, except for the device's figures in a dump of a failed allocation. */
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

/* Parses a list of words. Wrong ones are ignored; `*wrong` is the first (up to a comma or the end), or NULL. */
void vp_dump_parse(const char *text, struct vp_dump_plan *plan, const char **wrong);
/* The plan of this process. vp_dump_open() reads it when the library opens, and logs wrong words. */
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

/* The allocation that failed, or the request for a dump. */
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

/* Takes a snapshot of all pools and sums it up. `request` NULL: nothing failed; else also asks for the figures of its
 * device, in the calling thread's context. NULL: there is no pool and nothing was passed on; or there was no lock
 * within a second, or no memory, which is logged once. */
struct vp_dump *vp_dump_take(enum vp_dump_reason reason, const struct vp_dump_request *request);
void vp_dump_free(struct vp_dump *dump);

/* ---- where: files ---- */

/* Starts what VPOOL_DUMP asks for: a thread, if it has something to do, and a signal handler, if the program has none.
 * Called once, when the program has loaded its driver. True: requests for dumps are answered. */
bool vp_dump_start(void);
/* Other processes ask for a dump by raising a word in shared memory and waking its futex; a signal might be the
 * program's own by then. NULL: the word no longer exists. */
void vp_dump_hear(atomic_uint_least32_t *word);

/* The steps of a dump. Between lock and unlock the thread gets no signals; other threads wait up to 1 s for the lock.
 */
extern struct vp_lock vp_dump_guard;
bool vp_dump_lock(void) VP_TRIES(vp_dump_guard);
/* Writes the file or files. A failure is logged once. */
void vp_dump_write(struct vp_dump *dump) VP_REQUIRES(vp_dump_guard);
void vp_dump_unlock(void) VP_RELEASES(vp_dump_guard);

/* Makes a dump that was requested but not made yet, and the one at exit, if wanted; waits at most a second for one in
 * progress. None is made afterwards. */
void vp_dump_end(void);

/* ---- dump_write.c ---- */

/* Bytes, in whole granules, that the pool could still take from the device; 0 if that is not known. */
size_t vp_dump_fresh(const struct vp_dump_device *d);
/* The size of the largest block that could be allocated now without waiting, except for effects at the edges: one free
 * stretch, or one range built of all idle memory and what the device has left. */
size_t vp_dump_largest(const struct vp_dump_device *d);

/* Write a dump, of one device or (-1) all, into an open file. 0 or a negative errno. */
int vp_dump_json(const struct vp_dump *dump, int device, int fd);
int vp_dump_text(const struct vp_dump *dump, int device, int fd);

/* ---- oom.c ---- */

/* Explains a failed allocation on the timeline (0: cudaMalloc) on stderr, and dumps if that is wanted; both only a few
 * times in a process. Not under the lock. */
void vp_oom_explain(CUdevice device, size_t asked, uint64_t timeline_id);
/* The process ends: logs how many further failures there were. */
void vp_oom_end(void);
/* In a forked child: drops the failures of the parent. */
void vp_oom_leave_to_parent(void);
