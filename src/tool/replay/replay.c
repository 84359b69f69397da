/* vpool replay: what recorded allocations took, a row for each trace and policy. The engine does the work. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"
#include "base/options.h"
#include "tool/replay/engine.h"
#include "tool/run/launch.h"
#include "tool/tool.h"

#include <errno.h>
#include <getopt.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options {
    struct vp_replay_options replay;
    const struct vp_policy *policies[VP_ENGINE_POLICIES];
    size_t policy_count;
    const char *plan;   /* the file; NULL: none is named */
    bool json, several; /* several results: a list of objects */
    bool headed;        /* the table has its header */
    int width;          /* of its first column */
};

/* ---- output ---- */

static int by_value(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

struct spread {
    double p50, p99, max, mean;
};

static struct spread spread_of(struct vp_latency *l) {
    struct spread s = {0};
    if (!l->count)
        return s;
    qsort(l->ns, l->count, sizeof *l->ns, by_value);
    for (size_t i = 0; i < l->count; i++)
        s.mean += (double)l->ns[i] / (double)l->count;
    s.p50 = l->ns[l->count / 2];
    s.p99 = l->ns[l->count * 99 / 100];
    s.max = l->ns[l->count - 1];
    return s;
}

static double efficiency(const struct vp_replay_result *r) {
    return r->pool.peak_held_bytes ? (double)r->pool.peak_live_bytes / (double)r->pool.peak_held_bytes : 1.0;
}

static void json_spread(struct vp_json *j, const char *key, struct vp_latency *l) {
    struct spread s = spread_of(l);
    vp_json_begin_object(j, key);
    vp_json_double(j, "p50", s.p50);
    vp_json_double(j, "p99", s.p99);
    vp_json_double(j, "max", s.max);
    vp_json_double(j, "mean", s.mean);
    vp_json_end_object(j);
}

static void json_model(struct vp_json *j, const struct vp_replay_options *o, const struct vp_replay_result *r) {
    vp_json_u64(j, "lag_us", o->lag_ns / 1000);
    vp_json_double(j, "modelled_us", (double)r->model.total_ns / 1e3);
    vp_json_double(j, "lost_us", (double)r->model.lost_ns / 1e3);
    vp_json_double(j, "lost_in_calls_us", (double)r->model.lost_in_calls_ns / 1e3);
    vp_json_u64(j, "waits_host", r->pool.waits_host);
    vp_json_double(j, "waits_host_us", (double)r->pool.host_wait_ns / 1e3);
    vp_json_u64(j, "waits_fruitless", r->pool.waits_fruitless);
}

/* Writes what was true in the program itself, if it was recorded. */
static void json_truth(struct vp_json *j, const struct vp_trace *t) {
    const struct vp_trace_truth truth = vp_trace_truth(t, t->devices[0]);
    struct vp_trace_peak peak;
    if (!truth.known || !vp_trace_peak(t, &peak))
        return;
    vp_json_begin_object(j, "as_it_ran");
    vp_json_u64(j, "peak_live_bytes", peak.bytes);
    vp_json_u64(j, "peak_held_bytes", truth.peak_held_bytes);
    if (truth.peak_addressed_bytes)
        vp_json_u64(j, "peak_addressed_bytes", truth.peak_addressed_bytes);
    vp_json_u64(j, "driver_calls", truth.driver_calls);
    vp_json_u64(j, "failures", truth.failures);
    vp_json_end_object(j);
}

/* Says what was planned: without phases of the program, the plan has only a static part. */
static const char *plan_of(const struct vp_replay_options *o, const struct vp_replay_result *r) {
    return o->plan                             ? "of a file"
           : r->plan.phases && r->plan.modules ? "by phases and modules"
           : r->plan.modules                   ? "by modules"
           : r->plan.phases                    ? "by phases"
                                               : "static part";
}

/* Writes what VPOOL_PLAN did. driver_us, and all figures of calls and times, cover only the program's thread. */
static void json_second(struct vp_json *j, const struct vp_second_figures *s) {
    vp_json_begin_object(j, "learnt");
    vp_json_bool(j, "used", s->used);
    vp_json_double(j, "background_us", (double)s->background_ns / 1e3);
    vp_json_u64(j, "background_calls", s->background_calls);
    vp_json_double(j, "waited_us", (double)s->waited_ns / 1e3);
    vp_json_u64(j, "requests", s->requests);
    vp_json_u64(j, "known", s->found);
    vp_json_u64(j, "placed", s->served);
    vp_json_u64(j, "late", s->lacking);
    vp_json_u64(j, "made_bytes", s->made_bytes);
    vp_json_u64(j, "used_bytes", s->used_bytes);
    vp_json_u64(j, "returned_bytes", s->returned_bytes);
    vp_json_end_object(j);
}

static void print_json(const struct vp_replay_options *o, const struct vp_trace *trace, struct vp_replay_result *r) {
    struct vp_json j;
    char buffer[4096];
    vp_tool_flush();
    vp_json_init(&j, 1, buffer, sizeof buffer);
    vp_json_begin_object(&j, NULL);
    vp_json_string(&j, "trace", r->trace);
    vp_json_u64(&j, "device", trace->devices[0]);
    vp_json_string(&j, "policy", r->policy);
    vp_json_string(&j, "figures", "replayed");
    vp_json_u64(&j, "peak_live_bytes", r->pool.peak_live_bytes);
    vp_json_u64(&j, "peak_held_bytes", r->pool.peak_held_bytes);
    vp_json_double(&j, "efficiency", efficiency(r));
    vp_json_begin_object(&j, "driver_calls");
#define JSON_CALL(field, name) vp_json_u64(&j, #field, r->pool.calls.field);
    VP_MEMORY_CALLS(JSON_CALL)
#undef JSON_CALL
    vp_json_u64(&j, "event_record", r->timelines.records + r->timelines.barriers);
    vp_json_u64(&j, "event_query", r->timelines.queries);
    vp_json_u64(&j, "wait", r->timelines.waits);
    vp_json_end_object(&j);
    vp_json_double(&j, "driver_us", (double)r->driver_ns / 1e3);
    vp_json_u64(&j, "late_events", r->late_events);
    vp_json_u64(&j, "late_driver_calls", r->late_calls);
    vp_json_double(&j, "late_driver_us", (double)r->late_driver_ns / 1e3);
    if (!o->gpu)
        vp_json_double(&j, "longest_us", (double)r->longest_ns / 1e3);
    json_spread(&j, "malloc_ns", &r->malloc_ns);
    json_spread(&j, "free_ns", &r->free_ns);
    vp_json_u64(&j, "ooms", r->pool.ooms);
    vp_json_u64(&j, "passed_on", r->passed_on);
    vp_json_u64(&j, "metadata_bytes", r->metadata);
    if (r->plan.used) {
        vp_json_string(&j, "plan", plan_of(o, r));
        vp_json_bool(&j, "static_part", !r->plan.phases && !r->plan.modules);
        vp_json_u64(&j, "placed", r->plan.figures.placed);
        vp_json_u64(&j, "missed", r->plan.figures.missed);
        vp_json_u64(&j, "module_placed", r->plan.figures.module_placed);
        vp_json_u64(&j, "module_missed", r->plan.figures.module_missed);
    }
    if (r->second.wanted)
        json_second(&j, &r->second);
    vp_json_u64(&j, "peak_live_blocks", r->live_peak_blocks);
    if (o->modelled)
        json_model(&j, o, r);
    json_truth(&j, trace);
    vp_json_end_object(&j);
    vp_tool_wrote(vp_json_finish(&j));
}

/* As a share of the time that the program would have taken without the pool's waits. */
static double lost_percent(const struct vp_replay_result *r) {
    uint64_t without = r->model.total_ns - r->model.lost_ns;
    return without ? 100.0 * (double)r->model.lost_ns / (double)without : 0;
}

/* Held by live bytes, or "-" below the smallest handle: such a ratio says nothing. */
static const char *ratio(uint64_t held, uint64_t live, char text[16]) {
    if (live < 2 << 20)
        return "-";
    snprintf(text, 16, "%.4f", (double)held / (double)live);
    return text;
}

/* Above the first row: where no trace can be read there is no table. */
static void print_header(struct options *o) {
    if (!o->headed)
        printf("%-*s %3s %-9s %10s %10s %9s %9s %8s %8s %8s %8s %8s %5s%s\n", o->width, "trace", "dev", "policy",
               "live MiB", "held MiB", "held/live", "driver ms", "calls", "late", "waits", "alloc ns", "free ns",
               "ooms", o->replay.modelled ? "  lost %" : "");
    o->headed = true;
}

static void print_plan(const struct vp_replay_options *o, const struct vp_replay_result *r) {
    const struct vp_stalloc_figures *f = &r->plan.figures;
    printf("  plan %s%s: %llu placed, %llu missed", plan_of(o, r),
           o->plan && !r->plan.phases && !r->plan.modules ? ", static part" : "", (unsigned long long)f->placed,
           (unsigned long long)f->missed);
    if (r->plan.modules)
        printf(", of modules %llu and %llu", (unsigned long long)f->module_placed,
               (unsigned long long)f->module_missed);
}

static void print_row(const struct options *o, const struct vp_trace *trace, struct vp_replay_result *r) {
    struct spread m = spread_of(&r->malloc_ns), f = spread_of(&r->free_ns);
    char text[16];
    printf("%-*s %3u %-9s %10.1f %10.1f %9s %9.1f %8llu %8llu %8llu %8.0f %8.0f %5llu", o->width, r->trace,
           trace->devices[0], r->policy, (double)r->pool.peak_live_bytes / 1048576,
           (double)r->pool.peak_held_bytes / 1048576, ratio(r->pool.peak_held_bytes, r->pool.peak_live_bytes, text),
           (double)r->driver_ns / 1e6, (unsigned long long)vp_engine_remap_calls(&r->pool),
           (unsigned long long)r->late_calls, (unsigned long long)r->timelines.waits, m.mean, f.mean,
           (unsigned long long)r->pool.ooms);
    if (o->replay.modelled)
        printf(" %7.3f", lost_percent(r));
    if (r->plan.used)
        print_plan(&o->replay, r);
    if (r->second.used)
        printf("  background %.1f ms, %llu of %llu requests placed", (double)r->second.background_ns / 1e6,
               (unsigned long long)r->second.served, (unsigned long long)r->second.requests);
    putchar('\n');
}

/* Prints the row of what was recorded, above those of replays. */
static void print_truth(const struct options *o, const struct vp_trace *t, const char *name) {
    const struct vp_trace_truth truth = vp_trace_truth(t, t->devices[0]);
    struct vp_trace_peak peak;
    char text[16];
    if (truth.known && vp_trace_peak(t, &peak))
        printf("%-*s %3u %-9s %10.1f %10.1f %9s %9s %8llu %8s %8s %8s %8s %5llu\n", o->width, name, t->devices[0],
               "as it ran", (double)peak.bytes / 1048576, (double)truth.peak_held_bytes / 1048576,
               ratio(truth.peak_held_bytes, peak.bytes, text), "-", (unsigned long long)truth.driver_calls, "-", "-",
               "-", "-", (unsigned long long)truth.failures);
}

/* Prints a row without figures. */
static void print_unknown(const struct options *o, const struct vp_trace *trace, const struct vp_replay_result *r) {
    static const char why[] = "CUDA's own pool is not simulated: --gpu measures it";
    struct vp_json j;
    char buffer[4096];
    if (!o->json) {
        printf("%-*s %3u %-9s %s\n", o->width, r->trace, trace->devices[0], r->policy, why);
        return;
    }
    vp_tool_flush();
    vp_json_init(&j, 1, buffer, sizeof buffer);
    vp_json_begin_object(&j, NULL);
    vp_json_string(&j, "trace", r->trace);
    vp_json_u64(&j, "device", trace->devices[0]);
    vp_json_string(&j, "policy", r->policy);
    vp_json_string(&j, "unknown", why);
    vp_json_end_object(&j);
    vp_tool_wrote(vp_json_finish(&j));
}

/* ---- arguments ---- */

static void help_columns(void) {
    puts("The table's columns, for one device and all repetitions together:\n"
         "  live MiB    the most that was asked for and not freed\n"
         "  held MiB    the most that the pool held of the device\n"
         "  held/live   held divided by live; - below 2 MiB, the smallest handle\n"
         "  driver ms   time in the driver: modelled, or measured with --gpu\n"
         "  calls       driver calls that create, map, set access, unmap or release; in\n"
         "              the row \"as it ran\" all calls of the pool, also for events\n"
         "  late        how many of these calls were late\n"
         "  waits       waits of streams for memory that another stream has freed\n"
         "  alloc ns    average time of an allocation on this machine, with the driver\n"
         "  free ns     the same for a free\n"
         "  ooms        allocations that found no memory\n"
         "  lost %      with --lag: what the waits of the pool, on the GPU and the host,\n"
         "              added to the time that the program takes\n"
         "Exit status: 0, 1 if a trace could not be read or replayed (the others still\n"
         "are), 2 for wrong usage.");
}

static void help(void) {
    puts("usage: vpool replay [OPTION…] TRACE…\n"
         "\n"
         "Replays recorded allocations in the pool, without a GPU, and prints how much\n"
         "memory they took, with a row for each trace, device and policy. If the trace\n"
         "recorded what was held while the program ran, a row \"as it ran\" stands above.\n"
         "A trace is what VPOOL_TRACE records (op,id,size,stream,us) or RMM's log\n"
         "(Thread,Time,Action,Pointer,Size,Stream), plain or gzipped; - is standard input.\n"
         "vpool-snapshot-to-trace (in a clone scripts/snapshot-to-trace) makes one from a\n"
         "snapshot of PyTorch.\n"
         "\n"
         "  --policy P[,P…]   vpool, vpmm, bfc, es, gmlake, bare, stalloc, native\n"
         "                    (default: vpool); their parameters are the variables of\n"
         "                    `vpool options`.\n"
         "                    bare: PyTorch's cache (bfc) on addresses without memory, as\n"
         "                    under VPOOL_ADOPT=bare.\n"
         "                    stalloc: STAlloc with the plan that --plan or VPOOL_PLAN\n"
         "                    names, else a plan made from the trace itself.\n"
         "                    native: CUDA's own pool, with the largest release threshold.\n"
         "                    It needs --gpu, since the simulated pool reuses a block only\n"
         "                    for exactly its own size.\n"
         "                    vpmm leaves small requests to CUDA: with --gpu they are\n"
         "                    served and counted, too; else they are left out\n"
         "  --plan FILE       the plan by which stalloc places requests, as `vpool plan -o\n"
         "                    FILE` wrote it\n"
         "  --sim             use the simulated driver (default); driver time is modelled\n"
         "  --gpu             use this machine's GPU; driver time is measured\n"
         "  --capacity SIZE   memory of the simulated device, with suffix K, M, G or T\n"
         "                    (default 1T)\n"
         "  --handle SIZE     largest physical handle, 64K to 1G (default: VPOOL_HANDLE)\n"
         "  --repeat N        replay each trace N times in one pool, 1 to 1000 (default 1)\n"
         "  --late PERCENT    count driver calls in the last PERCENT of a trace as late,\n"
         "                    1 to 100 (default: the last third)\n"
         "  --lag US          let the GPU lag behind the host by up to US microseconds of\n"
         "                    modelled time (at most 10000000; 0 is the default: no time\n"
         "                    passes). The time between two events is work of the first\n"
         "                    event's stream; an eighth of it is work of the host, which\n"
         "                    waits when it is more than US ahead. Streams share the GPU,\n"
         "                    and one that waits leaves its share to the others\n"
         "  --work US         with --lag: time between two events, instead of the trace's\n"
         "                    (0 is the default: the trace's, or 10 if it has none)\n"
         "  --json            JSON instead of the table: an object, or a list of them for\n"
         "                    several traces, devices or policies; its `as_it_ran` is what\n"
         "                    was recorded, everything else is replayed\n"
         "  --help            this text\n"
         "\n"
         "VPOOL_WAIT decides what waits for memory of other streams, as in a program. With\n"
         "--lag, auto makes the host wait for a bounded time. Without it, auto means\n"
         "early, because work completes only when waited for.\n"
         "");
    help_columns();
}

/* Reads microseconds, up to ten seconds. */
static bool parse_us(const char *text, uint64_t *ns) {
    char *end;
    errno = 0;
    unsigned long us = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || us > 10000000)
        return false;
    *ns = us * UINT64_C(1000);
    return true;
}

static const char *look_up_handle(void *text, const char *name) {
    return strcmp(name, "VPOOL_HANDLE") ? NULL : text;
}

static void note_complaint(void *wrong, const char *line) {
    *(bool *)wrong = true;
}

/* Reads a handle size as the library reads the variable: a replay shows what a program would get. */
static bool parse_handle(char *text, uint64_t *handle) {
    static struct vp_options parsed;
    bool wrong = !*text;
    vp_options_parse(&parsed, look_up_handle, text, note_complaint, &wrong);
    if (!wrong)
        *handle = parsed.handle;
    return !wrong;
}

/* Reads a number from 1 to `most`. */
static bool parse_number(const char *text, long most, long *out) {
    char *end;
    *out = strtol(text, &end, 10);
    return !*end && *out >= 1 && *out <= most;
}

static bool replays(const struct options *o, const struct vp_policy *policy) {
    for (size_t i = 0; i < o->policy_count; i++)
        if (o->policies[i] == policy)
            return true;
    return false;
}

/* Checks what getopt_long() cannot check. */
static int check(const struct options *o, int traces) {
    if (o->replay.gpu && o->replay.modelled)
        return vp_tool_usage("replay", "--lag models a GPU, so it cannot go with --gpu");
    if (o->plan && !replays(o, &vp_policy_stalloc))
        return vp_tool_usage("replay", "--plan is for the policy stalloc");
    return traces ? 0 : vp_tool_usage("replay", "no trace given");
}

/* Returns 0, or the exit status of wrong usage. Sets *help if help was asked for. */
static int parse(struct options *o, int argc, char **argv, bool *asked_help) {
    static const struct option long_options[] = {
        {"policy", required_argument, NULL, 'p'},
        {"sim", no_argument, NULL, 's'},
        {"gpu", no_argument, NULL, 'g'},
        {"capacity", required_argument, NULL, 'c'},
        {"handle", required_argument, NULL, 'H'},
        {"lag", required_argument, NULL, 'l'},
        {"work", required_argument, NULL, 'w'},
        {"repeat", required_argument, NULL, 'r'},
        {"late", required_argument, NULL, 'L'},
        {"json", no_argument, NULL, 'j'},
        {"plan", required_argument, NULL, 'P'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    int c, status = 0;
    opterr = 0;
    while (!status && (c = getopt_long(argc, argv, "h", long_options, NULL)) >= 0) {
        switch (c) {
        case 'p': status = vp_engine_policies("replay", optarg, o->policies, &o->policy_count); break;
        case 's':
        case 'g': o->replay.gpu = c == 'g'; break;
        case 'c':
            o->replay.capacity = optarg;
            if (!vp_launch_is_size(optarg))
                status = vp_tool_usage("replay", "'%s' is not a capacity: " VP_LAUNCH_SIZES, optarg);
            break;
        case 'H':
            if (!parse_handle(optarg, &o->replay.handle))
                status = vp_tool_usage("replay", "'%s' is not a handle size: 64K to 1G", optarg);
            break;
        case 'l':
            if (!parse_us(optarg, &o->replay.lag_ns))
                status = vp_tool_usage("replay", "'%s' is not a lag: 0 to 10000000 microseconds", optarg);
            break;
        case 'w':
            if (!parse_us(optarg, &o->replay.work_ns))
                status = vp_tool_usage("replay", "'%s' is not a time: 0 to 10000000 microseconds", optarg);
            break;
        case 'r':
            if (!parse_number(optarg, 1000, &o->replay.repeat))
                status = vp_tool_usage("replay", "'%s' is not a number of repetitions: 1 to 1000", optarg);
            break;
        case 'L':
            if (!parse_number(optarg, 100, &o->replay.late))
                status = vp_tool_usage("replay", "'%s' is not a percentage: 1 to 100", optarg);
            break;
        case 'P': o->plan = optarg; break;
        case 'j': o->json = true; break;
        case 'h': *asked_help = true; return 0;
        default: status = vp_tool_unknown("replay", long_options, argv);
        }
    }
    o->replay.modelled = o->replay.lag_ns > 0;
    vp_tool_inputs(argv + optind);
    return status ? status : check(o, argc - optind);
}

/* Replays one device of a trace under each policy. `shown`: how many results were printed before. 0 or 1. */
static int replay_device(struct options *o, struct vp_engine *engine, const struct vp_trace *trace, const char *name,
                         size_t *shown) {
    int status = 0;
    if (!o->json) {
        print_header(o);
        print_truth(o, trace, name);
    }
    for (size_t p = 0; p < o->policy_count; p++) {
        struct vp_replay_result result = {.trace = name, .policy = o->policies[p]->name};
        bool unknown = o->policies[p] == &vp_policy_native && !o->replay.gpu;
        if (!unknown && vp_engine_replay(engine, &o->replay, o->policies[p], trace, &result) < 0) {
            status = 1;
        } else {
            if (o->json && o->several)
                fputs((*shown)++ ? ",\n" : "", stdout);
            if (unknown)
                print_unknown(o, trace, &result);
            else if (o->json)
                print_json(&o->replay, trace, &result);
            else
                print_row(o, trace, &result);
        }
        free(result.malloc_ns.ns);
        free(result.free_ns.ns);
    }
    return status;
}

static int replay_trace(struct options *o, struct vp_engine *engine, const char *path, size_t *shown) {
    struct vp_trace trace, part;
    char message[512], *name = vp_trace_title(path);
    int status = 0;
    if (!name || vp_trace_read(&trace, path, message, sizeof message) < 0) {
        fprintf(stderr, "vpool replay: %s\n", name ? message : strerror(ENOMEM));
        free(name);
        return 1;
    }
    /* One result is an object; more are a list of them. */
    if (trace.device_count > 1 && !o->several && o->json) {
        o->several = true;
        puts("[");
    }
    /* A trace without events also has one device. */
    for (unsigned d = 0; d < trace.device_count || (!d && !trace.count); d++) {
        if (vp_trace_of_device(&trace, d, &part) < 0) {
            fprintf(stderr, "vpool replay: %s: %s\n", path, strerror(ENOMEM));
            status = 1;
            break;
        }
        status |= replay_device(o, engine, &part, name, shown);
        vp_trace_finish(&part);
    }
    vp_trace_finish(&trace);
    free(name);
    return status;
}

/* VPOOL_PLAN is, as in programs, what a run has learnt for vpool's own policy, and a file with places for stalloc,
 * where
 * --plan names none. One that stalloc cannot use costs one line, if it is not meant for the other. 0 or 1. */
static int read_plans(struct options *o, struct vp_planned_file *plan) {
    char message[512];
    const char *named = vp_second_path("replay");
    o->replay.learnt = named;
    if (o->plan && vp_planned_read(plan, o->plan, message, sizeof message) < 0) {
        fprintf(stderr, "vpool replay: %s\n", message);
        return 1;
    }
    if (!o->plan && named && replays(o, &vp_policy_stalloc)) {
        if (!vp_planned_read(plan, named, message, sizeof message)) {
            o->plan = named;
            o->replay.learnt = NULL;
        } else if (!replays(o, &vp_policy_vpool)) {
            fprintf(stderr, "vpool replay: VPOOL_PLAN: %s; stalloc plans from the trace itself\n", message);
        }
    }
    o->replay.plan = o->plan ? plan : NULL;
    return 0;
}

int vp_tool_replay(int argc, char **argv) {
    struct options o = {.policies = {&vp_policy_vpool},
                        .policy_count = 1,
                        .replay = {.command = "replay", .repeat = 1, .capacity = "1T", .handle = vp_options()->handle}};
    struct vp_engine engine = {0};
    struct vp_planned_file plan = {0};
    bool asked_help = false;
    size_t shown = 0;
    int status = parse(&o, argc, argv, &asked_help);
    if (status)
        return status;
    if (asked_help) {
        help();
        return 0;
    }
    if (read_plans(&o, &plan))
        return 1;
    if (vp_engine_open(&engine, &o.replay) < 0) {
        vp_planned_file_finish(&plan);
        return 1;
    }
    o.several = argc - optind > 1 || o.policy_count > 1;
    o.width = vp_trace_titles_width(argv + optind, argc - optind);
    if (o.json && o.several)
        puts("[");
    for (int i = optind; i < argc; i++)
        status |= replay_trace(&o, &engine, argv[i], &shown);
    if (o.json && o.several)
        puts("]");
    vp_planned_file_finish(&plan);
    return status;
}
