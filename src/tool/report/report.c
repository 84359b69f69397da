/* vpool report: writes a page that shows traces and dumps.
 *
 * Scripts in the page draw; this file gives them the data: columns of numbers (columns.c), and JSON that describes
 * them. A trace of several devices becomes several inputs of the page, in one group. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/report/report.h"

#include "base/options.h"
#include "tool/read/dump_read.h"
#include "tool/read/names.h"
#include "tool/read/holders.h"
#include "tool/report/columns.h"
#include "tool/report/embedded.h"
#include "tool/run/launch.h"
#include "tool/tool.h"

#include <errno.h>
#include <getopt.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>

struct options {
    struct vp_replay_options replay;
    const struct vp_policy *policies[VP_ENGINE_POLICIES];
    size_t policy_count;
    const struct vp_planned_file *plan; /* the plan for stalloc's run; NULL: it plans from the trace */
    const char *output, *plan_path;
};

/* ---- what the columns are of ---- */

static void put_figure(FILE *file, const char *name, uint64_t n) {
    fprintf(file, "\"%s\":%llu,", name, (unsigned long long)n);
}

/* Describes a run. The figures are those of `vpool replay`, which at the end frees what the trace leaves live. */
static void describe_run(FILE *file, const struct vp_record *r) {
    const struct vp_replay_result *result = &r->result;
    fprintf(file, "{\"policy\":\"%s\",", r->name);
    put_figure(file, "granularity", r->granularity);
    put_figure(file, "mappings", r->mappings.count);
    put_figure(file, "samples", r->samples.count);
    put_figure(file, "calls", r->calls.count);
    put_figure(file, "peak_live_bytes", result->pool.peak_live_bytes);
    put_figure(file, "peak_held_bytes", result->pool.peak_held_bytes);
    put_figure(file, "driver_ns", result->driver_ns);
    put_figure(file, "ooms", result->pool.ooms);
    put_figure(file, "passed_on", result->passed_on);
    fputs("\"driver_calls\":{", file);
    const struct {
        const char *name;
        uint64_t count;
    } calls[] = {
#define POOL_CALL(field, function) {#function, result->pool.calls.field},
        VP_MEMORY_CALLS(POOL_CALL)
#undef POOL_CALL
            {"cuEventRecord", result->timelines.records + result->timelines.barriers},
        {"cuEventQuery", result->timelines.queries},
        {"cuStreamWaitEvent", result->timelines.waits},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        fprintf(file, "%s\"%s\":%llu", i ? "," : "", calls[i].name, (unsigned long long)calls[i].count);
    fputs("}}", file);
}

static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Describes the lines that hold most at the peak. */
static int describe_holders(FILE *file, const struct vp_trace *t) {
    enum { SHOWN = 5, ROOM = 512 };
    struct vp_array holders = {0};
    struct vp_trace_peak peak;
    char text[ROOM];
    int err = vp_trace_peak(t, &peak) && t->stacks.stacks.count > 1 ? vp_holders_at(t, peak.event, &holders) : 0;
    const struct vp_holder *h = holders.items;
    fprintf(file, ",\"peak\":{\"event\":%zu,\"us\":%llu,\"bytes\":%llu,\"holders\":[", peak.event,
            (unsigned long long)(t->count ? t->events[peak.event].us : 0), (unsigned long long)peak.bytes);
    for (size_t i = 0; i < holders.count && i < SHOWN; i++) {
        fprintf(file, "%s{\"bytes\":%llu,\"blocks\":%llu,\"line\":", i ? "," : "", (unsigned long long)h[i].bytes,
                (unsigned long long)h[i].blocks);
        vp_out_string(file, h[i].stack ? vp_frame_text(&t->stacks, vp_stacks_frame(&t->stacks, h[i].stack), text, ROOM)
                                       : "unknown");
        fprintf(file, ",\"known\":%s}", h[i].stack ? "true" : "false");
    }
    fputs("]}", file);
    free(holders.items);
    return err;
}

/* Describes what is live over time, in equal parts of the whole recording's duration: for the small charts of several
 * devices. */
static int describe_course(FILE *file, const struct vp_trace *t, uint64_t duration) {
    enum { PARTS = 240 };
    uint64_t *sizes = calloc(t->blocks + 1u, sizeof *sizes), most[PARTS] = {0}, live = 0;
    size_t part = 0;
    for (size_t i = 0; sizes && i < t->count; i++) {
        const struct vp_trace_event *e = &t->events[i];
        for (size_t at = (size_t)((double)e->us / (double)(duration + 1) * PARTS); part < at && part + 1 < PARTS;)
            most[++part] = live;
        if (e->alloc)
            sizes[e->block] = e->size;
        live += e->alloc ? e->size : -sizes[e->block];
        most[part] = live > most[part] ? live : most[part];
    }
    while (++part < PARTS)
        most[part] = live;
    fputs(",\"course\":[", file);
    for (size_t i = 0; i < PARTS; i++)
        fprintf(file, "%s%llu", i ? "," : "", (unsigned long long)most[i]);
    fputs("]", file);
    free(sizes);
    return sizes ? 0 : -ENOMEM;
}

static int describe_trace(struct vp_page *page, const struct vp_trace *t, const struct vp_trace *whole) {
    FILE *file = page->index;
    const struct vp_trace_truth truth = vp_trace_truth(t, t->devices[0]);
    fprintf(file, "%s{\"kind\":\"trace\",\"name\":", page->inputs ? "," : "");
    vp_out_string(file, page->name);
    fprintf(file,
            ",\"group\":%zu,\"device\":%u,\"devices\":%u,\"events\":%zu,\"blocks\":%u,\"streams\":%u,\"quantum\":%d,"
            "\"stacks\":%zu,\"marks\":%zu,\"ranges\":%zu,\"held\":%zu,\"failures\":%zu,\"duration\":%llu",
            page->groups, t->devices[0], whole->device_count, t->count, t->blocks, t->streams, VP_QUANTUM,
            t->stacks.stacks.count, t->marks.count, t->ranges.count, t->held.count, t->failures.count,
            (unsigned long long)whole->events[whole->count - 1].us);
    if (truth.known)
        fprintf(file, ",\"as_it_ran\":{\"peak_held_bytes\":%llu,\"driver_calls\":%llu,\"failures\":%llu",
                (unsigned long long)truth.peak_held_bytes, (unsigned long long)truth.driver_calls,
                (unsigned long long)truth.failures);
    if (truth.known && truth.peak_addressed_bytes)
        fprintf(file, ",\"peak_addressed_bytes\":%llu", (unsigned long long)truth.peak_addressed_bytes);
    if (truth.known)
        fputs("}", file);
    if (whole->stacks.complaint) {
        fputs(",\"complaint\":", file);
        vp_out_string(file, whole->stacks.complaint);
    }
    int err = describe_holders(file, t);
    if (!err && whole->device_count > 1)
        err = describe_course(file, t, whole->events[whole->count - 1].us);
    fputs(",\"runs\":[", file);
    return err;
}

/* ---- inputs ---- */

/* Each function writes its columns to the page, and their description to the index. 0, or 1 with a message on stderr.
 */

static int add_run(struct vp_page *page, const struct vp_trace *part, struct vp_engine *engine, const struct options *o,
                   const struct vp_policy *policy, const struct vp_planned_file *plan, bool first) {
    struct vp_replay_options replay = o->replay;
    struct vp_record record;
    replay.plan = plan;
    int status = vp_record_make(&record, engine, &replay, policy, part, page->name) < 0;
    if (plan)
        record.name = "stalloc by --plan";
    if (!status) {
        fputs(first ? "" : ",", page->index);
        describe_run(page->index, &record);
        vp_page_put_run(page, &record);
    }
    vp_record_finish(&record);
    return status;
}

static int add_device(struct vp_page *page, const struct vp_trace *whole, unsigned device, struct vp_engine *engine,
                      const struct options *o) {
    struct vp_trace part;
    if (vp_trace_of_device(whole, device, &part) < 0) {
        fprintf(stderr, "vpool %s: %s: %s\n", o->replay.command, page->name, strerror(ENOMEM));
        return 1;
    }
    int status = describe_trace(page, &part, whole) < 0;
    vp_page_put_trace(page, &part);
    for (size_t p = 0; p < o->policy_count && !status; p++) {
        status = add_run(page, &part, engine, o, o->policies[p], NULL, !p);
        if (!status && o->plan && o->policies[p] == &vp_policy_stalloc)
            status = add_run(page, &part, engine, o, o->policies[p], o->plan, false);
    }
    fputs("]}", page->index);
    page->inputs++;
    vp_trace_finish(&part);
    return status;
}

static int add_trace(struct vp_page *page, const char *path, struct vp_engine *engine, const struct options *o) {
    struct vp_trace trace;
    char message[512];
    int status = 0;
    if (vp_trace_read(&trace, path, message, sizeof message) < 0) {
        fprintf(stderr, "vpool %s: %s\n", o->replay.command, message);
        return 1;
    }
    if (!trace.count) {
        fprintf(stderr, "vpool %s: %s: the trace has no events\n", o->replay.command, path);
        status = 1;
    } else if (vp_trace_name(&trace) < 0 || vp_page_put_group(page, &trace) < 0) {
        fprintf(stderr, "vpool %s: %s: %s\n", o->replay.command, path, strerror(ENOMEM));
        status = 1;
    }
    for (unsigned device = 0; device < trace.device_count && !status; device++)
        status = add_device(page, &trace, device, engine, o);
    page->groups++;
    vp_trace_finish(&trace);
    return status;
}

/* Writes the names of the dump's native frames: rows of module, address and name, for those that have one. */
static int put_names(struct vp_page *page, struct vp_stacks *s) {
    char *text = NULL, name[512];
    size_t length = 0, told = 0;
    FILE *file = vp_names_look_up(s) < 0 ? NULL : open_memstream(&text, &length);
    if (!file)
        return -ENOMEM;
    fputc('[', file);
    for (size_t i = 0; i < s->frames.count; i++) {
        const struct vp_frame *f = (const struct vp_frame *)s->frames.items + i;
        if (f->kind != VP_FRAME_NATIVE || !f->name)
            continue;
        fputs(told++ ? ",[" : "[", file);
        vp_out_string(file, vp_stacks_module(s, f)->path);
        fprintf(file, ",\"0x%llx\",", (unsigned long long)f->offset);
        vp_out_string(file, vp_frame_text(s, f, name, sizeof name));
        fputc(']', file);
    }
    fputc(']', file);
    const int err = fclose(file) ? -ENOMEM : 0;
    if (!err)
        vp_page_put_bytes(page, "names", text, length);
    free(text);
    return err;
}

static int add_dump(struct vp_page *page, const char *path, const struct options *o) {
    struct vp_dump_file dump;
    char message[512];
    if (vp_dump_read(&dump, path, message, sizeof message) < 0) {
        fprintf(stderr, "vpool %s: %s\n", o->replay.command, message);
        return 1;
    }
    fprintf(page->index, "%s{\"kind\":\"dump\",\"name\":", page->inputs ? "," : "");
    vp_out_string(page->index, page->name);
    fputs("}", page->index);
    vp_page_put_bytes(page, "dump", dump.text, dump.length);
    const int err = put_names(page, &dump.stacks);
    if (err)
        fprintf(stderr, "vpool %s: %s: %s\n", o->replay.command, path, strerror(-err));
    vp_dump_finish(&dump);
    page->inputs++;
    return err ? 1 : 0;
}

/* ---- the page ---- */

/* Marks in the template where style and scripts belong. */
static const char style_mark[] = "<!-- style -->", script_mark[] = "<!-- script -->";

static void put_scripts(FILE *file) {
    const char *const scripts[] = {vp_embedded_data_js,   vp_embedded_records_js, vp_embedded_stacks_js,
                                   vp_embedded_charts_js, vp_embedded_map_js,     vp_embedded_flame_js,
                                   vp_embedded_who_js,    vp_embedded_dump_js,    vp_embedded_page_js,
                                   vp_embedded_input_js,  vp_embedded_start_js};
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        fprintf(file, "<script>\n\"use strict\";\n%s</script>\n", scripts[i]);
}

/* Writes the page. The template has a comment where each part belongs. Facts come before the scripts that read them. */
static int put_page(FILE *file, char **inputs, size_t count, struct vp_engine *engine, const struct options *o) {
    char *index = NULL;
    size_t length = 0;
    struct vp_page page = {.file = file, .index = open_memstream(&index, &length)};
    int status = page.index ? 0 : 1;
    const char *style = strstr(vp_embedded_page_html, style_mark), *script = strstr(vp_embedded_page_html, script_mark);
    vp_progress_begin(&page.progress);
    fwrite(vp_embedded_page_html, 1, (size_t)(style - vp_embedded_page_html), file);
    fprintf(file, "<style>\n%s</style>", vp_embedded_page_css);
    style += strlen(style_mark);
    fwrite(style, 1, (size_t)(script - style), file);
    for (size_t i = 0; i < count && !status; i++) {
        page.name = name_of(inputs[i]);
        status = vp_dump_is(inputs[i]) ? add_dump(&page, inputs[i], o) : add_trace(&page, inputs[i], engine, o);
    }
    vp_progress_end(&page.progress);
    if (page.index)
        fclose(page.index);
    fprintf(file, "<script type=\"application/json\" id=\"index\">{\"vpool\":\"%s\",\"inputs\":[%s]}</script>\n",
            VP_VERSION, index ? index : "");
    put_scripts(file);
    fputs(script + strlen(script_mark), file);
    free(index);
    return status;
}

static int write_page(const struct options *o, char **inputs, size_t count) {
    struct vp_engine engine = {0};
    struct vp_out out;
    bool traces = false;
    for (size_t i = 0; i < count; i++)
        traces |= !vp_dump_is(inputs[i]);
    if ((traces && vp_engine_open(&engine, &o->replay) < 0) ||
        vp_out_open(&out, o->replay.command, strcmp(o->output, "-") ? o->output : NULL) < 0)
        return 1;
    int status = put_page(out.file, inputs, count, &engine, o);
    return vp_out_close(&out, !status) < 0 ? 1 : status;
}

static struct options defaults(const char *command) {
    return (struct options){
        .replay = {.command = command, .repeat = 1, .capacity = "1T", .handle = vp_options()->handle},
        .policies = {&vp_policy_vpool},
        .policy_count = 1,
        .output = "report.html"};
}

int vp_report_write(const char *command, const char *output, char **inputs, size_t count) {
    struct options o = defaults(command);
    o.output = output;
    const int lost = vp_out_spare(command, output, inputs, (int)count);
    return lost ? lost : write_page(&o, inputs, count);
}

/* ---- arguments ---- */

static void help(void) {
    puts("usage: vpool report [OPTION…] TRACE|DUMP…\n\n"
         "Writes a page about traces or dumps: memory over time; which lines of the\n"
         "program hold it (a flame graph, where VPOOL_STACKS recorded stacks); marks and\n"
         "ranges; what is alive at the end; the map of all regions at any moment; sizes;\n"
         "where memory is lost; and driver calls. Given two inputs, it shows the\n"
         "difference. The page is one file that needs no network. A trace is what\n"
         "VPOOL_TRACE records, or RMM's log, plain or gzipped. The page shows what the\n"
         "pool held while the program ran, if that was recorded, beside what it holds when\n"
         "the trace is replayed on the simulated driver. A dump is what VPOOL_DUMP writes\n"
         "as JSON. - is standard input.\n\n"
         "  -o, --output FILE  the page (default: report.html; - is standard output)\n"
         "  --policy P[,P…]    replay each trace under each of these policies: vpool,\n"
         "                     vpmm, bfc, es, gmlake, bare, stalloc (default: vpool)\n"
         "  --plan FILE        show stalloc with this plan of vpool plan, too, beside the\n"
         "                     plan of the trace itself\n"
         "  --capacity SIZE    memory of the simulated device, with suffix K, M, G or T\n"
         "                     (default 1T)\n"
         "  --help             this text\n\n"
         "Exit status: 0; 1 if an input could not be read or replayed (no page is written\n"
         "then); 2 for wrong usage.");
}

static int parse(struct options *o, int argc, char **argv, bool *asked_help) {
    static const struct option long_options[] = {
        {"output", required_argument, NULL, 'o'}, {"policy", required_argument, NULL, 'p'},
        {"plan", required_argument, NULL, 'P'},   {"capacity", required_argument, NULL, 'c'},
        {"help", no_argument, NULL, 'h'},         {0},
    };
    int c, status = 0;
    opterr = 0;
    while (!status && (c = getopt_long(argc, argv, "ho:", long_options, NULL)) >= 0) {
        switch (c) {
        case 'o': o->output = optarg; break;
        case 'P': o->plan_path = optarg; break;
        case 'p': status = vp_engine_policies("report", optarg, o->policies, &o->policy_count); break;
        case 'c':
            o->replay.capacity = optarg;
            if (!vp_launch_is_size(optarg))
                status = vp_tool_usage("report", "'%s' is not a capacity: " VP_LAUNCH_SIZES, optarg);
            break;
        case 'h': *asked_help = true; return 0;
        default: status = vp_tool_unknown("report", long_options, argv);
        }
    }
    for (size_t p = 0; p < o->policy_count && !status; p++)
        if (o->policies[p] == &vp_policy_native)
            status = vp_tool_usage("report", "native is CUDA's own pool, which is not simulated");
    bool planned = false;
    for (size_t p = 0; p < o->policy_count; p++)
        planned |= o->policies[p] == &vp_policy_stalloc;
    if (!status && o->plan_path && !planned)
        status = vp_tool_usage("report", "--plan is for the policy stalloc");
    vp_tool_inputs(argv + optind);
    if (!status && optind == argc)
        status = vp_tool_usage("report", "no trace and no dump given");
    if (!status && strcmp(o->output, "-"))
        status = vp_out_spare("report", o->output, argv + optind, argc - optind);
    return status;
}

int vp_tool_report(int argc, char **argv) {
    struct options o = defaults("report");
    bool asked_help = false;
    int status = parse(&o, argc, argv, &asked_help);
    if (status)
        return status;
    if (asked_help) {
        help();
        return 0;
    }
    vp_options_announce();
    struct vp_planned_file plan = {0};
    char message[512];
    if (o.plan_path && vp_planned_read(&plan, o.plan_path, message, sizeof message) < 0) {
        fprintf(stderr, "vpool report: %s\n", message);
        return 1;
    }
    o.plan = o.plan_path ? &plan : NULL;
    status = write_page(&o, argv + optind, (size_t)(argc - optind));
    vp_planned_file_finish(&plan);
    if (!status && strcmp(o.output, "-"))
        printf("%s\n", o.output);
    return status;
}
