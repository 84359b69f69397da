/* A trace's blocks, and the places that a planner gives them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/planned.h"

#include "memory/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- phases ---- */

static int by_first(const void *a, const void *b) {
    const struct vp_planned_phase *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

static int add_phase(struct vp_planned *p, size_t at, const char *name) {
    struct vp_planned_phase *phase = vp_array_add(&p->phases, sizeof *phase);
    if (!phase)
        return -ENOMEM;
    *phase = (struct vp_planned_phase){at, strdup(name)};
    return phase->name ? 0 : -ENOMEM;
}

/* A phase begins at each mark, and where an outermost range of a thread begins or ends; for now as places among the
 * events. */
static int take_phases(struct vp_planned *p, const struct vp_trace *trace) {
    const struct vp_trace_mark *marks = trace->marks.items;
    const struct vp_trace_range *ranges = trace->ranges.items;
    int err = 0;
    for (size_t i = 0; i < trace->marks.count && !err; i++)
        err = add_phase(p, marks[i].at, marks[i].name);
    for (size_t i = 0; i < trace->ranges.count && !err; i++) {
        if (ranges[i].depth || !ranges[i].thread)
            continue;
        err = add_phase(p, ranges[i].from, ranges[i].name);
        if (!err && !ranges[i].open)
            err = add_phase(p, ranges[i].to, "");
    }
    if (!err && p->phases.count)
        qsort(p->phases.items, p->phases.count, sizeof(struct vp_planned_phase), by_first);
    return err;
}

/* ---- blocks ---- */

/* What is allocated without a free between lives from the same time: fewer times are less work for the planner, and the
 * same blocks meet. */
struct times {
    uint64_t now;
    bool freed;
};

struct making {
    struct vp_planned *planned;
    const struct vp_trace *trace;
    struct vp_plan_block *blocks;
    uint64_t *phases;   /* times at which phases begin */
    size_t *request_of; /* of the trace's blocks: the request, and one; 0: none that is alive */
    uint64_t least;     /* smaller requests are in no plan */
    struct times times;
    size_t next_phase;
};

static void begin_phases(struct making *m, size_t event) {
    struct vp_planned_phase *phases = m->planned->phases.items;
    for (; m->next_phase < m->planned->phases.count && phases[m->next_phase].first <= event; m->next_phase++) {
        /* What was freed before is of an earlier phase. */
        m->times.now++;
        m->times.freed = true;
        phases[m->next_phase].first = m->planned->plan.count;
        m->phases[m->next_phase] = m->times.now + 1;
    }
}

static void take_event(struct making *m, const struct vp_trace_event *e) {
    struct vp_stalloc_plan *plan = &m->planned->plan;
    if (e->alloc && e->size >= m->least) {
        uint64_t size = vp_round_up(e->size, VP_QUANTUM);
        m->times.now += m->times.freed;
        m->times.freed = false;
        m->blocks[plan->count] = (struct vp_plan_block){.size = size, .begin = m->times.now, .end = UINT64_MAX};
        plan->places[plan->count] = (struct vp_stalloc_place){.size = size, .stream = e->stream};
        m->request_of[e->block] = ++plan->count;
    } else if (!e->alloc && m->request_of[e->block]) {
        m->times.freed = true;
        m->blocks[m->request_of[e->block] - 1].end = m->times.now + 1;
        m->request_of[e->block] = 0;
    }
}

static int place(struct making *m, const struct vp_planned_limits *limits) {
    struct vp_planned *p = m->planned;
    const struct vp_plan_limits most = {limits->capacity, limits->seconds};
    for (size_t i = 0; i < m->trace->count; i++) {
        /* A size that no sum of quanta holds is of no device. */
        if (m->trace->events[i].size > UINT64_MAX / 4)
            return -EINVAL;
        begin_phases(m, i);
        take_event(m, &m->trace->events[i]);
    }
    begin_phases(m, SIZE_MAX);
    for (size_t i = 0; i < p->plan.count; i++)
        if (m->blocks[i].end == UINT64_MAX)
            m->blocks[i].end = m->times.now + 2;
    int err = limits->published ? vp_plan_stalloc(m->blocks, p->plan.count, m->phases, p->phases.count, &p->figures)
                                : vp_plan_place(m->blocks, p->plan.count, &most, &p->figures);
    for (size_t i = 0; i < p->plan.count && !err; i++)
        p->plan.places[i].offset = m->blocks[i].offset;
    p->plan.peak = p->figures.peak;
    return err;
}

int vp_planned_make(struct vp_planned *p, const struct vp_trace *trace, const struct vp_planned_limits *limits) {
    struct making m = {.planned = p, .trace = trace, .least = limits->published ? VP_STALLOC_TINY + 1 : 1};
    *p = (struct vp_planned){.device = trace->devices[0]};
    int err = take_phases(p, trace);
    p->plan.places = calloc(trace->count + 1, sizeof *p->plan.places);
    m.blocks = calloc(trace->count + 1, sizeof *m.blocks);
    m.phases = calloc(p->phases.count + 1, sizeof *m.phases);
    m.request_of = calloc((size_t)trace->blocks + 1, sizeof *m.request_of);
    if (!p->plan.places || !m.blocks || !m.phases || !m.request_of)
        err = -ENOMEM;
    err = err ? err : place(&m, limits);
    free(m.blocks);
    free(m.phases);
    free(m.request_of);
    if (err)
        vp_planned_finish(p);
    return err;
}

int vp_planned_large(struct vp_planned *p, const struct vp_planned *of) {
    const struct vp_planned_phase *phases = of ? of->phases.items : NULL;
    *p = (struct vp_planned){0};
    if (!of)
        return 0;
    *p = (struct vp_planned){.device = of->device, .figures = of->figures, .plan = {.peak = of->plan.peak}};
    p->plan.places = malloc((of->plan.count + 1) * sizeof *p->plan.places);
    int err = p->plan.places ? 0 : -ENOMEM;
    for (size_t i = 0; i < of->phases.count && !err; i++)
        err = add_phase(p, phases[i].first, phases[i].name);
    for (size_t i = 0; i < of->plan.count && !err; i++)
        if (of->plan.places[i].size > VP_STALLOC_TINY)
            p->plan.places[p->plan.count++] = of->plan.places[i];
    if (err)
        vp_planned_finish(p);
    return err;
}

void vp_planned_finish(struct vp_planned *p) {
    struct vp_planned_phase *phases = p->phases.items;
    for (size_t i = 0; i < p->phases.count; i++)
        free(phases[i].name);
    free(p->phases.items);
    free(p->plan.places);
    *p = (struct vp_planned){0};
}

const struct vp_planned *vp_planned_of_device(const struct vp_planned_file *file, uint16_t device) {
    for (unsigned d = 0; d < file->device_count; d++)
        if (file->devices[d].device == device || file->device_count == 1)
            return &file->devices[d];
    return NULL;
}

void vp_planned_file_finish(struct vp_planned_file *file) {
    for (unsigned d = 0; d < file->device_count; d++)
        vp_planned_finish(&file->devices[d]);
    free(file->trace);
    *file = (struct vp_planned_file){0};
}
