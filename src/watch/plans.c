/* VPOOL_PLAN in a process: see plans.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/plans.h"

#include "base/clock.h"
#include "base/os_memory.h"
#include "pool/learnt/ahead.h"
#include "pool/learnt/learn.h"
#include "pool/learnt/learnt_file.h"
#include "watch/say.h"
#include "watch/watch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* With nothing to make, the builder looks again after NAP_NS, then after twice as long, up to NAP_MOST_NS. It ends when
 * the plan is made, or when the program has been out of step for LOOKS_OUT_OF_STEP looks. */
static const uint64_t NAP_NS = 200000, NAP_MOST_NS = 50000000;
enum { LOOKS_OUT_OF_STEP = 200 };

/* How long the end of the process waits for a batch that is under way. */
static const uint64_t LAST_BATCH_NS = 1000000000;

/* The limits of all plans together, in bytes (more than a job of some hundred ranks needs), and of files looked at. */
enum { FOLDER_MOST = 64 << 20, FILES_MOST = 4096 };

/* After so many seconds, a temporary file must be of a process that was killed while it wrote. */
enum { LEFT_BEHIND = 600 };

static const char SUFFIX[] = ".learnt";

/* Guarded by the library's lock, but for `ended`. */
static struct {
    bool building;                             /* the thread runs */
    uint64_t key;                              /* of the program; 0: not computed yet */
    struct vp_learnt_device about[VP_DEVICES]; /* what can be asked of a device only while CUDA is there */
    char folder[PATH_MAX];                     /* the folder of a relative FILE; empty: FILE names its own */
} plans;
static atomic_bool ended;

static bool is_auto(void) {
    return !strcmp(vp_options()->plan, "auto");
}

/* ---- which run it is ---- */

static uint64_t add(uint64_t hash, const char *text) {
    return vp_learnt_hash(hash, text, strlen(text) + 1);
}

/* Adds the executable: its path, size and time of modification. */
static uint64_t add_executable(uint64_t hash) {
    static char text[PATH_MAX]; /* too large for some stacks */
    char about[96];
    struct stat st;
    const ssize_t n = readlink("/proc/self/exe", text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    hash = add(hash, text);
    if (stat("/proc/self/exe", &st))
        return hash;
    snprintf(about, sizeof about, "%lld %lld.%09ld", (long long)st.st_size, (long long)st.st_mtim.tv_sec,
             st.st_mtim.tv_nsec);
    return add(hash, about);
}

static uint64_t add_arguments(uint64_t hash) {
    char text[512];
    const int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    for (ssize_t n; fd >= 0 && (n = read(fd, text, sizeof text)) > 0;)
        hash = vp_learnt_hash(hash, text, (size_t)n);
    if (fd >= 0)
        close(fd);
    return hash;
}

static uint64_t key_of_run(void) {
    static const char *const ranks[] = {
        "RANK",      "LOCAL_RANK",          "WORLD_SIZE", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK",
        "PMIX_RANK", "MV2_COMM_WORLD_RANK", "PMI_RANK",
    };
    uint64_t hash = add_arguments(add_executable(VP_LEARNT_HASH));
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        const char *value = secure_getenv(ranks[i]);
        hash = add(hash, value ? value : "-");
    }
    return hash;
}

/* ---- the folder ---- */

/* Finds a folder, or makes it and those above it, for the user alone. */
static bool make_folders(char *path) {
    struct stat st;
    bool made = !stat(path, &st);
    for (char *at = path; !made && (at = strchr(at + 1, '/'));) {
        *at = 0;
        const bool there = !mkdir(path, 0700) || errno == EEXIST || !stat(path, &st);
        *at = '/';
        if (!there)
            return false;
    }
    return made || !mkdir(path, 0700) || errno == EEXIST;
}

/* Makes the path of a key's file, in a folder that is created if need be. False: `why` says what is wrong. */
static bool own_path(char *path, size_t room, uint64_t key, const char **why) {
    const char *cache = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
    struct stat st;
    const int n = cache && *cache == '/' ? snprintf(path, room, "%s/vpool/plans", cache)
                  : home && *home == '/' ? snprintf(path, room, "%s/.cache/vpool/plans", home)
                                         : -1;
    *why = n < 0 ? "neither XDG_CACHE_HOME nor HOME names a folder" : "the path is too long";
    if (n < 0 || (size_t)n + 1 + 16 + sizeof SUFFIX > room)
        return false;
    const bool there = make_folders(path);
    *why = there ? "the folder belongs to another user, or others may write to it" : strerror(errno);
    if (!there || lstat(path, &st) || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() ||
        st.st_mode & (S_IWGRP | S_IWOTH))
        return false;
    snprintf(path + n, room - (size_t)n, "/%016llx%s", (unsigned long long)key, SUFFIX);
    return true;
}

/* ---- no more than it should have ---- */

struct sweep {
    int folder;
    uint64_t bytes;
    time_t oldest; /* of the plans */
    char name[NAME_MAX + 1];
};

static bool ends_in(const char *name, const char *suffix) {
    const size_t n = strlen(name), m = strlen(suffix);
    return n > m && !strcmp(name + n - m, suffix);
}

static void look_at(struct sweep *s, const char *name, time_t now) {
    struct stat st;
    const bool plan = ends_in(name, SUFFIX), temporary = strstr(name, SUFFIX) && ends_in(name, ".new");
    if ((!plan && !temporary) || fstatat(s->folder, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
        return;
    if (temporary) {
        if (now - st.st_mtime > LEFT_BEHIND)
            unlinkat(s->folder, name, 0);
        return;
    }
    s->bytes += (uint64_t)st.st_size;
    if (!*s->name || st.st_mtime < s->oldest) {
        s->oldest = st.st_mtime;
        snprintf(s->name, sizeof s->name, "%s", name);
    }
}

static void look_at_all(struct sweep *s) {
    _Alignas(struct dirent64) char entries[2048];
    unsigned files = FILES_MOST;
    const time_t now = vp_clock_date();
    s->bytes = 0;
    *s->name = 0;
    lseek(s->folder, 0, SEEK_SET);
    for (ssize_t n; files && (n = syscall(SYS_getdents64, s->folder, entries, sizeof entries)) > 0;)
        for (ssize_t at = 0; at < n && files; files--) {
            const struct dirent64 *entry = (const void *)(entries + at);
            at += entry->d_reclen;
            look_at(s, entry->d_name, now);
        }
}

/* In the folder, deletes what killed processes left, and the oldest plans until the rest is within the limit. */
static void tidy(const char *path) {
    static char folder[PATH_MAX]; /* too large for some stacks */
    const char *slash = strrchr(path, '/');
    if (!slash || (size_t)(slash - path) >= sizeof folder)
        return;
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    struct sweep s = {.folder = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    if (s.folder < 0)
        return;
    for (int tries = 0; tries < FILES_MOST; tries++) {
        look_at_all(&s);
        if (s.bytes <= FOLDER_MOST || !*s.name || unlinkat(s.folder, s.name, 0))
            break;
    }
    close(s.folder);
}

/* ---- the builder ---- */

static VP_LOCKED struct vp_pool *next_to_build(struct vp_ahead_batch *batch, bool *open) {
    *open = false;
    vp_pools_each(pool) {
        struct vp_ahead *ahead = pool->ahead;
        if (!vp_ahead_is_open(ahead))
            continue;
        const bool begun = vp_ahead_begin(ahead, batch);
        ahead->idle_looks = !begun && vp_ahead_in_step(ahead) == VP_AHEAD_OUT_OF_STEP ? ahead->idle_looks + 1 : 0;
        if (begun)
            return pool;
        if (ahead->idle_looks > LOOKS_OUT_OF_STEP)
            vp_ahead_stop(ahead);
        *open |= !ahead->ended;
    }
    return NULL;
}

static void *build(void *unused) {
    static struct vp_ahead_batch batch;
    uint64_t napped = NAP_NS;
    /* Another thread's capture must not make the driver refuse this thread's calls. */
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    vp_state.drv.cuThreadExchangeStreamCaptureMode(&mode);
    while (vp_enter()) {
        bool open = false;
        struct vp_pool *pool = atomic_load(&ended) ? NULL : next_to_build(&batch, &open);
        if (!pool && !open) {
            plans.building = false;
            vp_leave();
            return NULL;
        }
        if (!pool) {
            vp_leave();
            vp_clock_sleep(napped);
            napped = napped < NAP_MOST_NS ? 2 * napped : NAP_MOST_NS;
            continue;
        }
        napped = NAP_NS;
        vp_step_out();
        vp_calls_begin(); /* calls of CUDA's memory functions from within its driver calls are passed on */
        vp_ahead_make(&vp_state.drv, &batch);
        vp_calls_end();
        vp_step_in();
        vp_ahead_end(pool->ahead, &batch, true);
        vp_leave();
    }
    return NULL;
}

/* Waits for the builder, with the lock held, which is released at times. */
static VP_LOCKED bool await_builder(struct vp_pool *pool) {
    const uint64_t begin = vp_clock_ns();
    while (pool->ahead->under_way && vp_clock_ns() - begin < LAST_BATCH_NS)
        vp_wait_pause(vp_clock_ns() - begin);
    return true;
}

/* ---- read ---- */

/* Stores what can be asked of CUDA only while it is there. */
static void describe(struct vp_learnt_device *d, const struct vp_pool *pool) {
    const struct vp_driver *drv = &vp_state.drv;
    size_t total = 0;
    int version = 0;
    *d = (struct vp_learnt_device){.device = (unsigned)pool->mem.device, .granularity = pool->mem.granularity};
    if (drv->cuDeviceGetName(d->name, sizeof d->name, pool->mem.device))
        *d->name = 0;
    if (!drv->cuDeviceTotalMem_v2(&total, pool->mem.device))
        d->memory = total;
    if (!drv->cuDriverGetVersion(&version))
        d->driver = (unsigned)version;
}

static uint64_t key_of(const struct vp_learnt_device *d) {
    char text[VP_LEARNT_TEXT + 96];
    snprintf(text, sizeof text, "%u %s %llu %u %llu", d->device, d->name, (unsigned long long)d->memory, d->driver,
             (unsigned long long)d->granularity);
    return vp_learnt_hash(plans.key, text, strlen(text));
}

/* Makes the path of a device's plan. False: nothing can be read or written there, and `why` says what is wrong. */
static bool path_of(CUdevice dev, char path[PATH_MAX], const char **why) {
    if (is_auto())
        return own_path(path, PATH_MAX, key_of(&plans.about[dev]), why);
    *why = "the name is too long";
    return snprintf(path, PATH_MAX, "%s%s%s", plans.folder, *plans.folder ? "/" : "", vp_options()->plan) < PATH_MAX;
}

static VP_LOCKED void read_plan(struct vp_pool *pool, const char *path) {
    static struct vp_learnt learnt; /* too large for some stacks */
    char why[256];
    int err = vp_learnt_load(path, &learnt, why, sizeof why);
    if (err == -ENOENT)
        return;
    /* A file for several devices has the key of the last one. */
    const unsigned count = err ? 0 : learnt.device_count;
    const bool own = count && key_of(&learnt.device[count - 1]) == learnt.key;
    if (!err && (err = vp_ahead_start(pool, &learnt, own)) == -ENOENT)
        return; /* it is a plan for other devices */
    if (err == -EINVAL && !*why)
        snprintf(why, sizeof why, "it does not suit the device");
    if (err)
        vp_log(VP_LOG_WARN, "VPOOL_PLAN: %s: %s; the plan is not used", path, *why ? why : strerror(-err));
    else
        vp_log(VP_LOG_INFO, "device %d begins with what an earlier run has learnt (%s)", (int)pool->mem.device, path);
}

void vp_plans_open(struct vp_pool *pool) {
    const CUdevice dev = pool->mem.device;
    static char path[PATH_MAX]; /* too large for some stacks */
    const char *why;
    if (!*vp_options()->plan || pool->policy != &vp_policy_vpool || atomic_load(&ended))
        return;
    describe(&plans.about[dev], pool);
    if (!plans.key)
        plans.key = key_of_run(); /* early, as some programs change what /proc says of their arguments */
    pool->config.await_ahead = await_builder;
    /* A program that changes its working directory must write its plan where it looked for one. */
    if (!is_auto() && *vp_options()->plan != '/' && !*plans.folder &&
        (!getcwd(plans.folder, sizeof plans.folder) || *plans.folder != '/'))
        *plans.folder = 0;
    if (!path_of(dev, path, &why)) {
        vp_log_once(VP_LOG_WARN, "VPOOL_PLAN: %s%s%s; nothing is learnt", path, *path ? ": " : "", why);
        return;
    }
    read_plan(pool, path);
    pool->learn = vp_learn_create();
    if (pool->ahead && !plans.building && !(plans.building = !vp_thread_start(build)))
        vp_ahead_stop(pool->ahead);
}

/* ---- written ---- */

/* What is written to one file: of one pool, or of all. */
struct writing {
    struct vp_learnt learnt;
    struct {
        void *mem;
        size_t bytes;
    } arrays[VP_LEARNT_DEVICES];
};

static void add_pool(struct writing *w, struct vp_pool *pool, uint64_t most_ns) {
    const CUdevice dev = pool->mem.device;
    const unsigned i = w->learnt.device_count;
    struct vp_learnt_device *d = &w->learnt.device[i];
    if (i == VP_LEARNT_DEVICES ||
        vp_learn_sum_up(pool, vp_clock_ns() + most_ns, d, &w->arrays[i].mem, &w->arrays[i].bytes))
        return;
    memcpy(d->name, plans.about[dev].name, sizeof d->name);
    d->memory = plans.about[dev].memory;
    d->driver = plans.about[dev].driver;
    w->learnt.key = key_of(&plans.about[dev]);
    w->learnt.device_count++;
}

static void save(struct writing *w, const char *path) {
    snprintf(w->learnt.made, sizeof w->learnt.made, "%s", VP_VERSION);
    snprintf(w->learnt.program, sizeof w->learnt.program, "%s", program_invocation_short_name);
    const int err = w->learnt.device_count ? vp_learnt_save(path, &w->learnt) : 0;
    if (err)
        vp_log(VP_LOG_WARN, "VPOOL_PLAN: %s: %s; what this run has learnt is not saved", path, strerror(-err));
    else if (w->learnt.device_count && is_auto())
        tidy(path);
    for (unsigned i = 0; i < VP_LEARNT_DEVICES; i++)
        if (w->arrays[i].mem)
            vp_os_give(w->arrays[i].mem, w->arrays[i].bytes);
}

/* Is what was learnt worth writing? A run that was cut short knows less than the plan that it followed so far. */
static VP_LOCKED bool has_news(const struct vp_pool *pool) {
    const struct vp_ahead *a = pool->ahead;
    if (!pool->learn)
        return false;
    return !a || !(vp_ahead_fitted(a) || (a->requests < a->plan.request_count / 2 && vp_ahead_is_exact(a)) ||
                   vp_ahead_blocks_cut_short(a));
}

static VP_LOCKED void write_all(void) {
    static struct writing w; /* too large for some stacks, and so is the path */
    static char path[PATH_MAX];
    const char *why;
    bool news = false;
    unsigned count = 0;
    vp_pools_each(pool) news |= has_news(pool), count++;
    vp_pools_each(pool) {
        if (is_auto() ? !has_news(pool) : !news || !pool->learn)
            continue;
        if (is_auto())
            w = (struct writing){0};
        add_pool(&w, pool, VP_LEARN_NS / count);
        if (is_auto() && path_of(pool->mem.device, path, &why))
            save(&w, path);
    }
    if (!is_auto() && news && path_of(0, path, &why))
        save(&w, path);
}

/* Waits for a lock only for a while, as a thread of a dying process may hold it. */
void vp_plans_stop(void) {
    const uint64_t begin = vp_clock_ns();
    atomic_store(&ended, true);
    for (bool busy = *vp_options()->plan && atomic_load(&vp_state.phase) == VP_OPEN;
         busy && vp_clock_ns() - begin < LAST_BATCH_NS;) {
        if (!vp_lock_for_a_while(&vp_library_lock))
            return;
        busy = false;
        vp_pools_each(pool) busy |= pool->ahead && pool->ahead->under_way;
        vp_lock_release(&vp_library_lock);
        if (busy)
            vp_clock_sleep(NAP_NS);
    }
}

void vp_plans_write(void) {
    if (!*vp_options()->plan || atomic_load(&vp_state.phase) != VP_OPEN || !vp_process_is_marked() ||
        !vp_lock_for_a_while(&vp_library_lock))
        return;
    write_all();
    vp_lock_release(&vp_library_lock);
}

/* ---- told ---- */

struct vp_plan_figures vp_plans_figures(const struct vp_pool *pool) {
    const struct vp_ahead *a = pool->ahead;
    struct vp_plan_figures f = {.wanted = pool->learn || a, .used = a != NULL};
    if (!a)
        return f;
    f.requests = a->requests;
    f.known = a->found;
    f.placed = a->served;
    f.late = a->lacking;
    f.made_bytes = pool->mem.stats.planned_bytes;
    f.used_bytes = vp_ahead_used_bytes(pool);
    f.returned_bytes = pool->mem.stats.planned_returned;
    f.background_ns = a->background_ns;
    f.background_calls = a->background_calls;
    return f;
}

void vp_plans_json(struct vp_json *j, const struct vp_plan_figures *f) {
    if (!f->wanted)
        return;
    vp_json_begin_object(j, "plan");
    vp_json_bool(j, "used", f->used);
    vp_json_numbers(j, {"requests", f->requests}, {"known", f->known}, {"placed", f->placed}, {"late", f->late});
    vp_json_double(j, "share", f->requests ? (double)f->placed / (double)f->requests : 0);
    vp_json_numbers(j, {"made_bytes", f->made_bytes}, {"used_bytes", f->used_bytes},
                    {"returned_bytes", f->returned_bytes});
    vp_json_double(j, "background_us", (double)f->background_ns / 1e3);
    vp_json_u64(j, "background_calls", f->background_calls);
    vp_json_end_object(j);
}

void vp_plans_print(const struct vp_pool *pool) {
    const struct vp_plan_figures f = vp_plans_figures(pool);
    if (f.used)
        vp_log_print(
            "  plan: %lu of %lu large requests had their places; %s made ahead in %.1f ms, of which %s were used and "
            "%s given back",
            f.placed, f.requests, VP_ABOUT(f.made_bytes), (double)f.background_ns / 1e6, VP_ABOUT(f.used_bytes),
            VP_ABOUT(f.returned_bytes));
    else if (f.wanted)
        vp_log_print("  plan: there was none to begin with; a run that exits leaves one for the next");
}
