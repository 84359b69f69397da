/* The options: one table, parsed once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/options.h"

#include "base/config.h"
#include "base/log.h"

#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum option_kind { OPTION_BOOL, OPTION_INT, OPTION_SIZE, OPTION_SHARE, OPTION_ENUM, OPTION_STRING, OPTION_FOREIGN };

struct option {
    enum option_kind kind;
    size_t offset; /* of the field in struct vp_options */
    const char *variable, *fallback, *allowed;
};

#define ROW(kind, field, variable, fallback, allowed, sentence)                                                        \
    {OPTION_##kind, offsetof(struct vp_options, field), variable, fallback, allowed},

static const struct option table[] = {VP_OPTIONS(ROW)};

#define TABLE_SIZE (sizeof(table) / sizeof(table[0]))
#define PREFIX "VPOOL_"
#define NAME_SIZE 64
#define LINE_SIZE 512

/* ---- reading values ---- */

bool vp_options_number(const char **text, bool with_suffix, uint64_t *value) {
    static const char suffixes[] = "KMGT";
    const char *at = *text;
    uint64_t number = 0;
    if (!isdigit((unsigned char)*at))
        return false;
    for (; isdigit((unsigned char)*at); at++)
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, (uint64_t)(*at - '0'), &number))
            return false;
    double rest = 0, place = 1;
    if (with_suffix && *at == '.' && isdigit((unsigned char)at[1]))
        for (at++; isdigit((unsigned char)*at); at++)
            rest += (*at - '0') * (place /= 10);
    const char *suffix = *at ? strchr(suffixes, toupper((unsigned char)*at)) : NULL;
    if (place < 1 && !suffix)
        return false;
    if (with_suffix && *at) {
        if (suffix) {
            uint64_t unit = (uint64_t)1 << (10 * (suffix - suffixes + 1));
            if (__builtin_mul_overflow(number, unit, &number) ||
                __builtin_add_overflow(number, (uint64_t)(rest * (double)unit + 0.5), &number))
                return false;
            at++;
            at += tolower((unsigned char)*at) == 'i'; /* 8Gi, as in Kubernetes */
            at += tolower((unsigned char)*at) == 'b';
        } else if (toupper((unsigned char)*at) == 'B') {
            at++;
        }
    }
    *text = at;
    *value = number;
    return true;
}

static bool parse_number(const struct option *option, const char *text, uint64_t *value) {
    bool is_size = option->kind == OPTION_SIZE;
    uint64_t low, high, number;
    const char *allowed = option->allowed;
    if (!vp_options_number(&allowed, is_size, &low))
        return false;
    allowed += strlen("..");
    if (!vp_options_number(&allowed, is_size, &high) || !vp_options_number(&text, is_size, &number) || *text ||
        number < low || number > high)
        return false;
    *value = number;
    return true;
}

/* A size, or a percentage of something that is known later; the smallest size is above 100. */
static bool parse_share(const struct option *option, const char *text, uint64_t *value) {
    const struct option size = {.kind = OPTION_SIZE, .allowed = strstr(option->allowed, ", ") + strlen(", ")};
    const char *end = text;
    uint64_t percent = 0;
    if (strcmp(text, "0") != 0) {
        if (!vp_options_number(&end, false, &percent) || strcmp(end, "%") != 0)
            return parse_number(&size, text, value);
        if (percent < 1 || percent > 100 || end - text > 3)
            return false;
    }
    *value = percent;
    return true;
}

static bool parse_bool(const char *text, bool *value) {
    static const char *const words[][2] = {{"0", "1"}, {"no", "yes"}, {"off", "on"}, {"false", "true"}};
    for (size_t i = 0; i < 2 * sizeof(words) / sizeof(words[0]); i++)
        if (!strcasecmp(text, words[i / 2][i % 2])) {
            *value = i % 2;
            return true;
        }
    return false;
}

/* Steps through "one, two, three": sets *word, returns its length, and moves *list to the next one. */
static size_t next_word(const char **list, const char **word) {
    *word = *list;
    size_t length = strcspn(*list, ",");
    *list += length;
    *list += strspn(*list, ", ");
    return length;
}

static bool parse_word(const char *allowed, const char *text, int *value) {
    const char *word;
    for (int place = 0; *allowed; place++) {
        size_t length = next_word(&allowed, &word);
        if (strlen(text) == length && !strncasecmp(text, word, length)) {
            *value = place;
            return true;
        }
    }
    return false;
}

static bool parse_value(const struct option *option, const char *text, struct vp_options *options) {
    void *field = (char *)options + option->offset;
    bool on;
    switch (option->kind) {
    case OPTION_BOOL: return parse_bool(text, field);
    case OPTION_INT:
    case OPTION_SIZE: return parse_number(option, text, field);
    case OPTION_SHARE: return parse_share(option, text, field);
    case OPTION_ENUM:
        return parse_word(option->allowed, text, field) ||
               (parse_bool(text, &on) && parse_word(option->allowed, on ? "1" : "0", field));
    case OPTION_STRING:
        if (strlen(text) >= VP_OPTION_TEXT)
            return false;
        /* An option that is off by default can be switched off with 0, against the file; yes is 1 where 1 is a
         * value. */
        if (*option->fallback || !strcmp(text, "1") || !parse_bool(text, &on))
            strcpy(field, text);
        else if (!on || *option->allowed == '1')
            strcpy(field, on ? "1" : "");
        else
            return false;
        return true;
    case OPTION_FOREIGN: break;
    }
    return true;
}

void vp_options_parse(struct vp_options *options, vp_options_lookup_fn *lookup, void *lookup_context,
                      vp_options_line_fn *report, void *report_context) {
    for (size_t i = 0; i < TABLE_SIZE; i++) {
        const struct option *option = &table[i];
        parse_value(option, option->fallback, options);
        if (option->kind == OPTION_FOREIGN)
            continue;
        const char *text = lookup(lookup_context, option->variable);
        if (!text || !*text || parse_value(option, text, options) || !report)
            continue;
        char line[LINE_SIZE];
        if (option->kind == OPTION_STRING && strlen(text) >= VP_OPTION_TEXT)
            snprintf(line, sizeof(line), "%s is longer than %d characters; it is left unset", option->variable,
                     VP_OPTION_TEXT - 1);
        else
            snprintf(line, sizeof(line), "%s=%.64s is not valid (allowed: %s); using %s", option->variable, text,
                     option->allowed, *option->fallback ? option->fallback : "none");
        report(report_context, line);
    }
    /* Users who make CUDA synchronous are looking for a fault, and want each call to end before the next. */
    const char *own = lookup(lookup_context, "VPOOL_SYNC_FREE");
    const char *blocking = lookup(lookup_context, "CUDA_LAUNCH_BLOCKING");
    if ((!own || !*own) && blocking && !strcmp(blocking, "1"))
        options->sync_free = true;
}

/* ---- unknown variables ---- */

/* Levenshtein distance, one row of the matrix at a time. */
size_t vp_options_distance(const char *a, size_t length, const char *b) {
    size_t row[NAME_SIZE + 1];
    size_t width = strlen(b);
    for (size_t j = 0; j <= width; j++)
        row[j] = j;
    for (size_t i = 1; i <= length; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= width; j++) {
            size_t above = row[j];
            const size_t changed = diagonal + (a[i - 1] != b[j - 1]),
                         other = 1 + (above < row[j - 1] ? above : row[j - 1]);
            row[j] = changed < other ? changed : other;
            diagonal = above;
        }
    }
    return row[width];
}

/* The option with the nearest name, and its distance; NULL: none is near enough to have been meant. */
static const struct option *nearest(const char *name, size_t length, size_t *distance) {
    const struct option *best = NULL;
    *distance = 3;
    for (size_t i = 0; length < NAME_SIZE && i < TABLE_SIZE; i++) {
        const size_t here = vp_options_distance(name, length, table[i].variable);
        if (here < *distance) {
            *distance = here;
            best = &table[i];
        }
    }
    return best;
}

void vp_options_find_unknown(char *const *environment, vp_options_line_fn *report, void *report_context) {
    for (; environment && *environment; environment++) {
        const char *name = *environment;
        size_t length = strcspn(name, "="), distance;
        if (strncmp(name, PREFIX, strlen(PREFIX)))
            continue;
        const struct option *meant = nearest(name, length, &distance);
        if (!distance)
            continue;
        char line[LINE_SIZE];
        snprintf(line, sizeof(line), "%.*s is not an option of vpool%s%s%s", length < 128 ? (int)length : 128, name,
                 meant ? "; did you mean " : "", meant ? meant->variable : "", meant ? "?" : "");
        report(report_context, line);
    }
}

/* ---- the file ---- */

/* The file's values by option, which point into a lasting text; and who is told what is wrong with the file. */
struct file_settings {
    const char *path, *value[TABLE_SIZE];
    vp_options_line_fn *report;
    void *report_context;
};

static void report_file(const struct file_settings *file, unsigned number, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void report_file(const struct file_settings *file, unsigned number, const char *format, ...) {
    char line[LINE_SIZE], why[LINE_SIZE / 2];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    vp_log_make_plain(why);
    snprintf(line, sizeof line, "%.200s:%u: %s", file->path, number, why);
    file->report(file->report_context, line);
}

static void wrong_line(void *file, unsigned number, const char *why) {
    report_file(file, number, "%s; the line is ignored", why);
}

/* "limit", "idle-trim" and "VPOOL_IDLE_TRIM" are all valid names. */
static bool is_named(const struct option *option, const char *key) {
    const char *name = option->variable;
    if (strncasecmp(key, PREFIX, strlen(PREFIX)))
        name += strlen(PREFIX);
    for (; *name && *key; name++, key++)
        if (*name != (*key == '-' ? '_' : toupper((unsigned char)*key)))
            return false;
    return *name == *key;
}

static void take_setting(void *context, unsigned number, const char *key, const char *value) {
    static struct vp_options
        tried; /* no other thread is here: the process's own options are read once, and then announced */
    struct file_settings *file = context;
    for (size_t i = 0; i < TABLE_SIZE; i++) {
        const struct option *option = &table[i];
        if (option->kind == OPTION_FOREIGN || option->offset == offsetof(struct vp_options, config) ||
            !is_named(option, key))
            continue;
        if (!*value || parse_value(option, value, &tried))
            file->value[i] = value;
        else
            report_file(file, number, "%.32s = %.64s is not valid (allowed: %s); the line is ignored", key, value,
                        option->allowed);
        return;
    }
    report_file(file, number, "%.64s is not an option of vpool; the line is ignored", key);
}

/* Reads the settings for this program, or for all programs. */
static int read_file(struct file_settings *file, char text[VP_CONFIG_MOST], bool all) {
    int length = vp_config_load(file->path, text);
    struct vp_program program;
    if (length < 0)
        return length;
    if (!all)
        vp_program_names(&program);
    vp_config_read(text, &(struct vp_config_reader){all ? NULL : &program, file, take_setting, wrong_line});
    return 0;
}

int vp_options_check_file(const char *path, vp_options_line_fn *report, void *report_context) {
    static char text[VP_CONFIG_MOST];
    struct file_settings file = {.path = path, .report = report, .report_context = report_context};
    return read_file(&file, text, true);
}

/* ---- the process's own ---- */

static struct file_settings own_file;

/* The value in the environment, else in the file. If the program runs with raised privileges (/etc/ld.so.preload
 * reaches such programs, too) its user cannot name files to it. */
static const char *lookup_own(void *context, const char *name) {
    const char *value = secure_getenv(name);
    for (size_t i = 0; (!value || !*value) && i < TABLE_SIZE; i++)
        if (own_file.value[i] && !strcmp(table[i].variable, name))
            return own_file.value[i];
    return value;
}

/* Complaints are kept for vp_options_announce(), which logs them line by line, without the log's cap. */
static struct {
    size_t used;
    char text[64 << 10];
} complaints;

static void keep_complaint(void *unused, const char *line) {
    const size_t n = strlen(line) + 1;
    if (sizeof complaints.text - complaints.used >= n) {
        memcpy(complaints.text + complaints.used, line, n);
        complaints.used += n;
    }
}

/* A file that the user named must exist. */
static void read_own_file(void) {
    static char text[VP_CONFIG_MOST]; /* what was read must last */
    const char *named = secure_getenv("VPOOL_CONFIG");
    bool chosen = named && *named;
    char line[LINE_SIZE];
    own_file = (struct file_settings){.path = chosen ? named : VP_CONFIG_FILE, .report = keep_complaint};
    int err = read_file(&own_file, text, false);
    if (!err || (err == -ENOENT && !chosen))
        return;
    snprintf(line, sizeof line, "VPOOL_CONFIG: %.200s: %s; it is ignored", own_file.path, vp_config_error(err));
    keep_complaint(NULL, line);
}

static void log_line(void *level, const char *line) {
    vp_log(*(const enum vp_log_level *)level, "%s", line);
}

const struct vp_options *_Atomic vp_options_now;

const struct vp_options *vp_options_read(void) {
    static atomic_bool begun;
    static struct vp_options options;
    if (!atomic_exchange(&begun, true)) {
        int kept = errno;
        read_own_file();
        vp_options_parse(&options, lookup_own, NULL, keep_complaint, NULL);
        errno = kept;
        vp_log_set_level((enum vp_log_level)options.log);
        atomic_store_explicit(&vp_options_now, &options, memory_order_release);
    }
    /* Another thread is reading them, which takes some microseconds. */
    while (!atomic_load_explicit(&vp_options_now, memory_order_acquire))
        sched_yield();
    return &options;
}

void vp_options_announce(void) {
    static atomic_flag done = ATOMIC_FLAG_INIT;
    enum vp_log_level warn = VP_LOG_WARN, info = VP_LOG_INFO;
    if (atomic_flag_test_and_set(&done))
        return;
    const struct vp_options *options = vp_options();
    for (const char *line = complaints.text; line < complaints.text + complaints.used; line += strlen(line) + 1)
        vp_log(VP_LOG_WARN, "%s", line);
    vp_options_find_unknown(environ, log_line, &warn);
    vp_options_print_values(options, log_line, &info);
}

/* ---- the table as text ---- */

enum vp_adopt_choice vp_options_adopt(const struct vp_options *options) {
    if (options->policy == VP_POLICY_NATIVE)
        return VP_ADOPT_NOTHING;
    if (options->adopt != VP_ADOPT_AUTO && options->adopt != VP_ADOPT_YES)
        return (enum vp_adopt_choice)options->adopt;
    const bool in_the_way = options->poison || options->zero || options->spill || options->policy != VP_POLICY_VPOOL;
    return in_the_way ? VP_ADOPT_ASYNC : VP_ADOPT_BARE;
}

static void format_size(uint64_t bytes, char *text, size_t size) {
    static const char suffixes[] = "\0KMGT";
    int unit = 0;
    while (bytes && bytes % 1024 == 0 && unit < 4) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, size, "%llu%.1s", (unsigned long long)bytes, &suffixes[unit]);
}

static void format_value(const struct option *option, const struct vp_options *options, char *text, size_t size) {
    const void *field = (const char *)options + option->offset;
    const char *list = option->allowed, *word = "";
    size_t length = 0;
    switch (option->kind) {
    case OPTION_BOOL: snprintf(text, size, "%d", *(const bool *)field); break;
    case OPTION_INT: snprintf(text, size, "%llu", (unsigned long long)*(const uint64_t *)field); break;
    case OPTION_SIZE: format_size(*(const uint64_t *)field, text, size); break;
    case OPTION_SHARE:
        if (*(const uint64_t *)field && *(const uint64_t *)field <= 100)
            snprintf(text, size, "%d%%", (int)*(const uint64_t *)field);
        else
            format_size(*(const uint64_t *)field, text, size);
        break;
    case OPTION_ENUM:
        for (int place = *(const int *)field; place >= 0; place--)
            length = next_word(&list, &word);
        snprintf(text, size, "%.*s", (int)length, word);
        break;
    case OPTION_STRING: snprintf(text, size, "%s", (const char *)field); break;
    case OPTION_FOREIGN: *text = '\0'; break;
    }
}

void vp_options_print_values(const struct vp_options *options, vp_options_line_fn *print, void *context) {
    char line[LINE_SIZE], value[LINE_SIZE / 2];
    for (size_t i = 0; i < TABLE_SIZE; i++) {
        const struct option *option = &table[i];
        if (option->kind == OPTION_FOREIGN)
            continue;
        format_value(option, options, value, sizeof(value));
        bool changed = strcmp(value, option->fallback) != 0;
        snprintf(line, sizeof(line), "%s=%s%s", option->variable, value, changed ? "" : " (default)");
        print(context, line);
    }
}
