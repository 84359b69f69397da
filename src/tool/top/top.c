/* vpool top: shows what the pools of this user's processes hold, and for root those of all users. This file has the
 * command and the JSON; table.c has the table, watch.c the terminal, metrics.c the output for Prometheus. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/top/top.h"

#include "base/json.h"
#include "tool/top/asked.h"
#include "tool/tool.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* `chosen`: only the processes that were named are shown. */
static void print_plain(const struct vp_sample *s, bool chosen) {
    vp_top_totals(stdout, s);
    puts("\n");
    vp_top_head(stdout, s, 0);
    for (unsigned i = 0; i < s->row_count; i++) {
        putchar('\n');
        vp_top_row(stdout, s, &s->rows[i], 0);
    }
    putchar('\n');
    if (!s->row_count && !chosen)
        puts(vp_top_nothing());
}

/* ---- JSON ---- */

/* Who does not tell is told of on stderr, once. */
static void json_row_holders(struct vp_json *j, const struct vp_page *page, const struct vp_row *row) {
    struct vp_asked asked;
    const char *fault = vp_asked_take(&asked, page, row->device);
    if (!fault)
        vp_asked_json(j, &asked);
    else
        fprintf(stderr, "vpool top: process %d %s\n", page->pid, fault);
    vp_asked_drop(&asked);
}

static void json_row(struct vp_json *j, const struct vp_page *page, const struct vp_row *row, bool holders) {
    vp_json_begin_object(j, NULL);
    vp_json_u64(j, "device", row->device);
    if (row->total)
        vp_json_u64(j, "device_memory_bytes", row->total);
    if (row->place) {
        char place[16];
        snprintf(place, sizeof place, "%04x:%02x:%02x", (unsigned)(row->place >> 32) & 0xffff,
                 (unsigned)(row->place >> 16) & 0xffff, (unsigned)row->place & 0xffff);
        vp_json_string(j, "pci", place);
    }
#define FIGURE(field, ...) vp_json_u64(j, #field, row->now.field);
    VP_SHARED_STATS_FIGURES(FIGURE)
#undef FIGURE
    vp_json_u64(j, "free_bytes", vp_row_free(row));
    vp_json_double(j, "efficiency", vp_row_efficiency(row));
    if (row->allocs_per_s >= 0) {
        vp_json_double(j, "allocs_per_s", row->allocs_per_s);
        vp_json_double(j, "driver_calls_per_s", row->driver_calls_per_s);
    }
    if (holders)
        json_row_holders(j, page, row);
    vp_json_end_object(j);
}

static int print_json(const struct vp_sample *s, bool holders) {
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
        vp_json_u64(&j, "pid", (uint64_t)w->page.pid);
        vp_json_string(&j, "user", w->user);
        if (*w->rank)
            vp_json_string(&j, "rank", w->rank);
        if (*w->page.container)
            vp_json_string(&j, "container", w->page.container);
        vp_json_string(&j, "program", w->program);
        vp_json_string(&j, "command", w->command);
        vp_json_string(&j, "vpool", w->release);
        vp_json_string(&j, "policy", w->policy);
        vp_json_u64(&j, "began", w->page.stats->began);
        vp_json_u64(&j, "passed_on", w->page.stats->passed_on);
        vp_json_bool(&j, "takes_dumps", w->page.stats->takes_dumps != 0);
        vp_json_bool(&j, "paused", w->page.stats->ties.paused != 0);
        vp_json_begin_array(&j, "devices");
        for (unsigned i = 0; i < s->row_count; i++)
            if (s->rows[i].process == p)
                json_row(&j, &w->page, &s->rows[i], holders);
        vp_json_end_array(&j);
        vp_json_end_object(&j);
    }
    vp_json_end_array(&j);
    vp_json_end_object(&j);
    return vp_tool_wrote(vp_json_finish(&j));
}

/* ---- the command ---- */

static void help(void) {
    puts(
        "usage: vpool top [OPTION…] [PID…]\n\n"
        "For every process of yours under libvpool.so, and for each of its devices, shows\n"
        "what is live, what the pool holds and has free, how many allocations it serves,\n"
        "how many driver calls it makes and how often it waited. Root sees the processes\n"
        "of all users and in all containers. On a terminal the table is updated until you\n"
        "press q, below as much of the devices as there is room for; elsewhere it is\n"
        "printed once. Sizes are in B, K (1024 B), M, G and T.\n\n"
        "  -d SECONDS           time between two readings (default 1; 0.1 where the table\n"
        "                       is printed once)\n"
        "  --sort KEY           sort by the column that has this key (default h)\n"
        "  --once               print the table once\n"
        "  --json               print all figures as JSON, once\n"
        "  --holders            with --json: ask each process which stacks hold most, as\n"
        "                       key s does, and print those too\n"
        "  --prometheus[=FILE]  print the figures in the format of Prometheus, or write\n"
        "                       FILE in one step; with -d, repeatedly (see also vpool\n"
        "                       exporter)\n"
        "  -h, --help\n\n"
        "Keys: the arrows select a process; d makes it write a dump; s lists the stacks\n"
        "that hold most of its memory (it must run with VPOOL_STACKS); t makes it give\n"
        "idle memory back to the device; ? lists the keys; q quits. To sort: l live, h held, f free, e efficiency, a allocations,\n"
        "c calls, w waits, p process id, u user.\n\n"
        "The columns:\n"
        "  LIVE              what the program has allocated and not freed\n"
        "  HELD, FREE        what the pool has of the device; HELD without LIVE\n"
        "  EFF%              peak LIVE as a percentage of peak HELD; what is spilled\n"
        "                    counts as held\n"
        "  ALLOC/S, CALLS/S  allocations and driver calls per second\n"
        "  WAITS, OOM        waits for memory; allocations that failed for want of it\n"
        "  SLACK             percentage that may be held above peak LIVE to save driver\n"
        "                    calls (VPOOL_SLACK); --json has more about it\n"
        "  LENT              memory given back because another process lacked it\n"
        "  ASKED, REFUSED    how often it asked others; was asked and gave nothing\n"
        "  SPILLED           memory on the host (VPOOL_SPILL), shown if there is any\n"
        "  COMMAND           (asleep): vpool_pause() has put a device to sleep;\n"
        "                    (paused): vpool pause has put the process to sleep\n\n"
        "What a stream's fast path serves is counted at each reading, unless a long call\n"
        "of the driver is under way. Processes under VPOOL_PAGE=0 or VPOOL_POLICY=native\n"
        "are not shown, and only root sees those of other users and in containers. Where\n"
        "room is short, columns are left out in favour of the command.");
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
    bool holders, help;
};

/* The process ids that are left in the arguments; the caller frees them. */
static int read_pids(struct vp_top_options *o, int argc, char **argv) {
    if (optind < argc && !(o->pids = calloc((size_t)(argc - optind), sizeof *o->pids)))
        return 1;
    for (; optind < argc; optind++) {
        char *end;
        long pid = strtol(argv[optind], &end, 10);
        if (*end || pid <= 0 || pid > INT32_MAX)
            return vp_tool_usage("top", "'%s' is not a process id", argv[optind]);
        o->pids[o->pid_count++] = (int)pid;
    }
    return 0;
}

static int parse(struct asked *asked, int argc, char **argv) {
    enum { SORT = PROMETHEUS + 1, HOLDERS, HELP };
    static const struct option long_options[] = {
        {"once", no_argument, NULL, ONCE},
        {"json", no_argument, NULL, JSON},
        {"holders", no_argument, NULL, HOLDERS},
        {"prometheus", optional_argument, NULL, PROMETHEUS},
        {"sort", required_argument, NULL, SORT},
        {"help", no_argument, NULL, HELP},
        {0},
    };
    struct vp_top_options *o = &asked->options;
    opterr = 0;
    optind = 0;
    for (int chosen; (chosen = getopt_long(argc, argv, "hd:", long_options, NULL)) >= 0;) {
        switch (chosen) {
        case 'd':
            if (vp_tool_seconds("top", optarg, 0.05, &o->seconds))
                return 2;
            break;
        case SORT:
            if (!vp_top_is_order(*optarg) || optarg[1])
                return vp_tool_usage("top", "'%s' is not a key of a column: l, h, f, e, a, c, w, p or u", optarg);
            o->order = *optarg;
            break;
        case HOLDERS: asked->holders = true; break;
        case PROMETHEUS: asked->file = optarg; __attribute__((fallthrough));
        case ONCE:
        case JSON: asked->how = (enum how)chosen; break;
        case 'h':
        case HELP: asked->help = true; return 0;
        default: return vp_tool_unknown("top", long_options, argv);
        }
    }
    if (asked->holders && asked->how != JSON)
        return vp_tool_usage("top", "--holders needs --json");
    return read_pids(o, argc, argv);
}

static int print(const struct vp_sample *s, const struct asked *asked) {
    switch (asked->how) {
    case JSON: return print_json(s, asked->holders);
    case PROMETHEUS:
        if (asked->file)
            return vp_metrics_write("top", asked->file, s);
        vp_metrics_print(stdout, s);
        return 0;
    default: print_plain(s, asked->options.pid_count); return 0;
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
    if (vp_pages_strangers())
        fprintf(stderr, "vpool top: not shown: %u under another version of libvpool.so\n", vp_pages_strangers());
    if (!status && o->pid_count && !s.process_count) {
        fprintf(stderr, "vpool top: no such process is under libvpool.so, or it has not allocated yet\n");
        status = 1;
    }
    vp_sample_drop(&s);
    return status;
}

/* A terminal that calls itself dumb shows what moves its cursor. */
static bool can_watch(void) {
    const char *kind = getenv("TERM");
    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && !(kind && !strcmp(kind, "dumb"));
}

int vp_tool_top(int argc, char **argv) {
    struct asked asked = {.options.order = 'h', .how = can_watch() ? WATCH : ONCE};
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
