/* vpool export: traces and dumps in the formats of other tools. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/export/export.h"

#include "base/options.h"
#include "tool/out.h"
#include "tool/run/launch.h"
#include "tool/tool.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A format that can be written of dumps, too, is written of replayed traces. The others need only the trace. */
struct format {
    const char *name;
    vp_export_fn *write;
    bool of_dumps, text, gzip;
};
static const struct format formats[] = {
    {"perfetto", vp_export_perfetto, true, true, false},
    {"snapshot", vp_export_snapshot, true, false, false},
    {"rmm", vp_export_rmm, true, true, false},
    {"pprof", vp_export_pprof, false, false, true},
    {"collapsed", vp_export_collapsed, false, true, false},
};

struct options {
    struct vp_replay_options replay;
    const struct vp_policy *policies[VP_ENGINE_POLICIES];
    size_t policy_count;
    const struct format *format;
    const char *output;
};

static const struct vp_record_mapping *compared;

static int by_end(const void *a, const void *b) {
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    if (compared[x].to != compared[y].to)
        return compared[x].to < compared[y].to ? -1 : 1;
    return x < y ? -1 : x > y;
}

size_t *vp_export_ends(const struct vp_record *record) {
    size_t *ends = malloc((record->mappings.count + 1) * sizeof *ends);
    for (size_t i = 0; ends && i < record->mappings.count; i++)
        ends[i] = i;
    compared = record->mappings.items;
    if (ends && record->mappings.count)
        qsort(ends, record->mappings.count, sizeof *ends, by_end);
    return ends;
}

/* ---- arguments ---- */

static void help(void) {
    puts("usage: vpool export FORMAT [OPTION…] TRACE|DUMP\n\n"
         "Writes a trace or a dump in the format of another tool, one of:\n\n"
         "  --perfetto         Chrome's trace format, for ui.perfetto.dev: bytes as\n"
         "                     counters; what called the driver, and blocks from 1 MiB on,\n"
         "                     as slices with stacks; marks as instants, ranges as slices\n"
         "  --snapshot         a memory snapshot of PyTorch, for pytorch.org/memory_viz\n"
         "  --rmm              RMM's log, which vpool replay can read, too\n"
         "  --pprof            a gzipped profile for go tool pprof, from a trace with\n"
         "                     stacks: what was allocated, alive at the peak, at the end\n"
         "  --collapsed        one line for each stack with its bytes at the peak, from a\n"
         "                     trace, for flamegraph.pl and speedscope\n\n"
         "For the first three, a trace is replayed on the simulated driver to find its\n"
         "addresses and what was held.\n\n"
         "  -o, --output FILE  the file to write, gzipped if its name ends in .gz\n"
         "                     (default: standard output)\n"
         "  --policy P         the policy that serves the trace: vpool, vpmm, bfc, es,\n"
         "                     gmlake, bare or stalloc (default: vpool)\n"
         "  --capacity SIZE    memory of the simulated device, with suffix K, M, G or T\n"
         "                     (default 1T)\n"
         "  --help             this text\n\n"
         "Exit status: 0; 1 if the input could not be read or replayed (nothing is written\n"
         "then); 2 for wrong usage.");
}

/* Checks what getopt_long() cannot check. */
static int check(const struct options *o, int left) {
    if (!o->format)
        return vp_tool_usage("export", "no format given: --perfetto, --snapshot, --rmm, --pprof or --collapsed");
    if (o->policy_count != 1 || o->policies[0] == &vp_policy_native)
        return vp_tool_usage("export", o->policy_count != 1 ? "one policy at a time"
                                                            : "native is CUDA's own pool, which is not simulated");
    if (left != 1)
        return vp_tool_usage("export", left ? "one trace or dump at a time" : "no trace and no dump given");
    if (!o->format->text && !o->output && isatty(STDOUT_FILENO))
        return vp_tool_usage("export", "--%s is not text: use -o FILE, or a pipe", o->format->name);
    return 0;
}

static int choose(struct options *o, const char *name) {
    const struct format *format = formats;
    while (strcmp(format->name, name))
        format++;
    if (o->format && o->format != format)
        return vp_tool_usage("export", "one format at a time: --%s or --%s", o->format->name, name);
    o->format = format;
    return 0;
}

static int parse(struct options *o, int argc, char **argv, bool *asked_help) {
    static const struct option long_options[] = {
        {"perfetto", no_argument, NULL, 'f'},     {"snapshot", no_argument, NULL, 'f'},
        {"rmm", no_argument, NULL, 'f'},          {"pprof", no_argument, NULL, 'f'},
        {"collapsed", no_argument, NULL, 'f'},    {"output", required_argument, NULL, 'o'},
        {"policy", required_argument, NULL, 'p'}, {"capacity", required_argument, NULL, 'c'},
        {"help", no_argument, NULL, 'h'},         {0},
    };
    int c, status = 0, which = 0;
    opterr = 0;
    while (!status && (c = getopt_long(argc, argv, "ho:", long_options, &which)) >= 0) {
        switch (c) {
        case 'f': status = choose(o, long_options[which].name); break;
        case 'o': o->output = strcmp(optarg, "-") ? optarg : NULL; break;
        case 'p': status = vp_engine_policies("export", optarg, o->policies, &o->policy_count); break;
        case 'c':
            o->replay.capacity = optarg;
            if (!vp_launch_is_size(optarg))
                status = vp_tool_usage("export", "'%s' is not a capacity: " VP_LAUNCH_SIZES, optarg);
            break;
        case 'h': *asked_help = true; return 0;
        default: status = vp_tool_unknown("export", long_options, argv);
        }
    }
    vp_tool_inputs(argv + optind);
    if (!status)
        status = check(o, argc - optind);
    return status ? status : vp_out_spare("export", o->output, argv + optind, argc - optind);
}

/* ---- the work ---- */

static int write_out(const struct options *o, const struct vp_export *from) {
    struct vp_out out;
    if (vp_out_open(&out, "export", o->output) < 0 || (o->format->gzip && vp_out_compress(&out) < 0))
        return 1;
    int err = o->format->write(out.file, from);
    if (err)
        fprintf(stderr, "vpool export: %s\n", strerror(-err));
    return vp_out_close(&out, !err) < 0 || err ? 1 : 0;
}

static int export_dump(const struct options *o, const char *path) {
    struct vp_dump_file dump;
    char message[512];
    if (!o->format->of_dumps)
        return vp_tool_usage("export", "--%s needs a trace, not a dump", o->format->name);
    if (vp_dump_read(&dump, path, message, sizeof message) < 0) {
        fprintf(stderr, "vpool export: %s\n", message);
        return 1;
    }
    if (vp_dump_name(&dump) < 0) {
        fprintf(stderr, "vpool export: %s: %s\n", path, strerror(ENOMEM));
        vp_dump_finish(&dump);
        return 1;
    }
    if (dump.stacks.complaint)
        fprintf(stderr, "vpool export: %s\n", dump.stacks.complaint);
    int status = write_out(o, &(struct vp_export){.name = path, .dump = &dump});
    vp_dump_finish(&dump);
    return status;
}

/* Replays each device in a pool of its own. Returns 0, or 1 with a message on stderr. */
static int replay_devices(const struct options *o, const struct vp_trace *whole, struct vp_trace *parts,
                          struct vp_record *records, const char *path) {
    struct vp_engine engine = {0};
    int status = vp_engine_open(&engine, &o->replay) < 0;
    for (unsigned d = 0; d < whole->device_count && !status; d++) {
        status = vp_trace_of_device(whole, d, &parts[d]) < 0;
        if (status)
            fprintf(stderr, "vpool export: %s: %s\n", path, strerror(ENOMEM));
        else
            status = vp_record_make(&records[d], &engine, &o->replay, o->policies[0], &parts[d], path) < 0;
    }
    return status;
}

static int export_trace(const struct options *o, const char *path) {
    struct vp_trace trace, *parts;
    struct vp_record *records;
    char message[512];
    int status = 0;
    if (vp_trace_read(&trace, path, message, sizeof message) < 0) {
        fprintf(stderr, "vpool export: %s\n", message);
        return 1;
    }
    parts = calloc(VP_TRACE_DEVICES, sizeof *parts);
    records = calloc(VP_TRACE_DEVICES, sizeof *records);
    if (!parts || !records || vp_trace_name(&trace) < 0) {
        fprintf(stderr, "vpool export: %s: %s\n", path, strerror(ENOMEM));
        status = 1;
    }
    if (trace.stacks.complaint)
        fprintf(stderr, "vpool export: %s\n", trace.stacks.complaint);
    if (!status && o->format->of_dumps)
        status = replay_devices(o, &trace, parts, records, path);
    if (!status)
        status = write_out(o, &(struct vp_export){.name = path, .trace = &trace, .records = records});
    for (unsigned d = 0; parts && records && d < trace.device_count; d++) {
        vp_record_finish(&records[d]);
        vp_trace_finish(&parts[d]);
    }
    free(parts);
    free(records);
    vp_trace_finish(&trace);
    return status;
}

int vp_tool_export(int argc, char **argv) {
    struct options o = {.replay = {.command = "export", .repeat = 1, .capacity = "1T", .handle = vp_options()->handle},
                        .policies = {&vp_policy_vpool},
                        .policy_count = 1};
    bool asked_help = false;
    int status = parse(&o, argc, argv, &asked_help);
    if (status)
        return status;
    if (asked_help) {
        help();
        return 0;
    }
    vp_options_announce();
    return (vp_dump_is(argv[optind]) ? export_dump : export_trace)(&o, argv[optind]);
}
