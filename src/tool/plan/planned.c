/* The blocks of a trace, and the places that a planner gives them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/plan/planned.h"

#include "compare/stalloc_file.h"
#include "memory/memory.h"
#include "tool/plan/modules.h"

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

static bool begins_with(const char *name, const char *what) {
    return !strncmp(name, what, strlen(what));
}

/* Does the range begin and end phases? An outermost range does, unless it is a module; an inner one only if it says so.
 */
static bool is_phase(const struct vp_trace_range *range) {
    return begins_with(range->name, "phase:") || begins_with(range->name, "microbatch:") ||
           begins_with(range->name, VP_STALLOC_STEP) || (!range->depth && !begins_with(range->name, VP_STALLOC_MODULE));
}

/* Finds the phases: one begins at each mark, and where such a range begins or ends. Their places are indices of events
 * for now. */
static int take_phases(struct vp_planned *p, const struct vp_trace *trace) {
    const struct vp_trace_mark *marks = trace->marks.items;
    const struct vp_trace_range *ranges = trace->ranges.items;
    int err = 0;
    for (size_t i = 0; i < trace->marks.count && !err; i++)
        err = add_phase(p, marks[i].at, marks[i].name);
    for (size_t i = 0; i < trace->ranges.count && !err; i++) {
        if (!is_phase(&ranges[i]) || !ranges[i].thread)
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

/* Blocks allocated without a free in between begin at the same time. Fewer times make less work for the planner, and
 * the same blocks meet. */
struct times {
    uint64_t now;
    bool freed;
};

/* A request of a module that varies: the visits that made and freed it. */
struct within {
    size_t visit;
    size_t freed_in; /* index plus one; 0: in none */
    uint64_t freed;  /* when; 0: never */
};

struct making {
    struct vp_planned *planned;
    const struct vp_trace *trace;
    struct vp_modules modules;
    struct vp_modules_walk walk;
    struct vp_plan_block *blocks;
    struct vp_array within;            /* of struct within */
    struct vp_plan_stretch *stretches; /* of all visits: when their requests live */
    struct vp_stalloc_visit *begun;    /* of each visit: what had begun before it */
    size_t visits;                     /* begun so far */
    uint64_t *phases;                  /* times at which phases begin */
    size_t phase_count;                /* of these times, as several phases may begin at once */
    size_t *request_of;                /* by block of the trace, its request's index plus one; 0: not alive */
    size_t *within_of;                 /* the same for requests of modules that vary */
    uint64_t least;                    /* smaller requests are in no plan */
    struct times times;
    size_t next_phase;
    size_t step; /* the first phase of the last step; SIZE_MAX: the program marks none */
};

/* Begins a new time, later than all frees and requests so far. */
static void pass_time(struct making *m) {
    m->times.now++;
    m->times.freed = true;
}

/* Begins phases. Phases that begin at the same moment are one phase to the planner. */
static void begin_phases(struct making *m, size_t event) {
    struct vp_planned_phase *phases = m->planned->phases.items;
    for (size_t last = SIZE_MAX; m->next_phase < m->planned->phases.count && phases[m->next_phase].first <= event;
         m->next_phase++) {
        if (phases[m->next_phase].first != last) {
            pass_time(m);
            m->phases[m->phase_count++] = m->times.now + 1;
        }
        last = phases[m->next_phase].first;
        phases[m->next_phase].first = m->planned->plan.count;
    }
}

static bool varies(const struct making *m, size_t visit) {
    return ((const struct vp_visited_module *)m->modules.modules.items)[m->modules.visits[visit].module].varies;
}

/* Begins or ends a visit of a module. What was freed before is free by then. */
static void visit(void *context, size_t range, bool begins) {
    struct making *m = context;
    size_t i = m->visits;
    if (begins)
        m->begun[m->visits++] = (struct vp_stalloc_visit){.at = m->planned->plan.count, .phase = m->next_phase};
    else
        while (m->modules.visits[--i].range != range) {}
    if (!varies(m, i))
        return;
    if (!begins)
        m->stretches[i].end = m->times.now + 2;
    pass_time(m);
    if (begins)
        m->stretches[i].begin = m->times.now + 1;
}

/* ---- events ---- */

static void take_request(struct making *m, const struct vp_trace_event *e) {
    struct vp_stalloc_plan *plan = &m->planned->plan;
    uint64_t size = vp_round_up(e->size, VP_QUANTUM);
    m->times.now += m->times.freed;
    m->times.freed = false;
    m->blocks[plan->count] = (struct vp_plan_block){.size = size, .begin = m->times.now, .end = UINT64_MAX};
    plan->places[plan->count] = (struct vp_stalloc_place){.size = size, .stream = e->stream};
    m->request_of[e->block] = ++plan->count;
}

static int take_event(struct making *m, size_t i) {
    const struct vp_trace_event *e = &m->trace->events[i];
    const uint32_t visit = m->modules.visit_of ? vp_modules_varying(&m->modules, i) : 0;
    if (e->alloc && e->size >= m->least && visit) {
        struct within *w = vp_array_add(&m->within, sizeof *w);
        if (!w)
            return -ENOMEM;
        *w = (struct within){.visit = visit - 1};
        m->within_of[e->block] = m->within.count;
    } else if (e->alloc && e->size >= m->least) {
        take_request(m, e);
    } else if (!e->alloc && m->request_of[e->block]) {
        m->times.freed = true;
        m->blocks[m->request_of[e->block] - 1].end = m->times.now + 1;
        m->request_of[e->block] = 0;
    } else if (!e->alloc && m->within_of[e->block]) {
        struct within *w = (struct within *)m->within.items + m->within_of[e->block] - 1;
        w->freed = m->times.now + 1;
        w->freed_in = visit;
        m->within_of[e->block] = 0;
    }
    return 0;
}

static int go_through(struct making *m) {
    struct vp_planned *p = m->planned;
    int err = 0;
    m->walk = (struct vp_modules_walk){.trace = m->trace, .context = m, .told = visit};
    for (size_t i = 0; i < m->trace->count && !err; i++) {
        /* No device has a size that cannot be rounded up to quanta. */
        if (m->trace->events[i].size > UINT64_MAX / 4)
            return -EINVAL;
        begin_phases(m, i);
        err = m->modules.visit_of ? vp_modules_before(&m->walk, i) : 0;
        err = err ? err : take_event(m, i);
    }
    begin_phases(m, SIZE_MAX);
    for (size_t i = 0; i < p->plan.count; i++)
        if (m->blocks[i].end == UINT64_MAX)
            m->blocks[i].end = m->times.now + 2;
    return err;
}

/* ---- what modules may use ---- */

/* A visit's stretch lasts until the module in which the last of its requests was freed ends. */
static void lengthen(struct making *m) {
    const struct within *within = m->within.items;
    const uint64_t last = m->times.now + 2;
    for (size_t i = 0; i < m->visits; i++)
        if (!m->stretches[i].end)
            m->stretches[i].end = last;
    for (size_t i = 0; i < m->within.count; i++) {
        const struct within *w = &within[i];
        uint64_t end = !w->freed ? last : w->freed_in ? m->stretches[w->freed_in - 1].end : w->freed;
        if (end > m->stretches[w->visit].end)
            m->stretches[w->visit].end = end;
    }
}

/* Returns the module's number in the plan, and adds it if need be. */
static size_t name_module(struct vp_stalloc_plan *plan, const char *name, size_t visit) {
    size_t i = vp_stalloc_module(plan, name), length = strlen(name) + 1;
    if (i < plan->module_count)
        return i;
    memcpy(plan->names + plan->names_size, name, length);
    plan->modules[plan->module_count++] = (struct vp_stalloc_module){
        .name = plan->names_size, .first = visit, .last = visit, .repeat = visit};
    plan->names_size += length;
    return i;
}

/* Links the visits of each module that varies. A longer run continues with those of the last step. */
static void link_visits(struct making *m, struct vp_plan_stretch *stretches) {
    struct vp_stalloc_plan *plan = &m->planned->plan;
    const struct vp_visited_module *modules = m->modules.modules.items;
    for (size_t i = 0; i < m->visits; i++) {
        if (!varies(m, i))
            continue;
        size_t v = plan->visit_count, number = name_module(plan, modules[m->modules.visits[i].module].name, v);
        struct vp_stalloc_module *module = &plan->modules[number];
        if (module->last != v)
            plan->visits[module->last].next = v + 1;
        if (plan->visits[module->repeat].phase <= m->step && m->begun[i].phase > m->step)
            module->repeat = v;
        module->last = v;
        stretches[v] = m->stretches[i];
        plan->visits[plan->visit_count++] = m->begun[i];
    }
}

static int make_room(struct making *m) {
    struct vp_stalloc_plan *plan = &m->planned->plan;
    const struct vp_visited_module *modules = m->modules.modules.items;
    struct vp_plan_stretch *stretches = calloc(m->visits + 1, sizeof *stretches);
    struct vp_plan_spares spares = {0};
    size_t letters = 1;
    for (size_t i = 0; i < m->modules.modules.count; i++)
        letters += strlen(modules[i].name) + 1;
    plan->visits = calloc(m->visits + 1, sizeof *plan->visits);
    plan->modules = calloc(m->modules.modules.count + 1, sizeof *plan->modules);
    plan->names = calloc(letters, 1);
    int err = stretches && plan->visits && plan->modules && plan->names ? 0 : -ENOMEM;
    if (!err) {
        lengthen(m);
        link_visits(m, stretches);
        err = vp_plan_spare(m->blocks, plan->count, plan->peak, stretches, plan->visit_count, &spares);
    }
    plan->spaces = err ? NULL : malloc((spares.count + 1) * sizeof *plan->spaces);
    err = err || plan->spaces ? err : -ENOMEM;
    for (size_t i = 0; i < spares.count && !err; i++)
        plan->spaces[plan->space_count++] = (struct vp_stalloc_space){spares.items[i].low, spares.items[i].high};
    for (size_t i = 0; i < plan->visit_count && !err; i++) {
        plan->visits[i].first = stretches[i].first;
        plan->visits[i].count = stretches[i].count;
    }
    free(stretches);
    free(spares.items);
    return err;
}

/* ---- the whole ---- */

/* Finds the last step, if the program says where its steps begin. */
static void find_step(struct making *m) {
    struct vp_planned *p = m->planned;
    const struct vp_planned_phase *phases = p->phases.items;
    for (size_t i = 0; i < p->phases.count; i++)
        if (begins_with(phases[i].name, VP_STALLOC_STEP)) {
            p->plan.repeat = phases[i].first;
            m->step = i;
        }
}

static int place(struct making *m, const struct vp_planned_limits *limits) {
    struct vp_planned *p = m->planned;
    const struct vp_plan_limits most = {limits->capacity, limits->seconds};
    int err = go_through(m);
    if (err)
        return err;
    find_step(m);
    err = limits->published ? vp_plan_stalloc(m->blocks, p->plan.count, m->phases, m->phase_count, &p->figures)
                            : vp_plan_place(m->blocks, p->plan.count, &most, &p->figures);
    for (size_t i = 0; i < p->plan.count && !err; i++)
        p->plan.places[i].offset = m->blocks[i].offset;
    p->plan.peak = p->figures.peak;
    p->within = m->within.count;
    return err || !m->modules.visit_of ? err : make_room(m);
}

int vp_planned_make(struct vp_planned *p, const struct vp_trace *trace, const struct vp_planned_limits *limits) {
    struct making m = {
        .planned = p, .trace = trace, .step = SIZE_MAX, .least = limits->published ? VP_STALLOC_TINY + 1 : 1};
    *p = (struct vp_planned){.device = trace->devices[0]};
    int err = take_phases(p, trace);
    p->plan.places = calloc(trace->count + 1, sizeof *p->plan.places);
    m.blocks = calloc(trace->count + 1, sizeof *m.blocks);
    m.phases = calloc(p->phases.count + 1, sizeof *m.phases);
    m.stretches = calloc(trace->ranges.count + 1, sizeof *m.stretches);
    m.begun = calloc(trace->ranges.count + 1, sizeof *m.begun);
    m.request_of = calloc((size_t)trace->blocks + 1, sizeof *m.request_of);
    m.within_of = calloc((size_t)trace->blocks + 1, sizeof *m.within_of);
    if (!p->plan.places || !m.blocks || !m.phases || !m.stretches || !m.begun || !m.request_of || !m.within_of)
        err = -ENOMEM;
    if (!err && limits->published && trace->ranges.count)
        err = vp_modules_find(&m.modules, trace, m.least);
    err = err ? err : place(&m, limits);
    vp_modules_walked(&m.walk);
    vp_modules_finish(&m.modules);
    free(m.within.items);
    free(m.blocks);
    free(m.phases);
    free(m.stretches);
    free(m.begun);
    free(m.request_of);
    free(m.within_of);
    if (err)
        vp_planned_finish(p);
    return err;
}

const char *vp_planned_error(int err) {
    return err == -EINVAL ? "it asks for more bytes than any device has addresses" : strerror(-err);
}

/* ---- copies ---- */

/* Copies bytes. NULL: no memory; an empty copy is not NULL. */
static void *copy(const void *of, size_t bytes) {
    void *mem = malloc(bytes + 1);
    if (mem && bytes)
        memcpy(mem, of, bytes);
    return mem;
}

static int copy_modules(struct vp_stalloc_plan *p, const struct vp_stalloc_plan *of) {
    p->modules = copy(of->modules, of->module_count * sizeof *p->modules);
    p->visits = copy(of->visits, of->visit_count * sizeof *p->visits);
    p->spaces = copy(of->spaces, of->space_count * sizeof *p->spaces);
    p->names = copy(of->names, of->names_size);
    if (!p->modules || !p->visits || !p->spaces || !p->names)
        return -ENOMEM;
    p->module_count = of->module_count;
    p->visit_count = of->visit_count;
    p->space_count = of->space_count;
    p->names_size = of->names_size;
    return 0;
}

int vp_planned_large(struct vp_planned *p, const struct vp_planned *of) {
    const struct vp_planned_phase *phases = of ? of->phases.items : NULL;
    *p = (struct vp_planned){0};
    if (!of)
        return 0;
    *p = (struct vp_planned){
        .device = of->device, .figures = of->figures, .within = of->within, .plan = {.peak = of->plan.peak}};
    p->plan.places = malloc((of->plan.count + 1) * sizeof *p->plan.places);
    int err = p->plan.places ? copy_modules(&p->plan, &of->plan) : -ENOMEM;
    for (size_t i = 0; i < of->phases.count && !err; i++)
        err = add_phase(p, phases[i].first, phases[i].name);
    for (size_t i = 0; i < of->plan.count && !err; i++) {
        if (i == of->plan.repeat)
            p->plan.repeat = p->plan.count;
        if (of->plan.places[i].size > VP_STALLOC_TINY)
            p->plan.places[p->plan.count++] = of->plan.places[i];
    }
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
    free(p->plan.modules);
    free(p->plan.visits);
    free(p->plan.spaces);
    free(p->plan.names);
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
