/* Lends idle memory to a process that lacks it: among the processes of one user on one device, through their pages.
 *
 * A process that would fail for lack of memory looks at the pages of the others and asks for what it lacks, first the
 * one whose memory has been idle for longest. Each process has a thread that sleeps until it is asked, and then gives
 * idle chunks back to the device, the longest idle first. Chunks are released there and created anew here, never passed
 * on: no process can read another's bytes.
 *
 * Against thrashing: a process that has just given, and needs memory again, is spared for some seconds unless it is
 * inactive; one that got no help asks once a second; one that does not answer is not asked again for a minute. A
 * request by another process can cost time, but never data. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/lend.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/os_memory.h"
#include "pool/giving.h"
#include "watch/holders.h"
#include "watch/watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A process that has given memory, and has made some since, is spared for SPARED_NS: memory that went to and fro would
 * help nobody. It is no longer spared after making no call for QUIET_TIMES as long as its gift took, or QUIET_NS: a
 * hand-over then costs a small part of its time. It is watched for that long while the asker waits. */
static const uint64_t SPARED_NS = 5000000000, QUIET_NS = 500000000;
enum { QUIET_TIMES = 16 };

/* An answer takes some 10 ms for each GiB. A process that has not answered after ANSWER_NS is busy, or stopped. */
static const uint64_t ANSWER_NS = 2000000000, SULK_NS = 60000000000, KEPT_NS = 1000000000;

/* An asker reads its answer well within MOMENT_NS, unless it is stopped. */
enum { MOMENT_NS = 20000000, NAP_NS = 100000 };

/* Limits of pages and files looked at. A file with a page's name counts as NAMED: others can create it. */
enum { PAGES = 64, FILES = 65536, NAMED = 128 };

/* Idle memory counts as free only if its process has made no call for so long: then it gives at once. */
static const uint64_t STILL_NS = 1000000000;

/* Looks at others take one part in LOOK_SHARE of an asker's time at most; others are asked LOOK_NS apart at least. */
enum { LOOK_SHARE = 50, LOOK_NS = 10000000 };

/* The least idle memory that is worth asking for. */
enum { WORTH = 2 << 20 };

/* Waits until the word is no longer `value`, or for as long as `most`. Spurious wakes are possible. */
static void wait_while(atomic_uint_least32_t *word, uint32_t value, const struct timespec *most) {
    syscall(SYS_futex, word, FUTEX_WAIT, value, most, NULL, 0);
}

static void wake(atomic_uint_least32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* ---- to give ---- */

static atomic_bool ended;

/* The last gift of a device's pool: when it was, how long it took, and how many chunks the pool had created by then.
 * Also the number of the pool's calls, and since when that has not changed, as far as is known. */
static struct gift {
    uint64_t when, took, births, calls, quiet_since;
} gifts[VP_DEVICES];

/* How long the pool must still make no call before it gives again. 0: it may give now. */
static VP_LOCKED uint64_t spared_for(struct vp_pool *pool, uint64_t now) {
    struct gift *last = &gifts[pool->mem.device];
    if (!last->when || now - last->when > SPARED_NS || pool->mem.births == last->births)
        return 0;
    const struct vp_memory_stats stats = vp_pool_stats(pool);
    const uint64_t quiet = last->took < QUIET_NS / QUIET_TIMES ? last->took * QUIET_TIMES : QUIET_NS;
    if (last->calls != stats.allocs + stats.frees)
        last->quiet_since = now;
    last->calls = stats.allocs + stats.frees;
    return now - last->quiet_since < quiet ? quiet - (now - last->quiet_since) : 0;
}

/* With the lock held; it is released while the pool waits for a short time. */
static VP_LOCKED uint64_t give(struct vp_pool *pool, uint64_t bytes) {
    struct gift *last = &gifts[pool->mem.device];
    uint64_t spared = spared_for(pool, vp_clock_ns()), given;
    if (spared) {
        vp_step_out();
        vp_clock_sleep(spared);
        vp_step_in();
        spared = atomic_load(&ended) ? SPARED_NS : spared_for(pool, vp_clock_ns());
    }
    const uint64_t begin = vp_clock_ns();
    /* A context of the device is made current, as everywhere else where memory is unmapped. */
    const struct vp_context *ctx = vp_context_on(&vp_state.timelines, pool->mem.device);
    const struct vp_entered entered = vp_context_enter(&vp_state.drv, ctx ? ctx->handle : NULL);
    given = bytes && !spared ? vp_giving_lend(pool, bytes) : 0;
    vp_context_leave(&vp_state.drv, entered);
    if (given)
        *last = (struct gift){.when = begin, .took = vp_clock_ns() - begin, .births = pool->mem.births};
    else
        pool->mem.stats.loans_refused++;
    return given | (spared || (given < bytes && vp_pool_shrinkable(pool)) ? VP_LOANS_LATER : 0);
}

static VP_LOCKED void answer(struct vp_loans *loans) {
    const uint64_t device = atomic_load(&loans->device);
    if (device == VP_LOANS_ALL) /* asked by whoever pauses the process, which counts the loan itself */
        atomic_store(&loans->given, vp_pressure_trim_all());
    if (device >= VP_LOANS_LOOK)
        return; /* exact figures are published when the lock is let go */
    struct vp_pool *pool = device < VP_DEVICES ? vp_state.pools[device] : NULL;
    atomic_store(&loans->given, pool ? give(pool, atomic_load(&loans->bytes)) : 0);
    atomic_fetch_add(&vp_shared_stats_page->asked, 1); /* so that what is left is published */
}

/* Does what was asked for. When the lock is let go, exact figures are published, and idle memory goes back if a reader
 * wants that; once `ended` is set, CUDA may be gone, and nothing goes back. False: the library is not open. */
static bool serve(struct vp_shared_stats *own, bool loan) {
    if (!vp_enter())
        return false;
    if (atomic_load(&ended))
        atomic_store(&own->trims_asked, atomic_load(&own->trims_done));
    else if (loan)
        answer(&own->loans);
    vp_leave();
    return true;
}

static bool is_read(struct vp_shared_stats *own) {
    return !atomic_load(&ended) && (atomic_load(&own->asked) != atomic_load(&own->answered) ||
                                    atomic_load(&own->trims_asked) != atomic_load(&own->trims_done));
}

static void *listen_for_ever(void *unused) {
    struct vp_shared_stats *own = vp_shared_stats_page;
    struct vp_loans *loans = &own->loans;
    for (;;) {
        uint32_t asked = atomic_load(&loans->asked);
        /* Requests for holders, figures and trims do not change the word, so their wakes are repeated. */
        if (!atomic_load(&ended))
            vp_holders_answer(own, vp_shared_stats_name);
        if (asked == atomic_load(&loans->done)) {
            if (is_read(own) && !serve(own, false))
                return NULL;
            wait_while(&loans->asked, asked, NULL);
            continue;
        }
        if (!serve(own, true))
            return NULL;
        atomic_store(&loans->done, asked);
        wake(&loans->done);
    }
}

void vp_lend_start(void) {
    static bool started;
    struct vp_shared_stats *own = vp_shared_stats_page;
    if (started || !own)
        return;
    started = true;
    if (!vp_thread_start(listen_for_ever))
        atomic_store(&own->loans.takes, VP_LOANS_HEARD | (vp_options()->lend ? VP_LOANS_LENT : 0));
}

void vp_lend_end(void) {
    struct vp_shared_stats *own = vp_shared_stats_page;
    atomic_store(&ended, true);
    if (own)
        atomic_store(&own->loans.takes, 0);
}

/* ---- to ask ---- */

struct vp_lock vp_lend_guard;

struct giver {
    struct vp_shared_stats *page;
    const struct vp_shared_stats_device *figures;
    uint64_t device, idle, changed; /* CUDA's ordinal there; bytes; when it last did something */
    int pid;
};

/* Processes that are not asked until a time: they did not answer; or they gave less than was asked, as the rest lies
 * beside live blocks. The latter are asked earlier if they have more idle memory by then. */
static struct keeper {
    int pid;
    uint64_t device, idle, until; /* idle: SULKS: not asked for any device */
} keepers[PAGES];
static const uint64_t SULKS = UINT64_MAX;

static bool keeps(int pid, uint64_t device, uint64_t idle, uint64_t now) {
    for (const struct keeper *k = keepers; k < keepers + PAGES; k++)
        if (k->pid == pid && now < k->until && (k->idle == SULKS || (k->device == device && idle <= k->idle)))
            return true;
    return false;
}

static void keep(const struct giver *g, uint64_t idle) {
    const uint64_t until = vp_clock_ns() + (idle == SULKS ? SULK_NS : KEPT_NS);
    struct keeper *oldest = keepers;
    for (struct keeper *k = keepers; k < keepers + PAGES; k++)
        if (k->until < oldest->until)
            oldest = k;
    *oldest = (struct keeper){g->pid, g->device, idle, until};
}

static void read_figures(struct giver *g, uint64_t *held) {
    const uint64_t live = atomic_load(&g->figures->live_bytes);
    const uint64_t elsewhere = atomic_load(&g->figures->asleep_bytes) + atomic_load(&g->figures->spilled_bytes);
    *held = atomic_load(&g->figures->held_bytes);
    g->idle = *held + elsewhere < live + WORTH ? 0 : vp_lesser(*held, *held + elsewhere - live);
    if (keeps(g->pid, g->device, g->idle, vp_clock_ns()))
        g->idle = 0;
}

/* Maps a process's page. False, unless the process is in our namespace, runs, lends, and has memory on the device. */
static bool look(int folder, const char *name, int pid, const CUuuid *uuid, struct giver *out) {
    struct stat about;
    struct vp_process now;
    int fd = vp_descriptor_above_standard(openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    bool good = fd >= 0 && !fstat(fd, &about) && S_ISREG(about.st_mode) && about.st_uid == geteuid() &&
                about.st_size >= VP_SHARED_STATS_SIZE;
    struct vp_shared_stats *page = good ? mmap(NULL, VP_SHARED_STATS_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                                        : MAP_FAILED;
    if (fd >= 0)
        close(fd);
    if (page == MAP_FAILED)
        return false;
    *out = (struct giver){.page = page, .pid = pid};
    if (atomic_load(&page->magic) == VP_SHARED_STATS_MAGIC && page->version == VP_SHARED_STATS_VERSION &&
        page->namespace == vp_process_namespace() && atomic_load(&page->loans.takes) & VP_LOANS_LENT &&
        !atomic_load(&page->ties.paused) && vp_process_read(pid, &now) && vp_process_same(&now, &page->process) &&
        !vp_process_is_stopped(pid))
        for (uint32_t i = 0; i < atomic_load(&page->devices) && i < VP_SHARED_STATS_DEVICES; i++) {
            uint64_t held;
            out->figures = &page->device[i];
            out->device = out->figures->device;
            read_figures(out, &held);
            if (memcmp(&out->figures->uuid, uuid, sizeof *uuid) != 0 || held < WORTH)
                continue;
            out->changed = atomic_load(&out->figures->changed_ns);
            return true;
        }
    vp_os_give(page, VP_SHARED_STATS_SIZE);
    return false;
}

/* Finds the processes that have some; the one that did something longest ago comes first. */
static unsigned look_at_all(const CUuuid *uuid, struct giver *out) {
    _Alignas(struct dirent64) char list[2048];
    const int folder = open(VP_SHARED_STATS_FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC), self = getpid();
    const uint64_t now = vp_clock_ns();
    unsigned seen = 0, count = 0;
    ssize_t n;
    while (folder >= 0 && seen < FILES && count < PAGES && (n = syscall(SYS_getdents64, folder, list, sizeof list)) > 0)
        for (ssize_t at = 0; at < n && seen < FILES && count < PAGES;) {
            const struct dirent64 *entry = (const void *)(list + at);
            int pid = vp_shared_stats_owner(entry->d_name, false);
            at += entry->d_reclen;
            seen += pid ? NAMED : 1;
            struct giver found;
            if (!pid || pid == self || keeps(pid, 0, SULKS, now) || !look(folder, entry->d_name, pid, uuid, &found))
                continue;
            unsigned i = count++;
            for (; i && out[i - 1].changed > found.changed; i--)
                out[i] = out[i - 1];
            out[i] = found;
        }
    if (folder >= 0)
        close(folder);
    return count;
}

/* Is process `other` asking only for figures? An asker that needs memory waits for the end of that. */
static bool is_look(struct vp_loans *loans, uint32_t other) {
    return atomic_load(&loans->device) == VP_LOANS_LOOK && atomic_load(&loans->done) != atomic_load(&loans->asked) &&
           atomic_load(&loans->asker) == other;
}

/* One process asks at a time, and stores its id. The id of a process that has ended no longer counts. Nor does, after a
 * moment, that of one that has been answered: it is stopped, or another process has the id by now. */
static bool begin(struct vp_loans *loans, bool waits) {
    const uint32_t self = (uint32_t)getpid();
    uint32_t other = 0;
    struct vp_process there;
    if (atomic_compare_exchange_strong(&loans->asker, &other, self) || other == self)
        return true;
    for (uint64_t waited = 0; waits && waited < MOMENT_NS && is_look(loans, other); waited += NAP_NS)
        vp_clock_sleep(NAP_NS);
    other = 0;
    if (atomic_compare_exchange_strong(&loans->asker, &other, self))
        return true;
    if (vp_process_read((int)other, &there)) {
        const uint32_t asked = atomic_load(&loans->asked);
        if (atomic_load(&loans->done) != asked || !waits)
            return false;
        vp_clock_sleep(MOMENT_NS);
        if (atomic_load(&loans->asked) != asked)
            return false;
    }
    return atomic_compare_exchange_strong(&loans->asker, &other, self);
}

/* Posts a request, and sets `number`. False: another process is asking, whose end is not to be waited for. */
static bool post(const struct giver *g, uint64_t device, uint64_t bytes, bool waits, uint32_t *number) {
    struct vp_loans *loans = &g->page->loans;
    if (!begin(loans, waits))
        return false;
    atomic_store(&loans->device, device);
    atomic_store(&loans->bytes, bytes);
    atomic_store(&loans->given, 0);
    *number = atomic_fetch_add(&loans->asked, 1) + 1;
    wake(&loans->asked);
    return true;
}

/* Waits until that time for the answer with that number. False: there is none. */
static bool collect(const struct giver *g, uint32_t number, uint64_t until_ns, uint64_t *given) {
    struct vp_loans *loans = &g->page->loans;
    struct vp_process there;
    uint32_t done;
    while ((done = atomic_load(&loans->done)) != number && vp_clock_ns() < until_ns && vp_process_read(g->pid, &there))
        wait_while(&loans->done, done, &(struct timespec){.tv_nsec = 50000000});
    *given = done == number ? atomic_load(&loans->given) : 0;
    uint32_t self = (uint32_t)getpid();
    atomic_compare_exchange_strong(&loans->asker, &self, 0); /* unless another has taken us for stopped */
    return done == number;
}

static uint64_t ask(const struct giver *g, uint64_t bytes, uint64_t most_ns) {
    uint64_t given = VP_LOANS_LATER; /* another process is asking */
    uint32_t number;
    if (post(g, g->device, bytes, true, &number) && !collect(g, number, vp_clock_ns() + most_ns, &given))
        keep(g, SULKS);
    return given;
}

static uint64_t ask_for(struct giver *g, uint64_t bytes, bool *later) {
    const uint64_t answer = ask(g, bytes, ANSWER_NS), given = answer & ~VP_LOANS_LATER;
    uint64_t held;
    read_figures(g, &held);
    if (answer & VP_LOANS_LATER)
        *later = true;
    else if (given < bytes)
        keep(g, g->idle);
    return given;
}

uint64_t vp_lend_all(struct vp_shared_stats *page, int pid, uint64_t most_ns) {
    const struct giver g = {.page = page, .pid = pid, .device = VP_LOANS_ALL};
    return atomic_load(&page->loans.takes) & VP_LOANS_HEARD
               ? ask(&g, 0, most_ns < ANSWER_NS ? most_ns : ANSWER_NS) & ~VP_LOANS_LATER
               : 0;
}

static uint64_t add_up(const struct giver *givers, unsigned count) {
    uint64_t all = 0;
    for (unsigned i = 0; i < count; i++)
        all += givers[i].idle;
    return all;
}

/* Blocks that streams have just freed are in stream caches, and count as live in the page while the process sleeps. So
 * each process is asked for exact figures, all at once; this gives nothing back. `needed`: for an allocation that would
 * fail otherwise, which has the time. */
static void look_closely(struct giver *givers, unsigned count, bool needed) {
    uint32_t number[PAGES];
    bool asked[PAGES];
    uint64_t held, none;
    for (unsigned i = 0; i < count; i++) {
        atomic_fetch_add(&givers[i].page->asked, 1);
        asked[i] = post(&givers[i], VP_LOANS_LOOK, 0, needed, &number[i]);
    }
    const uint64_t until = vp_clock_ns() + (needed ? ANSWER_NS : MOMENT_NS);
    for (unsigned i = 0; i < count; i++) {
        if (asked[i] && !collect(&givers[i], number[i], until, &none) && needed)
            keep(&givers[i], SULKS);
        read_figures(&givers[i], &held);
    }
}

/* The idle bytes that were last seen on a device, and until when this figure is used: some programs ask for the free
 * memory before each allocation. */
static struct {
    uint64_t until;
    atomic_uint_least64_t bytes; /* also read without the lock */
} seen[VP_DEVICES];

static atomic_bool looking; /* the holder of vp_lend_guard only looks, for some milliseconds */

static void look_for(CUdevice device, const CUuuid *uuid) {
    static struct giver givers[PAGES]; /* guarded by vp_lend_guard: threads may have small stacks */
    const uint64_t begin = vp_clock_ns();
    const unsigned all = look_at_all(uuid, givers);
    unsigned count = 0;
    uint64_t bytes = 0;
    for (unsigned i = 0; i < all; i++)
        if (begin < givers[i].changed + STILL_NS)
            vp_os_give(givers[i].page, VP_SHARED_STATS_SIZE);
        else
            givers[count++] = givers[i];
    look_closely(givers, count, false);
    for (unsigned i = 0; i < count; i++) {
        /* Live blocks pin some of it, and a process that uses most of what it holds will want the rest again. */
        const uint64_t live = atomic_load(&givers[i].figures->held_bytes) - givers[i].idle;
        bytes += givers[i].idle > live ? givers[i].idle - live : 0;
        vp_os_give(givers[i].page, VP_SHARED_STATS_SIZE);
    }
    const uint64_t end = vp_clock_ns();
    atomic_store(&seen[device].bytes, bytes);
    seen[device].until = end + vp_greater((end - begin) * LOOK_SHARE, count ? LOOK_NS : 0);
}

uint64_t vp_lend_spare(CUdevice device, const CUuuid *uuid) {
    /* While another thread looks, what was seen before will do. */
    if (vp_lock_try(&vp_lend_guard)) {
        atomic_store(&looking, true);
        if (vp_clock_ns() >= seen[device].until)
            look_for(device, uuid);
        atomic_store(&looking, false);
        vp_lock_release(&vp_lend_guard);
    }
    return atomic_load(&seen[device].bytes);
}

uint64_t vp_lend_borrow(const CUuuid *uuid, uint64_t bytes, uint64_t least, enum vp_lend_some *some) {
    struct giver givers[PAGES];
    uint64_t got = 0;
    bool later = !bytes;
    *some = VP_LEND_LATER;
    /* While another thread asks for memory, there may be some for this one, too. */
    for (uint64_t waited = 0; !vp_lock_try(&vp_lend_guard); waited += NAP_NS) {
        if (!atomic_load(&looking) || waited > ANSWER_NS)
            return 0;
        vp_clock_sleep(NAP_NS);
    }
    /* The idle memory that was seen is on its way here. */
    for (int i = 0; i < VP_DEVICES; i++) {
        seen[i].until = 0;
        atomic_store(&seen[i].bytes, 0);
    }
    const unsigned count = look_at_all(uuid, givers);
    if (add_up(givers, count) < least)
        look_closely(givers, count, true);
    /* If all of it would not be enough, none is asked for: the others would lose it, and nobody here would gain. */
    const uint64_t all = add_up(givers, count);
    const bool enough = all && all >= least;
    for (unsigned i = 0; i < count; i++) {
        if (enough && givers[i].idle && got < bytes)
            got += ask_for(&givers[i], bytes - got, &later);
        vp_os_give(givers[i].page, VP_SHARED_STATS_SIZE);
    }
    *some = !enough ? VP_LEND_NONE : later ? VP_LEND_LATER : VP_LEND_REFUSED;
    vp_lock_release(&vp_lend_guard);
    return got;
}
