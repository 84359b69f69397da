/* vpool report: a page that shows what traces and dumps hold.
 *
 * The page draws; this file gives it the facts. They stand in it as columns of numbers, a few bytes each, in
 * base64: what happened in each event and where its block lay, from which the page has the state of every moment.
 * data.js reads what put_… here write.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/options.h"
#include "tool/dump_read.h"
#include "tool/out.h"
#include "tool/record.h"
#include "tool/report/embedded.h"
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
    const char *output;
};

/* ---- columns ---- */

/* One script element a column, so that the page reads only what it shows. */
static struct vp_base64 begin_column(FILE *file, size_t input, const char *policy, const char *name) {
    fprintf(file, "<script type=\"text/plain\" id=\"%zu.%s%s%s\">", input, policy ? policy : "", policy ? "." : "",
            name);
    return (struct vp_base64){.file = file};
}

static void end_column(struct vp_base64 *b) {
    vp_base64_end(b);
    fputs("</script>\n", b->file);
}

/* What all policies share. Of an allocation 0, else how many allocations ago the block was made; then sizes, streams
 * and times. */
static void put_trace(FILE *file, size_t input, const struct vp_trace *t) {
    struct vp_base64 b = begin_column(file, input, NULL, "blocks");
    uint32_t made = 0;
    for (size_t i = 0; i < t->count; i++) {
        vp_base64_number(&b, t->events[i].alloc ? 0 : made - t->events[i].block);
        made += t->events[i].alloc;
    }
    end_column(&b);
    b = begin_column(file, input, NULL, "sizes");
    for (size_t i = 0; i < t->count; i++)
        if (t->events[i].alloc)
            vp_base64_number(&b, t->events[i].size);
    end_column(&b);
    b = begin_column(file, input, NULL, "streams");
    for (size_t i = 0; i < t->count && t->streams > 1; i++)
        vp_base64_number(&b, t->events[i].stream);
    end_column(&b);
    b = begin_column(file, input, NULL, "times");
    for (size_t i = 0; i < t->count; i++)
        vp_base64_number(&b, t->events[i].us - (i ? t->events[i - 1].us : 0));
    end_column(&b);
}

/* Of each block, the distance from the one before in quanta, and what rounding added in bytes; 0 and 0 where the pool
 * did not serve it. */
static void put_blocks(FILE *file, size_t input, const struct vp_record *r) {
    struct vp_base64 b = begin_column(file, input, r->policy->name, "places");
    uint64_t last = 0;
    for (size_t i = 0; i < r->trace->count; i++) {
        const struct vp_trace_event *e = &r->trace->events[i];
        const struct vp_record_block *block = &r->blocks[e->block];
        if (!e->alloc)
            continue;
        vp_base64_number(&b, block->addr ? block->size - e->size + 1 : 0);
        if (block->addr)
            vp_base64_signed(&b, (int64_t)(block->addr - last) / VP_QUANTUM);
        last = block->addr ? block->addr : last;
    }
    end_column(&b);
}

static void put_mappings(FILE *file, size_t input, const struct vp_record *r) {
    const struct vp_record_mapping *m = r->mappings.items;
    struct vp_base64 b = begin_column(file, input, r->policy->name, "mappings");
    for (size_t i = 0; i < r->mappings.count; i++) {
        vp_base64_number(&b, m[i].from - (i ? m[i - 1].from : 0));
        vp_base64_number(&b, (uint64_t)(m[i].to - m[i].from) * 2 + m[i].current);
        vp_base64_signed(&b, (int64_t)(m[i].addr - (i ? m[i - 1].addr : 0)) / (int64_t)r->granularity);
        vp_base64_number(&b, m[i].size / r->granularity);
        vp_base64_signed(&b, (int64_t)(m[i].home - m[i].addr) / (int64_t)r->granularity);
    }
    end_column(&b);
}

static void put_samples(FILE *file, size_t input, const struct vp_record *r) {
    const struct vp_record_sample *s = r->samples.items;
    struct vp_base64 b = begin_column(file, input, r->policy->name, "samples");
    for (size_t i = 0; i < r->samples.count; i++) {
        vp_base64_number(&b, s[i].event - (i ? s[i - 1].event : 0));
        vp_base64_number(&b, s[i].live);
        vp_base64_number(&b, s[i].internal);
        vp_base64_number(&b, s[i].pinned);
        vp_base64_number(&b, s[i].pending);
        vp_base64_number(&b, s[i].idle);
    }
    end_column(&b);
}

static void put_calls(FILE *file, size_t input, const struct vp_record *r) {
    const struct vp_record_calls *c = r->calls.items;
    struct vp_base64 b = begin_column(file, input, r->policy->name, "calls");
    for (size_t i = 0; i < r->calls.count; i++) {
        vp_base64_number(&b, c[i].event - (i ? c[i - 1].event : 0));
        for (int k = 0; k < VP_RECORD_KINDS; k++)
            vp_base64_number(&b, c[i].count[k]);
        vp_base64_number(&b, c[i].ns);
    }
    end_column(&b);
}

/* ---- what the columns are of ---- */

static void put_figure(FILE *file, const char *name, uint64_t n) {
    fprintf(file, "\"%s\":%llu,", name, (unsigned long long)n);
}

/* The figures are those that `vpool replay` prints, which frees at the end what the trace leaves live. */
static void describe_run(FILE *file, const struct vp_record *r) {
    const struct vp_replay_result *result = &r->result;
    fprintf(file, "{\"policy\":\"%s\",", r->policy->name);
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

static void describe_trace(FILE *file, const char *path, const struct vp_trace *t) {
    fputs("{\"kind\":\"trace\",\"name\":", file);
    vp_out_string(file, name_of(path));
    fprintf(file, ",\"events\":%zu,\"blocks\":%u,\"streams\":%u,\"quantum\":%d,\"runs\":[", t->count, t->blocks,
            t->streams, VP_QUANTUM);
}

/* ---- inputs ---- */

/* Each writes its columns to `out`, and what they are of to `index`. 0, or 1 told on stderr. */

static int add_trace(FILE *file, FILE *index, size_t input, const char *path, struct vp_engine *engine,
                     const struct options *o) {
    struct vp_trace trace;
    char message[512];
    int status = 0;
    if (vp_trace_read(&trace, path, message, sizeof message) < 0) {
        fprintf(stderr, "vpool report: %s\n", message);
        return 1;
    }
    if (!trace.count) {
        fprintf(stderr, "vpool report: %s: the trace has no events\n", path);
        status = 1;
    } else {
        describe_trace(index, path, &trace);
        put_trace(file, input, &trace);
    }
    for (size_t p = 0; p < o->policy_count && !status; p++) {
        struct vp_record record;
        status = vp_record_make(&record, engine, &o->replay, o->policies[p], &trace, name_of(path)) < 0;
        if (!status) {
            fputs(p ? "," : "", index);
            describe_run(index, &record);
            put_blocks(file, input, &record);
            put_mappings(file, input, &record);
            put_samples(file, input, &record);
            put_calls(file, input, &record);
        }
        vp_record_finish(&record);
    }
    fputs("]}", index);
    vp_trace_finish(&trace);
    return status;
}

static int add_dump(FILE *file, FILE *index, size_t input, const char *path) {
    struct vp_dump_file dump;
    char message[512];
    if (vp_dump_read(&dump, path, message, sizeof message) < 0) {
        fprintf(stderr, "vpool report: %s\n", message);
        return 1;
    }
    fputs("{\"kind\":\"dump\",\"name\":", index);
    vp_out_string(index, name_of(path));
    fputs("}", index);
    struct vp_base64 b = begin_column(file, input, NULL, "dump");
    for (size_t i = 0; i < dump.length; i++)
        vp_base64_byte(&b, (uint8_t)dump.text[i]);
    end_column(&b);
    vp_dump_finish(&dump);
    return 0;
}

/* ---- the page ---- */

/* Where in the template they belong. */
static const char style_mark[] = "<!-- style -->", script_mark[] = "<!-- script -->";

static void put_scripts(FILE *file) {
    const char *const scripts[] = {vp_embedded_data_js, vp_embedded_charts_js, vp_embedded_map_js, vp_embedded_dump_js,
                                   vp_embedded_page_js};
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        fprintf(file, "<script>\n\"use strict\";\n%s</script>\n", scripts[i]);
}

/* The template has a comment where a part belongs. The facts come before the scripts that read them. */
static int put_page(FILE *file, char **inputs, size_t count, struct vp_engine *engine, const struct options *o) {
    char *index = NULL;
    size_t length = 0;
    FILE *about = open_memstream(&index, &length);
    int status = about ? 0 : 1;
    const char *style = strstr(vp_embedded_page_html, style_mark), *script = strstr(vp_embedded_page_html, script_mark);
    fwrite(vp_embedded_page_html, 1, (size_t)(style - vp_embedded_page_html), file);
    fprintf(file, "<style>\n%s</style>", vp_embedded_page_css);
    style += strlen(style_mark);
    fwrite(style, 1, (size_t)(script - style), file);
    for (size_t i = 0; i < count && !status; i++) {
        fputs(i ? "," : "", about);
        status = vp_dump_is(inputs[i]) ? add_dump(file, about, i, inputs[i])
                                       : add_trace(file, about, i, inputs[i], engine, o);
    }
    if (about)
        fclose(about);
    fprintf(file, "<script type=\"application/json\" id=\"index\">{\"vpool\":\"%s\",\"inputs\":[%s]}</script>\n",
            VP_VERSION, index ? index : "");
    put_scripts(file);
    fputs(script + strlen(script_mark), file);
    free(index);
    return status;
}

/* ---- arguments ---- */

static void help(void) {
    puts("usage: vpool report [OPTION…] TRACE|DUMP…\n\n"
         "Writes a page that shows them: memory over time, the map of all regions at any\n"
         "moment, sizes, where memory is lost, and driver calls. The page is one file that\n"
         "needs no network. A trace is what VPOOL_TRACE records or RMM's log, plain or\n"
         "gzipped; it is replayed on the simulated driver. A dump is what VPOOL_DUMP makes,\n"
         "as JSON.\n\n"
         "  -o, --output FILE  the page (default: report.html; - is standard output)\n"
         "  --policy P[,P…]    replay each trace under each of them: vpool, vpmm, bfc, es,\n"
         "                     gmlake (default: vpool)\n"
         "  --capacity SIZE    memory of the simulated device, with K, M, G or T behind\n"
         "                     (default 1T)\n"
         "  --help             this text\n\n"
         "Exit status: 0; 1 if an input could not be read or replayed, and no page is\n"
         "written then; 2 for wrong usage.");
}

static int parse(struct options *o, int argc, char **argv, bool *asked_help) {
    static const struct option long_options[] = {
        {"output", required_argument, NULL, 'o'},
        {"policy", required_argument, NULL, 'p'},
        {"capacity", required_argument, NULL, 'c'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    int c, status = 0;
    opterr = 0;
    while (!status && (c = getopt_long(argc, argv, "ho:", long_options, NULL)) >= 0) {
        switch (c) {
        case 'o': o->output = optarg; break;
        case 'p': status = vp_engine_policies("report", optarg, o->policies, &o->policy_count); break;
        case 'c':
            o->replay.capacity = optarg;
            if (!vp_engine_capacity(optarg))
                status = vp_tool_usage("report", "'%s' is no capacity: a number with K, M, G or T behind", optarg);
            break;
        case 'h': *asked_help = true; return 0;
        default: status = vp_tool_unknown("report", long_options, argv);
        }
    }
    for (size_t p = 0; p < o->policy_count && !status; p++)
        if (o->policies[p] == &vp_policy_native)
            status = vp_tool_usage("report", "native is CUDA's own pool, which is not simulated");
    if (!status && optind == argc)
        status = vp_tool_usage("report", "no trace and no dump given");
    return status;
}

int vp_tool_report(int argc, char **argv) {
    struct options o = {.replay = {.command = "report", .repeat = 1, .capacity = "1T", .handle = vp_options()->handle},
                        .policies = {&vp_policy_vpool},
                        .policy_count = 1,
                        .output = "report.html"};
    struct vp_engine engine = {0};
    struct vp_out out;
    bool asked_help = false, traces = false;
    int status = parse(&o, argc, argv, &asked_help);
    if (status)
        return status;
    if (asked_help) {
        help();
        return 0;
    }
    for (int i = optind; i < argc; i++)
        traces |= !vp_dump_is(argv[i]);
    if ((traces && vp_engine_open(&engine, &o.replay) < 0) ||
        vp_out_open(&out, "report", strcmp(o.output, "-") ? o.output : NULL) < 0)
        return 1;
    status = put_page(out.file, argv + optind, (size_t)(argc - optind), &engine, &o);
    if (vp_out_close(&out, !status) < 0)
        status = 1;
    if (!status && strcmp(o.output, "-"))
        printf("%s\n", o.output);
    return status;
}
