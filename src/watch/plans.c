/* VPOOL_PLAN in a process: see plans.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/plans.h"

#include "base/clock.h"
#include "base/os_memory.h"
#include "pool/learnt/ahead.h"
#include "pool/learnt/learn.h"
#include "pool/learnt/learnt_file.h"
#include "watch/watch.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* With nothing to be made the builder looks again after so long, and then after twice as long, up to the most. It is at
 * rest once the plan is made, or the program is out of step for so many looks. */
static const uint64_t NAP_NS = 200000, NAP_MOST_NS = 50000000;
enum { LOOKS_OUT_OF_STEP = 200 };

/* At the end of the process what is under way is waited for, for so long. */
static const uint64_t LAST_BATCH_NS = 1000000000;

/* Guarded by the library's lock, but for `ended`. */
static struct {
    bool building;                             /* the thread runs */
    uint64_t key;                              /* of the program; 0: not asked for yet */
    struct vp_learnt_device about[VP_DEVICES]; /* what of a device is asked for while CUDA is there */
    uint64_t device_key[VP_DEVICES];
    char folder[PATH_MAX]; /* that FILE is looked for in; empty: it names its own */
} plans;
static atomic_bool ended;

static bool is_auto(void) {
    return !strcmp(vp_options()->plan, "auto");
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
    /* Another thread's capture is no reason to refuse what this one does. */
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
        vp_calls_begin(); /* what it meets under its driver calls is passed on */
        vp_ahead_make(&vp_state.drv, &batch);
        vp_calls_end();
        vp_step_in();
        vp_ahead_end(pool->ahead, &batch, true);
        vp_leave();
    }
    return NULL;
}

/* With the lock held; lets it go for a moment. */
static VP_LOCKED bool await_builder(struct vp_pool *pool) {
    const uint64_t begin = vp_clock_ns();
    while (pool->ahead->under_way && vp_clock_ns() - begin < LAST_BATCH_NS)
        vp_wait_pause(vp_clock_ns() - begin);
    return true;
}

/* ---- read ---- */

/* What may be asked of CUDA only while it is there. */
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
    if (!plans.key)
        plans.key = vp_plans_key();
    snprintf(text, sizeof text, "%u %s %llu %u %llu", d->device, d->name, (unsigned long long)d->memory, d->driver,
             (unsigned long long)d->granularity);
    return vp_learnt_hash(plans.key, text, strlen(text));
}

/* False, with what is wrong: nothing can be read or written there. */
static bool path_of(CUdevice dev, char path[PATH_MAX], const char **why) {
    if (is_auto())
        return vp_plans_path(path, PATH_MAX, plans.device_key[dev], why);
    *why = "the name is too long";
    return snprintf(path, PATH_MAX, "%s%s%s", plans.folder, *plans.folder ? "/" : "", vp_options()->plan) < PATH_MAX;
}

static VP_LOCKED void read_plan(struct vp_pool *pool, const char *path) {
    static struct vp_learnt learnt; /* too large for some stacks */
    char why[256];
    int err = vp_learnt_load(path, &learnt, why, sizeof why);
    if (err == -ENOENT)
        return;
    /* A file of several devices has the key of the last. */
    const unsigned count = err ? 0 : learnt.device_count;
    const bool own = count && key_of(&learnt.device[count - 1]) == learnt.key;
    if (!err && (err = vp_ahead_start(pool, &learnt, own)) == -ENOENT)
        return; /* of other devices */
    if (err == -EINVAL && !*why)
        snprintf(why, sizeof why, "it does not suit the device");
    if (err)
        vp_log(VP_LOG_WARN, "VPOOL_PLAN: %s: %s; it is not used", path, *why ? why : strerror(-err));
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
    plans.device_key[dev] = key_of(&plans.about[dev]);
    pool->config.await_ahead = await_builder;
    /* A program that changes its folder is to write what it has learnt where it has looked for it. */
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

/* One file for a pool, or for all. */
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
    w->learnt.key = plans.device_key[dev];
    w->learnt.device_count++;
}

static void save(struct writing *w, const char *path) {
    snprintf(w->learnt.made, sizeof w->learnt.made, "%s", VP_VERSION);
    snprintf(w->learnt.program, sizeof w->learnt.program, "%s", program_invocation_short_name);
    const int err = w->learnt.device_count ? vp_learnt_save(path, &w->learnt) : 0;
    if (err)
        vp_log(VP_LOG_WARN, "VPOOL_PLAN: %s: %s; what was learnt is not kept", path, strerror(-err));
    else if (w->learnt.device_count && is_auto())
        vp_plans_tidy(path);
    for (unsigned i = 0; i < VP_LEARNT_DEVICES; i++)
        if (w->arrays[i].mem)
            vp_os_give(w->arrays[i].mem, w->arrays[i].bytes);
}

/* A run that was cut short has less to tell than the plan that it followed so far. */
static VP_LOCKED bool has_news(const struct vp_pool *pool) {
    const struct vp_ahead *a = pool->ahead;
    if (!pool->learn)
        return false;
    return !a || !(vp_ahead_fitted(a) || (a->requests < a->plan.request_count / 2 && vp_ahead_is_exact(a)));
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

/* No lock is waited for that a thread of a dying process may hold. */
void vp_plans_stop(void) {
    const uint64_t begin = vp_clock_ns();
    atomic_store(&ended, true);
    for (bool busy = *vp_options()->plan != 0; busy && vp_clock_ns() - begin < LAST_BATCH_NS;) {
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

VP_NOT_ANALYSED /* there is one thread */ void vp_plans_fork_child(void) {
    vp_pools_each(pool) pool->learn = NULL;
    plans.building = false;
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
            "  plan: %lu of %lu large requests had their places; %.1f MiB made ahead in %.1f ms, %.1f MiB of it "
            "used, %.1f MiB given back",
            f.placed, f.requests, (double)f.made_bytes / 1048576, (double)f.background_ns / 1e6,
            (double)f.used_bytes / 1048576, (double)f.returned_bytes / 1048576);
    else if (f.wanted)
        vp_log_print("  plan: there was none to begin with; a run that exits leaves one for the next");
}
