/* vpool help. The texts are in topics.c and in the commands themselves. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/help/help.h"

#include "tool/run/launch.h"
#include "tool/help/settings.h"
#include "tool/tool.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void overview(void) {
    char pages[PATH_MAX];
    puts("usage: vpool COMMAND [ARGUMENT…]\n");
    for (size_t i = 0; i < vp_tool_command_count; i++)
        printf("  %-12s %s\n", vp_tool_commands[i].name, vp_tool_commands[i].sentence);
    puts("\nvpool COMMAND --help explains a command. The library works without the command:\n"
         "LD_PRELOAD=/path/to/libvpool.so PROGRAM. vpool help TOPIC explains:\n");
    printf("  %-12s %s\n", "options", "The variables that the library reads");
    for (size_t i = 0; i < vp_help_topic_count; i++)
        printf("  %-12s %s\n", vp_help_topics[i].name, vp_help_topics[i].title);
    if (vp_launch_pages(pages))
        printf("\nThe pages that these texts mention, docs/…, are in %s.\n", pages);
}

char *vp_help_of_command(size_t number) {
    char *words[] = {(char *)vp_tool_commands[number].name, "--help", NULL}, *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size), *real = stdout;
    if (!out)
        return NULL;
    stdout = out;
    optind = 0;
    vp_tool_commands[number].run(2, words);
    stdout = real;
    fclose(out);
    return text;
}

static int help_command(size_t number) {
    char *text = vp_help_of_command(number);
    if (text)
        fputs(text, stdout);
    free(text);
    return text ? 0 : 1;
}

static int unknown_topic(const char *name) {
    enum { MOST = 64 };
    const char *names[MOST] = {"options"};
    size_t count = 1;
    for (size_t i = 0; i < vp_help_topic_count && count < MOST; i++)
        names[count++] = vp_help_topics[i].name;
    for (size_t i = 0; i < vp_tool_command_count && count < MOST; i++)
        names[count++] = vp_tool_commands[i].name;
    const char *meant = vp_tool_meant(name, names, count);
    fprintf(stderr, "vpool help: unknown topic '%s'%s%s%s (vpool help lists all)\n", name,
            meant ? "; did you mean " : "", meant ? meant : "", meant ? "?" : "");
    return 2;
}

static int print_topic(const char *name) {
    if (!strcmp(name, "options") || !strcmp(name, "environment")) {
        puts("The variables that the library reads\n");
        vp_settings_print_help(stdout);
        return 0;
    }
    for (size_t i = 0; i < vp_help_topic_count; i++)
        if (!strcmp(name, vp_help_topics[i].name)) {
            printf("%s\n\n%s", vp_help_topics[i].title, vp_help_topics[i].text);
            return 0;
        }
    for (size_t i = 0; i < vp_tool_command_count; i++)
        if (!strcmp(name, vp_tool_commands[i].name))
            return help_command(i);
    return unknown_topic(name);
}

int vp_tool_help(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "--help")) {
        puts("usage: vpool help [TOPIC | COMMAND]\n"
             "       vpool help --man vpool|libvpool\n"
             "       vpool help --completion [bash|zsh|fish]\n\n"
             "Explains a topic or a command; without an argument, lists all. The last two\n"
             "forms print a manual page, and the completion script for a shell.");
        return 0;
    }
    if (argc == 1) {
        overview();
        return 0;
    }
    if (!strcmp(argv[1], "--completion") && argc <= 3 && vp_completion(argc == 3 ? argv[2] : "bash"))
        return 0;
    if (!strcmp(argv[1], "--man") && argc == 3 && (!strcmp(argv[2], "vpool") || !strcmp(argv[2], "libvpool"))) {
        (*argv[2] == 'v' ? vp_man_vpool : vp_man_libvpool)();
        return 0;
    }
    if (!strcmp(argv[1], "--completion") && argc == 3)
        return vp_tool_usage("help", "'%s' is not a shell with a completion: bash, zsh or fish", argv[2]);
    if (!strcmp(argv[1], "--man") && argc <= 3)
        return vp_tool_usage("help", "--man is followed by vpool or libvpool");
    if (argc > 2 || *argv[1] == '-')
        return vp_tool_usage("help", "unknown argument '%s'", argv[argc > 2 && *argv[1] != '-' ? 2 : 1]);
    return print_topic(argv[1]);
}
