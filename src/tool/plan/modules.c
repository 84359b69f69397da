/* Finds the modules of a recorded program, and whether all visits of a module make the same requests. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/plan/modules.h"

#include "compare/stalloc.h"

#include <errno.h>
#include <string.h>

static const char PHASE[] = "phase:", MICROBATCH[] = "microbatch:";

static bool begins_with(const char *name, const char *what) {
    return !strncmp(name, what, strlen(what));
}

/* ---- the walk ---- */

static bool is_module(const struct vp_trace_range *range) {
    return begins_with(range->name, VP_STALLOC_MODULE);
}

static void end_those_before(struct vp_modules_walk *w, size_t event) {
    const struct vp_trace_range *ranges = w->trace->ranges.items;
    size_t *open = w->open.items, kept = 0;
    for (size_t i = w->open.count; i; i--)
        if (ranges[open[i - 1]].to <= event)
            w->told(w->context, open[i - 1], false);
    for (size_t i = 0; i < w->open.count; i++)
        if (ranges[open[i]].to > event)
            open[kept++] = open[i];
    w->open.count = kept;
}

int vp_modules_before(struct vp_modules_walk *w, size_t event) {
    const struct vp_trace_range *ranges = w->trace->ranges.items;
    if (w->open.count)
        end_those_before(w, event);
    for (; w->next < w->trace->ranges.count && ranges[w->next].from <= event; w->next++) {
        if (!is_module(&ranges[w->next]))
            continue;
        w->told(w->context, w->next, true);
        if (ranges[w->next].to <= event) {
            w->told(w->context, w->next, false);
            continue;
        }
        size_t *open = vp_array_add(&w->open, sizeof *open);
        if (!open)
            return -ENOMEM;
        *open = w->next;
    }
    return 0;
}

void vp_modules_walked(struct vp_modules_walk *w) {
    free(w->open.items);
    w->open = (struct vp_array){0};
}

/* ---- visits ---- */

struct finding {
    struct vp_modules *m;
    const struct vp_trace *trace;
    struct vp_array open; /* of uint32_t: indices of visits, plus one, in order of beginning */
    const char *microbatch, *phase;
    size_t next_mark, next_range;
    int err;
};

static size_t module_of(struct finding *f, const char *name) {
    struct vp_visited_module *modules = f->m->modules.items;
    for (size_t i = 0; i < f->m->modules.count; i++)
        if (!strcmp(modules[i].name, name))
            return i;
    struct vp_visited_module *new = vp_array_add(&f->m->modules, sizeof *new);
    if (new)
        *new = (struct vp_visited_module){.name = name};
    else
        f->err = -ENOMEM;
    return f->m->modules.count - 1;
}

static void note(void *context, size_t range, bool begins) {
    struct finding *f = context;
    const struct vp_trace_range *ranges = f->trace->ranges.items;
    uint32_t *open = f->open.items;
    if (begins) {
        f->m->visits[f->m->count] = (struct vp_module_visit){.range = range,
                                                             .module = module_of(f, ranges[range].name),
                                                             .microbatch = f->microbatch,
                                                             .phase = f->phase,
                                                             .signature = 1};
        uint32_t *last = vp_array_add(&f->open, sizeof *last);
        if (last)
            *last = (uint32_t)++f->m->count;
        else
            f->err = -ENOMEM;
        return;
    }
    for (size_t i = f->open.count; i; i--)
        if (f->m->visits[open[i - 1] - 1].range == range) {
            memmove(&open[i - 1], &open[i], (f->open.count - i) * sizeof *open);
            f->open.count--;
            return;
        }
}

static void enter_phase(struct finding *f, const char *name) {
    if (begins_with(name, PHASE))
        f->phase = name;
    if (begins_with(name, MICROBATCH))
        f->microbatch = name;
}

/* Enters the phase that begins last before the event, at a mark or a range. The end of a range begins the next phase.
 */
static void enter_phases(struct finding *f, size_t event) {
    const struct vp_trace_mark *marks = f->trace->marks.items;
    const struct vp_trace_range *ranges = f->trace->ranges.items;
    for (; f->next_mark < f->trace->marks.count && marks[f->next_mark].at <= event; f->next_mark++)
        enter_phase(f, marks[f->next_mark].name);
    for (; f->next_range < f->trace->ranges.count && ranges[f->next_range].from <= event; f->next_range++)
        enter_phase(f, ranges[f->next_range].name);
}

static int go_through(struct finding *f, uint64_t least) {
    struct vp_modules_walk walk = {.trace = f->trace, .context = f, .told = note};
    for (size_t i = 0; i < f->trace->count && !f->err; i++) {
        const struct vp_trace_event *e = &f->trace->events[i];
        const uint32_t *open;
        enter_phases(f, i);
        int err = vp_modules_before(&walk, i);
        f->err = f->err ? f->err : err;
        open = f->open.items;
        f->m->visit_of[i] = f->open.count ? open[f->open.count - 1] : 0;
        if (f->m->visit_of[i] && e->alloc && e->size >= least) {
            struct vp_module_visit *visit = &f->m->visits[f->m->visit_of[i] - 1];
            visit->signature = (visit->signature ^ e->size) * UINT64_C(0x9e3779b97f4a7c15);
        }
    }
    vp_modules_walked(&walk);
    free(f->open.items);
    return f->err;
}

/* ---- which vary ---- */

static int by_module(const void *a, const void *b) {
    const struct vp_module_visit *const *x = a, *const *y = b;
    if ((*x)->module != (*y)->module)
        return (*x)->module < (*y)->module ? -1 : 1;
    int order = strcmp((*x)->phase, (*y)->phase);
    order = order ? order : strcmp((*x)->microbatch, (*y)->microbatch);
    return order ? order : ((*x)->range > (*y)->range) - ((*x)->range < (*y)->range);
}

/* Of three or more visits, the first does not count: programs allocate their workspaces in it. */
static bool differ(struct vp_module_visit *const *visits, size_t count) {
    for (size_t i = count > 2 ? 2 : 1; i < count; i++)
        if (visits[i]->signature != visits[i - 1]->signature)
            return true;
    return false;
}

static int compare_visits(struct vp_modules *m) {
    struct vp_module_visit **sorted = malloc((m->count + 1) * sizeof *sorted);
    struct vp_visited_module *modules = m->modules.items;
    if (!sorted)
        return -ENOMEM;
    for (size_t i = 0; i < m->count; i++)
        sorted[i] = &m->visits[i];
    qsort(sorted, m->count, sizeof(struct vp_module_visit *), by_module);
    for (size_t from = 0, to; from < m->count; from = to) {
        for (to = from + 1; to < m->count && sorted[to]->module == sorted[from]->module &&
                            !strcmp(sorted[to]->phase, sorted[from]->phase) &&
                            !strcmp(sorted[to]->microbatch, sorted[from]->microbatch);)
            to++;
        modules[sorted[from]->module].varies |= differ(sorted + from, to - from);
    }
    free(sorted);
    return 0;
}

int vp_modules_find(struct vp_modules *m, const struct vp_trace *trace, uint64_t least) {
    struct finding f = {.m = m, .trace = trace, .microbatch = "", .phase = ""};
    *m = (struct vp_modules){.visits = calloc(trace->ranges.count + 1, sizeof *m->visits),
                             .visit_of = calloc(trace->count + 1, sizeof *m->visit_of)};
    if (!m->visits || !m->visit_of)
        return -ENOMEM;
    int err = go_through(&f, least);
    return err ? err : compare_visits(m);
}

void vp_modules_finish(struct vp_modules *m) {
    free(m->visits);
    free(m->visit_of);
    free(m->modules.items);
    *m = (struct vp_modules){0};
}

uint32_t vp_modules_varying(const struct vp_modules *m, size_t event) {
    const struct vp_visited_module *modules = m->modules.items;
    const uint32_t visit = m->visit_of[event];
    return visit && modules[m->visits[visit - 1].module].varies ? visit : 0;
}
