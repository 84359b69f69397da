/* Replays a trace under one policy, call by call. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/replay/engine.h"

#include "base/clock.h"
#include "base/options.h"
#include "pool/throttle.h"
#include "pool/policy.h"
#include "tool/run/launch.h"
#include "tool/plan/modules.h"
#include "tool/replay/native.h"
#include "tool/progress.h"
#include "tool/replay/second.h"
#include "tool/tool.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The share of a run, at its end, whose driver calls and driver time count as late, unless the user gives another. */
enum { LATE_SHARE = 3 };

/* How many events pass between looks at the clock, for the progress line on a terminal. */
enum { PROGRESS_EVENTS = 256 };

static int unknown_policy(const char *command, const char *name) {
    const char *names[VP_POLICY_CHOICES + 1] = {vp_policy_bare.name};
    for (size_t i = 0; i < VP_POLICY_CHOICES; i++)
        names[i + 1] = vp_policies[i]->name;
    const char *meant = vp_tool_meant(name, names, VP_POLICY_CHOICES + 1);
    return vp_tool_usage(command, "unknown policy '%s'%s%s%s", name, meant ? "; did you mean " : "", meant ? meant : "",
                         meant ? "?" : "");
}

int vp_engine_policies(const char *command, char *list, const struct vp_policy **policies, size_t *count) {
    *count = 0;
    for (char *name; (name = strsep(&list, ","));) {
        const struct vp_policy *policy = strcmp(vp_policy_bare.name, name) ? NULL : &vp_policy_bare;
        for (size_t i = 0; i < VP_POLICY_CHOICES && !policy; i++)
            policy = strcmp(vp_policies[i]->name, name) ? NULL : vp_policies[i];
        if (!policy)
            return unknown_policy(command, name);
        if (*count == VP_ENGINE_POLICIES)
            return vp_tool_usage(command, "more than %d policies", VP_ENGINE_POLICIES);
        policies[(*count)++] = policy;
    }
    return 0;
}

/* ---- the driver ---- */

static void *symbol(const char *name, void *handle) {
    return dlsym(handle, name);
}

/* Lifts the limit on address space: the simulated device reserves terabytes, and touches none. */
static void lift_limit(const char *command) {
    struct rlimit addresses;
    if (getrlimit(RLIMIT_AS, &addresses) || addresses.rlim_cur == RLIM_INFINITY)
        return;
    addresses.rlim_cur = addresses.rlim_max;
    if (setrlimit(RLIMIT_AS, &addresses) || addresses.rlim_max != RLIM_INFINITY)
        fprintf(stderr,
                "vpool %s: addresses are limited here (ulimit -v): a request that finds none counts as out of memory\n",
                command);
}

int vp_engine_open(struct vp_engine *d, const struct vp_replay_options *o) {
    char folder[PATH_MAX], path[PATH_MAX + 16] = "libcuda.so.1", *settings;
    /* When a program was run, the library itself has reported wrong options. */
    if (strcmp(o->command, "run"))
        vp_options_announce();
    if (!o->gpu) {
        lift_limit(o->command);
        const char *own = getenv("VPOOL_SIM");
        if (!vp_launch_sim(folder)) {
            fprintf(stderr, "vpool %s: " VP_LAUNCH_NO_SIM "\n", o->command);
            return -ENODEV;
        }
        snprintf(path, sizeof path, "%s/libcuda.so.1", folder);
        /* The last setting wins: those of the environment are meant for programs, whose device is a small one. */
        if (asprintf(&settings, "%s%sbacking=ledger,lazy=100,capacity=%s", own ? own : "", own && *own ? "," : "",
                     o->capacity) < 0) {
            fprintf(stderr, "vpool %s: %s\n", o->command, strerror(ENOMEM));
            return -ENODEV;
        }
        setenv("VPOOL_SIM", settings, 1);
        free(settings);
    }
    if (!(d->handle = dlopen(path, RTLD_NOW))) {
        fprintf(stderr, "vpool %s: %s%s\n", o->command, dlerror(),
                o->gpu ? " (--gpu needs CUDA's driver; without it the simulated driver is used)" : "");
        return -ENODEV;
    }
#define SYMBOL(field, name) *(void **)&d->field = dlsym(d->handle, name)
    SYMBOL(cost_ns, "vp_sim_cost_ns");
    SYMBOL(reset, "vp_sim_reset");
    SYMBOL(init, "cuInit");
    SYMBOL(retain, "cuDevicePrimaryCtxRetain");
    SYMBOL(release, "cuDevicePrimaryCtxRelease_v2");
    SYMBOL(set_current, "cuCtxSetCurrent");
    SYMBOL(stream_create, "cuStreamCreate");
    SYMBOL(stream_destroy, "cuStreamDestroy_v2");
#undef SYMBOL
    if (!o->gpu && !d->cost_ns) {
        fprintf(stderr, "vpool %s: %s is not the simulated driver\n", o->command, path);
        return -ENODEV;
    }
    if (o->modelled && vp_model_open(&d->model, d->handle) < 0) {
        fprintf(stderr, "vpool %s: %s has no modelled clock\n", o->command, path);
        return -ENODEV;
    }
    const char *missing = "cuInit";
    if (!d->init || !d->retain || !d->set_current || !d->stream_create ||
        vp_driver_fill(&d->table, symbol, d->handle, &missing) < 0) {
        fprintf(stderr, "vpool %s: %s lacks %s\n", o->command, path, missing);
        return -ENODEV;
    }
    return 0;
}

static int start_device(struct vp_engine *d, const char *command) {
    CUresult res = d->init(0);
    if (!res)
        res = d->retain(&d->context, 0);
    if (!res)
        res = d->set_current(d->context);
    if (res)
        fprintf(stderr, "vpool %s: the CUDA driver answers %d\n", command, (int)res);
    return res ? -ENODEV : 0;
}

/* ---- one run ---- */

static void sample(struct vp_latency *l, uint64_t ns) {
    if (l->count < l->room)
        l->ns[l->count++] = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

struct run {
    struct vp_engine *driver;
    const struct vp_replay_options *options;
    const struct vp_trace *trace;
    struct vp_timelines timelines;
    struct vp_pool pool;
    CUstream *streams;
    struct vp_modules_walk walk; /* in this round */
    struct vp_region **blocks;
    struct vp_native native;            /* on a GPU */
    const struct vp_timeline *timeline; /* the timeline of the last event */
    size_t live, peak_live_bytes;       /* live blocks; peak bytes of pool and CUDA, while CUDA serves some */
    struct vp_second second;
    struct vp_replay_result *result;
};

static void closing(void *pool, struct vp_timeline *timeline) {
    vp_pool_close_timeline(pool, timeline);
}

static void forget_timeline(void *pool, struct vp_timeline *timeline) {
    vp_pool_drop_timeline(pool, timeline);
}

/* The model of the current replay, and its driver, for the pool's waits; there is one at a time. */
static struct vp_model *waiting;
static CUresult(CUDAAPI *synchronize)(void);

/* When the recorded program did what is being replayed; and how often a waiting host looks. */
static uint64_t recorded_ns;
enum { LOOK_NS = 50000 };

/* Without a lag, a wait is over at once. */
static void pause_unmodelled(uint64_t waited_ns) {
    (void)waited_ns;
    recorded_ns += LOOK_NS;
    synchronize();
}

static void go_on_recorded(uint64_t ns) {
    if (recorded_ns < ns)
        recorded_ns = ns;
}

static uint64_t recorded_time(void) {
    return recorded_ns;
}

/* Results must not depend on the speed of this machine. */
static uint64_t no_time(void) {
    return 0;
}

static void pause_modelled(uint64_t waited_ns) {
    (void)waited_ns;
    vp_model_pause(waiting);
}

/* Without a lag, no time passes and nothing is waited for, so that held bytes stay comparable, whatever the library
 * does on its own. */
static int usual_waits(const struct run *run) {
    return run->driver->model.on && run->pool.traits.host_waits ? VP_WAITS_HOST : VP_WAITS_EARLY;
}

static int allocate(struct run *run, const struct vp_trace_event *e) {
    struct vp_timeline *timeline;
    int err = vp_timeline_get(&run->timelines, run->streams[e->stream], &timeline);
    if (err)
        return err;
    run->timeline = timeline;
    struct vp_request req = {.asked = e->size,
                             .timeline = timeline,
                             .context = timeline->context,
                             .waits = vp_waits_of(vp_options()->wait, usual_waits(run))};
    uint64_t begin = vp_clock_ns();
    err = vp_throttle_alloc(&run->pool, &req, &run->blocks[e->block]);
    if (err == -EOPNOTSUPP) {
        run->result->passed_on++;
        if (!run->native.pool)
            return 0;
        err = vp_native_alloc(&run->native, e->block, e->size, run->streams[e->stream]);
    }
    sample(&run->result->malloc_ns, vp_clock_ns() - begin);
    size_t live = run->native.live_bytes + run->pool.mem.stats.live_bytes;
    if (run->native.live_bytes && live > run->peak_live_bytes)
        run->peak_live_bytes = live;
    if (err == -ENOMEM) {
        run->pool.mem.stats.ooms++;
        return 0;
    }
    if (!err && ++run->live > run->result->live_peak_blocks)
        run->result->live_peak_blocks = run->live;
    return err;
}

static int release(struct run *run, uint32_t block, uint32_t stream) {
    struct vp_region *r = run->blocks[block];
    struct vp_timeline *timeline;
    uint64_t begin = vp_clock_ns();
    int err = 0;
    if (!vp_native_free(&run->native, block, run->streams[stream], &err)) {
        if (!r)
            return 0;
        err = vp_timeline_get(&run->timelines, run->streams[stream], &timeline);
        begin = vp_clock_ns();
        if (!err) {
            run->timeline = timeline;
            err = run->pool.policy->free ? run->pool.policy->free(&run->pool, r, timeline)
                                         : vp_pool_free_async(&run->pool, vp_pool_find(&run->pool, r->addr), timeline);
        }
    }
    if (err)
        return err;
    sample(&run->result->free_ns, vp_clock_ns() - begin);
    run->blocks[block] = NULL;
    run->live--;
    return 0;
}

uint64_t vp_engine_remap_calls(const struct vp_memory_stats *s) {
    return s->calls.create + s->calls.map + s->calls.set_access + s->calls.unmap + s->calls.release;
}

static void show_progress(struct vp_progress *p, const struct vp_replay_result *r, size_t done, size_t total) {
    if (done % PROGRESS_EVENTS == 0 && vp_progress_due(p))
        vp_progress_show(p, "%.40s, %s: %zu of %zu events, %zu %%", r->trace, r->policy, done, total,
                         done * 100 / total);
}

/* Returns the time in the driver so far, modelled or measured. */
static uint64_t driver_ns(struct run *run) {
    return run->driver->cost_ns ? vp_second_program_ns(&run->second, run->driver->cost_ns())
                                : run->pool.mem.stats.driver_ns + run->timelines.stats[0].ns + run->native.ns;
}

static size_t late_events(const struct vp_replay_options *o, size_t total) {
    return o->late ? total * (size_t)o->late / 100 : total / LATE_SHARE;
}

/* ---- the program's modules, for a policy that wants to know ---- */

static void tell_range(void *context, size_t range, bool begins) {
    struct run *run = context;
    const struct vp_trace_range *ranges = run->trace->ranges.items;
    run->pool.policy->range(&run->pool, begins ? ranges[range].name : NULL, range, 0);
}

static void begin_round(struct run *run) {
    vp_modules_walked(&run->walk);
    run->walk = (struct vp_modules_walk){.trace = run->trace, .context = run, .told = tell_range};
    if (run->pool.policy == &vp_policy_stalloc)
        vp_stalloc_restart(&run->pool);
}

static int tell_ranges(struct run *run, size_t event) {
    return run->pool.policy->range && run->trace->ranges.count ? vp_modules_before(&run->walk, event) : 0;
}

/* Replays one event, and notes how long it kept the simulated driver busy. */
static int step(struct run *run, const struct vp_trace_event *e) {
    uint64_t before = run->driver->cost_ns ? driver_ns(run) : 0;
    int err = tell_ranges(run, (size_t)(e - run->trace->events));
    if (!err)
        err = e->alloc ? allocate(run, e) : release(run, e->block, e->stream);
    uint64_t took = run->driver->cost_ns ? driver_ns(run) - before : 0;
    if (took > run->result->longest_ns)
        run->result->longest_ns = took;
    return err;
}

static int drive(struct run *run) {
    const struct vp_replay_options *o = run->options;
    const struct vp_trace *trace = run->trace;
    size_t total = trace->count * (size_t)o->repeat, done = 0, late_from = total - late_events(o, total);
    struct vp_model *model = &run->driver->model;
    uint64_t early_calls = 0, early_ns = driver_ns(run);
    uint32_t *stream_of = calloc(trace->blocks, sizeof *stream_of);
    struct vp_progress progress;
    int err = stream_of ? 0 : -ENOMEM;
    vp_progress_begin(&progress);
    for (long round = 0; round < o->repeat && !err; round++) {
        const uint64_t began = recorded_ns;
        begin_round(run);
        for (size_t i = 0; i < trace->count && !err; i++, done++) {
            const struct vp_trace_event *e = &trace->events[i];
            if (done == late_from) {
                early_calls = vp_engine_remap_calls(&run->pool.mem.stats);
                early_ns = driver_ns(run);
            }
            show_progress(&progress, run->result, done, total);
            go_on_recorded(began + e->us * 1000);
            vp_model_before(model, i);
            vp_second_before(&run->second, e->us, !i && round);
            err = step(run, e);
            vp_model_after(model, i, run->streams[e->stream]);
            if (!err && o->watch)
                err = o->watch->event(o->watch->context, &run->pool, i, run->timeline, run->blocks[e->block]);
            stream_of[e->block] = e->stream;
        }
        for (uint32_t b = 0; b < trace->blocks && !err; b++)
            err = release(run, b, stream_of[b]);
    }
    vp_model_end(model);
    vp_progress_end(&progress);
    if ((run->result->late_events = total - late_from)) {
        run->result->late_calls = vp_engine_remap_calls(&run->pool.mem.stats) - early_calls;
        run->result->late_driver_ns = driver_ns(run) - early_ns;
    }
    free(stream_of);
    return err;
}

/* Opens what the replay needs. The caller closes the run, whatever is returned. */
static int open_run(struct run *run) {
    struct vp_engine *d = run->driver;
    const struct vp_trace *trace = run->trace;
    struct vp_replay_result *result = run->result;
    size_t most = trace->count * (size_t)run->options->repeat;
    run->timelines.closing = closing;
    run->timelines.forget = forget_timeline;
    run->timelines.user = &run->pool;
    run->streams = calloc(trace->streams, sizeof *run->streams);
    run->blocks = calloc(trace->blocks, sizeof *run->blocks);
    result->malloc_ns = (struct vp_latency){.ns = calloc(most, sizeof(uint32_t)), .room = most};
    result->free_ns = (struct vp_latency){.ns = calloc(most, sizeof(uint32_t)), .room = most};
    if (!run->streams || !run->blocks || !result->malloc_ns.ns || !result->free_ns.ns)
        return -ENOMEM;
    for (uint32_t s = 0; s < trace->streams; s++)
        if (d->stream_create(&run->streams[s], CU_STREAM_NON_BLOCKING))
            return -EIO;
    int err = run->options->gpu ? vp_native_init(&run->native, d->handle, trace->blocks) : 0;
    if (!err && run->options->modelled) {
        vp_model_begin(&d->model, trace, run->streams, run->options->lag_ns, run->options->work_ns);
        run->pool.throttle.opened = run->pool.config.now(); /* opened by another clock */
    }
    return err;
}

static void take_figures(struct run *run, uint64_t cost_before) {
    struct vp_engine *d = run->driver;
    struct vp_replay_result *result = run->result;
    if (d->model.on) {
        result->model.total_ns = d->model.now();
        result->model.lost_ns = vp_model_lost(&d->model);
        result->model.lost_in_calls_ns = vp_model_lost_in_calls(&d->model);
        vp_model_finish(&d->model);
    }
    result->pool = vp_pool_stats(&run->pool);
    if (run->peak_live_bytes > result->pool.peak_live_bytes)
        result->pool.peak_live_bytes = run->peak_live_bytes;
    /* The sum of two peaks, which is a little too much if a policy shares the work with CUDA. */
    result->pool.peak_held_bytes += vp_native_peak(&run->native);
    result->timelines = run->timelines.stats[0];
    result->driver_ns = driver_ns(run) - cost_before;
    if (run->pool.policy == &vp_policy_stalloc)
        result->plan.figures = vp_stalloc_figures(&run->pool);
    result->metadata = vp_pool_metadata(&run->pool);
    vp_second_end(&run->second, run->options->command, result->trace, &result->second);
}

static void close_run(struct run *run) {
    struct vp_engine *d = run->driver;
    vp_native_finish(&run->native);
    vp_modules_walked(&run->walk);
    vp_pool_finish(&run->pool);
    vp_timelines_finish(&run->timelines);
    for (uint32_t s = 0; run->streams && s < run->trace->streams; s++)
        if (run->streams[s])
            d->stream_destroy(run->streams[s]);
    free(run->streams);
    free(run->blocks);
    if (d->reset)
        d->reset();
    else
        d->release(0);
}

static int replay(struct vp_engine *d, const struct vp_replay_options *o, const struct vp_policy *policy,
                  const struct vp_trace *trace, const struct vp_stalloc_plan *plan, struct vp_replay_result *result) {
    struct run run = {.driver = d, .options = o, .trace = trace, .result = result};
    const struct vp_pool_config config = {.handle = o->handle,
                                          .rdma = vp_options()->rdma != VP_RDMA_NO,
                                          .slack = (unsigned)vp_options()->slack,
                                          .check = vp_options()->check,
                                          .plan = plan,
                                          .pause = o->modelled ? pause_modelled
                                                   : policy->traits.host_waits || policy == &vp_policy_bare
                                                       ? pause_unmodelled
                                                       : NULL,
                                          .at_once = !o->modelled,
                                          .now = o->modelled                 ? vp_clock_wait_ns
                                                 : policy == &vp_policy_bare ? recorded_time
                                                                             : no_time,
                                          .split_most = vp_options()->bfc_max_split,
                                          .stitch_least = vp_options()->gmlake_fragment,
                                          .stitched_most = vp_options()->gmlake_stitched};
    int err = start_device(d, o->command);
    if (err)
        return err;
    uint64_t cost_before = d->cost_ns ? d->cost_ns() : 0;
    waiting = &d->model;
    synchronize = d->table.cuCtxSynchronize;
    vp_timelines_init(&run.timelines, &d->table);
    if ((err = vp_pool_init(&run.pool, &d->table, &run.timelines, 0, policy, &config)) < 0) {
        fprintf(stderr, "vpool %s: the device has no pool: %s\n", o->command, strerror(-err));
        return err;
    }
    vp_second_begin(&run.second, o->command, policy == &vp_policy_vpool || policy == &vp_policy_bare ? o->learnt : NULL,
                    trace->devices[0], &run.pool, &d->table, d->cost_ns);
    err = open_run(&run);
    if (!err)
        err = drive(&run);
    if (err)
        fprintf(stderr, "vpool %s: %s: %s\n", o->command, result->trace, strerror(-err));
    take_figures(&run, cost_before);
    close_run(&run);
    return err;
}

/* Makes the plan for stalloc: what its runtime leaves to other pools is in no plan. 0 or -ENOMEM. */
static int take_plan(const struct vp_replay_options *o, const struct vp_trace *trace, struct vp_planned *own,
                     struct vp_replay_result *result) {
    const struct vp_planned_limits published = {.published = true};
    const struct vp_planned *given = o->plan ? vp_planned_of_device(o->plan, trace->devices[0]) : NULL;
    int err = o->plan ? vp_planned_large(own, given) : vp_planned_make(own, trace, &published);
    result->plan.used = !err;
    result->plan.phases = !err && own->phases.count;
    result->plan.modules = !err && own->plan.module_count;
    return err;
}

int vp_engine_replay(struct vp_engine *d, const struct vp_replay_options *o, const struct vp_policy *policy,
                     const struct vp_trace *trace, struct vp_replay_result *result) {
    struct vp_planned plan = {0};
    int err = policy == &vp_policy_stalloc ? take_plan(o, trace, &plan, result) : 0;
    if (err)
        fprintf(stderr, "vpool %s: %s: %s\n", o->command, result->trace, vp_planned_error(err));
    else
        err = replay(d, o, policy, trace, &plan.plan, result);
    vp_planned_finish(&plan);
    return err;
}

bool vp_engine_size(const char *text, uint64_t *out) {
    uint64_t size;
    if (!vp_options_number(&text, true, &size) || *text || !size || size > UINT64_C(1) << 60)
        return false;
    *out = size;
    return true;
}
