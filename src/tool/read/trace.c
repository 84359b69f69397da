/* Reads traces that VPOOL_TRACE recorded, and RMM's logs. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/read/trace_read.h"

#include "base/log.h"
#include "tool/read/source.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int vp_trace_fault(struct vp_trace_reader *r, const char *format, ...) {
    va_list args;
    int n = snprintf(r->message, r->message_room, r->line ? "%s:%zu: " : "%s: ", r->path, r->line);
    va_start(args, format);
    if (n >= 0 && (size_t)n < r->message_room) {
        vsnprintf(r->message + n, r->message_room - (size_t)n, format, args);
        vp_log_make_plain(r->message + n);
    }
    va_end(args);
    return -EINVAL;
}

/* ---- fields ---- */

bool vp_trace_number(const char *text, int base, uint64_t *out) {
    char *end;
    errno = 0;
    *out = strtoull(text, &end, base);
    return isxdigit((unsigned char)*text) && !*end && !errno;
}

int vp_trace_field(struct vp_trace_reader *r, const char *text, uint64_t most, const char *name, uint64_t *out) {
    return vp_trace_number(text, 10, out) && *out <= most ? 0
                                                          : vp_trace_fault(r, "'%.40s' is not a valid %s", text, name);
}

/* Reads a pointer as versions of RMM print it: 0x7f00, 7f00, and what printf() makes of NULL. */
static bool pointer(const char *text, uint64_t *out) {
    *out = 0;
    return !strcmp(text, "(nil)") || vp_trace_number(text, 16, out);
}

/* Splits a line at commas, in place. Returns the number of fields, at most `most`. */
static size_t split(char *line, char **fields, size_t most) {
    size_t n = 0;
    for (char *next = line; next && n < most; n++) {
        fields[n] = strsep(&next, ",");
        if (n + 1 == most && next)
            return most + 1;
    }
    return n;
}

static int number_of(struct vp_numbers *numbers, uint64_t key, uint32_t *count, uint32_t *out) {
    uint64_t n = vp_numbers_get(numbers, key + 1);
    if (!n && vp_numbers_set(numbers, key + 1, n = ++*count) < 0)
        return -ENOMEM;
    *out = (uint32_t)(n - 1);
    return 0;
}

/* Threads write events a little out of order, and RMM's clock begins again at midnight. So an event that seems nearly a
 * day later was in fact earlier. */
uint64_t vp_trace_time(struct vp_trace_reader *r, uint64_t us) {
    static const uint64_t DAY = UINT64_C(86400000000), DISORDER = UINT64_C(7200000000);
    if (!r->timed)
        r->first_us = us;
    r->timed = true;
    us -= r->first_us;
    if (r->rmm) {
        const uint64_t later = (us + 2 * DAY - r->last_us % DAY) % DAY;
        us = r->last_us + (later < DAY - DISORDER ? later : 0);
    }
    return r->last_us = us > r->last_us && us < UINT64_MAX / 2 ? us : r->last_us;
}

/* Adds the device, which is in the upper bits of an id, to those of the trace. */
static int note_device(struct vp_trace_reader *r, uint64_t id, uint16_t *device) {
    struct vp_trace *t = r->trace;
    unsigned n = t->device_count;
    *device = (uint16_t)(id >> 48);
    if (t->count && t->events[t->count - 1].device == *device)
        return 0;
    while (n && t->devices[n - 1] > *device)
        n--;
    if (n && t->devices[n - 1] == *device)
        return 0;
    if (t->device_count == VP_TRACE_DEVICES)
        return vp_trace_fault(r, "allocation %" PRIu64 " is on device number %d", id, VP_TRACE_DEVICES + 1);
    memmove(t->devices + n + 1, t->devices + n, (t->device_count++ - n) * sizeof *t->devices);
    t->devices[n] = *device;
    return 0;
}

static int make_room(struct vp_trace_reader *r) {
    struct vp_trace *t = r->trace;
    if (t->count < r->room)
        return 0;
    size_t room = r->room ? r->room * 2 : 65536;
    void *events = realloc(t->events, room * sizeof *t->events);
    if (!events)
        return -ENOMEM;
    t->events = events;
    r->room = room;
    return 0;
}

static int add(struct vp_trace_reader *r, const struct vp_trace_event *e, uint64_t id, uint64_t stream) {
    struct vp_trace *t = r->trace;
    uint32_t block, s;
    uint16_t device = 0;
    int err = make_room(r);
    if (err)
        return err;
    if (e->alloc && vp_numbers_get(&r->live, id + 1))
        return vp_trace_fault(r, "allocation %" PRIu64 " is live already", id);
    if (!e->alloc && !vp_numbers_get(&r->live, id + 1))
        return vp_trace_fault(r, "free of %" PRIu64 ", which is not live", id);
    if ((err = note_device(r, r->rmm ? 0 : id, &device)) < 0)
        return err;
    if (number_of(&r->live, id, &t->blocks, &block) < 0 || number_of(&r->streams, stream, &t->streams, &s) < 0)
        return -ENOMEM;
    if (!e->alloc)
        vp_numbers_drop(&r->live, id + 1);
    t->events[t->count++] = (struct vp_trace_event){
        .alloc = e->alloc,
        .device = device,
        .block = block,
        .stream = s,
        .stack = e->stack,
        .size = e->alloc ? e->size : 0,
        .us = vp_trace_time(r, e->us),
    };
    return 0;
}

static int our_event(struct vp_trace_reader *r, char **f, size_t fields) {
    struct vp_trace_event e = {.alloc = *f[0] == 'a'};
    uint64_t id, stream, stack = 0;
    if (fields != 5 && !(e.alloc && fields == 6))
        return vp_trace_fault(r, "expected op,id,size,stream,us");
    if (!vp_trace_number(f[1], 10, &id) || id == UINT64_MAX)
        return vp_trace_fault(r, "'%.40s' is not a valid id", f[1]);
    if (!vp_trace_number(f[2], 10, &e.size) || (e.alloc && !e.size))
        return vp_trace_fault(r, "'%.40s' is not a valid size", f[2]);
    if (!vp_trace_number(f[3], 10, &stream) || stream == UINT64_MAX)
        return vp_trace_fault(r, "'%.40s' is not a valid stream", f[3]);
    if (!vp_trace_number(f[4], 10, &e.us))
        return vp_trace_fault(r, "'%.40s' is not a valid time", f[4]);
    if (fields == 6 && vp_trace_field(r, f[5], UINT32_MAX, "stack", &stack) < 0)
        return -EINVAL;
    e.stack = stack ? (uint32_t)vp_numbers_get(&r->stacks, stack + 1) : 0;
    if (stack && !e.stack)
        return vp_trace_fault(r, "stack %" PRIu64 " is not defined", stack);
    return add(r, &e, id, stream);
}

static int add_order(struct vp_trace_reader *r, char **f) {
    struct vp_trace *t = r->trace;
    uint64_t stream, other, us;
    uint32_t behind, before;
    if (vp_trace_field(r, f[1], UINT64_MAX - 1, "stream", &other) < 0 ||
        vp_trace_field(r, f[3], UINT64_MAX - 1, "stream", &stream) < 0 ||
        vp_trace_field(r, f[4], UINT64_MAX, "time", &us) < 0)
        return -EINVAL;
    vp_trace_time(r, us);
    struct vp_trace_order *new = vp_array_add(&t->orders, sizeof *new);
    if (!new || number_of(&r->streams, stream, &t->streams, &behind) < 0 ||
        number_of(&r->streams, other, &t->streams, &before) < 0)
        return -ENOMEM;
    *new = (struct vp_trace_order){.at = t->count, .stream = behind, .other = before};
    return 0;
}

static int our_line(struct vp_trace_reader *r, char *line) {
    char *f[6];
    size_t fields = split(line, f, 6);
    if (!*f[0] || f[0][1] || !strchr("afwmbehvxlns+", *f[0]))
        return vp_trace_fault(r, "unknown operation '%.20s': this vpool knows a f w m b e h v x l n s +", f[0]);
    int err = *f[0] == '+' ? 0 : vp_trace_record_end(r);
    if (err)
        return err;
    if (*f[0] == 'a' || *f[0] == 'f')
        return our_event(r, f, fields);
    if (fields != 5)
        return vp_trace_fault(r, "expected five fields");
    return *f[0] == 'w' ? add_order(r, f) : vp_trace_record(r, f);
}

/* Reads HH:MM:SS.micros, or with a colon for the point, in microseconds. Returns 0 for other formats that RMM has had:
 * no reader needs the time. */
static uint64_t clock_time(const char *text) {
    unsigned h, m, s, us;
    return sscanf(text, "%2u:%2u:%2u%*1[.:]%6u", &h, &m, &s, &us) == 4
               ? (h * 3600 + m * 60 + s) % 86400 * UINT64_C(1000000) + us
               : 0;
}

static int rmm_line(struct vp_trace_reader *r, char *line) {
    char *f[6];
    uint64_t address, size, stream;
    if (split(line, f, 6) != 6)
        return vp_trace_fault(r, "expected Thread,Time,Action,Pointer,Size,Stream");
    bool alloc = !strcmp(f[2], "allocate"), failed = !strcmp(f[2], "allocate failure");
    if (!alloc && !failed && strcmp(f[2], "free") && strcmp(f[2], "deallocate"))
        return vp_trace_fault(r, "unknown action '%.20s': allocate, free or allocate failure", f[2]);
    if (!pointer(f[3], &address) || address == UINT64_MAX)
        return vp_trace_fault(r, "'%.40s' is not a valid pointer", f[3]);
    if (!vp_trace_number(f[4], 10, &size))
        return vp_trace_fault(r, "'%.40s' is not a valid size", f[4]);
    if (!pointer(f[5], &stream) || stream == UINT64_MAX)
        return vp_trace_fault(r, "'%.40s' is not a valid stream", f[5]);
    const struct vp_trace_event e = {.alloc = alloc, .size = size, .us = clock_time(f[1])};
    return failed || !size ? 0 : add(r, &e, address, stream);
}

/* No recorder writes a line nearly as long; without a limit, one line could take all memory. */
enum { LONGEST_LINE = 1 << 16 };

static bool is_zero(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (text[i])
            return false;
    return true;
}

/* Reads the zero bytes that a killed process leaves behind its last line. At most one line there lacks only its first
 * byte. If n < 0, `line` is cut off. */
static int read_padding(struct vp_trace_reader *r, FILE *file, const char *line, ssize_t n) {
    bool right = n >= 0 || is_zero(line, LONGEST_LINE);
    for (int c; right && (c = getc_unlocked(file)) != EOF;)
        right = !c;
    return right ? 0 : vp_trace_fault(r, "more text behind zero bytes");
}

static int read_head(struct vp_trace_reader *r, struct vp_source *s) {
    char head[64];
    bool ended;
    ssize_t n = vp_source_head(s, head, sizeof head, &ended);
    if (n < 0 || (n && !*head))
        return vp_trace_fault(r, "the file is empty");
    r->line++;
    if (n && head[n - 1] == '\r')
        head[n - 1] = 0;
    r->rmm = !strcmp(head, "Thread,Time,Action,Pointer,Size,Stream");
    if (*head == '{')
        return vp_trace_fault(r, "this is JSON, not a trace (vpool report and export take dumps)");
    if (!r->rmm && strcmp(head, "op,id,size,stream,us"))
        return vp_trace_fault(r, "expected the header op,id,size,stream,us or Thread,Time,Action,Pointer,Size,Stream");
    return 0;
}

static int read_lines(struct vp_trace_reader *r, struct vp_source *s) {
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    int err = read_head(r, s);
    while (!err && (n = vp_source_line(s, &line, &room, LONGEST_LINE))) {
        if (n != -ENOMEM && !*line) {
            err = read_padding(r, s->file, line, n);
            break;
        }
        r->line++;
        if (n < 0) {
            err = n == -E2BIG ? vp_trace_fault(r, "a line of more than %d bytes", LONGEST_LINE) : (int)n;
            break;
        }
        bool ended = n && line[n - 1] == '\n';
        while (n && (line[n - 1] == '\n' || line[n - 1] == '\r'))
            line[--n] = 0;
        if (!ended) {
            err = vp_trace_fault(r, "the last line is cut off");
        } else if (strlen(line) != (size_t)n) {
            err = vp_trace_fault(r, "a zero byte");
        } else if (n) {
            err = r->rmm ? rmm_line(r, line) : our_line(r, line);
        }
    }
    free(line);
    return err;
}

/* ---- names ---- */

static void drop_suffix(char *name, const char *suffix) {
    size_t n = strlen(name), m = strlen(suffix);
    if (n > m && !strcmp(name + n - m, suffix))
        name[n - m] = 0;
}

char *vp_trace_title(const char *path) {
    const char *slash = strrchr(path, '/');
    char *name = strdup(slash && slash[1] ? slash + 1 : path);
    if (name)
        drop_suffix(name, ".gz"), drop_suffix(name, ".csv");
    return name;
}

int vp_trace_titles_width(char *const *paths, int count) {
    enum { LEAST = 18, MOST = 64 };
    size_t width = LEAST;
    for (int i = 0; i < count; i++) {
        char *name = vp_trace_title(paths[i]);
        const size_t n = name ? strlen(name) : 0;
        width = n > width ? n : width;
        free(name);
    }
    return width > MOST ? MOST : (int)width;
}

int vp_trace_read(struct vp_trace *trace, const char *path, char *message, size_t room) {
    struct vp_trace_reader r = {.trace = trace, .path = path, .message = message, .message_room = room};
    struct vp_source s;
    *trace = (struct vp_trace){0};
    int err = vp_source_open(&s, path);
    if (err) {
        snprintf(message, room, "%s: %s", path, strerror(-err));
        return -EIO;
    }
    err = vp_array_add(&trace->stacks.stacks, sizeof(struct vp_stack)) ? read_lines(&r, &s) : -ENOMEM;
    if (!err)
        err = vp_trace_record_end(&r);
    vp_trace_close_ranges(&r);
    /* A damaged archive, or a missing gzip, may first show as a bad line; the cause must be named. */
    const char *cause = vp_source_close(&s);
    if (cause) {
        err = -EIO;
        snprintf(message, room, "%s:%zu: %s", path, r.line, cause);
    } else if (err == -ENOMEM) {
        snprintf(message, room, "%s: out of memory", path);
    }
    vp_numbers_finish(&r.live);
    vp_numbers_finish(&r.streams);
    vp_numbers_finish(&r.modules);
    vp_numbers_finish(&r.frames);
    vp_numbers_finish(&r.stacks);
    vp_numbers_finish(&r.open);
    if (err)
        vp_trace_finish(trace);
    return err;
}
