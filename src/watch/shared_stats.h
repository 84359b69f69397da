/* The page that each process under the library publishes for `vpool top`: the file VP_SHARED_STATS_FOLDER/vpool-UID-PID
 * of VP_SHARED_STATS_SIZE bytes, mode 0600. It exists from the opening of the first pool until the process exits. Pages
 * of killed processes are removed by readers, and by the next process that publishes one.
 *
 * The process updates the page before it releases the library's lock, once it has made driver calls or served a few
 * calls, or live memory has changed by more than a MiB. What stream caches serve meanwhile is not counted yet, and all
 * that they hold counts as live. A reader that needs exact figures raises `asked` and wakes the listener of
 * loans.asked; the next update then counts everything. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/process.h"

#include <stdatomic.h>
#include <stdint.h>

#define VP_SHARED_STATS_FOLDER "/dev/shm"
#define VP_SHARED_STATS_MAGIC UINT64_C(0x656761704c4f5056) /* "VPOLpage" */

enum {
    VP_SHARED_STATS_VERSION = 6,
    VP_SHARED_STATS_SIZE = 4096,
    VP_SHARED_STATS_DEVICES = 16,
    VP_SHARED_STATS_TEXT = 32,
    VP_SHARED_STATS_RANK = 16
};

/* X(field, value, meaning): the figures of one device, and what the process stores there (shared_stats.c). */
/* clang-format off */
#define VP_SHARED_STATS_FIGURES(X) \
    X(live_bytes, live_of(s, parked), "Bytes handed out, as asked for.") \
    X(peak_live_bytes, s->peak_live_bytes, "The most bytes that were handed out at once.") \
    X(held_bytes, s->held_bytes, "Bytes of the device that the pool holds.") \
    X(peak_held_bytes, s->peak_held_bytes, "The most bytes of the device that the pool held.") \
    X(allocs, s->allocs, "Allocations served.") \
    X(frees, s->frees, "Frees served.") \
    X(driver_calls, vp_stats_calls(s, &timelines), "Calls that the pool made to the driver: memory, addresses, events.") \
    X(driver_ns, s->driver_ns + timelines.ns, "Nanoseconds that the host spent in them.") \
    X(waits_gpu, s->waits_gpu, "Times that a stream was made to wait for memory.") \
    X(waits_host, s->waits_host, "Times that the host waited for memory.") \
    X(ooms, s->ooms, "Calls that ended with out of memory.") \
    X(stitches, s->stitches, "Ranges of addresses that were mapped.") \
    X(slack_permille, (uint64_t)(vp_slack_percent(pool) * 10 + 0.5), \
      "What more may be held than was alive at most, for fewer calls, in thousandths.") \
    X(novelty_permille, (uint64_t)(vp_slack_novelty(pool) * 1000 + 0.5), \
      "Of the last requests that count for it, those of a size never seen, in thousandths.") \
    X(slack_steps, pool->slack.steps, "How often the slack has changed.") \
    X(spared_bytes, s->spared_bytes, "Bytes made anew so that no call takes long.") \
    X(returned_bytes, s->returned_bytes, "Bytes given back for them.") \
    X(asleep_bytes, pool->mem.asleep_bytes, "Bytes of the pool that sleep: the program has paused the device.") \
    X(lent_bytes, s->lent_bytes, "Idle bytes given back because another process lacked them.") \
    X(loans_asked, s->loans_asked, "Times that this process lacked memory and asked others.") \
    X(loans_refused, s->loans_refused, "Times that it was asked and gave nothing.") \
    X(spilled_bytes, s->spilled_bytes, "Bytes of the host's memory, for what the device had no more memory for.") \
    X(spills_refused, s->spills_refused, "Times that the host's memory could not help.")
/* clang-format on */

#define VP_SHARED_STATS_FIELD(field, ...) uint64_t field;
struct vp_shared_stats_figures {
    VP_SHARED_STATS_FIGURES(VP_SHARED_STATS_FIELD)
};
#undef VP_SHARED_STATS_FIELD

/* One device. `changes` is odd while the figures change: values read between two equal, even values belong together. */
#define VP_SHARED_STATS_FIELD(field, ...) atomic_uint_least64_t field;
struct vp_shared_stats_device {
    atomic_uint_least64_t changes;
    uint64_t device;                  /* CUDA's ordinal */
    unsigned char uuid[16];           /* the device's; zero: the driver does not tell */
    atomic_uint_least64_t changed_ns; /* by the monotonic clock, to some milliseconds: when something was last told */
    VP_SHARED_STATS_FIGURES(VP_SHARED_STATS_FIELD)
};
#undef VP_SHARED_STATS_FIELD

/* A reader's request for the stacks that hold most on a device: it stores the device, raises `asked` and wakes the
 * listener of loans.asked, repeatedly, since that word does not change. The answer is a file named as the page with
 * VP_SHARED_STATS_HOLDERS appended, written before `answered` becomes equal to `asked`; the reader removes it. If there
 * is no file, the process could not write one, or another reader took it. */
#define VP_SHARED_STATS_HOLDERS ".holders"
struct vp_holders_wish {
    atomic_uint_least8_t device; /* CUDA's ordinal */
    atomic_uint_least8_t asked, answered;
};

/* Requests of others for the process's idle memory: lend.c. VP_LOANS_ALL asks for the idle memory of every device, for
 * a pause of the process; VP_LOANS_LOOK asks for exact figures in the page. */
enum { VP_LOANS_LENT = 1, VP_LOANS_HEARD = 2 };
#define VP_LOANS_ALL UINT64_MAX
#define VP_LOANS_LOOK (UINT64_MAX - 1)
/* In `given`: more may be available in a moment. */
#define VP_LOANS_LATER (UINT64_C(1) << 63)
struct vp_loans {
    atomic_uint_least8_t takes; /* VP_LOANS_: whether somebody listens */
    struct vp_holders_wish holders;
    atomic_uint_least32_t asker; /* the process that asks; 0: none */
    atomic_uint_least32_t asked; /* its: raised with each request, and woken */
    atomic_uint_least32_t done;  /* the number of the last that was answered */
    atomic_uint_least64_t device, bytes, given;
};

/* What `vpool pause` needs to know about the process, one bit each. */
enum {
    VP_TOLD = 1,          /* the others are */
    VP_TOLD_CAPTURES = 2, /* a stream captures */
    VP_TOLD_RANKS = 4,    /* an NCCL communicator of several ranks was made */
    VP_TOLD_TIES = 8      /* << enum vp_tie: there is some */
};

struct vp_ties_page {
    atomic_uint_least16_t told;
    /* Written by others. `paused` is 1 while vpool pause has put the process to sleep; `hold` is the id of a process
     * that wakes another (hold.c), or 0. */
    atomic_uint_least16_t paused;
    atomic_uint_least32_t hold;
};

struct vp_shared_stats {
    atomic_uint_least64_t magic; /* set last */
    uint32_t version, size;      /* of the whole file; fields are only added, at the end, within one version */
    uint32_t pid;
    uint32_t takes_dumps; /* 1: the process writes a dump when `dumps_asked` is raised and its futex woken */
    struct vp_process process;
    uint64_t namespace; /* that of the process's id */
    uint64_t began;     /* seconds since 1970 */
    char release[VP_SHARED_STATS_TEXT], policy[VP_SHARED_STATS_TEXT], program[VP_SHARED_STATS_TEXT];
    /* Readers raise the first three, and the next update does what they ask for. */
    atomic_uint_least32_t asked, trims_asked, dumps_asked;
    atomic_uint_least32_t answered, trims_done;
    atomic_uint_least64_t passed_on; /* calls that went on to CUDA */
    atomic_uint_least32_t devices;   /* used ones of those below */
    struct vp_loans loans;
    struct vp_shared_stats_device device[VP_SHARED_STATS_DEVICES];
    char rank[VP_SHARED_STATS_RANK]; /* among the processes that were started together; "": it is alone */
    /* For each device: its memory in bytes, and its place (PCI domain, bus and number, 16 bits each, and 1 << 48),
     * which is the same in all processes. 0: not known. */
    uint64_t total[VP_SHARED_STATS_DEVICES], place[VP_SHARED_STATS_DEVICES];
    struct vp_ties_page ties;
};

/* Returns the process whose page (or, with `answers`, whose answer to a reader) a file of this name in
 * VP_SHARED_STATS_FOLDER is, if it is one of this user's; else 0. */
int vp_shared_stats_owner(const char *name, bool answers);
/* The file that is locked, exclusively by flock(), by whoever wakes a process of this user; meanwhile the others take
 * no more memory. It is created when first needed, and stays. */
void vp_shared_stats_lock_name(unsigned uid, char out[64]);
/* The page of this process (NULL: none), and its file. */
extern struct vp_shared_stats *_Atomic vp_shared_stats_page;
extern char vp_shared_stats_name[64];
/* Removes the pages of this user whose process has ended or is another program now. Checks at most `files` files of the
 * folder and `pages` pages of this user, because others can create many by name. Allocates nothing. */
void vp_shared_stats_sweep(unsigned files, unsigned pages);

_Static_assert(sizeof(struct vp_shared_stats) <= VP_SHARED_STATS_SIZE, "a page");
