/* Explains out-of-memory errors: one block of text on stderr; then CUDA's own error is returned as usual.
 *
 * Many programs try sizes until one fits, and handle the error. So after a report nothing is printed until no
 * allocation has failed for a while, and a process prints only a few reports. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/dump.h"

#include "watch/holders.h"
#include "watch/symbols.h"
#include "process/spill.h"
#include "process/state.h"
#include "base/clock.h"
#include "base/os_memory.h"
#include "base/output.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

enum { REPORTS = 5 };
static const uint64_t QUIET_NS = 10000000000;

/* ---- how often ---- */

static atomic_uint_least64_t last_failure;
static atomic_uint told, untold;

static bool worth_telling(void) {
    uint64_t now = vp_clock_ns(), before = atomic_exchange(&last_failure, now);
    if ((!before || now - before > QUIET_NS) && atomic_fetch_add(&told, 1) < REPORTS)
        return true;
    atomic_fetch_add(&untold, 1);
    return false;
}

void vp_oom_end(void) {
    unsigned more = atomic_exchange(&untold, 0);
    if (more)
        vp_log(VP_LOG_WARN, "out of memory %u more time%s, without a message of %s own", more, more == 1 ? "" : "s",
               more == 1 ? "its" : "their");
}

void vp_oom_leave_to_parent(void) {
    atomic_store(&untold, 0);
}

/* ---- who else has memory there: NVML, if the program has it already ---- */

enum { PROCESSES = 64, LISTED = 4 };

/* nvmlProcessInfo_t since driver 510. */
struct nvml_process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

/* Finds NVML without the dynamic linker, which may be loading a library whose constructor waits for this thread. */
static unsigned processes_of(const int pci[3], struct nvml_process *out) {
    enum { INIT, SHUTDOWN, DEVICE, RUNNING, SYMBOLS };
    static const char *const names[SYMBOLS] = {"nvmlInit_v2", "nvmlShutdown", "nvmlDeviceGetHandleByPciBusId_v2",
                                               "nvmlDeviceGetComputeRunningProcesses_v3"};
    void *nvml[SYMBOLS], *device;
    char bus[32];
    unsigned count = PROCESSES;
    if (!vp_symbols_find(names, SYMBOLS, nvml) || !nvml[SHUTDOWN] || !nvml[DEVICE] || !nvml[RUNNING] ||
        ((int (*)(void))nvml[INIT])())
        return 0;
    snprintf(bus, sizeof bus, "%08x:%02x:%02x.0", (unsigned)pci[0], (unsigned)pci[1], (unsigned)pci[2]);
    if (((int (*)(const char *, void **))nvml[DEVICE])(bus, &device) ||
        ((int (*)(void *, unsigned *, struct nvml_process *))nvml[RUNNING])(device, &count, out))
        count = 0;
    ((int (*)(void))nvml[SHUTDOWN])();
    return count < PROCESSES ? count : PROCESSES;
}

/* How many holders are listed, with how many frames each: the whole block must fit into one struct vp_text. */
enum { HOLDERS = 5, HOLDER_FRAMES = 4 };

/* ---- the block ---- */

/* Lists the processes that have most. This one is left out, if NVML knows it by the process id that it has here. */
static void say_processes(struct vp_text *b, const struct vp_dump_device *d) {
    struct nvml_process all[PROCESSES];
    const unsigned count = processes_of(d->pci, all);
    for (int listed = 0; listed < LISTED; listed++) {
        struct nvml_process *most = NULL;
        for (unsigned i = 0; i < count; i++)
            if (all[i].pid != (unsigned)getpid() && all[i].used && all[i].used != UINT64_MAX &&
                (!most || all[i].used > most->used))
                most = &all[i];
        if (!most)
            break;
        vp_say(b, "%s process %u has %s", listed ? "," : ";", most->pid, VP_SIZE(most->used));
        most->used = 0;
    }
}

static void say_device(struct vp_text *b, const struct vp_dump_device *d) {
    uint64_t held = d->snap.stats.held_bytes;
    if (!d->total)
        return;
    uint64_t used = d->total - d->free, others = used > held ? used - held : 0;
    vp_say(b, "vpool:   device   %12s free of %s\n", VP_SIZE(d->free), VP_SIZE(d->total));
    vp_say(b, "vpool:   others   %12s (other processes, and this one outside the pool)", VP_SIZE(others));
    say_processes(b, d);
    vp_say(b, "\n");
}

static void say_pool(struct vp_text *b, const struct vp_dump_device *d) {
    const struct vp_memory_stats *s = &d->snap.stats;
    const struct vp_digest *g = &d->digest;
    vp_say(b, "vpool:   live     %12s in %lu block%s (at most %s so far)\n", VP_SIZE(s->live_bytes), g->live_blocks,
           g->live_blocks == 1 ? "" : "s", VP_SIZE(s->peak_live_bytes));
    vp_say(
        b,
        "vpool:   held     %12s: beside what is live, %s lost to rounding, %s pinned beside live blocks, %s behind pending work, %s idle",
        VP_SIZE(s->held_bytes), VP_SIZE(g->internal), VP_SIZE(g->pinned), VP_SIZE(g->pending), VP_SIZE(g->idle));
    if (d->snap.peak_addressed)
        vp_say(b, ", %s kept for a cache in bare segments", VP_SIZE(g->cached));
    vp_say(b, "\n");
}

/* Says what the user could do, or wait for. */
static void say_hints(struct vp_text *b, const struct vp_dump_device *d, const struct vp_dump_request *request) {
    const struct vp_digest *g = &d->digest;
    const struct vp_options *o = vp_options();
    size_t largest = vp_dump_largest(d);
    bool smaller = vp_policy_chosen() == &vp_policy_vpool && g->worst[0].size > d->snap.granularity;
    vp_say(b, "vpool:   largest  %12s is the largest block that could be had now\n", VP_SIZE(largest));
    if (d->total && request->asked > d->total) {
        vp_say(b, "vpool:   more: none: the device has less memory in total\n");
        return;
    }
    if (d->limit && d->limit < d->total)
        vp_say(b, "vpool:   more: VPOOL_LIMIT keeps the pool to %s\n", VP_SIZE(d->limit));
    if (largest >= request->asked)
        vp_say(b, "vpool:   more: %s\n",
               vp_dump_fresh(d) + (d->stitches ? g->idle : 0) >= request->asked
                   ? d->stitches ? "the driver refused to create memory from what it reports as free"
                                 : "the policy takes more of the device at once than one block needs"
                   : "that block lies where blocks of this size are not placed");
    if (g->pending)
        vp_say(b, "vpool:   more: %s when pending work has completed%s\n", VP_SIZE(g->pending),
               request->stream && o->wait != VP_WAIT_EARLY && o->wait != VP_WAIT_AUTO ? ", or with VPOOL_WAIT=early"
                                                                                      : "");
    if (g->pinned)
        vp_say(b, "vpool:   more: %s when the blocks that pin %lu chunk%s are freed%s\n", VP_SIZE(g->pinned),
               g->pinned_chunks, g->pinned_chunks == 1 ? "" : "s", smaller ? "; a smaller VPOOL_HANDLE pins less" : "");
    if (!d->stitches && g->free_bytes > largest)
        vp_say(
            b,
            "vpool:   more: %s lie apart, and VPOOL_POLICY=%s does not build one range of them; VPOOL_POLICY=vpool does\n",
            VP_SIZE(g->free_bytes), vp_policy_name());
    if (!o->spill && !request->cache && request->asked > VP_SPILL_ABOVE)
        vp_say(b,
               "vpool:   more: VPOOL_SPILL=8G, for example, puts large blocks into the host's memory, which is slow\n");
    if (!vp_dump_plan.when[VP_DUMP_OOM])
        vp_say(
            b,
            "vpool:   look: VPOOL_DUMP=oom writes every block to a file; `vpool report` draws one whose name ends in .json\n");
}

static void report(const struct vp_dump *dump, const struct vp_dump_device *d) {
    const struct vp_dump_request *request = &dump->request;
    unsigned more = atomic_exchange(&untold, 0);
    struct vp_text *b = vp_os_take(sizeof *b); /* the stack may be some KiB in all */
    if (!b)
        return;
    /* If names are long, the block is written in parts. */
    b->fd = vp_output_is_stderr() && vp_log_shows(VP_LOG_WARN) ? STDERR_FILENO : -1;
    vp_say(b, "vpool: out of memory on device %d: %s (%zu bytes) asked for by ", (int)request->device,
           VP_SIZE(request->asked), request->asked);
    if (request->stream)
        vp_say(b, "stream %lu", request->stream);
    else
        vp_say(b, request->cache ? "PyTorch's cache" : "cudaMalloc");
    if (more)
        vp_say(b, "; %u more failed since the last message", more);
    vp_say(b, "\n");
    say_pool(b, d);
    if (d->snap.stats.spilled_bytes)
        vp_say(b, "vpool:   spilled  %12s of what is live, in the host's memory\n",
               VP_SIZE(d->snap.stats.spilled_bytes));
    say_device(b, d);
    vp_holders_say(b, d->snap.device, HOLDERS, HOLDER_FRAMES, "vpool:   holder ");
    say_hints(b, d, request);
    vp_log_block(b->buffer);
    vp_os_give(b, sizeof *b);
}

void vp_oom_explain(CUdevice device, size_t asked, uint64_t timeline_id) {
    bool wanted = vp_dump_plan.when[VP_DUMP_OOM];
    int place_errno = errno;
    if ((!wanted && !vp_log_shows(VP_LOG_WARN)) || !worth_telling())
        return;
    const struct vp_dump_request request = {.device = device,
                                            .asked = asked,
                                            .stream = vp_snapshot_stream(timeline_id),
                                            .cache = timeline_id == UINT64_MAX};
    int cancel;
    /* A file is written with the dumps' lock held. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    struct vp_dump *dump = vp_dump_take(VP_DUMP_OOM, &request);
    for (int i = 0; dump && i < dump->count; i++)
        if (dump->device[i].snap.device == device && vp_log_shows(VP_LOG_WARN))
            report(dump, &dump->device[i]);
    if (dump && wanted && vp_dump_lock()) {
        vp_dump_write(dump);
        vp_dump_unlock();
    }
    vp_dump_free(dump);
    pthread_setcancelstate(cancel, NULL);
    errno = place_errno;
}
