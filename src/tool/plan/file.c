/* Plans as files: compare/stalloc_file.h has the lines. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/plan/planned.h"

#include "compare/stalloc_file.h"
#include "tool/read/source.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing ---- */

static void put_text(FILE *out, const char *text) {
    for (; *text; text++)
        if ((unsigned char)*text <= ' ' || (unsigned char)*text >= 127 || strchr("%,", *text))
            fprintf(out, "%%%02x", (unsigned char)*text);
        else
            putc(*text, out);
}

static void put_visit(FILE *out, const struct vp_stalloc_plan *plan, const char *name,
                      const struct vp_stalloc_visit *v) {
    fputs("m,", out);
    put_text(out, name);
    for (size_t i = 0; i < v->count; i++)
        fprintf(out, ",%" PRIu64 ",%" PRIu64, plan->spaces[v->first + i].low, plan->spaces[v->first + i].high);
    putc('\n', out);
}

/* The module's name of each visit; NULL: no memory. */
static const char **names_of_visits(const struct vp_stalloc_plan *plan) {
    const char **names = calloc(plan->visit_count + 1, sizeof *names);
    for (size_t m = 0; names && m < plan->module_count; m++)
        for (size_t v = plan->modules[m].first + 1; v; v = plan->visits[v - 1].next)
            names[v - 1] = plan->names + plan->modules[m].name;
    return names;
}

/* Writes the phases and visits that begin before a request, in order. */
static void put_begun(FILE *out, const struct vp_planned *p, const char *const *names, size_t i, size_t *phase,
                      size_t *visit) {
    const struct vp_planned_phase *phases = p->phases.items;
    const struct vp_stalloc_visit *visits = p->plan.visits;
    for (;;) {
        const bool begins = *phase < p->phases.count && phases[*phase].first == i;
        if (*visit < p->plan.visit_count && visits[*visit].at == i && (!begins || visits[*visit].phase <= *phase)) {
            put_visit(out, &p->plan, names[*visit], &visits[*visit]);
            ++*visit;
        } else if (begins) {
            fprintf(out, "p,%zu,", i);
            put_text(out, phases[(*phase)++].name);
            putc('\n', out);
        } else {
            return;
        }
    }
}

static int put_device(FILE *out, const struct vp_planned *p) {
    const struct vp_stalloc_plan *plan = &p->plan;
    const char **names = names_of_visits(plan);
    size_t phase = 0, visit = 0;
    if (!names)
        return -ENOMEM;
    fprintf(out, "device,%u,%zu,%" PRIu64 ",%" PRIu64 "\n", p->device, plan->count, plan->peak, p->figures.lower_bound);
    for (size_t i = 0; i <= plan->count; i++) {
        put_begun(out, p, names, i, &phase, &visit);
        if (i < plan->count)
            fprintf(out, "r,%" PRIu64 ",%" PRIu32 ",%" PRIu64 "\n", plan->places[i].size, plan->places[i].stream,
                    plan->places[i].offset);
    }
    free(names);
    return 0;
}

int vp_planned_write(FILE *out, const struct vp_planned_file *file) {
    size_t visits = 0;
    int err = 0;
    for (unsigned d = 0; d < file->device_count; d++)
        visits += file->devices[d].plan.visit_count;
    /* Without modules, older releases can also read the file. */
    fprintf(out, "vpool-plan,%d\nmade,%s,", visits ? VP_STALLOC_VERSION : 1, VP_VERSION);
    put_text(out, file->trace);
    fprintf(out, "\nplanner,%s\n", file->published ? "stalloc" : "vpool");
    for (unsigned d = 0; d < file->device_count && !err; d++)
        err = put_device(out, &file->devices[d]);
    fputs("end\n", out);
    return err;
}

/* ---- reading ---- */

static void *grow(void *context, void *old, size_t had, size_t wanted) {
    return realloc(old, wanted);
}

static int made(void *context, const char *trace) {
    struct vp_planned_file *file = context;
    file->trace = strdup(trace);
    return file->trace ? 0 : -ENOMEM;
}

static int device(void *context, uint16_t number, uint64_t bound, struct vp_stalloc_plan **plan) {
    struct vp_planned_file *file = context;
    for (unsigned d = 0; d < file->device_count; d++)
        if (file->devices[d].device == number)
            return -EEXIST;
    if (file->device_count == VP_TRACE_DEVICES)
        return -E2BIG;
    struct vp_planned *p = &file->devices[file->device_count++];
    *p = (struct vp_planned){.device = number, .figures = {.lower_bound = bound}};
    *plan = &p->plan;
    return 0;
}

static int phase(void *context, size_t first, const char *name) {
    struct vp_planned_file *file = context;
    struct vp_planned_phase *p = vp_array_add(&file->devices[file->device_count - 1].phases, sizeof *p);
    if (!p)
        return -ENOMEM;
    *p = (struct vp_planned_phase){first, strdup(name)};
    return p->name ? 0 : -ENOMEM;
}

/* The addresses of a module's visit are the longest; without an end a line would take all memory. */
enum { LONGEST_LINE = 1 << 26 };

static int read_lines(struct vp_stalloc_reader *r, struct vp_source *s) {
    char head[64], *line = NULL;
    size_t room = 0;
    bool ended;
    ssize_t n = vp_source_head(s, head, sizeof head, &ended);
    int err = n < 0 ? 0 : vp_stalloc_read_line(r, head, (size_t)n);
    while (!err && (n = vp_source_line(s, &line, &room, LONGEST_LINE))) {
        if (n < 0) {
            r->line++;
            err = n == -E2BIG ? vp_stalloc_fault(r, "a line is too long") : (int)n;
        } else if (line[n - 1] == '\n') {
            line[n - 1] = 0;
            err = vp_stalloc_read_line(r, line, (size_t)n - 1);
        } else {
            r->line++;
            err = vp_stalloc_fault(r, "the last line is cut off");
        }
    }
    free(line);
    return err ? err : vp_stalloc_read_end(r);
}

int vp_planned_read(struct vp_planned_file *file, const char *path, char *message, size_t room) {
    struct vp_stalloc_reader r = {.path = path,
                                  .message = message,
                                  .message_room = room,
                                  .context = file,
                                  .grow = grow,
                                  .made = made,
                                  .device = device,
                                  .phase = phase};
    struct vp_source s;
    *file = (struct vp_planned_file){0};
    int err = vp_source_open(&s, path);
    if (err) {
        snprintf(message, room, "%s: %s", path, strerror(-err));
        return -EIO;
    }
    err = read_lines(&r, &s);
    const char *cause = vp_source_close(&s);
    file->published = r.published;
    for (unsigned d = 0; d < file->device_count; d++)
        file->devices[d].figures.peak = file->devices[d].plan.peak;
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
