/* Completion scripts for bash, zsh and fish, made from the option table and the help texts. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/help/help.h"

#include "tool/help/settings.h"
#include "tool/tool.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Commands that list the plans in their folder, for the shells; zsh's within quotes. */
#define PLANS_ZSH "command ls ${XDG_CACHE_HOME:-$HOME/.cache}/vpool/plans 2>/dev/null"
#define PLANS "command ls \"${XDG_CACHE_HOME:-$HOME/.cache}/vpool/plans\" 2>/dev/null"

/* ---- bash ---- */

/* Writes each --word of a help text once. */
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

/* Writes the words of "one, two, three". */
static void put_words(const char *list) {
    for (; *list; list++)
        if (*list != ',')
            putchar(*list);
}

static void complete_bash(void) {
    puts("# Completion of the words of vpool, for bash.\n"
         "# Printed by `vpool help --completion bash`.\n"
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
    printf(
        "    esac\n"
        "    case ${COMP_WORDS[1]}/$word in\n"
        "    */-*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) ;;\n"
        "    run/* | doctor/*) COMPREPLY=($(compgen -c -- \"$word\")) ;;\n"
        "    plan/*)\n"
        "        options=$([[ $COMP_CWORD == 2 ]] && echo show forget)\n"
        "        [[ ${COMP_WORDS[2]} != show && ${COMP_WORDS[2]} != forget || $COMP_CWORD == 2 ]] || options=$(" PLANS
        ")\n"
        "        COMPREPLY=($(compgen -f -W \"$options\" -- \"$word\")) ;;\n"
        "    help/*) COMPREPLY=($(compgen -W 'options");
    for (size_t i = 0; i < vp_help_topic_count; i++)
        printf(" %s", vp_help_topics[i].name);
    for (size_t i = 0; i < vp_tool_command_count; i++)
        printf(" %s", vp_tool_commands[i].name);
    puts("' -- \"$word\")) ;;\n    esac\n}\ncomplete -o bashdefault -o default -F _vpool vpool");
}

/* ---- options with what they mean ---- */

/* An option as a help text describes it: " -o, --output FILE the page". For an option of the library, the sentence is
 * on the next line. */
struct described {
    char letter;   /* 0: no short form */
    char name[48]; /* "": only a short form */
    enum { VALUE_NONE, VALUE_OPTIONAL, VALUE_NEEDED } value;
    const char *choices; /* "one, two" of the option table; NULL: none */
    char meaning[80];    /* its beginning, up to the first comma or stop */
};

static const char *choices_of(const char *name) {
    for (size_t i = 0; i < VP_SETTINGS; i++) {
        const char *variable = vp_settings[i].variable + strlen("VPOOL_"), *c = name;
        while (*c && (*c == '-' ? '_' : toupper((unsigned char)*c)) == *variable)
            c++, variable++;
        if (!*c && !*variable && vp_settings[i].kind != VP_SETTING_FOREIGN && strchr(vp_settings[i].allowed, ',') &&
            !strstr(vp_settings[i].allowed, "FILE"))
            return vp_settings[i].allowed;
    }
    return NULL;
}

/* Reads the meaning, on one line, up to the end of its first clause. */
static void read_meaning(struct described *d, const char *at) {
    size_t n = 0;
    while (*at == ' ' || *at == '\n')
        at++;
    for (; *at && n + 1 < sizeof d->meaning && !strchr(",;:(", *at) && strncmp(at, ". ", 2) &&
           strncmp(at, "\n  -", 4) && strncmp(at, "\n\n", 2);
         at++)
        if (*at != '\n' && (*at != ' ' || (n && d->meaning[n - 1] != ' ')))
            d->meaning[n++] = *at;
        else if (n && d->meaning[n - 1] != ' ')
            d->meaning[n++] = ' ';
    while (n && (d->meaning[n - 1] == ' ' || d->meaning[n - 1] == '.'))
        n--;
    d->meaning[n] = 0;
}

/* Reads a line of a help text. False: the line describes no option. */
static bool read_described(const char *line, struct described *d) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    *d = (struct described){0};
    if (strncmp(line, "  -", 3) || line[3] == ' ')
        return false;
    const char *at = line + 2;
    if (at[1] != '-') {
        d->letter = at[1];
        at += 2 + 2 * !strncmp(at + 2, ", ", 2);
    }
    if (!strncmp(at, "--", 2)) {
        size_t length = strspn(at + 2, letters);
        snprintf(d->name, sizeof d->name, "%.*s", (int)length, at + 2);
        at += 2 + length;
    }
    if (!d->letter && !*d->name)
        return false;
    d->value = !strncmp(at, "[=", 2) ? VALUE_OPTIONAL : *at == '=' || isupper((unsigned char)at[1]) ? VALUE_NEEDED : 0;
    d->choices = choices_of(d->name);
    /* Two spaces, or the end of the line, follow the value. */
    while (*at && *at != '\n' && strncmp(at, "  ", 2))
        at++;
    read_meaning(d, !strcmp(d->name, "help") ? "say what the command does" : at);
    return true;
}

/* Writes a text in single quotes, with a backslash before each of the characters `escaped`. */
static void put_quoted(const char *text, const char *escaped) {
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", stdout);
        else
            printf(strchr(escaped, *text) ? "\\%c" : "%c", *text);
}

/* ---- zsh ---- */

static void zsh_option(const struct described *d) {
    for (int pass = 0; pass < 2; pass++) {
        if (pass ? !*d->name : !d->letter)
            continue;
        fputs(" \\\n        '", stdout);
        if (pass)
            printf("--%s%s", d->name, d->value == VALUE_NONE ? "" : d->value == VALUE_NEEDED ? "=" : "=-");
        else
            printf("-%c%s", d->letter, d->value ? "+" : "");
        putchar('[');
        put_quoted(d->meaning, "[]");
        putchar(']');
        if (d->value) {
            fputs(d->value == VALUE_OPTIONAL ? "::value:" : ":value:", stdout);
            putchar(d->choices ? '(' : '_');
            if (d->choices)
                put_words(d->choices);
            fputs(d->choices ? ")" : "files", stdout);
        }
        putchar('\'');
    }
}

static void zsh_command(size_t i) {
    struct described d;
    char *text = vp_help_of_command(i);
    const char *name = vp_tool_commands[i].name;
    printf("    %s)\n        _arguments -s -S", name);
    for (const char *line = text ? text : ""; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (read_described(line, &d))
            zsh_option(&d);
    free(text);
    if (!strcmp(name, "run") || !strcmp(name, "doctor")) {
        fputs(" \\\n        '(-)1:program:_command_names -e' '*::argument:_normal'", stdout);
    } else if (!strcmp(name, "help")) {
        fputs(" \\\n        '1:topic:(options", stdout);
        for (size_t n = 0; n < vp_help_topic_count; n++)
            printf(" %s", vp_help_topics[n].name);
        for (size_t n = 0; n < vp_tool_command_count; n++)
            printf(" %s", vp_tool_commands[n].name);
        fputs(")'", stdout);
    } else if (!strcmp(name, "plan")) {
        fputs(" \\\n        '1:trace:{_alternative \"words:command:(show forget)\" files:trace:_files}' \\\n"
              "        '*:file:{_alternative \"plans:plan:($(" PLANS_ZSH "))\" files:trace:_files}'",
              stdout);
    } else if (strcmp(name, "options") && strcmp(name, "version")) {
        fputs(" \\\n        '*:file:_files'", stdout);
    }
    puts(" ;;");
}

static void complete_zsh(void) {
    puts("#compdef vpool\n# Completion of the words of vpool, for zsh.\n# Printed by `vpool help --completion zsh`.\n"
         "_vpool() {\n    local -a commands=(");
    for (size_t i = 0; i < vp_tool_command_count; i++) {
        printf("        '%s:", vp_tool_commands[i].name);
        put_quoted(vp_tool_commands[i].sentence, ":");
        puts("'");
    }
    puts("    )\n    if ((CURRENT == 2)); then\n        _describe -t commands command commands\n"
         "        _arguments '--help' '--version'\n        return\n    fi\n"
         "    shift words\n    ((CURRENT--))\n    case $words[1] in");
    for (size_t i = 0; i < vp_tool_command_count; i++)
        zsh_command(i);
    puts("    esac\n}\nif [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n    _vpool \"$@\"\nelse\n"
         "    compdef _vpool vpool\nfi");
}

/* ---- fish ---- */

static void fish_option(const char *command, const struct described *d) {
    printf("complete -c vpool -n '__fish_seen_subcommand_from %s'", command);
    if (d->letter)
        printf(" -s %c", d->letter);
    if (*d->name)
        printf(" -l %s", d->name);
    if (d->value == VALUE_NEEDED)
        fputs(d->choices ? " -x" : " -r", stdout);
    if (d->choices) {
        fputs(" -a '", stdout);
        put_words(d->choices);
        putchar('\'');
    }
    fputs(" -d '", stdout);
    for (const char *c = d->meaning; *c; c++)
        printf(*c == '\'' || *c == '\\' ? "\\%c" : "%c", *c);
    puts("'");
}

static void complete_fish(void) {
    struct described d;
    puts("# Completion of the words of vpool, for fish.\n# Printed by `vpool help --completion fish`.\n"
         "complete -c vpool -n __fish_use_subcommand -l help -d 'list the commands'\n"
         "complete -c vpool -n __fish_use_subcommand -l version -d 'print the version'");
    for (size_t i = 0; i < vp_tool_command_count; i++) {
        const char *name = vp_tool_commands[i].name;
        printf("complete -c vpool -n __fish_use_subcommand -f -a %s -d '", name);
        for (const char *c = vp_tool_commands[i].sentence; *c; c++)
            printf(*c == '\'' || *c == '\\' ? "\\%c" : "%c", *c);
        puts("'");
        char *text = vp_help_of_command(i);
        for (const char *line = text ? text : ""; *line; line += strcspn(line, "\n"), line += *line == '\n')
            if (read_described(line, &d))
                fish_option(name, &d);
        free(text);
    }
    fputs("complete -c vpool -n '__fish_seen_subcommand_from help' -f -a 'options", stdout);
    for (size_t i = 0; i < vp_help_topic_count; i++)
        printf(" %s", vp_help_topics[i].name);
    puts("'\ncomplete -c vpool -n '__fish_seen_subcommand_from plan' -a 'show forget'\n"
         "complete -c vpool -n '__fish_seen_subcommand_from plan; and __fish_seen_subcommand_from show forget' -a "
         "'(set -q XDG_CACHE_HOME; and command ls $XDG_CACHE_HOME/vpool/plans 2>/dev/null; or command ls "
         "~/.cache/vpool/plans 2>/dev/null)'");
    puts("complete -c vpool -n '__fish_seen_subcommand_from run doctor' -x -a '(__fish_complete_subcommand "
         "--fcs-skip=2)'");
}

bool vp_completion(const char *shell) {
    static const struct {
        const char *name;
        void (*print)(void);
    } shells[] = {{"bash", complete_bash}, {"zsh", complete_zsh}, {"fish", complete_fish}};
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
        if (!strcmp(shell, shells[i].name)) {
            shells[i].print();
            return true;
        }
    return false;
}
