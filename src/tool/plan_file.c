/* Plans as files: planned.h has the lines. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/planned.h"

#include "memory/memory.h"
#include "tool/source.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- writing ---- */

static void put_text(FILE *out, const char *text) {
    for (; *text; text++)
        if ((unsigned char)*text <= ' ' || (unsigned char)*text >= 127 || strchr("%,", *text))
            fprintf(out, "%%%02x", (unsigned char)*text);
        else
            putc(*text, out);
}

static void put_device(FILE *out, const struct vp_planned *p) {
    const struct vp_planned_phase *phases = p->phases.items;
    size_t phase = 0;
    fprintf(out, "device,%u,%zu,%" PRIu64 ",%" PRIu64 "\n", p->device, p->plan.count, p->plan.peak,
            p->figures.lower_bound);
    for (size_t i = 0; i <= p->plan.count; i++) {
        for (; phase < p->phases.count && phases[phase].first == i; phase++) {
            fprintf(out, "p,%zu,", i);
            put_text(out, phases[phase].name);
            putc('\n', out);
        }
        if (i < p->plan.count)
            fprintf(out, "r,%" PRIu64 ",%" PRIu32 ",%" PRIu64 "\n", p->plan.places[i].size, p->plan.places[i].stream,
                    p->plan.places[i].offset);
    }
}

void vp_planned_write(FILE *out, const struct vp_planned_file *file) {
    fprintf(out, "vpool-plan,%d\nmade,%s,", VP_PLANNED_VERSION, VP_VERSION);
    put_text(out, file->trace);
    fprintf(out, "\nplanner,%s\n", file->published ? "stalloc" : "vpool");
    for (unsigned d = 0; d < file->device_count; d++)
        put_device(out, &file->devices[d]);
    fputs("end\n", out);
}

/* ---- reading ---- */

struct reader {
    struct vp_planned_file *file;
    struct vp_planned *device; /* whose plan is open; NULL: none yet */
    size_t wanted;             /* its requests */
    const char *path;
    size_t line, room; /* room: of its places */
    bool ended;
    char *message;
    size_t message_room;
};

static int fault(struct reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int fault(struct reader *r, const char *format, ...) {
    va_list args;
    int n = snprintf(r->message, r->message_room, "%s:%zu: ", r->path, r->line);
    va_start(args, format);
    if (n >= 0 && (size_t)n < r->message_room)
        vsnprintf(r->message + n, r->message_room - (size_t)n, format, args);
    va_end(args);
    return -EINVAL;
}

/* Decimal digits alone, at most `most`. */
static bool number(const char *text, uint64_t most, uint64_t *out) {
    *out = 0;
    for (const char *c = text; *c; c++)
        if (*c < '0' || *c > '9' || __builtin_mul_overflow(*out, 10, out) ||
            __builtin_add_overflow(*out, (uint64_t)(*c - '0'), out))
            return false;
    return *text && *out <= most;
}

static int digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* In place; false: no text of ours. */
static bool decode(char *text) {
    char *to = text;
    for (; *text; text++) {
        if (*text != '%') {
            *to++ = *text;
            continue;
        }
        int high = digit(text[1]), low = high < 0 ? -1 : digit(text[2]);
        if (low < 0 || !(high | low))
            return false;
        *to++ = (char)(high << 4 | low);
        text += 2;
    }
    *to = 0;
    return true;
}

/* Exactly so many fields behind the first one. */
static bool fields(char *line, char **f, size_t count) {
    size_t n = 0;
    strsep(&line, ",");
    while (line && n < count)
        f[n++] = strsep(&line, ",");
    return n == count && !line;
}

static int header(struct reader *r, char *line) {
    char *f[2];
    uint64_t version;
    if (r->line == 1) {
        if (strncmp(line, "vpool-plan,", 11) || !number(line + 11, UINT64_MAX, &version))
            return fault(r, "no header of a plan: vpool-plan,%d", VP_PLANNED_VERSION);
        return version == VP_PLANNED_VERSION ? 0
                                             : fault(r, "a plan of version %" PRIu64 ": this vpool reads version %d",
                                                     version, VP_PLANNED_VERSION);
    }
    if (r->line == 2) {
        if (strncmp(line, "made,", 5) || !fields(line, f, 2) || !decode(f[1]))
            return fault(r, "expected made,BY,TRACE");
        r->file->trace = strdup(f[1]);
        return r->file->trace ? 0 : -ENOMEM;
    }
    r->file->published = !strcmp(line, "planner,stalloc");
    return r->file->published || !strcmp(line, "planner,vpool") ? 0
                                                                : fault(r, "expected planner,vpool or planner,stalloc");
}

static int close_device(struct reader *r) {
    if (r->device && r->device->plan.count != r->wanted)
        return fault(r, "%zu requests of device %u, which has %zu", r->device->plan.count, r->device->device,
                     r->wanted);
    return 0;
}

static int open_device(struct reader *r, char *line) {
    char *f[4];
    uint64_t n[4];
    int err = close_device(r);
    if (err)
        return err;
    if (!fields(line, f, 4) || !number(f[0], UINT16_MAX, &n[0]) || !number(f[1], UINT32_MAX, &n[1]) ||
        !number(f[2], UINT64_MAX / 4, &n[2]) || !number(f[3], n[2], &n[3]))
        return fault(r, "expected device,NUMBER,REQUESTS,PEAK,BOUND");
    for (unsigned d = 0; d < r->file->device_count; d++)
        if (r->file->devices[d].device == n[0])
            return fault(r, "device %" PRIu64 " for the second time", n[0]);
    if (r->file->device_count == VP_TRACE_DEVICES)
        return fault(r, "a %dth device", VP_TRACE_DEVICES + 1);
    r->device = &r->file->devices[r->file->device_count++];
    *r->device = (struct vp_planned){
        .device = (uint16_t)n[0], .plan = {.peak = n[2]}, .figures = {n[2], n[3], 0, 0, false}};
    r->wanted = n[1];
    r->room = 0;
    return 0;
}

static int request(struct reader *r, char *line) {
    struct vp_stalloc_plan *plan = &r->device->plan;
    char *f[3];
    uint64_t size, stream, offset;
    if (!fields(line, f, 3) || !number(f[0], plan->peak, &size) || !size || size % VP_QUANTUM)
        return fault(r, "expected r,SIZE,STREAM,OFFSET, with a size of whole %d bytes", VP_QUANTUM);
    if (!number(f[1], UINT32_MAX, &stream) || !number(f[2], plan->peak - size, &offset) || offset % VP_QUANTUM)
        return fault(r, "a request that is not within the plan's %" PRIu64 " bytes", plan->peak);
    if (plan->count == r->wanted)
        return fault(r, "more than %zu requests of device %u", r->wanted, r->device->device);
    if (plan->count == r->room) {
        size_t room = r->room ? r->room * 2 : 1024;
        void *places = realloc(plan->places, room * sizeof *plan->places);
        if (!places)
            return -ENOMEM;
        plan->places = places;
        r->room = room;
    }
    plan->places[plan->count++] = (struct vp_stalloc_place){size, offset, (uint32_t)stream};
    return 0;
}

static int phase(struct reader *r, char *line) {
    char *f[2];
    uint64_t first;
    if (!fields(line, f, 2) || !number(f[0], UINT32_MAX, &first) || first != r->device->plan.count || !decode(f[1]))
        return fault(r, "expected p,FIRST,NAME before request FIRST");
    struct vp_planned_phase *p = vp_array_add(&r->device->phases, sizeof *p);
    if (!p)
        return -ENOMEM;
    *p = (struct vp_planned_phase){first, strdup(f[1])};
    return p->name ? 0 : -ENOMEM;
}

static int read_line(struct reader *r, char *line) {
    if (r->line <= 3)
        return header(r, line);
    if (r->ended)
        return fault(r, "more text behind the end");
    if (!strcmp(line, "end")) {
        r->ended = true;
        return close_device(r);
    }
    if (!strncmp(line, "device,", 7))
        return open_device(r, line);
    if (r->device && !strncmp(line, "r,", 2))
        return request(r, line);
    if (r->device && !strncmp(line, "p,", 2))
        return phase(r, line);
    return fault(r, "'%.20s': expected device, p, r or end", line);
}

static int read_lines(struct reader *r, FILE *in) {
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    int err = 0;
    while (!err && (n = getline(&line, &room, in)) >= 0) {
        r->line++;
        if (line[n - 1] != '\n')
            err = fault(r, "the last line is cut off");
        else if (line[--n] = 0, strlen(line) != (size_t)n)
            err = fault(r, "a zero byte");
        else
            err = read_line(r, line);
    }
    free(line);
    return !err && !r->ended ? fault(r, "the plan is cut off: it has no end") : err;
}

int vp_planned_read(struct vp_planned_file *file, const char *path, char *message, size_t room) {
    struct reader r = {.file = file, .path = path, .message = message, .message_room = room};
    struct vp_source s;
    *file = (struct vp_planned_file){0};
    int err = vp_source_open(&s, path);
    if (err) {
        snprintf(message, room, "%s: %s", path, strerror(-err));
        return -EIO;
    }
    err = read_lines(&r, s.file);
    const char *cause = vp_source_close(&s);
    if (cause) {
        err = -EIO;
        snprintf(message, room, "%s:%zu: %s", path, r.line, cause);
    } else if (err == -ENOMEM) {
        snprintf(message, room, "%s: out of memory", path);
    }
    if (err)
        vp_planned_file_finish(file);
    return err;
}
