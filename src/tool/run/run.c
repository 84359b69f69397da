/* vpool run: runs a program under the library.
 *
 * The command becomes the program: process id, terminal, signals and exit status are the program's own, and no process
 * stands between. The library, in the program, prints the summary at the end. The command stays only if it has to write
 * a page at the end (record_run.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/run/launch.h"
#include "tool/run/record_run.h"
#include "tool/help/settings.h"
#include "tool/tool.h"
#include "watch/dump.h"
#include "watch/stacks.h"

#include <ctype.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* The library's own options come first: one for each row of the table. */
enum { SIM = VP_SETTINGS, REPORT, QUIET, HELP, OPTIONS };

/* Stacks of blocks of this size or more are recorded for a page, unless another option says otherwise. */
#define STACKS_OF_A_PAGE "1M"

/* Returns an option's name: VPOOL_SYNC_FREE is --sync-free. */
static const char *option_name(size_t i) {
    static char names[VP_SETTINGS][48];
    const char *from = vp_settings[i].variable + strlen("VPOOL_");
    for (size_t n = 0; n + 1 < sizeof names[i] && from[n]; n++)
        names[i][n] = from[n] == '_' ? '-' : (char)tolower((unsigned char)from[n]);
    return names[i];
}

/* Returns what an option means without a value; NULL: it needs one. */
static const char *value_alone(const struct vp_setting *s) {
    if (!strcmp(s->variable, "VPOOL_STACKS"))
        return "1M";
    return s->kind == VP_SETTING_BOOL || !strncmp(s->allowed, "1, ", 3) ? "1" : NULL;
}

static void help(void) {
    puts("usage: vpool run [OPTION…] [--] PROGRAM [ARGUMENT…]\n\n"
         "Runs a program under libvpool.so (or libvpool-compare.so, for the published\n"
         "policies), and prints what the library did when the program ends. Otherwise the\n"
         "program runs as it would without vpool: the process id, the exit status and the\n"
         "signals are its own.\n\n"
         "  --sim[=SIZE]   use the simulated driver; its device has SIZE bytes (suffix\n"
         "                 K, M, G or T)\n"
         "  --report=FILE  write the page of vpool report at the end, about what the\n"
         "                 program and its children allocated, with stacks\n"
         "                 (VPOOL_STACKS=1M unless that is set). The command stays until\n"
         "                 then, as the parent of the program; it passes signals on,\n"
         "                 except SIGINT and SIGQUIT, which a terminal sends to both\n"
         "  --quiet        no summary at the end\n"
         "  --help\n\n"
         "The library's options; each sets the environment variable of its name. A FILE is\n"
         "relative to the folder where the command was started, wherever the program goes:\n");
    for (size_t i = 0; i < VP_SETTINGS; i++) {
        if (vp_settings[i].kind == VP_SETTING_FOREIGN)
            continue;
        const char *alone = value_alone(&vp_settings[i]);
        printf("  --%s%s%s%s\n", option_name(i), alone ? "[=" : "=", vp_settings[i].allowed, alone ? "]" : "");
        vp_settings_print_sentence(stdout, vp_settings[i].sentence);
    }
}

/* ---- values are checked before the program begins, by the library's own reader ---- */

static const char *look_up(void *context, const char *name) {
    const char *const *setting = context;
    return strcmp(name, setting[0]) ? NULL : setting[1];
}

static void keep_complaint(void *context, const char *line) {
    /* "…; using DEFAULT" describes what the library would do. */
    snprintf(context, 512, "%.*s", (int)strcspn(line, ";"), line);
}

/* A file named to the command is relative to the folder where the command was started, wherever the program goes.
 * False: the value is no relative name, or the folder's name would be read as a pattern. */
static bool from_here(const char *variable, const struct vp_options *o, char *path, size_t room) {
    const char *const files[][2] = {{"VPOOL_CONFIG", o->config},
                                    {"VPOOL_DUMP_FILE", o->dump_file},
                                    {"VPOOL_PLAN", strcasecmp(o->plan, "auto") ? o->plan : ""},
                                    {"VPOOL_STATS", strcmp(o->stats, "1") ? o->stats : ""},
                                    {"VPOOL_TRACE", o->trace}};
    char folder[PATH_MAX];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (!strcmp(variable, files[i][0]))
            return *files[i][1] && *files[i][1] != '/' && getcwd(folder, sizeof folder) && !strchr(folder, '%') &&
                   (size_t)snprintf(path, room, "%s/%s", folder, files[i][1]) < room;
    return false;
}

static int set(size_t i, const char *value) {
    static struct vp_options parsed;
    const char *setting[2] = {vp_settings[i].variable, value ? value : value_alone(&vp_settings[i])};
    char complaint[512] = "";
    vp_options_parse(&parsed, look_up, setting, keep_complaint, complaint);
    if (*complaint)
        return vp_tool_usage("run", "%s", complaint);
    size_t every;
    bool native;
    if (*parsed.stacks && !vp_stacks_read(parsed.stacks, &every, &native))
        return vp_tool_usage("run", "VPOOL_STACKS=%s is not valid (allowed: SIZE, SIZE,native)", setting[1]);
    struct vp_dump_plan plan;
    const char *wrong;
    vp_dump_parse(parsed.dump, &plan, &wrong);
    if (wrong)
        return vp_tool_usage("run", "VPOOL_DUMP: %.*s is not valid (allowed: exit, oom, signal, every:SECONDS)",
                             (int)strcspn(wrong, ", "), wrong);
    char path[VP_OPTION_TEXT];
    setenv(setting[0], from_here(setting[0], &parsed, path, sizeof path) ? path : setting[1], 1);
    return 0;
}

/* What the arguments ask for, apart from the variables that they set. */
struct wish {
    bool sim, quiet;
    const char *capacity, *report;
};

static void list_options(struct option options[OPTIONS + 1]) {
    options[SIM] = (struct option){"sim", optional_argument, NULL, SIM};
    options[REPORT] = (struct option){"report", required_argument, NULL, REPORT};
    options[QUIET] = (struct option){"quiet", no_argument, NULL, QUIET};
    options[HELP] = (struct option){"help", no_argument, NULL, HELP};
    options[OPTIONS] = (struct option){0};
    for (size_t i = 0; i < VP_SETTINGS; i++) {
        if (vp_settings[i].kind == VP_SETTING_FOREIGN)
            options[i] = options[HELP];
        else
            options[i] = (struct option){
                option_name(i), value_alone(&vp_settings[i]) ? optional_argument : required_argument, NULL, (int)i};
    }
}

/* Reads the arguments. 0, or the status of wrong usage. Nothing after --help is read. */
static int parse(struct wish *wish, int argc, char **argv, bool *asked_help) {
    struct option options[OPTIONS + 1];
    list_options(options);
    opterr = 0;
    optind = 0;
    for (int chosen, place = 0, status = 0; (chosen = getopt_long(argc, argv, "+h", options, &place)) >= 0;) {
        /* "--" was meant to end the options, and no file has an empty name. */
        if (optarg && (!strcmp(optarg, "--") || (chosen == REPORT && !*optarg)))
            return vp_tool_usage("run", "'--%s' needs a value", options[place].name);
        switch (chosen) {
        case SIM:
            wish->sim = true;
            wish->capacity = optarg;
            break;
        case REPORT: wish->report = optarg; break;
        case QUIET: wish->quiet = true; break;
        case 'h':
        case HELP: *asked_help = true; return 0;
        case '?': return vp_tool_unknown("run", options, argv);
        default: status = set((size_t)chosen, optarg);
        }
        if (status)
            return status;
    }
    if (wish->capacity && !vp_launch_is_size(wish->capacity))
        return vp_tool_usage("run", "'%s' is not a device size: " VP_LAUNCH_SIZES, wish->capacity);
    return optind == argc ? vp_tool_usage("run", "no program given") : 0;
}

/* Makes the program load the library, and the simulated driver if wanted. 0, or 1 with a message on stderr. */
static int prepare(const struct wish *wish) {
    char library[PATH_MAX], folder[PATH_MAX];
    if (!vp_launch_library(library)) {
        fprintf(stderr, "vpool run: %s is neither beside this command nor in %s/%s\n", vp_launch_library_name(),
                VP_PREFIX, VP_LIBDIR);
        return 1;
    }
    if (!vp_launch_preload(library)) {
        fprintf(stderr, "vpool run: %s: LD_PRELOAD cannot hold a path with a space or a colon; move it\n", library);
        return 1;
    }
    if (!wish->sim)
        return 0;
    if (!vp_launch_sim(folder)) {
        fputs("vpool run: " VP_LAUNCH_NO_SIM "\n", stderr);
        return 1;
    }
    vp_launch_simulate(folder, wish->capacity);
    return 0;
}

/* Records stacks, if the library knows that option. */
static void record_stacks(void) {
    for (size_t i = 0; i < VP_SETTINGS; i++)
        if (!strcmp(vp_settings[i].variable, "VPOOL_STACKS"))
            setenv("VPOOL_STACKS", STACKS_OF_A_PAGE, 0);
}

int vp_tool_run(int argc, char **argv) {
    struct wish wish = {0};
    bool asked_help = false;
    int status = parse(&wish, argc, argv, &asked_help);
    if (asked_help)
        help();
    if (status || asked_help)
        return status;
    if (prepare(&wish))
        return 1;
    if (!wish.quiet && !wish.report)
        setenv("VPOOL_STATS", "1", 0);
    if (wish.report)
        record_stacks();
    const char *obstacle = vp_launch_obstacle(argv[optind]);
    if (obstacle)
        fprintf(stderr, "vpool run: %s %s: it will run without vpool\n", argv[optind], obstacle);
    return wish.report ? vp_record_run(wish.report, argv + optind, wish.quiet) : vp_launch_exec("run", argv + optind);
}
