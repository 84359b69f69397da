/* vpool export: traces and dumps in the formats of other tools. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/export.h"

#include "base/options.h"
#include "tool/out.h"
#include "tool/tool.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct options {
    struct vp_replay_options replay;
    const struct vp_policy *policies[VP_ENGINE_POLICIES];
    size_t policy_count;
    vp_export_fn *format;
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
    puts("usage: vpool export --perfetto|--snapshot|--rmm [OPTION…] TRACE|DUMP\n\n"
         "Writes a trace or a dump in the format of another tool. A trace is replayed on the\n"
         "simulated driver, for its addresses and for what was held.\n\n"
         "  --perfetto         Chrome's trace format, for ui.perfetto.dev: bytes as counters;\n"
         "                     what called the driver, and blocks from 1 MiB on, as slices\n"
         "  --snapshot         a memory snapshot of PyTorch, for pytorch.org/memory_viz\n"
         "  --rmm              RMM's log, which vpool replay reads, too\n"
         "  -o, --output FILE  the file to write (default: standard output)\n"
         "  --policy P         who served the trace: vpool, vpmm, bfc, es or gmlake\n"
         "                     (default: vpool)\n"
         "  --capacity SIZE    memory of the simulated device, with K, M, G or T behind\n"
         "                     (default 1T)\n"
         "  --help             this text\n\n"
         "Exit status: 0; 1 if the input could not be read or replayed, and nothing is\n"
         "written then; 2 for wrong usage.");
}

/* What getopt cannot know to be wrong. */
static int check(const struct options *o, int left) {
    if (!o->format)
        return vp_tool_usage("export", "no format given: --perfetto, --snapshot or --rmm");
    if (o->policy_count != 1 || o->policies[0] == &vp_policy_native)
        return vp_tool_usage("export", o->policy_count != 1 ? "one policy at a time"
                                                            : "native is CUDA's own pool, which is not simulated");
    if (left != 1)
        return vp_tool_usage("export", left ? "one trace or dump at a time" : "no trace and no dump given");
    if (o->format == vp_export_snapshot && !o->output && isatty(STDOUT_FILENO))
        return vp_tool_usage("export", "a snapshot is no text: -o FILE, or a pipe");
    return 0;
}

static int parse(struct options *o, int argc, char **argv, bool *asked_help) {
    static const struct option long_options[] = {
        {"perfetto", no_argument, NULL, 'f'},     {"snapshot", no_argument, NULL, 's'},
        {"rmm", no_argument, NULL, 'r'},          {"output", required_argument, NULL, 'o'},
        {"policy", required_argument, NULL, 'p'}, {"capacity", required_argument, NULL, 'c'},
        {"help", no_argument, NULL, 'h'},         {0},
    };
    int c, status = 0;
    opterr = 0;
    while (!status && (c = getopt_long(argc, argv, "ho:", long_options, NULL)) >= 0) {
        switch (c) {
        case 'f': o->format = vp_export_perfetto; break;
        case 's': o->format = vp_export_snapshot; break;
        case 'r': o->format = vp_export_rmm; break;
        case 'o': o->output = strcmp(optarg, "-") ? optarg : NULL; break;
        case 'p': status = vp_engine_policies("export", optarg, o->policies, &o->policy_count); break;
        case 'c':
            o->replay.capacity = optarg;
            if (!vp_engine_capacity(optarg))
                status = vp_tool_usage("export", "'%s' is no capacity: a number with K, M, G or T behind", optarg);
            break;
        case 'h': *asked_help = true; return 0;
        default: status = vp_tool_unknown("export", long_options, argv);
        }
    }
    return status ? status : check(o, argc - optind);
}

/* ---- the work ---- */

static int write_out(const struct options *o, const struct vp_export *from) {
    struct vp_out out;
    if (vp_out_open(&out, "export", o->output) < 0)
        return 1;
    int err = o->format(out.file, from);
    if (err)
        fprintf(stderr, "vpool export: %s\n", strerror(-err));
    return vp_out_close(&out, !err) < 0 || err ? 1 : 0;
}

static int export_dump(const struct options *o, const char *path) {
    struct vp_dump_file dump;
    char message[512];
    if (vp_dump_read(&dump, path, message, sizeof message) < 0) {
        fprintf(stderr, "vpool export: %s\n", message);
        return 1;
    }
    int status = write_out(o, &(struct vp_export){.name = path, .dump = &dump});
    vp_dump_finish(&dump);
    return status;
}

static int export_trace(const struct options *o, const char *path) {
    struct vp_engine engine = {0};
    struct vp_record record;
    struct vp_trace trace;
    char message[512];
    if (vp_trace_read(&trace, path, message, sizeof message) < 0) {
        fprintf(stderr, "vpool export: %s\n", message);
        return 1;
    }
    int status = 1;
    if (vp_engine_open(&engine, &o->replay) == 0) {
        if (vp_record_make(&record, &engine, &o->replay, o->policies[0], &trace, path) == 0)
            status = write_out(o, &(struct vp_export){.name = path, .record = &record});
        vp_record_finish(&record);
    }
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
    return (vp_dump_is(argv[optind]) ? export_dump : export_trace)(&o, argv[optind]);
}
