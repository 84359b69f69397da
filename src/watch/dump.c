/* Dumps: when they are made, what they contain, and which file they go to. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/dump.h"

#include "base/clock.h"
#include "base/os_memory.h"
#include "base/output.h"
#include "watch/watch.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vpool.h>

/* Held for one dump at a time: dumps are written in order. Taken before the library's lock; guards all data here. */
struct vp_lock vp_dump_guard;
static sigset_t before VP_GUARDED_BY(vp_dump_guard);
static unsigned written VP_GUARDED_BY(vp_dump_guard);

/* ---- when ---- */

/* Reads seconds, as "5" or "0.25". Returns milliseconds; 0: it is no such number, or less than 0.1 s. */
static uint64_t read_seconds(const char *text, size_t n) {
    uint64_t ms = 0, unit = 1000;
    bool point = false;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '.' && !point && i) {
            point = true;
        } else if (!isdigit((unsigned char)text[i]) || ms > UINT32_MAX) {
            return 0;
        } else if (!point) {
            ms = ms * 10 + 1000u * (unsigned)(text[i] - '0');
        } else {
            unit /= 10;
            ms += unit * (unsigned)(text[i] - '0');
        }
    }
    return ms >= 100 ? ms : 0;
}

static bool read_word(const char *word, size_t n, struct vp_dump_plan *plan) {
    static const char every[] = "every:";
    const size_t length = strlen(every);
    for (int i = 0; i < VP_DUMP_EVERY; i++)
        if (n == strlen(vp_dump_reasons[i]) && !strncmp(word, vp_dump_reasons[i], n))
            return plan->when[i] = true;
    const bool timed = n > length && !strncmp(word, every, length);
    const uint64_t ms = timed ? read_seconds(word + length, n - length) : 0;
    if (!ms)
        return false;
    plan->every_ms = ms;
    return plan->when[VP_DUMP_EVERY] = true;
}

void vp_dump_parse(const char *text, struct vp_dump_plan *plan, const char **wrong) {
    *plan = (struct vp_dump_plan){0};
    *wrong = NULL;
    while (*text) {
        text += strspn(text, ", ");
        size_t n = strcspn(text, ", ");
        if (n && !read_word(text, n, plan) && !*wrong)
            *wrong = text;
        text += n;
    }
}

struct vp_dump_plan vp_dump_plan;

void vp_dump_open(void) {
    const char *wrong;
    vp_dump_parse(vp_options()->dump, &vp_dump_plan, &wrong);
    if (wrong)
        vp_log(VP_LOG_WARN, "VPOOL_DUMP: %.*s is not valid (allowed: exit, oom, signal, every:SECONDS); it is ignored",
               (int)strcspn(wrong, ", "), wrong);
}

/* ---- in memory: of all pools at one moment, added up ---- */

/* Asks the driver for the figures of the device that the request is for. */
static VP_LOCKED void ask_device(const struct vp_pool *pool, struct vp_dump_device *d) {
    static const CUdevice_attribute where[] = {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
                                               CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID};
    for (int i = 0; i < 3; i++)
        if (vp_state.drv.cuDeviceGetAttribute(&d->pci[i], where[i], d->snap.device))
            d->pci[i] = 0;
    if (!vp_memory_ask_device(&pool->mem, &d->free, &d->total))
        d->total = 0;
}

static VP_LOCKED int take_all(struct vp_dump *dump, const struct vp_dump_request *request) {
    vp_pools_each(pool) {
        struct vp_dump_device *d = &dump->device[dump->count];
        int err = vp_snapshot_take(pool, &d->snap);
        if (err)
            return err;
        d->limit = pool->mem.limit;
        d->plan = vp_plans_figures(pool);
        d->stitches = !pool->traits.never_stitches;
        if (request && request->device == pool->mem.device)
            ask_device(pool, d);
        dump->count++;
    }
    return 0;
}

static VP_LOCKED struct vp_dump *take(enum vp_dump_reason reason, const struct vp_dump_request *request, int *err) {
    size_t pools = 0;
    vp_pools_each(pool) pools++;
    size_t bytes = sizeof(struct vp_dump) + pools * sizeof(struct vp_dump_device);
    struct vp_dump *dump = vp_os_take(bytes);
    *err = dump ? 0 : -ENOMEM;
    if (!dump)
        return NULL;
    dump->reason = reason;
    dump->bytes = bytes;
    if (request)
        dump->request = *request;
    *err = take_all(dump, request);
    if (*err || !vp_stats_has_used_cuda()) {
        vp_dump_free(dump);
        return NULL;
    }
    return dump;
}

/* Takes and releases the lock without the other steps of vp_enter() and vp_leave(): those may call the driver, and a
 * dump may be made when CUDA is gone. */
struct vp_dump *vp_dump_take(enum vp_dump_reason reason, const struct vp_dump_request *request) {
    int err = -EBUSY;
    if (atomic_load_explicit(&vp_state.phase, memory_order_acquire) != VP_OPEN || vp_thread.inside)
        return NULL;
    struct vp_dump *dump = NULL;
    if (vp_lock_for_a_while(&vp_library_lock)) {
        vp_calls_begin();
        dump = take(reason, request, &err);
        vp_calls_end();
        vp_lock_release(&vp_library_lock);
    }
    if (err)
        vp_log_once(VP_LOG_WARN, "VPOOL_DUMP: no dump: %s",
                    err == -EBUSY ? "another thread is in the driver, or in a pause, for too long" : strerror(-err));
    for (int i = 0; dump && i < dump->count; i++) {
        struct vp_dump_device *d = &dump->device[i];
        bool failed = request && request->device == d->snap.device && request->stream;
        vp_snapshot_digest(&d->snap, failed ? request->stream : UINT64_MAX, &d->digest);
    }
    return dump;
}

void vp_dump_free(struct vp_dump *dump) {
    if (!dump)
        return;
    for (int i = 0; i < dump->count; i++)
        vp_snapshot_finish(&dump->device[i].snap);
    vp_os_give(dump, dump->bytes);
}

/* ---- files ---- */

/* Writes a file under another name first, so nobody ever sees half a dump under its own name, then renames it. A file
 * that had the name before, and perhaps has other names (hard links), keeps its contents. What is not a regular file
 * (/dev/null, /dev/stderr) is not replaced: the dump is written to it. */
static int write_file(const struct vp_dump *dump, int device, const char *name) {
    static char other[VP_OPTION_TEXT + 64]; /* static, as the stack may be small; guarded by the dumps' lock */
    struct stat there;
    const bool special = !lstat(name, &there) && !S_ISREG(there.st_mode);
    int fd = special ? vp_output_open(name, O_APPEND) : vp_output_beside(name, ".tmp", 0644, other, sizeof other);
    const size_t n = strlen(name);
    const bool json = n > 5 && !strcmp(name + n - 5, ".json");
    int err = fd < 0 ? fd : json ? vp_dump_json(dump, device, fd) : vp_dump_text(dump, device, fd);
    if (fd >= 0 && close(fd) < 0 && !err)
        err = -errno;
    if (!special && !err && rename(other, name) < 0)
        err = -errno;
    if (!special && fd >= 0 && err)
        unlink(other);
    return err;
}

static void write_one(const struct vp_dump *dump, int device) {
    static char name[VP_OPTION_TEXT + 16];
    const bool fits = vp_output_name(name, sizeof name, vp_options()->dump_file, "phrnd%", dump->number, device);
    const int err = fits ? write_file(dump, device, name) : -ENAMETOOLONG;
    if (err)
        vp_log_once(VP_LOG_WARN, "VPOOL_DUMP_FILE: %s cannot be written: %s", name, vp_output_error(err));
}

static bool by_device(const char *pattern) {
    for (; (pattern = strchr(pattern, '%')) && pattern[1]; pattern += 2)
        if (pattern[1] == 'd')
            return true;
    return false;
}

/* The thread takes no signal meanwhile: a handler could end the process under the lock. */
VP_NOT_ANALYSED /* it returns both ways */ bool vp_dump_lock(void) {
    sigset_t all, mask;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask);
    if (!vp_lock_for_a_while(&vp_dump_guard)) {
        pthread_sigmask(SIG_SETMASK, &mask, NULL);
        return false;
    }
    before = mask;
    return true;
}

void vp_dump_unlock(void) {
    sigset_t mask = before;
    vp_lock_release(&vp_dump_guard);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
}

void vp_dump_write(struct vp_dump *dump) {
    dump->number = ++written;
    if (!by_device(vp_options()->dump_file))
        write_one(dump, -1);
    else
        for (int i = 0; i < dump->count; i++)
            write_one(dump, dump->device[i].snap.device);
}

static VP_REQUIRES(vp_dump_guard) void make(enum vp_dump_reason reason) {
    struct vp_dump *dump = vp_dump_take(reason, NULL);
    if (dump)
        vp_dump_write(dump);
    vp_dump_free(dump);
}

static void make_if_wanted(enum vp_dump_reason reason) {
    int kept_errno = errno;
    if (vp_dump_plan.when[reason] && vp_dump_lock()) {
        make(reason);
        vp_dump_unlock();
    }
    errno = kept_errno;
}

VP_PUBLIC int vpool_snapshot(int fd) {
    int err = -ENODEV;
    if (fd < 0)
        return -EINVAL;
    if (!vp_api_ready())
        return err;
    if (!vp_dump_lock())
        return -EBUSY;
    struct vp_dump *dump = vp_dump_take(VP_DUMP_REQUEST, NULL);
    if (dump)
        dump->number = ++written;
    vp_dump_unlock(); /* the reader at the other end may be slow */
    if (dump)
        err = vp_dump_json(dump, -1, fd);
    vp_dump_free(dump);
    return err;
}

/* ---- by signal and by time: in a thread of their own, so that a signal never finds the pool half-way through an
 * operation. It takes no signals, calls nothing of CUDA, and ends with the process. A forked child has none, and makes
 * no such dumps; a signal does nothing there ---- */

/* `word` counts how often a dump was asked for: our own word, until there is a page with one that others reach.
 * `answered` is how many of these requests have been answered. The thread sleeps on the word. */
static atomic_uint_least32_t own_word, answered;
static atomic_uint_least32_t *_Atomic word = &own_word;

static void ring(atomic_uint_least32_t *at) {
    atomic_fetch_add(at, 1);
    syscall(SYS_futex, at, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void on_signal(int number) {
    int kept_errno = errno;
    ring(atomic_load(&word));
    errno = kept_errno;
}

void vp_dump_hear(atomic_uint_least32_t *shared) {
    if (!shared) {
        atomic_store(&own_word, atomic_load(&answered));
        atomic_store(&word, &own_word);
        return;
    }
    uint32_t so_far = atomic_load(&own_word);
    atomic_store(shared, so_far);
    atomic_store(&word, shared);
    /* A signal may have come in between; and the thread must sleep on the other word now. */
    if (atomic_load(&own_word) != so_far)
        ring(shared);
    ring(&own_word);
}

/* Waits until somebody asks (true), or until that time by vp_clock_ns() (false). 0: there is no time limit. */
static bool wait_until(uint64_t until_ns) {
    const struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
    for (;;) {
        atomic_uint_least32_t *at = atomic_load(&word);
        uint32_t now = atomic_load(at);
        /* Our own word no longer counts once there is another. */
        if (at != atomic_load(&word))
            continue;
        if (now != atomic_load(&answered))
            return true;
        if (syscall(SYS_futex, at, FUTEX_WAIT_BITSET, now, until_ns ? &until : NULL, NULL, FUTEX_BITSET_MATCH_ANY) &&
            errno == ETIMEDOUT)
            return false;
    }
}

/* Answers with the lock held, so that the end of the process waits for the answer. */
static void answer(void) {
    int kept_errno = errno;
    if (atomic_load(atomic_load(&word)) != atomic_load(&answered) && vp_dump_lock()) {
        uint32_t now = atomic_load(atomic_load(&word));
        if (atomic_exchange(&answered, now) != now)
            make(VP_DUMP_SIGNAL);
        vp_dump_unlock();
    }
    errno = kept_errno;
}

static void *run(void *unused) {
    const uint64_t every_ns = vp_dump_plan.every_ms * UINT64_C(1000000);
    uint64_t next = vp_clock_ns() + every_ns;
    pthread_setname_np(pthread_self(), "vpool-dump");
    for (;;) {
        if (wait_until(every_ns ? next : 0)) {
            answer();
            continue;
        }
        make_if_wanted(VP_DUMP_EVERY);
        /* After a dump that took longer than the interval, wait a whole interval. */
        const uint64_t now = vp_clock_ns();
        next += every_ns;
        if (now > next)
            next = now + every_ns;
    }
    return NULL;
}

static void handle_signal(void) {
    /* glibc gives the names of signals only from 2.32 on. */
    static const struct signal {
        int number;
        const char *name;
    } signals[] = {[VP_DUMP_SIGUSR2] = {SIGUSR2, "SIGUSR2"},
                   [VP_DUMP_SIGUSR1] = {SIGUSR1, "SIGUSR1"},
                   [VP_DUMP_SIGHUP] = {SIGHUP, "SIGHUP"},
                   [VP_DUMP_SIGQUIT] = {SIGQUIT, "SIGQUIT"}};
    const struct signal *named = &signals[vp_options()->dump_signal];
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_ONSTACK}, theirs;
    sigemptyset(&action.sa_mask);
    if (sigaction(named->number, NULL, &theirs))
        return;
    if ((theirs.sa_flags & SA_SIGINFO) || theirs.sa_handler != SIG_DFL) {
        vp_log(VP_LOG_WARN,
               "VPOOL_DUMP=signal: the program handles %s itself, so no dumps are written by "
               "signal (VPOOL_DUMP_SIGNAL can name another)",
               named->name);
        return;
    }
    sigaction(named->number, &action, NULL);
}

bool vp_dump_start(void) {
    const struct vp_dump_plan *plan = &vp_dump_plan;
    if (!plan->when[VP_DUMP_SIGNAL] && !plan->when[VP_DUMP_EVERY])
        return false;
    const bool started = !vp_thread_start(run);
    if (!started)
        vp_log(VP_LOG_WARN, "VPOOL_DUMP: no thread can be started; no dumps are written by signal or time");
    else if (plan->when[VP_DUMP_SIGNAL])
        handle_signal();
    return started && plan->when[VP_DUMP_SIGNAL];
}

/* The lock stays taken: a thread that took it now would be cut off in the middle of a dump. */
VP_NOT_ANALYSED void vp_dump_end(void) {
    if (atomic_load(&vp_state.phase) != VP_OPEN)
        return;
    answer();
    make_if_wanted(VP_DUMP_EXIT);
    (void)vp_lock_for_a_while(&vp_dump_guard);
}
