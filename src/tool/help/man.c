/* The manual pages, made of the option table and of what `vpool help` prints. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/help/help.h"

#include "tool/help/settings.h"
#include "tool/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- mdoc ---- */

/* Writes up to `length` bytes of text so that roff prints them unchanged. In running text each sentence begins a new
 * line, so that roff recognizes the end of the one before. */
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

/* Writes paragraphs, and unfilled lines where they begin with two spaces; with `as_is`, all lines unfilled. */
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
         "The library works without it.");
    for (size_t i = 0; i < vp_tool_command_count; i++) {
        char *text = vp_help_of_command(i);
        printf(".Ss vpool %s\n", vp_tool_commands[i].name);
        if (text)
            put_text(text, true);
        free(text);
    }
    puts(
        ".Sh FILES\n.Bl -tag -width Ds\n.It Pa /dev/shm/vpool-UID-PID\nwhat a process under the library "
        "publishes for\n.Ic vpool top\n.It Pa /dev/shm/vpool-UID-PID.paused\nwhat\n.Ic vpool pause\nhas put to "
        "sleep\n.It Pa /dev/shm/vpool-UID.lock\nwhat\n.Ic vpool resume\nlocks\n.El\n"
        ".Sh EXIT STATUS\n0; 1 after a failure; 2 after wrong arguments.\n"
        ".Ic vpool pause\nand\n.Ic vpool resume\nend with 3 if they refuse and have changed nothing.\n"
        ".Ic vpool run\nends with the status of its program, with 127 if that is not found and with 126 if it cannot be "
        "run.\n"
        ".Ic vpool doctor\nends with 1 if a line begins with !!.\n"
        ".Sh SEE ALSO\n.Xr libvpool 7");
}

void vp_man_libvpool(void) {
    head("libvpool", "LIBVPOOL", 7, "GPU memory from one pool, for programs as they are");
    puts(".Sh SYNOPSIS\n.Ev LD_PRELOAD Ns = Ns Pa libvpool.so\n.Ar program\n.Sh DESCRIPTION\n"
         "Loaded into a program, the library takes the place of CUDA's allocator behind\n"
         ".Fn cudaMalloc ,\n.Fn cudaMallocAsync\nand their driver calls, and serves them from one pool of "
         "virtual memory on each device.\n"
         "When free memory is in pieces, it maps the pieces side by side into one range;\n"
         "when memory that one stream freed is wanted on another, it knows when reuse is safe.\n"
         "It depends on libc alone, and finds the program's own CUDA at run time.\n"
         ".Sh ENVIRONMENT\nA wrong value is reported in one message, and the default is used.\n.Bl -tag -width Ds");
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
