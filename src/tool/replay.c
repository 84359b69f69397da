/*
 * vpool replay: drives the library's pool with a recorded trace, on the simulated driver (whose cost model then says what the driver calls would
 * have cost) or on the real one.
 *
 * Each stream of the trace is a stream; its work is taken to lag behind the host, so that memory of another stream is reused by a wait, not by luck.
 * What the trace leaves live is freed at the end of each repetition.
 */
#include "base/clock.h"
#include "base/json.h"
#include "base/options.h"
#include "policy/policy.h"
#include "tool/native.h"
#include "tool/tool.h"
#include "tool/trace.h"

#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct vp_policy *const policies[] = {
    &vp_policy_vpool, &vp_policy_vpmm, &vp_policy_bfc, &vp_policy_es, &vp_policy_gmlake, &vp_policy_native,
};

enum { POLICIES = sizeof policies / sizeof *policies };

/* The part of a run whose driver calls are counted as late. */
enum { LATE_SHARE = 3 };

/* How often the line on a terminal is written anew, and after how many events the clock is looked at for that. */
enum { PROGRESS_NS = 200000000, PROGRESS_EVENTS = 256 };

struct options {
    const struct vp_policy *policies[POLICIES];
    size_t policy_count;
    bool gpu, json;
    long repeat;
    const char *capacity;
    size_t handle;
};

struct latency {
    uint32_t *ns;
    size_t count, room;
};

struct result {
    const char *trace, *policy;
    struct vp_pool_stats pool;
    struct vp_line_stats lines;
    uint64_t late_calls, driver_ns, passed_on;
    struct latency malloc_ns, free_ns;
    size_t metadata, live_peak_blocks;
};

struct driver {
    struct vp_driver table;
    void *handle;
    CUcontext context;
    unsigned long long (*cost_ns)(void);    /* modelled; NULL on a GPU */
    void (*reset)(void);
    CUresult (*init)(unsigned);
    CUresult (*retain)(CUcontext *, CUdevice);
    CUresult (*release)(CUdevice);
    CUresult (*set_current)(CUcontext);
    CUresult (*stream_create)(CUstream *, unsigned);
    CUresult (*stream_destroy)(CUstream);
};

/* ---- the driver ---- */

static void *symbol(const char *name, void *handle) {
    return dlsym(handle, name);
}

static int open_driver(struct driver *d, const struct options *o) {
    char path[4096] = "libcuda.so.1", settings[256];
    if (!o->gpu) {
        ssize_t n = readlink("/proc/self/exe", path, sizeof path - 32);
        path[n < 0 ? 0 : n] = 0;
        strcat(dirname(path), "/sim/libcuda.so.1");
        snprintf(settings, sizeof settings, "backing=ledger,lazy=100,capacity=%s", o->capacity);
        setenv("VPOOL_SIM", settings, 0);
    }
    if (!(d->handle = dlopen(path, RTLD_NOW))) {
        fprintf(stderr, "vpool replay: %s\n", dlerror());
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
        fprintf(stderr, "vpool replay: %s is not the simulated driver\n", path);
        return -ENODEV;
    }
    const char *missing = "cuInit";
    if (!d->init || !d->retain || !d->set_current || !d->stream_create ||
        vp_driver_fill(&d->table, symbol, d->handle, &missing) < 0) {
        fprintf(stderr, "vpool replay: %s lacks %s\n", path, missing);
        return -ENODEV;
    }
    return 0;
}

static int start_device(struct driver *d) {
    CUresult res = d->init(0);
    if (!res)
        res = d->retain(&d->context, 0);
    if (!res)
        res = d->set_current(d->context);
    if (res)
        fprintf(stderr, "vpool replay: the CUDA driver answers %d\n", (int)res);
    return res ? -ENODEV : 0;
}

/* ---- one run ---- */

static void sample(struct latency *l, uint64_t ns) {
    if (l->count < l->room)
        l->ns[l->count++] = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

struct run {
    struct driver *driver;
    struct vp_lines lines;
    struct vp_pool pool;
    CUstream *streams;
    struct vp_region **blocks;
    struct vp_native native;    /* of a GPU */
    size_t live, peak_live_bytes;   /* blocks; bytes of the pool's and CUDA's together, while CUDA serves some */
    struct result *result;
};

static void closing(void *pool, struct vp_line *line) {
    vp_pool_close_line(pool, line);
}

static void retire(void *pool, struct vp_line *line) {
    vp_pool_drop_line(pool, line);
}

static int allocate(struct run *run, const struct vp_trace_event *e) {
    struct vp_line *line;
    int err = vp_line_get(&run->lines, run->streams[e->stream], &line);
    if (err)
        return err;
    struct vp_request req = { .asked = e->size, .line = line, .context = line->context, .waits = VP_WAITS_EARLY };
    uint64_t begin = vp_clock_ns();
    err = vp_pool_alloc(&run->pool, &req, &run->blocks[e->block]);
    if (err == -EOPNOTSUPP) {
        run->result->passed_on++;
        if (!run->native.pool)
            return 0;
        err = vp_native_alloc(&run->native, e->block, e->size, run->streams[e->stream]);
    }
    sample(&run->result->malloc_ns, vp_clock_ns() - begin);
    size_t live = run->native.live_bytes + run->pool.stats.live_bytes;
    if (run->native.live_bytes && live > run->peak_live_bytes)
        run->peak_live_bytes = live;
    if (err == -ENOMEM) {
        run->pool.stats.ooms++;
        return 0;
    }
    if (!err && ++run->live > run->result->live_peak_blocks)
        run->result->live_peak_blocks = run->live;
    return err;
}

static int release(struct run *run, uint32_t block, uint32_t stream) {
    struct vp_region *r = run->blocks[block];
    struct vp_line *line;
    uint64_t begin = vp_clock_ns();
    int err = 0;
    if (!vp_native_free(&run->native, block, run->streams[stream], &err)) {
        if (!r)
            return 0;
        err = vp_line_get(&run->lines, run->streams[stream], &line);
        begin = vp_clock_ns();
        if (!err)
            err = vp_pool_free_async(&run->pool, r, line);
    }
    if (err)
        return err;
    sample(&run->result->free_ns, vp_clock_ns() - begin);
    run->blocks[block] = NULL;
    run->live--;
    return 0;
}

static uint64_t remap_calls(const struct vp_pool_stats *s) {
    return s->calls.create + s->calls.map + s->calls.set_access + s->calls.unmap + s->calls.release;
}

/* A line on a terminal that is written over and over, and gone at the end. A short replay shows none. */
struct progress {
    bool on, shown;
    uint64_t next;
};

static void progress_show(struct progress *p, const struct result *r, size_t done, size_t total) {
    uint64_t now = p->on && done % PROGRESS_EVENTS == 0 ? vp_clock_ns() : 0;
    if (now <= p->next)
        return;
    fprintf(stderr, "\r%.40s, %s: %zu of %zu events, %zu %%", r->trace, r->policy, done, total, done * 100 / total);
    p->next = now + PROGRESS_NS;
    p->shown = true;
}

static void progress_end(const struct progress *p) {
    if (p->shown)
        fputs("\r\033[K", stderr);
}

static int drive(struct run *run, const struct vp_trace *trace, const struct options *o) {
    size_t total = trace->count * (size_t)o->repeat, done = 0, late_from = total - total / LATE_SHARE;
    uint64_t early_calls = 0;
    uint32_t *stream_of = calloc(trace->blocks, sizeof *stream_of);
    struct progress progress = { .on = isatty(STDERR_FILENO), .next = vp_clock_ns() + PROGRESS_NS };
    int err = stream_of ? 0 : -ENOMEM;
    for (long round = 0; round < o->repeat && !err; round++) {
        for (size_t i = 0; i < trace->count && !err; i++, done++) {
            const struct vp_trace_event *e = &trace->events[i];
            if (done == late_from)
                early_calls = remap_calls(&run->pool.stats);
            progress_show(&progress, run->result, done, total);
            err = e->alloc ? allocate(run, e) : release(run, e->block, e->stream);
            stream_of[e->block] = e->stream;
        }
        for (uint32_t b = 0; b < trace->blocks && !err; b++)
            err = release(run, b, stream_of[b]);
    }
    progress_end(&progress);
    run->result->late_calls = remap_calls(&run->pool.stats) - early_calls;
    free(stream_of);
    return err;
}

static int replay(struct driver *d, const struct options *o, const struct vp_policy *policy, const struct vp_trace *trace,
                  struct result *result) {
    struct run run = { .driver = d, .result = result };
    const struct vp_pool_config config = { .handle = o->handle,
                                           .split_most = vp_options()->bfc_max_split,
                                           .stitch_least = vp_options()->gmlake_fragment,
                                           .stitched_most = vp_options()->gmlake_stitched };
    int err = start_device(d);
    if (err)
        return err;
    uint64_t cost = d->cost_ns ? d->cost_ns() : 0;
    vp_lines_init(&run.lines, &d->table);
    if ((err = vp_pool_init(&run.pool, &d->table, &run.lines, 0, policy, &config)) < 0) {
        fprintf(stderr, "vpool replay: the device has no pool: %s\n", strerror(-err));
        return err;
    }
    run.lines.closing = closing;
    run.lines.retire = retire;
    run.lines.user = &run.pool;
    size_t most = trace->count * (size_t)o->repeat;
    run.streams = calloc(trace->streams, sizeof *run.streams);
    run.blocks = calloc(trace->blocks, sizeof *run.blocks);
    result->malloc_ns = (struct latency){ .ns = calloc(most, sizeof(uint32_t)), .room = most };
    result->free_ns = (struct latency){ .ns = calloc(most, sizeof(uint32_t)), .room = most };
    if (!run.streams || !run.blocks || !result->malloc_ns.ns || !result->free_ns.ns)
        err = -ENOMEM;
    for (uint32_t s = 0; s < trace->streams && !err; s++)
        if (d->stream_create(&run.streams[s], CU_STREAM_NON_BLOCKING))
            err = -EIO;
    if (!err && o->gpu)
        err = vp_native_init(&run.native, d->handle, trace->blocks);
    if (!err)
        err = drive(&run, trace, o);
    if (err)
        fprintf(stderr, "vpool replay: %s: %s\n", result->trace, strerror(-err));
    result->pool = vp_pool_stats(&run.pool);
    if (run.peak_live_bytes > result->pool.peak_live_bytes)
        result->pool.peak_live_bytes = run.peak_live_bytes;
    /* The sum of two peaks: too much by little where a policy shares the work with CUDA. */
    result->pool.peak_held_bytes += vp_native_peak(&run.native);
    result->lines = vp_lines_stats(&run.lines, 0);
    result->driver_ns = d->cost_ns ? d->cost_ns() - cost : result->pool.driver_ns + result->lines.ns + run.native.ns;
    result->metadata = vp_pool_metadata(&run.pool);
    vp_native_finish(&run.native);
    vp_pool_finish(&run.pool, true);
    vp_lines_finish(&run.lines);
    for (uint32_t s = 0; run.streams && s < trace->streams; s++)
        if (run.streams[s])
            d->stream_destroy(run.streams[s]);
    free(run.streams);
    free(run.blocks);
    if (d->reset)
        d->reset();
    else
        d->release(0);
    return err;
}

/* ---- output ---- */

static int by_value(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

struct spread {
    double p50, p99, max, mean;
};

static struct spread spread_of(struct latency *l) {
    struct spread s = { 0 };
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

static double efficiency(const struct result *r) {
    return r->pool.peak_held_bytes ? (double)r->pool.peak_live_bytes / (double)r->pool.peak_held_bytes : 1.0;
}

static void json_spread(struct vp_json *j, const char *key, struct latency *l) {
    struct spread s = spread_of(l);
    vp_json_begin_object(j, key);
    vp_json_double(j, "p50", s.p50);
    vp_json_double(j, "p99", s.p99);
    vp_json_double(j, "max", s.max);
    vp_json_double(j, "mean", s.mean);
    vp_json_end_object(j);
}

static void print_json(struct result *r) {
    struct vp_json j;
    char buffer[4096];
    fflush(stdout);
    vp_json_init(&j, 1, buffer, sizeof buffer);
    vp_json_begin_object(&j, NULL);
    vp_json_string(&j, "trace", r->trace);
    vp_json_string(&j, "policy", r->policy);
    vp_json_u64(&j, "peak_live_bytes", r->pool.peak_live_bytes);
    vp_json_u64(&j, "peak_held_bytes", r->pool.peak_held_bytes);
    vp_json_double(&j, "efficiency", efficiency(r));
    vp_json_begin_object(&j, "driver_calls");
#define JSON_CALL(field, name) vp_json_u64(&j, #field, r->pool.calls.field);
    VP_POOL_CALLS(JSON_CALL)
#undef JSON_CALL
    vp_json_u64(&j, "event_record", r->lines.records + r->lines.barriers);
    vp_json_u64(&j, "event_query", r->lines.queries);
    vp_json_u64(&j, "wait", r->lines.waits);
    vp_json_end_object(&j);
    vp_json_double(&j, "driver_us", (double)r->driver_ns / 1e3);
    vp_json_u64(&j, "late_driver_calls", r->late_calls);
    json_spread(&j, "malloc_ns", &r->malloc_ns);
    json_spread(&j, "free_ns", &r->free_ns);
    vp_json_u64(&j, "ooms", r->pool.ooms);
    vp_json_u64(&j, "passed_on", r->passed_on);
    vp_json_u64(&j, "metadata_bytes", r->metadata);
    vp_json_u64(&j, "peak_live_blocks", r->live_peak_blocks);
    vp_json_end_object(&j);
    vp_json_finish(&j);
}

static void print_row(struct result *r) {
    struct spread m = spread_of(&r->malloc_ns), f = spread_of(&r->free_ns);
    printf("%-18s %-8s %10.1f %10.1f %9.4f %9.1f %8llu %8llu %8llu %8.0f %8.0f %5llu\n", r->trace, r->policy,
           (double)r->pool.peak_live_bytes / 1048576, (double)r->pool.peak_held_bytes / 1048576,
           r->pool.peak_live_bytes ? (double)r->pool.peak_held_bytes / (double)r->pool.peak_live_bytes : 1.0,
           (double)r->driver_ns / 1e6, (unsigned long long)remap_calls(&r->pool), (unsigned long long)r->late_calls,
           (unsigned long long)r->lines.waits, m.mean, f.mean, (unsigned long long)r->pool.ooms);
}

/* A row without figures. */
static void print_unknown(const struct options *o, const struct result *r) {
    static const char why[] = "CUDA's own pool is not simulated: --gpu measures it";
    struct vp_json j;
    char buffer[4096];
    if (!o->json) {
        printf("%-18s %-8s %s\n", r->trace, r->policy, why);
        return;
    }
    fflush(stdout);
    vp_json_init(&j, 1, buffer, sizeof buffer);
    vp_json_begin_object(&j, NULL);
    vp_json_string(&j, "trace", r->trace);
    vp_json_string(&j, "policy", r->policy);
    vp_json_string(&j, "unknown", why);
    vp_json_end_object(&j);
    vp_json_finish(&j);
}

/* ---- arguments ---- */

static void help(void) {
    puts("usage: vpool replay [OPTION…] TRACE…\n\n"
         "Drives the pool with recorded allocations and prints what they took, a row for each trace and policy.\n"
         "A trace is what VPOOL_TRACE records (op,id,size,stream,us) or RMM's log (Thread,Time,Action,Pointer,Size,Stream),\n"
         "plain or gzipped. scripts/snapshot-to-trace makes one of a memory snapshot of PyTorch.\n\n"
         "  --policy P[,P…]   vpool, vpmm, bfc, es, gmlake, native (default: vpool); their parameters are the\n"
         "                    environment variables of `vpool options`. native is CUDA's own pool, with the\n"
         "                    release threshold at its most, and can be had with --gpu alone: the simulated\n"
         "                    pool takes a block again for exactly its own size and nothing else. What vpmm\n"
         "                    leaves to CUDA is served and counted with --gpu, too, and else left out\n"
         "  --sim             on the simulated driver (default): driver time is modelled\n"
         "  --gpu             on this machine's GPU: driver time is measured\n"
         "  --capacity SIZE   memory of the simulated device, with K, M, G or T behind (default 1T)\n"
         "  --handle SIZE     largest physical handle, in bytes or with K, M or G behind (default: VPOOL_HANDLE)\n"
         "  --repeat N        replay each trace N times in one pool, 1 to 1000 (default 1); late counts the last third\n"
         "  --json            one JSON object for each trace and policy, instead of the table\n"
         "  --help            this text\n\n"
         "Sizes in the table are peaks; calls are those that create, map, set access, unmap or release.\n"
         "Exit status: 0, 1 if a trace could not be read or replayed (the others are), 2 for wrong usage.");
}

static int parse_policies(struct options *o, char *list) {
    o->policy_count = 0;
    for (char *name; (name = strsep(&list, ","));) {
        size_t i = 0;
        while (i < POLICIES && strcmp(policies[i]->name, name))
            i++;
        if (i == POLICIES || o->policy_count == POLICIES)
            return vp_tool_usage("replay", "unknown policy '%s'", name);
        o->policies[o->policy_count++] = policies[i];
    }
    return 0;
}

static bool parse_size(const char *text, size_t *out) {
    char *end;
    double n = strtod(text, &end);
    size_t unit = *end == 'K' ? 1 << 10 : *end == 'M' ? 1 << 20 : *end == 'G' ? 1 << 30 : *end ? 0 : 1;
    if (end == text || !unit || (*end && end[1]) || n < 1 || n > 1e15)
        return false;
    *out = (size_t)(n * (double)unit);
    return true;
}

/* 0, or the exit status of wrong usage; *help set if that was asked for. */
static int parse(struct options *o, int argc, char **argv, bool *asked_help) {
    static const struct option long_options[] = {
        { "policy", required_argument, NULL, 'p' }, { "sim", no_argument, NULL, 's' },    { "gpu", no_argument, NULL, 'g' },
        { "capacity", required_argument, NULL, 'c' }, { "handle", required_argument, NULL, 'H' },
        { "repeat", required_argument, NULL, 'r' }, { "json", no_argument, NULL, 'j' },   { "help", no_argument, NULL, 'h' },
        { 0 },
    };
    char *end;
    int c, status = 0;
    opterr = 0;
    while (!status && (c = getopt_long(argc, argv, "", long_options, NULL)) >= 0) {
        switch (c) {
        case 'p': status = parse_policies(o, optarg); break;
        case 's': o->gpu = false; break;
        case 'g': o->gpu = true; break;
        case 'c':
            o->capacity = optarg;
            if (!optarg[strspn(optarg, "0123456789")] || !strchr("KMGT", optarg[strlen(optarg) - 1]) || strchr(optarg, ','))
                status = vp_tool_usage("replay", "'%s' is no capacity: a number with K, M, G or T behind", optarg);
            break;
        case 'H':
            if (!parse_size(optarg, &o->handle))
                status = vp_tool_usage("replay", "'%s' is no size", optarg);
            break;
        case 'r':
            o->repeat = strtol(optarg, &end, 10);
            if (*end || o->repeat < 1 || o->repeat > 1000)
                status = vp_tool_usage("replay", "'%s' is no number of repetitions: 1 to 1000", optarg);
            break;
        case 'j': o->json = true; break;
        case 'h': *asked_help = true; return 0;
        default: status = vp_tool_usage("replay", "unknown or incomplete argument '%s'", argv[optind - 1]);
        }
    }
    if (!status && optind == argc)
        status = vp_tool_usage("replay", "no trace given");
    return status;
}

static void drop_suffix(char *name, const char *suffix) {
    size_t n = strlen(name), m = strlen(suffix);
    if (n > m && !strcmp(name + n - m, suffix))
        name[n - m] = 0;
}

int vp_tool_replay(int argc, char **argv) {
    struct options o = { .policies = { &vp_policy_vpool }, .policy_count = 1, .repeat = 1, .capacity = "1T",
                         .handle = vp_options()->handle };
    struct driver d = { 0 };
    char message[512];
    bool asked_help = false;
    int status = parse(&o, argc, argv, &asked_help);
    if (status)
        return status;
    if (asked_help) {
        help();
        return 0;
    }
    if (open_driver(&d, &o) < 0)
        return 1;
    if (!o.json)
        printf("%-18s %-8s %10s %10s %9s %9s %8s %8s %8s %8s %8s %5s\n", "trace", "policy", "live MiB", "held MiB", "held/live",
               "driver ms", "calls", "late", "waits", "malloc", "free ns", "ooms");
    for (int i = optind; i < argc; i++) {
        struct vp_trace trace;
        if (vp_trace_read(&trace, argv[i], message, sizeof message) < 0) {
            fprintf(stderr, "vpool replay: %s\n", message);
            status = 1;
            continue;
        }
        for (size_t p = 0; p < o.policy_count; p++) {
            char *name = strdup(argv[i]);
            struct result result = { .trace = name ? basename(name) : argv[i], .policy = o.policies[p]->name };
            if (name)
                drop_suffix(name, ".gz"), drop_suffix(name, ".csv");
            if (o.policies[p] == &vp_policy_native && !o.gpu)
                print_unknown(&o, &result);
            else if (replay(&d, &o, o.policies[p], &trace, &result) < 0)
                status = 1;
            else
                (o.json ? print_json : print_row)(&result);
            free(result.malloc_ns.ns);
            free(result.free_ns.ns);
            free(name);
        }
        vp_trace_finish(&trace);
    }
    return status;
}
