/* vpool top: what the pools of this user's processes hold. This file is the table, JSON and Prometheus's
 * text; watch.c is the terminal.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tool/top.h"

#include "base/json.h"
#include "tool/tool.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- the table ---- */

const struct vp_top_order vp_top_orders[] = {
    {'l', "live"},  {'h', "held"},       {'f', "free"}, {'e', "efficiency"}, {'a', "allocations"}, {'c', "calls"},
    {'w', "waits"}, {'p', "process id"}, {0},
};

bool vp_top_is_order(char key) {
    const struct vp_top_order *o = vp_top_orders;
    while (o->key && o->key != key)
        o++;
    return o->key && key;
}

static double order_value(const struct vp_sample *s, const struct vp_row *row, char key) {
    switch (key) {
    case 'l': return (double)row->now.live_bytes;
    case 'f': return (double)vp_row_free(row);
    case 'e': return vp_row_efficiency(row);
    case 'a': return row->allocs_per_s;
    case 'c': return row->driver_calls_per_s;
    case 'w': return (double)(row->now.waits_gpu + row->now.waits_host);
    case 'p': return -(double)s->processes[row->process].stats->pid;
    default: return (double)row->now.held_bytes;
    }
}

struct sorting {
    const struct vp_sample *sample;
    char key;
};

static int compare(const void *a, const void *b, void *context) {
    const struct sorting *by = context;
    const struct vp_row *x = a, *y = b;
    double left = order_value(by->sample, x, by->key), right = order_value(by->sample, y, by->key);
    if (left != right)
        return left < right ? 1 : -1;
    uint32_t p = by->sample->processes[x->process].stats->pid, q = by->sample->processes[y->process].stats->pid;
    return p != q ? (p > q) - (p < q) : (x->device > y->device) - (x->device < y->device);
}

void vp_top_sort(struct vp_sample *sample, char key) {
    if (sample->row_count)
        qsort_r(sample->rows, sample->row_count, sizeof *sample->rows, compare, &(struct sorting){sample, key});
}

static const char *human(char text[16], double bytes) {
    static const char units[] = "BKMGTP";
    int unit = 0;
    for (; bytes >= 1000 && unit < 5; unit++)
        bytes /= 1024;
    snprintf(text, 16, unit ? "%.1f%c" : "%.0f%c", bytes, units[unit]);
    return text;
}

static const char *rate(char text[16], double per_s) {
    snprintf(text, 16, per_s < 0 ? "-" : "%.0f", per_s);
    return text;
}

void vp_top_head(FILE *out) {
    fprintf(out, "%8s %3s %8s %8s %8s %5s %9s %8s %8s %4s %-7s %s", "PID", "DEV", "LIVE", "HELD", "FREE", "EFF%",
            "ALLOC/S", "CALLS/S", "WAITS", "OOM", "POLICY", "COMMAND");
}

void vp_top_row(FILE *out, const struct vp_sample *s, const struct vp_row *row) {
    const struct vp_watched *w = &s->processes[row->process];
    char live[16], held[16], spare[16], allocs[16], calls[16];
    fprintf(out, "%8u %3llu %8s %8s %8s %5.1f %9s %8s %8llu %4llu %-7s %s", w->stats->pid,
            (unsigned long long)row->device, human(live, (double)row->now.live_bytes),
            human(held, (double)row->now.held_bytes), human(spare, (double)vp_row_free(row)),
            100 * vp_row_efficiency(row), rate(allocs, row->allocs_per_s), rate(calls, row->driver_calls_per_s),
            (unsigned long long)(row->now.waits_gpu + row->now.waits_host), (unsigned long long)row->now.ooms,
            w->policy, w->command);
}

void vp_top_totals(FILE *out, const struct vp_sample *s) {
    char live[16], held[16], spare[16];
    uint64_t lives = 0, helds = 0;
    for (unsigned i = 0; i < s->row_count; i++) {
        lives += s->rows[i].now.live_bytes;
        helds += s->rows[i].now.held_bytes;
    }
    fprintf(out, "%u process%s: %s live, %s held, %s free", s->process_count, s->process_count == 1 ? "" : "es",
            human(live, (double)lives), human(held, (double)helds),
            human(spare, helds > lives ? (double)(helds - lives) : 0));
}

static void print_plain(const struct vp_sample *s) {
    vp_top_totals(stdout, s);
    puts("\n");
    vp_top_head(stdout);
    for (unsigned i = 0; i < s->row_count; i++) {
        putchar('\n');
        vp_top_row(stdout, s, &s->rows[i]);
    }
    putchar('\n');
}

/* ---- JSON ---- */

static void json_row(struct vp_json *j, const struct vp_row *row) {
    vp_json_begin_object(j, NULL);
    vp_json_u64(j, "device", row->device);
#define FIGURE(field, ...) vp_json_u64(j, #field, row->now.field);
    VP_SHARED_STATS_FIGURES(FIGURE)
#undef FIGURE
    vp_json_u64(j, "free_bytes", vp_row_free(row));
    vp_json_double(j, "efficiency", vp_row_efficiency(row));
    if (row->allocs_per_s >= 0) {
        vp_json_double(j, "allocs_per_s", row->allocs_per_s);
        vp_json_double(j, "driver_calls_per_s", row->driver_calls_per_s);
    }
    vp_json_end_object(j);
}

static int print_json(const struct vp_sample *s) {
    struct vp_json j;
    char buffer[4096];
    vp_json_init(&j, STDOUT_FILENO, buffer, sizeof buffer);
    vp_json_begin_object(&j, NULL);
    vp_json_string(&j, "format", "vpool-top");
    vp_json_u64(&j, "version", 1);
    vp_json_u64(&j, "time", (uint64_t)time(NULL));
    vp_json_begin_array(&j, "processes");
    for (unsigned p = 0; p < s->process_count; p++) {
        const struct vp_watched *w = &s->processes[p];
        vp_json_begin_object(&j, NULL);
        vp_json_u64(&j, "pid", w->stats->pid);
        vp_json_string(&j, "program", w->program);
        vp_json_string(&j, "command", w->command);
        vp_json_string(&j, "vpool", w->release);
        vp_json_string(&j, "policy", w->policy);
        vp_json_u64(&j, "began", w->stats->began);
        vp_json_u64(&j, "passed_on", atomic_load(&w->stats->passed_on));
        vp_json_bool(&j, "takes_dumps", w->stats->takes_dumps != 0);
        vp_json_begin_array(&j, "devices");
        for (unsigned i = 0; i < s->row_count; i++)
            if (s->rows[i].process == p)
                json_row(&j, &s->rows[i]);
        vp_json_end_array(&j);
        vp_json_end_object(&j);
    }
    vp_json_end_array(&j);
    vp_json_end_object(&j);
    return vp_json_finish(&j) ? 1 : 0;
}

/* ---- Prometheus's text format ---- */

static void label(FILE *out, const char *text) {
    for (; *text; text++)
        fprintf(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
}

static void labels(FILE *out, const struct vp_watched *w) {
    fprintf(out, "{pid=\"%u\",program=\"", w->stats->pid);
    label(out, w->program);
    fprintf(out, "\",policy=\"");
    label(out, w->policy);
    fputc('"', out);
}

static void print_metrics(FILE *out, const struct vp_sample *s) {
    enum { gauge, counter };
    static const char *const types[] = {"gauge", "counter"}, *const suffixes[] = {"", "_total"};
#define METRIC(field, kind, meaning)                                                                                   \
    fprintf(out, "# HELP vpool_%s%s %s\n# TYPE vpool_%s%s %s\n", #field, suffixes[kind], meaning, #field,              \
            suffixes[kind], types[kind]);                                                                              \
    for (unsigned i = 0; i < s->row_count; i++) {                                                                      \
        fprintf(out, "vpool_%s%s", #field, suffixes[kind]);                                                            \
        labels(out, &s->processes[s->rows[i].process]);                                                                \
        fprintf(out, ",device=\"%llu\"} %llu\n", (unsigned long long)s->rows[i].device,                                \
                (unsigned long long)s->rows[i].now.field);                                                             \
    }
    VP_SHARED_STATS_FIGURES(METRIC)
#undef METRIC
    fprintf(out, "# HELP vpool_passed_on_total Calls that went on to CUDA.\n# TYPE vpool_passed_on_total counter\n");
    for (unsigned p = 0; p < s->process_count; p++) {
        fprintf(out, "vpool_passed_on_total");
        labels(out, &s->processes[p]);
        fprintf(out, "} %llu\n", (unsigned long long)atomic_load(&s->processes[p].stats->passed_on));
    }
}

/* Whoever reads the file meanwhile gets the old one or the new one, whole. */
static int write_metrics(const char *file, const struct vp_sample *s) {
    char *name = NULL;
    int fd = asprintf(&name, "%s.XXXXXX", file) < 0 ? -1 : mkstemp(name);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
    if (out) {
        print_metrics(out, s);
        fchmod(fd, 0644);
    }
    bool good = out && !ferror(out) && !fclose(out) && !rename(name, file);
    if (!good) {
        fprintf(stderr, "vpool top: %s: %s\n", file, strerror(errno));
        if (fd >= 0)
            unlink(name);
    }
    free(name);
    return good ? 0 : 1;
}

/* ---- the command ---- */

static void help(void) {
    puts("usage: vpool top [OPTION…] [PID…]\n\n"
         "Shows, for every process of yours under libvpool.so and each of its devices,\n"
         "what is live, what the pool holds and has free, how many allocations it serves\n"
         "and how many calls it makes to the driver, and how often it waited. On a\n"
         "terminal the table is shown anew until q; else it is printed once.\n\n"
         "  -d SECONDS           from one look to the next (default 1; 0.1 where the table\n"
         "                       is printed once)\n"
         "  --sort KEY           the column to begin with, by its key (default h)\n"
         "  --once               print the table once\n"
         "  --json               print all figures as JSON, once\n"
         "  --prometheus[=FILE]  print them as Prometheus reads them, or write FILE in one\n"
         "                       step; with -d again and again\n"
         "  --help\n\n"
         "Keys: arrows choose a process; d makes it write a dump, t makes it give idle\n"
         "memory back to the device when it allocates or frees next; q ends. The table is\n"
         "sorted by l live, h held, f free, e efficiency, a allocations, c calls, w waits,\n"
         "p process id.\n\n"
         "FREE is held and not live; EFF% is the peak of what was live by the peak of what\n"
         "was held. What a stream's fast path did since the process last left it is not\n"
         "yet counted: at most some thousand allocations. Not seen are processes under\n"
         "VPOOL_PAGE=0 or VPOOL_POLICY=native, of other users and in other containers.");
}

static int pause_for(double seconds) {
    return nanosleep(&(struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)}, NULL);
}

/* Two looks, for the rates. */
static int look(struct vp_sample *s, const struct vp_top_options *o) {
    struct vp_sample before;
    int err = vp_sample_take(&before, NULL, o->pids, o->pid_count);
    if (err)
        return err;
    if (before.process_count)
        pause_for(o->seconds);
    err = vp_sample_take(s, &before, o->pids, o->pid_count);
    vp_sample_drop(&before);
    return err;
}

enum how { WATCH, ONCE = 256, JSON, PROMETHEUS };

struct asked {
    struct vp_top_options options;
    enum how how;
    const char *file; /* for Prometheus; NULL: standard output */
    bool help;
};

/* The process ids that are left in the arguments; the caller frees them. */
static int read_pids(struct vp_top_options *o, int argc, char **argv) {
    if (optind < argc && !(o->pids = calloc((size_t)(argc - optind), sizeof *o->pids)))
        return 1;
    for (; optind < argc; optind++) {
        char *end;
        long pid = strtol(argv[optind], &end, 10);
        if (*end || pid <= 0 || pid > INT32_MAX)
            return vp_tool_usage("top", "'%s' is no process id", argv[optind]);
        o->pids[o->pid_count++] = (int)pid;
    }
    return 0;
}

static int parse(struct asked *asked, int argc, char **argv) {
    enum { SORT = PROMETHEUS + 1, HELP };
    static const struct option long_options[] = {
        {"once", no_argument, NULL, ONCE},
        {"json", no_argument, NULL, JSON},
        {"prometheus", optional_argument, NULL, PROMETHEUS},
        {"sort", required_argument, NULL, SORT},
        {"help", no_argument, NULL, HELP},
        {0},
    };
    struct vp_top_options *o = &asked->options;
    char *end;
    opterr = 0;
    optind = 0;
    for (int chosen; (chosen = getopt_long(argc, argv, "d:", long_options, NULL)) >= 0;) {
        switch (chosen) {
        case 'd':
            o->seconds = strtod(optarg, &end);
            if (end == optarg || *end || !(o->seconds >= 0.05 && o->seconds <= 86400))
                return vp_tool_usage("top", "'%s' is no number of seconds: 0.05 to 86400", optarg);
            break;
        case SORT:
            if (!vp_top_is_order(*optarg) || optarg[1])
                return vp_tool_usage("top", "'%s' is no key of a column", optarg);
            o->order = *optarg;
            break;
        case PROMETHEUS: asked->file = optarg; __attribute__((fallthrough));
        case ONCE:
        case JSON: asked->how = (enum how)chosen; break;
        case HELP: asked->help = true; return 0;
        default: return vp_tool_usage("top", "unknown or incomplete argument '%s'", argv[optind - 1]);
        }
    }
    return read_pids(o, argc, argv);
}

static int print(const struct vp_sample *s, const struct asked *asked) {
    switch (asked->how) {
    case JSON: return print_json(s);
    case PROMETHEUS:
        if (asked->file)
            return write_metrics(asked->file, s);
        print_metrics(stdout, s);
        return 0;
    default: print_plain(s); return 0;
    }
}

/* Prints one sample, or one after the other for ever. */
static int show(const struct asked *asked, bool again) {
    const struct vp_top_options *o = &asked->options;
    struct vp_sample s = {0};
    int status;
    do {
        vp_sample_drop(&s);
        int err = look(&s, o);
        if (err) {
            fprintf(stderr, "vpool top: " VP_SHARED_STATS_FOLDER ": %s\n", strerror(-err));
            return 1;
        }
        vp_top_sort(&s, o->order);
        status = print(&s, asked);
    } while (again && !status && !(s.process_count ? 0 : pause_for(o->seconds)));
    if (!status && o->pid_count && !s.process_count) {
        fprintf(stderr, "vpool top: no such process of yours is under libvpool.so, or it has not allocated yet\n");
        status = 1;
    }
    vp_sample_drop(&s);
    return status;
}

int vp_tool_top(int argc, char **argv) {
    struct asked asked = {.options.order = 'h', .how = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) ? WATCH : ONCE};
    struct vp_top_options *o = &asked.options;
    int status = parse(&asked, argc, argv);
    if (!status && asked.help) {
        help();
    } else if (!status) {
        bool again = asked.how == PROMETHEUS && asked.file && o->seconds > 0;
        o->seconds = o->seconds > 0 ? o->seconds : asked.how ? 0.1 : 1;
        status = asked.how ? show(&asked, again) : vp_top_watch(o);
    }
    free(o->pids);
    return status;
}
