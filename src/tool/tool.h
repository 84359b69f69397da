/* The subcommands of `vpool`. Each takes its own arguments (argv[0] is its name) and returns the exit status: 0, 1 for a failure, 2 for wrong usage. */
#ifndef VP_TOOL_H
#define VP_TOOL_H

int vp_tool_replay(int argc, char **argv);

/* One line on stderr, and 2. */
int vp_tool_usage(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
