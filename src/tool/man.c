/* The manual pages and the shell's completion, made of the option table and of what `vpool help` prints. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/help.h"

#include "tool/settings.h"
#include "tool/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- mdoc ---- */

/* Text that roff leaves as it is, up to `length` bytes. In running text a sentence begins a line, so that
 * roff sees where the one before ends. */
static void put(const char *text, size_t length, bool running) {
    if (length && (*text == '.' || *text == '\''))
        fputs("\\&", stdout);
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\\')
            fputs("\\e", stdout);
        else if (text[i] == '-' && (!i || strchr(" [-", text[i - 1])))
            fputs("\\-", stdout);
        else if (!strncmp(text + i, "…", 3)) {
            fputs("...", stdout);
            i += 2;
        } else if (running && text[i] == ' ' && i && text[i - 1] == '.')
            putchar('\n');
        else
            putchar(text[i]);
    }
}

static void put_line(const char *text, size_t length, bool running) {
    put(text, length, running);
    putchar('\n');
}

/* Paragraphs, and lines that begin with two spaces as they are; or all lines as they are. */
static void put_text(const char *text, bool as_is) {
    bool open = as_is, gap = false;
    if (as_is)
        puts(".Bd -literal");
    for (; *text; text += strcspn(text, "\n"), text += *text == '\n') {
        size_t length = strcspn(text, "\n");
        bool literal = as_is || !strncmp(text, "  ", 2);
        if (literal != open && length) {
            puts(literal ? ".Bd -literal -offset indent" : ".Ed");
            open = literal;
            if (!literal)
                puts(".Pp");
            gap = false;
        }
        if (gap && !literal)
            puts(".Pp");
        gap = !length;
        if (length || (open && as_is))
            put_line(text + (literal && !as_is ? 2 : 0), length - (literal && !as_is ? 2 : 0), !literal);
    }
    if (open)
        puts(".Ed");
}

static void put_capitals(const char *text) {
    printf(".Sh ");
    for (; *text; text++)
        putchar(*text >= 'a' && *text <= 'z' ? *text - 'a' + 'A' : *text);
    putchar('\n');
}

static void head(const char *name, const char *title, int section, const char *what) {
    printf(".Dd November 21, 2026\n.Dt %s %d\n.Os\n.Sh NAME\n.Nm %s\n.Nd %s\n", title, section, name, what);
}

void vp_man_vpool(void) {
    head("vpool", "VPOOL", 1, "run programs under libvpool.so and see what their memory does");
    puts(".Sh SYNOPSIS\n.Nm vpool\n.Ar command\n.Op Ar argument ...\n.Sh DESCRIPTION\n"
         "The command beside\n.Xr libvpool 7 ,\na GPU memory allocator that is preloaded into CUDA programs.\n"
         "The library does not need it.");
    for (size_t i = 0; i < vp_tool_command_count; i++) {
        char *text = vp_help_of_command(i);
        printf(".Ss vpool %s\n", vp_tool_commands[i].name);
        if (text)
            put_text(text, true);
        free(text);
    }
    puts(".Sh FILES\n.Bl -tag -width Ds\n.It Pa /dev/shm/vpool-UID-PID\nwhat a process under the library "
         "publishes for\n.Ic vpool top\n.El\n"
         ".Sh EXIT STATUS\n0; 1 after a failure; 2 after wrong arguments.\n"
         ".Ic vpool run\nends as its program does, with 127 if that is not found and 126 if it cannot be "
         "run.\n"
         ".Ic vpool doctor\nends with 1 if there is something to do.\n"
         ".Sh SEE ALSO\n.Xr libvpool 7");
}

void vp_man_libvpool(void) {
    head("libvpool", "LIBVPOOL", 7, "GPU memory from one pool, for programs as they are");
    puts(".Sh SYNOPSIS\n.Ev LD_PRELOAD Ns = Ns Pa libvpool.so\n.Ar program\n.Sh DESCRIPTION\n"
         "Loaded into a program, the library takes the place of CUDA's allocator behind\n"
         ".Fn cudaMalloc ,\n.Fn cudaMallocAsync\nand their driver calls, and serves them from one pool of "
         "virtual memory on each device.\n"
         "When free memory lies in pieces, it maps the pieces side by side into one range;\n"
         "when memory is freed on one stream and wanted on another, it knows from when on that is safe.\n"
         "It needs nothing but libc, and finds the program's own CUDA at run time.\n"
         ".Sh ENVIRONMENT\nA wrong value is one message, and the default is used.\n.Bl -tag -width Ds");
    for (size_t i = 0; i < VP_SETTINGS; i++) {
        const struct vp_setting *s = &vp_settings[i];
        printf(".It Ev %s\n", s->variable);
        put_line(s->sentence, strlen(s->sentence), true);
        if (*s->allowed) {
            printf(".br\nAllowed: ");
            put(s->allowed, strlen(s->allowed), false);
            if (*s->fallback)
                printf("; default %s", s->fallback);
            puts(".");
        }
    }
    puts(".El");
    for (size_t i = 0; i < vp_help_topic_count; i++) {
        put_capitals(vp_help_topics[i].title);
        put_text(vp_help_topics[i].text, false);
    }
    puts(".Sh SEE ALSO\n.Xr vpool 1");
}

/* ---- completion ---- */

/* Each --word of a help text, once. */
static void put_options(const char *text) {
    for (const char *at = text; (at = strstr(at, "--"));) {
        size_t length = 2 + strspn(at + 2, "abcdefghijklmnopqrstuvwxyz0123456789-");
        const char *before = at > text ? at - 1 : "\n";
        bool again = false;
        for (const char *old = text; length > 2 && old < at && !again; old++)
            again = !strncmp(old, at, length) && !strchr("abcdefghijklmnopqrstuvwxyz0123456789-", old[length]);
        if (length > 2 && !again && strchr(" \n[|", *before))
            printf(" %.*s", (int)length, at);
        at += length;
    }
}

/* The words of "one, two, three". */
static void put_words(const char *list) {
    for (; *list; list++)
        if (*list != ',')
            putchar(*list);
}

void vp_completion(void) {
    puts("# Completion of the words of vpool, for bash; for zsh after `autoload -U bashcompinit && "
         "bashcompinit`.\n"
         "# Printed by `vpool help --completion`.\n"
         "_vpool()\n{\n"
         "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} options= i\n"
         "    if [[ $word == '=' ]]; then\n"
         "        word=\n"
         "    elif [[ $before == '=' ]]; then\n"
         "        before=${COMP_WORDS[COMP_CWORD - 2]}\n"
         "    fi");
    printf("    if ((COMP_CWORD == 1)); then\n        COMPREPLY=($(compgen -W '");
    for (size_t i = 0; i < vp_tool_command_count; i++)
        printf("%s ", vp_tool_commands[i].name);
    puts("--help --version' -- \"$word\"))\n        return\n    fi\n"
         "    # Behind the program's name, the words are the program's.\n"
         "    if [[ ${COMP_WORDS[1]} == run || ${COMP_WORDS[1]} == doctor ]]; then\n"
         "        for ((i = 2; i < COMP_CWORD; i++)); do\n"
         "            [[ ${COMP_WORDS[i]} == -* || ${COMP_WORDS[i]} == '=' || ${COMP_WORDS[i - 1]} == '=' ]] "
         "|| return\n"
         "        done\n"
         "    fi\n"
         "    case ${COMP_WORDS[1]} in");
    for (size_t i = 0; i < vp_tool_command_count; i++) {
        char *text = vp_help_of_command(i);
        printf("    %s) options='", vp_tool_commands[i].name);
        put_options(text ? text : "");
        puts("' ;;");
        free(text);
    }
    puts("    esac\n    case $before in");
    for (size_t i = 0; i < VP_SETTINGS; i++) {
        if (vp_settings[i].kind == VP_SETTING_FOREIGN || !strchr(vp_settings[i].allowed, ',') ||
            strstr(vp_settings[i].allowed, "FILE"))
            continue;
        printf("    --");
        for (const char *c = vp_settings[i].field; *c; c++)
            putchar(*c == '_' ? '-' : *c);
        printf(") COMPREPLY=($(compgen -W '");
        put_words(vp_settings[i].allowed);
        puts("' -- \"$word\")) && return ;;");
    }
    printf("    esac\n"
           "    case ${COMP_WORDS[1]}/$word in\n"
           "    */-*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) ;;\n"
           "    run/* | doctor/*) COMPREPLY=($(compgen -c -- \"$word\")) ;;\n"
           "    help/*) COMPREPLY=($(compgen -W 'options");
    for (size_t i = 0; i < vp_help_topic_count; i++)
        printf(" %s", vp_help_topics[i].name);
    for (size_t i = 0; i < vp_tool_command_count; i++)
        printf(" %s", vp_tool_commands[i].name);
    puts("' -- \"$word\")) ;;\n    esac\n}\ncomplete -o bashdefault -o default -F _vpool vpool");
}
