/* Pauses and resumes a process by the driver's checkpoint, step by step. If the helper ends between two steps, the
 * process runs, or `vpool resume` brings it back: the driver knows its state, and a file says how far the helper came.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/pause/pause.h"

#include "base/clock.h"
#include "tool/pause/asleep.h"
#include "tool/pause/checkpoint.h"
#include "tool/tool.h"
#include "watch/lend.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct work {
    struct vp_screened *who;
    struct vp_checkpoint driver;
    struct vp_asleep record;
    int file; /* the record's file; negative: there is none */
};

static const double GIB = 1 << 30;

static int say(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int say(int status, const char *format, ...) {
    va_list args;
    vp_tool_flush();
    fprintf(stderr, "vpool: ");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return status;
}

static void nap(unsigned ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static const char *words(const struct work *w, CUresult res) {
    return vp_checkpoint_words(&w->driver, res);
}

static bool open_driver(struct work *w) {
    char why[256];
    /* All devices must be visible, whatever this shell leaves to its programs. */
    unsetenv("CUDA_VISIBLE_DEVICES");
    if (vp_checkpoint_open(&w->driver, *w->who->driver ? w->who->driver : NULL, why))
        return true;
    say(0, "%s", why);
    return false;
}

/* ---- the devices ---- */

/* Lists the devices of the process's page; without a page, all devices. */
static void list_devices(struct work *w) {
    const struct vp_shared_stats *stats = &w->who->stats;
    struct vp_asleep *r = &w->record;
    const uint32_t known = w->who->page ? atomic_load(&stats->devices) : (uint32_t)w->driver.devices;
    r->devices = 0;
    for (uint32_t i = 0; i < known && r->devices < VP_SHARED_STATS_DEVICES; i++) {
        const void *uuid = w->who->page ? stats->device[i].uuid : (const void *)w->driver.uuid[i].bytes;
        const uint64_t held = w->who->page ? stats->device[i].held_bytes + stats->device[i].asleep_bytes : 0;
        if (vp_checkpoint_device(&w->driver, uuid) < 0)
            continue;
        memcpy(r->device[r->devices].uuid, uuid, sizeof r->device[0].uuid);
        r->device[r->devices++].bytes = held;
    }
}

static void measure(struct work *w, size_t *out) {
    for (uint32_t i = 0; i < w->record.devices; i++) {
        size_t total;
        if (!vp_checkpoint_free(&w->driver, vp_checkpoint_device(&w->driver, w->record.device[i].uuid), &out[i],
                                &total))
            out[i] = SIZE_MAX;
    }
}

/* What came free is what the process had, with its contexts. Others may have taken some of it by now, so figures only
 * grow. */
static void take_down(struct work *w, const size_t *before, const size_t *after) {
    for (uint32_t i = 0; i < w->record.devices; i++)
        if (before[i] != SIZE_MAX && after[i] != SIZE_MAX && after[i] > before[i] &&
            after[i] - before[i] > w->record.device[i].bytes)
            w->record.device[i].bytes = after[i] - before[i];
}

/* ---- pause ---- */

/* Checks that the process runs. Otherwise says why it is not paused. */
static int check_running(struct work *w) {
    CUprocessState state = CU_PROCESS_STATE_RUNNING;
    const int pid = w->who->pid;
    CUresult res = w->driver.cuCheckpointProcessGetState(pid, &state);
    if (res)
        return say(VP_PAUSE_REFUSED,
                   "process %d is not paused: the driver does not know it (%s); it may use no CUDA yet", pid,
                   words(w, res));
    switch (state) {
    case CU_PROCESS_STATE_RUNNING: return VP_PAUSE_DONE;
    case CU_PROCESS_STATE_CHECKPOINTED:
        return say(VP_PAUSE_REFUSED, "process %d is paused already; vpool resume %d wakes it", pid, pid);
    case CU_PROCESS_STATE_LOCKED:
        return say(
            VP_PAUSE_REFUSED,
            "process %d is locked by a pause that was interrupted or is in progress; vpool resume %d lets it run on",
            pid, pid);
    default: return say(VP_PAUSE_REFUSED, "process %d is not paused: its last checkpoint has failed for good", pid);
    }
}

/* Takes the record. Its holder is the only helper that works on the process, so the state is examined only now. */
static int begin_record(struct work *w) {
    struct vp_asleep *r = &w->record;
    const int pid = w->who->pid;
    w->file = vp_asleep_open(w->who->uid, pid, true);
    if (w->file == -EBUSY)
        return say(VP_PAUSE_REFUSED, "process %d is not paused: another vpool pause or resume is working on it", pid);
    const int status = check_running(w);
    const bool kept = status && vp_asleep_read(w->file, r); /* of an earlier pause */
    *r = (struct vp_asleep){.stage = VP_ASLEEP_BEGUN, .pid = pid, .helper = getppid(), .process = w->who->process};
    vp_process_read(r->helper, &r->helper_process);
    list_devices(w);
    if (!status && w->file >= 0 && vp_asleep_write(w->file, r))
        return VP_PAUSE_DONE;
    if (w->file >= 0 && !kept)
        vp_asleep_remove(w->who->uid, pid);
    if (status)
        return status;
    return say(VP_PAUSE_FAILED, "process %d is not paused: " VP_SHARED_STATS_FOLDER ": %s", pid,
               strerror(w->file < 0 ? -w->file : ENOSPC));
}

/* Idle memory need not be copied to the host and back, so the process first gives it back. */
static void give_idle_back(const struct work *w, uint64_t most_ns) {
    struct vp_shared_stats *page = vp_screen_map(w->who);
    if (!page)
        return;
    vp_lend_all(page, w->who->pid, most_ns);
    munmap(page, VP_SHARED_STATS_SIZE);
}

/* Returns 0 if the process runs on; else it is still locked. */
static CUresult unlock(const struct work *w) {
    CUcheckpointUnlockArgs args = {0};
    return w->driver.cuCheckpointProcessUnlock(w->who->pid, &args);
}

static int lock(struct work *w, unsigned ms) {
    CUcheckpointLockArgs args = {.timeoutMs = ms};
    CUresult res = w->driver.cuCheckpointProcessLock(w->who->pid, &args);
    if (res == CUDA_ERROR_NOT_READY)
        return say(VP_PAUSE_REFUSED, "process %d is not paused: its queued work did not end within %.1f s; it runs on",
                   w->who->pid, ms / 1e3);
    if (res)
        return say(VP_PAUSE_FAILED, "process %d is not paused: locking it failed: %s", w->who->pid, words(w, res));
    return VP_PAUSE_DONE;
}

/* The process is locked, so what its page says now stays true. NULL: nothing prevents the checkpoint. */
static const char *refusal(const struct work *w) {
    if (!w->who->page)
        return NULL;
    if (!vp_screen_again(w->who))
        return "its page is gone, in which stands what ties it to others";
    return vp_screen_refusal(w->who);
}

static int checkpoint(struct work *w) {
    CUcheckpointCheckpointArgs args = {0};
    size_t before[VP_SHARED_STATS_DEVICES], after[VP_SHARED_STATS_DEVICES];
    const int pid = w->who->pid;
    const char *why = refusal(w);
    if (why)
        return say(VP_PAUSE_REFUSED, "process %d is not paused: %s", pid, why);
    w->record.stage = VP_ASLEEP_LOCKED;
    list_devices(w);
    vp_asleep_write(w->file, &w->record);
    measure(w, before);
    CUresult res = w->driver.cuCheckpointProcessCheckpoint(pid, &args);
    if (res)
        return say(VP_PAUSE_FAILED, "process %d is not paused: its checkpoint failed: %s", pid, words(w, res));
    measure(w, after);
    take_down(w, before, after);
    w->record.stage = VP_ASLEEP_DONE;
    vp_asleep_write(w->file, &w->record);
    vp_screen_mark(w->who, true);
    return VP_PAUSE_DONE;
}

int vp_pause_steps(struct vp_screened *who, uint64_t until_ns, unsigned lock_ms) {
    struct work w = {.who = who, .file = -1};
    const int pid = who->pid;
    const uint64_t begin = vp_clock_ns(), most_ns = until_ns > begin ? until_ns - begin : 0;
    uint64_t bytes = 0;
    int status = open_driver(&w) ? begin_record(&w) : VP_PAUSE_FAILED;
    if (status)
        return status;
    give_idle_back(&w, most_ns / 4);
    const uint64_t now = vp_clock_ns(), left_ms = until_ns > now ? (until_ns - now) / 1000000 * 3 / 4 : 0;
    status = lock(&w, left_ms < lock_ms ? (unsigned)left_ms + 1 : lock_ms);
    if (!status && (status = checkpoint(&w))) {
        CUresult res = unlock(&w);
        if (res)
            return say(VP_PAUSE_FAILED, "and it is still locked (%s): vpool resume %d lets it run on", words(&w, res),
                       pid);
    }
    if (status) {
        vp_asleep_remove(who->uid, pid);
        return status;
    }
    for (uint32_t i = 0; i < w.record.devices; i++)
        bytes += w.record.device[i].bytes;
    printf("process %d sleeps: %.2f GiB of device memory free again, in %.1f s; vpool resume %d wakes it\n", pid,
           (double)bytes / GIB, (double)(vp_clock_ns() - begin) / 1e9, pid);
    return VP_PAUSE_DONE;
}

/* ---- resume ---- */

/* What must stay free: contexts may take more than before, and so may processes that are not under the library. Less on
 * small devices. */
static size_t to_spare(size_t total) {
    const size_t usual = 512 << 20;
    return total / 16 < usual ? total / 16 : usual;
}

/* How long other processes may take to give memory back: one that has just given is spared for five seconds. */
static const uint64_t LENT_NS = 6000000000;
enum { ASK_EVERY_MS = 1000 };

static int make_room(struct work *w, uint32_t i, uint64_t until_ns) {
    const uint64_t begin = vp_clock_ns();
    const uint64_t bytes = w->record.device[i].bytes;
    const int device = vp_checkpoint_device(&w->driver, w->record.device[i].uuid);
    CUuuid uuid;
    size_t unused, total;
    enum vp_lend_some some = VP_LEND_LATER;
    memcpy(&uuid, w->record.device[i].uuid, sizeof uuid);
    for (;;) {
        if (device < 0 || !vp_checkpoint_free(&w->driver, device, &unused, &total))
            return say(VP_PAUSE_FAILED, "process %d stays asleep: the free memory of its device cannot be found out",
                       w->who->pid);
        const uint64_t need = bytes + to_spare(total), now = vp_clock_ns();
        if (unused >= need)
            return VP_PAUSE_DONE;
        if (some != VP_LEND_LATER || now - begin > LENT_NS || now > until_ns)
            return say(
                VP_PAUSE_REFUSED,
                "process %d stays asleep: %.2f GiB of device %d are free, and %.2f are needed (%.2f, and %.2f to "
                "spare); vpool top shows who has the rest",
                w->who->pid, (double)unused / GIB, device, (double)need / GIB, (double)bytes / GIB,
                (double)to_spare(total) / GIB);
        if (!vp_lend_borrow(&uuid, need - unused, need - unused, &some) && some == VP_LEND_LATER)
            nap(ASK_EVERY_MS);
    }
}

/* Reads the record. If there is none, uses what the page says. */
static void read_record(struct work *w) {
    const bool good = w->file >= 0 && vp_asleep_read(w->file, &w->record) && w->record.stage == VP_ASLEEP_DONE;
    if (!good)
        list_devices(w);
    if (!good && !w->who->page)
        say(0, "the needs of process %d were not recorded, so they are not compared with the free memory", w->who->pid);
}

static int over(struct work *w) {
    vp_screen_mark(w->who, false);
    vp_asleep_remove(w->who->uid, w->who->pid);
    return VP_PAUSE_DONE;
}

static int let_go(struct work *w) {
    CUresult res = unlock(w);
    if (res)
        return say(VP_PAUSE_FAILED, "process %d is still locked: %s; vpool resume %d tries again", w->who->pid,
                   words(w, res), w->who->pid);
    return over(w);
}

static int bring_back(struct work *w, uint64_t until_ns) {
    CUcheckpointRestoreArgs args = {0};
    const int pid = w->who->pid;
    int status = VP_PAUSE_DONE;
    read_record(w);
    if (!vp_hold_begin(&w->record, until_ns))
        return say(
            VP_PAUSE_FAILED,
            "process %d stays asleep: other processes are being woken, and its turn did not come in time; or the "
            "lock is not ours (" VP_SHARED_STATS_FOLDER "/vpool-UID.lock)",
            pid);
    /* A process that was already taking memory has it by then. */
    nap(20);
    for (uint32_t i = 0; i < w->record.devices && !status; i++)
        status = make_room(w, i, until_ns);
    CUresult res = status ? CUDA_SUCCESS : w->driver.cuCheckpointProcessRestore(pid, &args);
    vp_hold_end();
    if (res)
        status = say(VP_PAUSE_FAILED, "process %d could not be woken: %s; vpool doctor shows its state", pid,
                     words(w, res));
    return status ? status : let_go(w);
}

int vp_resume_steps(struct vp_screened *who, uint64_t until_ns) {
    struct work w = {.who = who, .file = -1};
    CUprocessState state = CU_PROCESS_STATE_RUNNING;
    const uint64_t begin = vp_clock_ns();
    const int pid = who->pid;
    if (!open_driver(&w))
        return VP_PAUSE_FAILED;
    w.file = vp_asleep_open(who->uid, pid, false);
    if (w.file == -EBUSY)
        return say(VP_PAUSE_REFUSED, "process %d: another vpool pause or resume is working on it", pid);
    /* The state is read now, as nobody else changes it from here on. */
    CUresult res = w.driver.cuCheckpointProcessGetState(pid, &state);
    if (res)
        return say(VP_PAUSE_REFUSED, "process %d is not paused: the driver does not know it (%s)", pid, words(&w, res));
    int status = VP_PAUSE_FAILED;
    switch (state) {
    case CU_PROCESS_STATE_RUNNING: over(&w); return say(VP_PAUSE_REFUSED, "process %d is not paused: it runs", pid);
    case CU_PROCESS_STATE_LOCKED: status = let_go(&w); break;
    case CU_PROCESS_STATE_CHECKPOINTED: status = bring_back(&w, until_ns); break;
    default: return say(VP_PAUSE_FAILED, "process %d cannot be woken: the driver has given it up", pid);
    }
    if (!status)
        printf("process %d runs on, after %.1f s\n", pid, (double)(vp_clock_ns() - begin) / 1e9);
    return status;
}

/* ---- its state ---- */

int vp_pause_state(const struct vp_screened *who, bool run_on) {
    struct vp_screened copy = *who;
    struct work w = {.who = &copy, .file = -1};
    CUprocessState state;
    char why[256];
    if (!vp_checkpoint_open(&w.driver, *who->driver ? who->driver : NULL, why) ||
        w.driver.cuCheckpointProcessGetState(who->pid, &state))
        return -1;
    if (state == CU_PROCESS_STATE_LOCKED && run_on && !unlock(&w))
        state = CU_PROCESS_STATE_RUNNING;
    return (int)state;
}
