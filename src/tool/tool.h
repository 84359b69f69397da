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

/* Prints one line on stderr. Returns 2. */
int vp_tool_usage(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Replaces "-" among the input files by standard input. */
void vp_tool_inputs(char **paths);

/* Takes the result of a JSON writer on standard output, 0 or a negative errno: after an error the command fails, and
 * main() says why. Returns 0 or 1. */
int vp_tool_wrote(int err);
/* fflush(stdout), with the same treatment of errors. */
void vp_tool_flush(void);

/* Restores the signal actions that the command began with, before it becomes another program. */
void vp_tool_give_signals_back(void);

/* Reads an option's value in seconds, up to a day. Returns 0, or 2 with a message. */
int vp_tool_seconds(const char *command, const char *text, double least, double *seconds);
/* Reports what getopt_long() has just refused: an unknown option, with the one probably meant, or an option without its
 * value. Returns 2. */
int vp_tool_unknown(const char *command, const struct option *options, char **argv);
/* The one of `count` words nearest to `written`, if it is near enough to have been meant; else NULL. */
const char *vp_tool_meant(const char *written, const char *const *words, size_t count);
