/* vpool plan: finds places for the blocks of recorded programs, and reports how good they are. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"
#include "tool/out.h"
#include "tool/plan/planned.h"
#include "tool/replay/engine.h"
#include "tool/plan/learnt_list.h"
#include "tool/tool.h"

#include <errno.h>
#include <getopt.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct options {
    struct vp_planned_limits limits;
    const char *output;
    bool json, several; /* several results: a list of objects */
    bool headed;        /* the table has its header */
    int width;          /* of its first column */
};

static const char *planner(const struct options *o) {
    return o->limits.published ? "stalloc" : "vpool";
}

/* ---- output ---- */

static double ratio(const struct vp_planned *p) {
    return p->figures.lower_bound ? (double)p->figures.peak / (double)p->figures.lower_bound : 1;
}

static void print_json(const struct options *o, const struct vp_planned *p, const char *trace) {
    struct vp_json j;
    char buffer[1024];
    vp_tool_flush();
    vp_json_init(&j, 1, buffer, sizeof buffer);
    vp_json_begin_object(&j, NULL);
    vp_json_string(&j, "trace", trace);
    vp_json_u64(&j, "device", p->device);
    vp_json_string(&j, "planner", planner(o));
    vp_json_u64(&j, "blocks", p->plan.count);
    vp_json_u64(&j, "phases", p->phases.count);
    vp_json_u64(&j, "modules", p->plan.module_count);
    vp_json_u64(&j, "module_requests", p->within);
    vp_json_bool(&j, "static_part", o->limits.published && !p->phases.count && !p->plan.module_count);
    vp_json_u64(&j, "lower_bound", p->figures.lower_bound);
    vp_json_u64(&j, "peak", p->figures.peak);
    vp_json_double(&j, "ratio", ratio(p));
    vp_json_double(&j, "seconds", p->figures.seconds);
    vp_json_u64(&j, "rounds", p->figures.rounds);
    vp_json_bool(&j, "searched", p->figures.searched);
    vp_json_end_object(&j);
    vp_tool_wrote(vp_json_finish(&j));
}

/* Above the first row: where no trace can be read there is no table. */
static void print_header(struct options *o) {
    if (!o->headed)
        printf("%-*s %3s %-9s %8s %12s %12s %12s %8s\n", o->width, "trace", "dev", "planner", "blocks", "bound MiB",
               "peak MiB", "peak/bound", "seconds");
    o->headed = true;
}

static void print_row(const struct options *o, const struct vp_planned *p, const char *trace) {
    printf("%-*s %3u %-9s %8zu %12.3f %12.3f %12.4f %8.2f", o->width, trace, p->device, planner(o), p->plan.count,
           (double)p->figures.lower_bound / 1048576, (double)p->figures.peak / 1048576, ratio(p), p->figures.seconds);
    if (p->plan.module_count)
        printf("  and %zu requests of %zu modules", p->within, p->plan.module_count);
    else if (o->limits.published && !p->phases.count)
        fputs("  static part", stdout);
    putchar('\n');
    vp_tool_flush();
}

static int write_out(const struct options *o, const struct vp_planned_file *file) {
    struct vp_out out;
    /* What a program allocates is private. */
    mode_t before = umask(077);
    int err = vp_out_open(&out, "plan", o->output);
    umask(before);
    if (err < 0)
        return 1;
    err = vp_planned_write(out.file, file);
    return vp_out_close(&out, !err) < 0 || err;
}

/* ---- arguments ---- */

static void help(void) {
    puts("usage: vpool plan [OPTION…] TRACE…\n"
         "       vpool plan show [--json] [FILE…]   list the plans that runs under\n"
         "                                          VPOOL_PLAN wrote, or show one\n"
         "       vpool plan forget FILE… | --all    remove such plans\n"
         "\n"
         "Finds places for all blocks that a recorded program allocated, in as few\n"
         "addresses as it can, and prints how good they are, with a row for each trace and\n"
         "device. A block is alive from the event that allocates it to the event that\n"
         "frees it, and takes a multiple of 512 bytes.\n"
         "\n"
         "  -o, --output FILE  write the plan of one trace to FILE, for the policy stalloc\n"
         "                     of vpool replay; it is written whole or not at all, and\n"
         "                     only its owner can read it\n"
         "  --seconds S        look for better places for S seconds on each device, 0 to\n"
         "                     86400 (default 10), after the first placement, which itself\n"
         "                     takes seconds for some 100,000 blocks\n"
         "  --capacity SIZE    stop once the plan fits in this many addresses, with suffix\n"
         "                     K, M, G or T\n"
         "  --published        plan as STAlloc's published planner does, for comparison:\n"
         "                     by the program's phases, which begin at its marks and at\n"
         "                     the ends of its outermost ranges; modules whose sizes\n"
         "                     differ from visit to visit get room but no places; without\n"
         "                     any marks, plan what it calls the static part, block by\n"
         "                     block\n"
         "  --json             JSON instead of the table: an object, or a list of them for\n"
         "                     several traces or devices\n"
         "  --help             this text\n"
         "\n"
         "The table's columns:\n"
         "  blocks       allocations that are planned\n"
         "  bound MiB    the most bytes alive at once: no plan needs less\n"
         "  peak MiB     addresses that the plan takes\n"
         "  peak/bound   peak divided by bound\n"
         "  seconds      time that planning took\n"
         "Exit status: 0, 1 if a trace could not be read or the plan not be written, 2 for\n"
         "wrong usage.");
}

static bool parse_seconds(const char *text, double *out) {
    char *end;
    *out = strtod(text, &end);
    return *text >= '0' && *text <= '9' && !*end && *out <= 86400;
}

static int parse(struct options *o, int argc, char **argv, bool *asked_help) {
    static const struct option long_options[] = {
        {"output", required_argument, NULL, 'o'},
        {"seconds", required_argument, NULL, 's'},
        {"capacity", required_argument, NULL, 'c'},
        {"published", no_argument, NULL, 'p'},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    int c, status = 0;
    opterr = 0;
    while (!status && (c = getopt_long(argc, argv, "ho:", long_options, NULL)) >= 0) {
        switch (c) {
        case 'o': o->output = optarg; break;
        case 's':
            if (!parse_seconds(optarg, &o->limits.seconds))
                status = vp_tool_usage("plan", "'%s' is not a time: 0 to 86400 seconds", optarg);
            break;
        case 'c':
            if (!vp_engine_size(optarg, &o->limits.capacity))
                status = vp_tool_usage("plan", "'%s' is not a size: a number with suffix K, M, G or T", optarg);
            break;
        case 'p': o->limits.published = true; break;
        case 'j': o->json = true; break;
        case 'h': *asked_help = true; return 0;
        default: status = vp_tool_unknown("plan", long_options, argv);
        }
    }
    vp_tool_inputs(argv + optind);
    if (!status && optind == argc)
        status = vp_tool_usage("plan", "no trace given");
    if (!status && o->output && argc - optind > 1)
        status = vp_tool_usage("plan", "-o writes the plan of one trace, and there are %d", argc - optind);
    return status ? status : vp_out_spare("plan", o->output, argv + optind, argc - optind);
}

/* ---- the work ---- */

static int plan_device(const struct options *o, const struct vp_trace *whole, unsigned device,
                       struct vp_planned *planned) {
    struct vp_trace part;
    int err = vp_trace_of_device(whole, device, &part);
    if (err)
        return err;
    err = vp_planned_make(planned, &part, &o->limits);
    vp_trace_finish(&part);
    return err;
}

static int plan_trace(struct options *o, const char *path, size_t *shown) {
    struct vp_planned_file file = {.published = o->limits.published};
    struct vp_trace trace;
    char message[512], *name = vp_trace_title(path);
    int status = 0;
    if (!name || vp_trace_read(&trace, path, message, sizeof message) < 0) {
        fprintf(stderr, "vpool plan: %s\n", name ? message : strerror(ENOMEM));
        free(name);
        return 1;
    }
    file.trace = strdup(name);
    if (trace.device_count > 1 && !o->several && o->json) {
        o->several = true;
        puts("[");
    }
    /* A trace without events also has one device. */
    for (unsigned d = 0; file.trace && !status && (d < trace.device_count || (!d && !trace.count)); d++) {
        int err = plan_device(o, &trace, d, &file.devices[d]);
        if (err) {
            fprintf(stderr, "vpool plan: %s: %s\n", path, vp_planned_error(err));
            status = 1;
            break;
        }
        file.device_count++;
        if (o->json && o->several)
            fputs((*shown)++ ? ",\n" : "", stdout);
        if (!o->json)
            print_header(o);
        (o->json ? print_json : print_row)(o, &file.devices[d], name);
    }
    if (!file.trace || (!status && o->output && write_out(o, &file)))
        status = 1;
    vp_planned_file_finish(&file);
    vp_trace_finish(&trace);
    free(name);
    return status;
}

int vp_tool_plan(int argc, char **argv) {
    struct options o = {.limits = {.seconds = 10}};
    bool asked_help = false;
    size_t shown = 0;
    if (argc > 1 && !strcmp(argv[1], "show"))
        return vp_learnt_show(argc - 1, argv + 1);
    if (argc > 1 && !strcmp(argv[1], "forget"))
        return vp_learnt_forget(argc - 1, argv + 1);
    int status = parse(&o, argc, argv, &asked_help);
    if (status)
        return status;
    if (asked_help) {
        help();
        return 0;
    }
    o.several = argc - optind > 1;
    o.width = vp_trace_titles_width(argv + optind, argc - optind);
    if (o.json && o.several)
        puts("[");
    for (int i = optind; i < argc; i++)
        status |= plan_trace(&o, argv[i], &shown);
    if (o.json && o.several)
        puts("]");
    return status;
}
