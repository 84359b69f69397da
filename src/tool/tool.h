/* The subcommands of `vpool`. Each takes its own arguments (argv[0] is its name) and returns the exit status:
 * 0, 1 for a failure, 2 for wrong usage. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <getopt.h>
#include <stddef.h>

int vp_tool_doctor(int argc, char **argv);
int vp_tool_export(int argc, char **argv);
int vp_tool_exporter(int argc, char **argv);
int vp_tool_help(int argc, char **argv);
int vp_tool_pause(int argc, char **argv);
int vp_tool_plan(int argc, char **argv);
int vp_tool_replay(int argc, char **argv);
int vp_tool_report(int argc, char **argv);
int vp_tool_resume(int argc, char **argv);
int vp_tool_run(int argc, char **argv);
int vp_tool_top(int argc, char **argv);

/* All of them, by name. */
struct vp_tool_command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *sentence;
};
extern const struct vp_tool_command vp_tool_commands[];
extern const size_t vp_tool_command_count;

/* One line on stderr, and 2. */
int vp_tool_usage(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Of the files to be read, "-" is standard input. */
void vp_tool_inputs(char **paths);

/* What a JSON writer on standard output has come to, 0 or a negative errno: the command fails by it, and main() tells
 * why. 0 or 1. */
int vp_tool_wrote(int err);
/* fflush(stdout), by the same rule. */
void vp_tool_flush(void);

/* Before another program takes the command's place: signals do what they did when it began. */
void vp_tool_give_signals_back(void);

/* The value of an option in seconds, up to a day. 0, or 2 and told. */
int vp_tool_seconds(const char *command, const char *text, double least, double *seconds);
/* What getopt_long() has just refused: an unknown option, with the one that was probably meant, or one without its
 * value. 2. */
int vp_tool_unknown(const char *command, const struct option *options, char **argv);
/* The one of `count` words that is nearest to what was written, if it is near enough to have been meant; else NULL. */
const char *vp_tool_meant(const char *written, const char *const *words, size_t count);
