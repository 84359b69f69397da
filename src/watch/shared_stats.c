/* The shared statistics of the process: see shared_stats.h. Everything here runs under the library's lock.
 *
 * It must cost nothing noticeable: nothing on the fast path; no clock, no allocation, mostly three comparisons and a
 * few stores on the slow path. If no page can be made (/dev/shm is missing or full, or has the page of another
 * container's process with our id), the program runs without one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/shared_stats.h"

#include "watch/dump.h"
#include "watch/watch.h"
#include "pool/bare/bare.h"
#include "pool/slack.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/os_memory.h"
#include "base/output.h"
#include "pool/stream_cache.h"
#include "process/ipc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

char vp_shared_stats_name[64];
struct vp_shared_stats *_Atomic vp_shared_stats_page; /* read without the lock at exit */
static bool takes_dumps;                              /* a thread waits for requests for dumps */

/* A device's pool, and what was last published of it. */
static struct {
    struct vp_pool *pool;
    uint64_t parked; /* bytes in its stream caches when last counted: to the pool these are live */
    uint64_t calls, live, rare;
} told[VP_SHARED_STATS_DEVICES];
static uint32_t devices, answered, trims_done; /* the values in the page */

/* Each start deletes pages that killed processes left, under the lock, for at most about a millisecond: a file costs a
 * microsecond, a page ten. vpool top deletes all. */
enum { SWEPT_FILES = 512, SWEPT_PAGES = 32 };

/* A file that is no page after so many seconds will not become one. */
enum { BEGUN_S = 10 };

/* So many calls, or so large a change of live memory, may go unpublished. */
enum { FEW_CALLS = 64, FEW_BYTES = 1 << 20 };

/* ---- files ---- */

void vp_shared_stats_lock_name(unsigned uid, char out[64]) {
    snprintf(out, 64, VP_SHARED_STATS_FOLDER "/vpool-%u.lock", uid);
}

int vp_shared_stats_owner(const char *name, bool answers) {
    unsigned uid;
    int pid, end = 0;
    bool named = sscanf(name, "vpool-%u-%d%n", &uid, &pid, &end) == 2 &&
                 (!name[end] || (answers && !strcmp(name + end, VP_SHARED_STATS_HOLDERS)));
    return named && uid == geteuid() && pid > 0 ? pid : 0;
}

/* Reads a page. False: it is no page, or is not finished. */
static bool read_page(int folder, const char *name, struct vp_shared_stats *out) {
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, sizeof *out);
    if (fd >= 0)
        close(fd);
    return n == sizeof *out && out->magic == VP_SHARED_STATS_MAGIC;
}

/* Has the file's process ended? With a shared /dev/shm, other containers have the same ids; a new file is no page. */
static bool abandoned(int folder, const char *name, int pid, time_t changed) {
    struct vp_shared_stats page;
    struct vp_process now;
    errno = 0;
    bool there = vp_process_read(pid, &now);
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) /* it cannot be read now */
        return false;
    if (!read_page(folder, name, &page))
        return !there && vp_clock_date() - changed > BEGUN_S;
    return page.namespace == vp_process_namespace() && (!there || !vp_process_same(&now, &page.process));
}

void vp_shared_stats_sweep(unsigned files, unsigned pages) {
    _Alignas(struct dirent64) char entries[2048];
    int folder = open(VP_SHARED_STATS_FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat about;
    ssize_t n;
    /* glibc has getdents64() only from 2.30 on. */
    while (folder >= 0 && files && pages && (n = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0)
        for (ssize_t at = 0; at < n && files && pages; files--) {
            const struct dirent64 *entry = (const void *)(entries + at);
            int pid = vp_shared_stats_owner(entry->d_name, true);
            at += entry->d_reclen;
            /* Any user may create a file with this user's id in its name. */
            if (!pid || fstatat(folder, entry->d_name, &about, AT_SYMLINK_NOFOLLOW) || about.st_uid != geteuid())
                continue;
            pages--;
            if (abandoned(folder, entry->d_name, pid, about.st_mtime))
                unlinkat(folder, entry->d_name, 0);
        }
    if (folder >= 0)
        close(folder);
}

/* Was the file of our name left by this process before an exec, or is it no page? Not if it is another container's. */
static bool stale(void) {
    struct vp_shared_stats left;
    return !read_page(AT_FDCWD, vp_shared_stats_name, &left) || left.namespace == vp_process_namespace();
}

/* Creates the file at its full size, with every byte reserved: a store must not find /dev/shm full. */
static int create_file(void) {
    snprintf(vp_shared_stats_name, sizeof vp_shared_stats_name, VP_SHARED_STATS_FOLDER "/vpool-%u-%d",
             (unsigned)geteuid(), (int)getpid());
    int fd = -1, err = 0;
    for (int tries = 0; fd < 0 && tries < 2; tries++) {
        fd = vp_descriptor_above_standard(
            open(vp_shared_stats_name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
        err = fd < 0 ? -errno : 0;
        if (err != -EEXIST || !stale())
            break;
        unlink(vp_shared_stats_name);
    }
    /* Other processes of the user must be able to read it, whatever the program's umask is. */
    if (!err && (err = fchmod(fd, 0600) ? -errno : vp_output_reserve(fd, 0, VP_SHARED_STATS_SIZE)))
        unlink(vp_shared_stats_name);
    return fd < 0 ? err : vp_descriptor_unless(err, fd);
}

static void create_page(void) {
    static bool tried;
    if (tried || !vp_options()->page)
        return;
    tried = true;
    int place_errno = errno;
    vp_shared_stats_sweep(SWEPT_FILES, SWEPT_PAGES);
    int fd = create_file();
    struct vp_shared_stats *page = fd < 0 ? MAP_FAILED
                                          : mmap(NULL, VP_SHARED_STATS_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) {
        close(fd);
        if (page == MAP_FAILED)
            unlink(vp_shared_stats_name);
    }
    if (page == MAP_FAILED) {
        vp_log(VP_LOG_INFO, "no page for vpool top: %s", strerror(fd < 0 ? -fd : errno));
    } else {
        page->version = VP_SHARED_STATS_VERSION;
        page->size = VP_SHARED_STATS_SIZE;
        page->pid = (uint32_t)getpid();
        page->namespace = vp_process_namespace();
        page->takes_dumps = takes_dumps;
        vp_dump_hear(&page->dumps_asked);
        page->began = (uint64_t)vp_clock_date();
        vp_process_read(0, &page->process);
        snprintf(page->release, sizeof page->release, "%s", VP_VERSION);
        snprintf(page->policy, sizeof page->policy, "%s", vp_policy_name());
        vp_process_rank(page->rank, sizeof page->rank);
        snprintf(page->program, sizeof page->program, "%s", program_invocation_short_name);
        atomic_store_explicit(&page->magic, VP_SHARED_STATS_MAGIC, memory_order_release);
        vp_shared_stats_page = page;
        vp_state.published = true;
    }
    errno = place_errno;
}

/* ---- what is published ---- */

static void describe_device(struct vp_shared_stats *page, uint32_t i, CUdevice device) {
    static const CUdevice_attribute where[] = {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
                                               CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID};
    uint64_t place = 1;
    size_t total;
    for (int n = 0, value; n < 3; n++)
        place = place && !vp_state.drv.cuDeviceGetAttribute(&value, where[n], device) ? place << 16 | (uint16_t)value
                                                                                      : 0;
    page->place[i] = place;
    if (!vp_state.drv.cuDeviceTotalMem_v2(&total, device))
        page->total[i] = total;
}

void vp_shared_stats_open_device(struct vp_pool *pool) {
    create_page();
    struct vp_shared_stats *page = vp_shared_stats_page;
    if (!page || devices == VP_SHARED_STATS_DEVICES)
        return;
    told[devices].pool = pool;
    const CUuuid uuid = vp_ipc_uuid(pool->mem.device);
    page->device[devices].device = (uint64_t)pool->mem.device;
    describe_device(page, devices, pool->mem.device);
    memcpy(page->device[devices].uuid, &uuid, sizeof page->device[devices].uuid);
    atomic_store(&page->devices, ++devices);
}

/* A reader that sees one of these stores sees the odd number before it: each is a release, which is free on x86. */
static void store(atomic_uint_least64_t *out, uint64_t value) {
    atomic_store_explicit(out, value, memory_order_release);
}

/* Live bytes. Blocks parked in stream caches are not handed out, though to the pool they are live. */
static uint64_t live_of(const struct vp_memory_stats *s, uint64_t parked) {
    return s->live_bytes - (parked < s->live_bytes ? parked : s->live_bytes);
}

static void store_blocks(struct vp_shared_stats_device *out, const struct vp_memory_stats *s, uint64_t parked) {
    store(&out->live_bytes, live_of(s, parked));
    store(&out->peak_live_bytes, s->peak_live_bytes);
    store(&out->allocs, s->allocs);
    store(&out->frees, s->frees);
}

static VP_LOCKED void store_all(struct vp_shared_stats_device *out, const struct vp_pool *pool, uint64_t parked) {
    const struct vp_memory_stats *s = &pool->mem.stats;
    const struct vp_timeline_stats timelines = vp_state.timelines.stats[pool->mem.device];
#define STORE(field, value, meaning) store(&out->field, value);
    VP_SHARED_STATS_FIGURES(STORE)
#undef STORE
}

/* A sum that changes with every rare event that must be published at once. */
static inline uint64_t rare_of(const struct vp_memory_stats *s) {
    return s->driver_ns + s->ooms + s->loans_asked + s->loans_refused + s->spills_refused;
}

/* Has a device changed so much that all its figures must be published? */
static inline bool all_is_due(uint32_t i) {
    const struct vp_memory_stats *s = &told[i].pool->mem.stats;
    return s->allocs + s->frees - told[i].calls >= FEW_CALLS || rare_of(s) != told[i].rare;
}

/* `all`: update everything, not only what each block changes. `asked`: a reader asked, perhaps without any new call. */
static VP_LOCKED void publish(struct vp_shared_stats *page, uint32_t i, bool all, bool asked) {
    struct vp_shared_stats_device *out = &page->device[i];
    const struct vp_memory_stats *s = &told[i].pool->mem.stats;
    const uint64_t changes = atomic_load_explicit(&out->changes, memory_order_relaxed), now = vp_clock_coarse_ns();
    atomic_store_explicit(&out->changes, changes + 1, memory_order_relaxed);
    if (!asked)
        store(&out->changed_ns, now);
    told[i].live = s->live_bytes;
    if (all) {
        store_all(out, told[i].pool, told[i].parked);
        told[i].calls = s->allocs + s->frees;
        told[i].rare = rare_of(s);
    } else {
        store_blocks(out, s, told[i].parked);
    }
    store(&out->changes, changes + 2);
}

/* Answers a reader that wants exact figures, or wants idle memory to go back. */
static __attribute__((noinline)) VP_LOCKED void answer(struct vp_shared_stats *page, uint32_t asked, uint32_t trims) {
    for (uint32_t i = 0; i < devices && trims != trims_done; i++) {
        const struct vp_context *ctx = vp_context_on(&vp_state.timelines, told[i].pool->mem.device);
        const struct vp_entered entered = vp_context_enter(&vp_state.drv, ctx ? ctx->handle : NULL);
        vp_pressure_trim(told[i].pool, 0);
        vp_context_leave(&vp_state.drv, entered);
    }
    for (uint32_t i = 0; i < devices; i++) {
        told[i].parked = vp_stream_caches_count(&told[i].pool->caches);
        vp_bare_count(told[i].pool);
        publish(page, i, true, true);
    }
    atomic_store_explicit(&page->passed_on, vp_stats_passed(), memory_order_relaxed);
    atomic_store_explicit(&page->trims_done, trims_done = trims, memory_order_relaxed);
    atomic_store_explicit(&page->answered, answered = asked, memory_order_release);
}

static VP_LOCKED void tell_ties(struct vp_ties_page *out) {
    unsigned now = VP_TOLD |
                   (atomic_load_explicit(&vp_state.timelines.captures, memory_order_relaxed) ? VP_TOLD_CAPTURES : 0) |
                   (vp_state.ranks ? VP_TOLD_RANKS : 0) | vp_state.tied * VP_TOLD_TIES;
    for (uint32_t i = 0; i < devices; i++)
        now |= (told[i].pool->mem.exported != 0) * VP_TOLD_TIES << VP_TIE_EXPORT;
    now |= !vp_list_empty(&vp_state.imports) * VP_TOLD_TIES << VP_TIE_IMPORT;
    atomic_store_explicit(&out->told, (uint16_t)now, memory_order_release);
}

void vp_shared_stats_publish(void) {
    struct vp_shared_stats *page = vp_shared_stats_page;
    if (!page)
        return;
    tell_ties(&page->ties);
    uint32_t asked = atomic_load_explicit(&page->asked, memory_order_relaxed);
    uint32_t trims = atomic_load_explicit(&page->trims_asked, memory_order_relaxed);
    if (asked != answered || trims != trims_done) {
        answer(page, asked, trims);
        return;
    }
    for (uint32_t i = 0; i < devices; i++)
        if (all_is_due(i) || told[i].pool->mem.stats.live_bytes + FEW_BYTES - told[i].live > 2 * FEW_BYTES) {
            if (__builtin_expect(told[i].pool->bare != NULL, false))
                vp_bare_count(told[i].pool);
            publish(page, i, all_is_due(i), false);
        }
}

void vp_shared_stats_take_dumps(void) {
    vp_lock_take(&vp_library_lock);
    takes_dumps = true;
    if (vp_shared_stats_page)
        vp_shared_stats_page->takes_dumps = true;
    vp_lock_release(&vp_library_lock);
}

void vp_shared_stats_leave_to_parent(void) {
    vp_dump_hear(NULL);
    if (vp_shared_stats_page)
        vp_os_give(vp_shared_stats_page, VP_SHARED_STATS_SIZE);
    vp_shared_stats_page = NULL;
    vp_state.published = false;
}

/* The mapping stays: other threads may use it until the process is gone. */
void vp_shared_stats_remove(void) {
    char answer[sizeof vp_shared_stats_name + sizeof VP_SHARED_STATS_HOLDERS];
    if (!vp_shared_stats_page)
        return;
    unlink(vp_shared_stats_name);
    snprintf(answer, sizeof answer, "%s" VP_SHARED_STATS_HOLDERS, vp_shared_stats_name);
    unlink(answer);
}
