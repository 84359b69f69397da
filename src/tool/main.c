/* vpool: the command beside the library. */
#include "base/options.h"
#include "tool/tool.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int vp_tool_usage(const char *command, const char *format, ...) {
    va_list args;
    fprintf(stderr, "vpool%s%s: ", *command ? " " : "", command);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, " (see vpool %s%s--help)\n", command, *command ? " " : "");
    return 2;
}

static void print_line(void *context, const char *line) {
    fprintf(context, "%s\n", line);
}

static int options(int argc, char **argv) {
    bool markdown = argc == 2 && !strcmp(argv[1], "--markdown");
    if (argc == 2 && !strcmp(argv[1], "--help")) {
        puts("usage: vpool options [--markdown]\n\nLists the environment variables that libvpool.so reads.");
        return 0;
    }
    if (argc > 1 && !markdown)
        return vp_tool_usage("options", "unknown argument '%s'", argv[1]);
    (markdown ? vp_options_print_markdown : vp_options_print_help)(print_line, stdout);
    return 0;
}

static int version(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "--help")) {
        puts("usage: vpool version");
        return 0;
    }
    if (argc > 1)
        return vp_tool_usage("version", "unknown argument '%s'", argv[1]);
    puts("vpool " VP_VERSION);
    return 0;
}

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *sentence;
} commands[] = {
    { "options", options, "list the environment variables that libvpool.so reads" },
    { "replay", vp_tool_replay, "drive the pool with a recorded allocation trace" },
    { "version", version, "print the version" },
};

static void help(FILE *out) {
    fprintf(out, "usage: vpool COMMAND [ARGUMENT…]\n\n");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].sentence);
    fprintf(out, "\nThe library itself needs no command: LD_PRELOAD=/path/to/libvpool.so PROGRAM\n");
}

int main(int argc, char **argv) {
    if (argc < 2) {
        help(stderr);
        return 2;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        help(stdout);
        return 0;
    }
    if (!strcmp(argv[1], "--version"))
        return version(1, argv);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(argv[1], commands[i].name)) {
            int status = commands[i].run(argc - 1, argv + 1);
            return fflush(stdout) || ferror(stdout) ? 1 : status;
        }
    return vp_tool_usage("", "unknown command '%s'", argv[1]);
}
