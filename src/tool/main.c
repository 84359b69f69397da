/* vpool: the command beside the library. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/help/settings.h"
#include "tool/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int vp_tool_usage(const char *command, const char *format, ...) {
    va_list args;
    fprintf(stderr, "vpool%s%s: ", *command ? " " : "", command);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, " (see vpool %s%s--help)\n", command, *command ? " " : "");
    return 2;
}

int vp_tool_seconds(const char *command, const char *text, double least, double *seconds) {
    char *end;
    *seconds = strtod(text, &end);
    if (end == text || *end || !(*seconds >= least && *seconds <= 86400))
        return vp_tool_usage(command, "'%s' is not a number of seconds: %g to 86400", text, least);
    return 0;
}

static int options(int argc, char **argv) {
    bool markdown = argc == 2 && !strcmp(argv[1], "--markdown");
    if (argc == 2 && !strcmp(argv[1], "--help")) {
        puts("usage: vpool options [--markdown]\n\nLists the environment variables that libvpool.so reads.");
        return 0;
    }
    if (argc > 1 && !markdown)
        return vp_tool_usage("options", "unknown argument '%s'", argv[1]);
    (markdown ? vp_settings_print_markdown : vp_settings_print_help)(stdout);
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

const struct vp_tool_command vp_tool_commands[] = {
    {"doctor", vp_tool_doctor, "check that this machine, or a program, can use the library"},
    {"export", vp_tool_export, "write a trace or a dump for Perfetto, memory_viz, pprof and others"},
    {"exporter", vp_tool_exporter, "export the figures of all processes to Prometheus"},
    {"help", vp_tool_help, "explain a topic, such as waits, frameworks or policies"},
    {"options", options, "list the environment variables that libvpool.so reads"},
    {"pause", vp_tool_pause, "put a process to sleep and move its device memory to the host"},
    {"plan", vp_tool_plan, "place a recorded program's blocks in as few addresses as possible"},
    {"replay", vp_tool_replay, "replay a recorded allocation trace in the pool"},
    {"report", vp_tool_report, "write a page that shows traces or dumps"},
    {"resume", vp_tool_resume, "wake a process that vpool pause has put to sleep"},
    {"run", vp_tool_run, "run a program under libvpool.so"},
    {"top", vp_tool_top, "show live what the programs under libvpool.so hold"},
    {"version", version, "print the version"},
};
const size_t vp_tool_command_count = sizeof vp_tool_commands / sizeof *vp_tool_commands;

static const struct vp_tool_command *find(const char *name) {
    for (size_t i = 0; i < vp_tool_command_count; i++)
        if (!strcmp(name, vp_tool_commands[i].name))
            return &vp_tool_commands[i];
    return NULL;
}

static int unknown_command(const char *name) {
    const char *names[16];
    for (size_t i = 0; i < vp_tool_command_count; i++)
        names[i] = vp_tool_commands[i].name;
    const char *meant = vp_tool_meant(name, names, vp_tool_command_count);
    return vp_tool_usage("", "unknown %s '%s'%s%s%s", *name == '-' ? "argument" : "command", name,
                         meant ? "; did you mean " : "", meant ? meant : "", meant ? "?" : "");
}

/* ---- standard input and output ---- */

void vp_tool_inputs(char **paths) {
    static char standard[] = "/dev/stdin";
    for (; *paths; paths++)
        if (!strcmp(*paths, "-"))
            *paths = standard;
}

static int lost; /* errno of an output that failed outside stdio */

int vp_tool_wrote(int err) {
    lost = lost ? lost : -err;
    return err ? 1 : 0;
}

void vp_tool_flush(void) {
    if (fflush(stdout))
        vp_tool_wrote(-errno);
}

/* If one of the three standard files is closed, the next file to be opened would be taken for it. So a stand-in is
 * opened, which can be used for nothing, and which exec closes again. */
static void have_standard_files(void) {
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", (fd ? O_RDONLY : O_WRONLY) | O_CLOEXEC);
}

/* Makes the command fail if its output was lost: the disk is full, or nobody reads the pipe. */
static int end_output(const char *command, int status) {
    vp_tool_flush();
    /* The reason of a failure within a longer text is lost; one more byte fails for the same reason. */
    if (ferror(stdout) && !lost)
        vp_tool_wrote(write(STDOUT_FILENO, "\n", 1) < 0 ? -errno : -EIO);
    if (!lost)
        return status;
    /* A caller that ignores SIGPIPE gets a message. */
    if (lost == EPIPE)
        raise(SIGPIPE);
    fprintf(stderr, "vpool %s: standard output: %s\n", command, strerror(lost));
    return status ? status : 1;
}

/* A file that exceeds the limit of file sizes is treated like a full disk, so that nothing unfinished is left. A
 * program that the command runs gets the signal's default action back. */
static bool ignores_limits;

static void ignore_limits(void) {
    struct sigaction now;
    ignores_limits = !sigaction(SIGXFSZ, NULL, &now) && now.sa_handler == SIG_DFL &&
                     signal(SIGXFSZ, SIG_IGN) != SIG_ERR;
}

void vp_tool_give_signals_back(void) {
    if (ignores_limits)
        signal(SIGXFSZ, SIG_DFL);
}

int main(int argc, char **argv) {
    have_standard_files();
    ignore_limits();
    if (argc < 2)
        return vp_tool_usage("", "no command given");
    const char *name = argv[1];
    if (!strcmp(name, "--help") || !strcmp(name, "-h"))
        name = "help";
    else if (!strcmp(name, "--version") || !strcmp(name, "-V"))
        name = "version";
    const struct vp_tool_command *command = find(name);
    if (!command)
        return unknown_command(name);
    if (argc > 2 && !strcmp(argv[2], "-h"))
        argv[2] = "--help";
    return end_output(name, command->run(argc - 1, argv + 1));
}
