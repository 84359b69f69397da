/* Reads plans line by line, and checks every number. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "compare/stalloc_file.h"

#include "base/log.h"
#include "memory/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int vp_stalloc_fault(struct vp_stalloc_reader *r, const char *format, ...) {
    va_list args;
    int n = snprintf(r->message, r->message_room, "%s:%zu: ", r->path, r->line);
    va_start(args, format);
    if (n >= 0 && (size_t)n < r->message_room) {
        vsnprintf(r->message + n, r->message_room - (size_t)n, format, args);
        vp_log_make_plain(r->message + n);
    }
    va_end(args);
    return -EINVAL;
}

/* ---- fields ---- */

/* Reads a number of decimal digits only, at most `most`. */
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

/* Decodes a text in place. False: it is not encoded as ours are. */
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

/* Splits a line into exactly `count` fields after the first one. */
static bool fields(char *line, char **f, size_t count) {
    size_t n = 0;
    strsep(&line, ",");
    while (line && n < count)
        f[n++] = strsep(&line, ",");
    return n == count && !line;
}

size_t vp_stalloc_room(size_t count) {
    size_t room = count ? 256 : 0;
    while (room < count)
        room *= 2;
    return room;
}

/* Makes room for another item of `size` bytes after `count` items. */
static void *add(struct vp_stalloc_reader *r, void *items, size_t *room, size_t count, size_t size) {
    char *array = *(void **)items;
    if (count == *room) {
        size_t more = vp_stalloc_room(count + 1);
        if (!(array = r->grow(r->context, array, *room * size, more * size)))
            return NULL;
        *(void **)items = array;
        *room = more;
    }
    return array + count * size;
}

/* ---- lines ---- */

static int header(struct vp_stalloc_reader *r, char *line) {
    char *f[2];
    uint64_t version;
    if (r->line == 1) {
        if (strncmp(line, "vpool-plan,", 11) || !number(line + 11, UINT64_MAX, &version))
            return vp_stalloc_fault(r, "it does not begin with the header of a plan, vpool-plan,%d",
                                    VP_STALLOC_VERSION);
        r->version = version <= VP_STALLOC_VERSION ? (unsigned)version : 0;
        return r->version ? 0
                          : vp_stalloc_fault(r, "a plan of version %" PRIu64 ": this vpool reads versions 1 to %d",
                                             version, VP_STALLOC_VERSION);
    }
    if (r->line == 2) {
        if (strncmp(line, "made,", 5) || !fields(line, f, 2) || !decode(f[1]))
            return vp_stalloc_fault(r, "expected made,BY,TRACE");
        return r->made ? r->made(r->context, f[1]) : 0;
    }
    r->published = !strcmp(line, "planner,stalloc");
    return r->published || !strcmp(line, "planner,vpool")
               ? 0
               : vp_stalloc_fault(r, "expected planner,vpool or planner,stalloc");
}

static int close_device(struct vp_stalloc_reader *r) {
    if (r->open && r->count != r->wanted)
        return vp_stalloc_fault(r, "%zu requests of device %u, which has %zu", r->count, r->number, r->wanted);
    return 0;
}

static int open_device(struct vp_stalloc_reader *r, char *line) {
    char *f[4];
    uint64_t n[4];
    int err = close_device(r);
    if (err)
        return err;
    if (!fields(line, f, 4) || !number(f[0], UINT16_MAX, &n[0]) || !number(f[1], UINT32_MAX, &n[1]) ||
        !number(f[2], UINT64_MAX / 4, &n[2]) || !number(f[3], n[2], &n[3]))
        return vp_stalloc_fault(r, "expected device,NUMBER,REQUESTS,PEAK,BOUND");
    r->plan = NULL;
    err = r->device(r->context, (uint16_t)n[0], n[3], &r->plan);
    if (err == -EEXIST)
        return vp_stalloc_fault(r, "device %" PRIu64 " for the second time", n[0]);
    if (err == -E2BIG)
        return vp_stalloc_fault(r, "more devices than any machine has");
    if (err)
        return err;
    r->open = true;
    r->number = (uint16_t)n[0];
    r->wanted = n[1];
    r->peak = n[2];
    r->count = r->phases = r->step = 0;
    memset(&r->room, 0, sizeof r->room);
    if (r->plan)
        r->plan->peak = r->peak;
    return 0;
}

static int request(struct vp_stalloc_reader *r, char *line) {
    char *f[3];
    uint64_t size, stream, offset;
    if (!fields(line, f, 3) || !number(f[0], r->peak, &size) || !size || size % VP_QUANTUM)
        return vp_stalloc_fault(r, "expected r,SIZE,STREAM,OFFSET, with a size of whole %d bytes", VP_QUANTUM);
    if (!number(f[1], UINT32_MAX, &stream) || !number(f[2], r->peak - size, &offset) || offset % VP_QUANTUM)
        return vp_stalloc_fault(r, "a request that is not within the plan's %" PRIu64 " bytes", r->peak);
    if (r->count == r->wanted)
        return vp_stalloc_fault(r, "more than %zu requests of device %u", r->wanted, r->number);
    if (r->plan) {
        struct vp_stalloc_place *place = add(r, &r->plan->places, &r->room.places, r->count, sizeof *place);
        if (!place)
            return -ENOMEM;
        *place = (struct vp_stalloc_place){size, offset, (uint32_t)stream};
        r->plan->count++;
    }
    r->count++;
    return 0;
}

/* Reads a phase. If it begins a step, a longer run continues there after the end of the plan. */
static int phase(struct vp_stalloc_reader *r, char *line) {
    char *f[2];
    uint64_t first;
    if (!fields(line, f, 2) || !number(f[0], UINT32_MAX, &first) || first != r->count || !decode(f[1]))
        return vp_stalloc_fault(r, "expected p,FIRST,NAME before request FIRST");
    if (r->plan && !strncmp(f[1], VP_STALLOC_STEP, strlen(VP_STALLOC_STEP))) {
        r->plan->repeat = first;
        r->step = r->plan->visit_count;
    }
    r->phases++;
    return r->phase ? r->phase(r->context, first, f[1]) : 0;
}

size_t vp_stalloc_module(const struct vp_stalloc_plan *plan, const char *name) {
    size_t i = 0;
    while (i < plan->module_count && strcmp(plan->names + plan->modules[i].name, name))
        i++;
    return i;
}

/* Finds a module, or adds it. 0 or -ENOMEM. */
static int find_module(struct vp_stalloc_reader *r, const char *name, struct vp_stalloc_module **out) {
    struct vp_stalloc_plan *plan = r->plan;
    size_t i = vp_stalloc_module(plan, name), length = strlen(name) + 1;
    if (i == plan->module_count) {
        struct vp_stalloc_module *new = add(r, &plan->modules, &r->room.modules, i, sizeof *new);
        for (size_t k = 0; new && k < length; k++) {
            char *c = add(r, &plan->names, &r->room.names, plan->names_size + k, 1);
            if (!c)
                return -ENOMEM;
            *c = name[k];
        }
        if (!new)
            return -ENOMEM;
        *new = (struct vp_stalloc_module){.name = plan->names_size, .first = SIZE_MAX};
        plan->names_size += length;
        plan->module_count++;
    }
    *out = &plan->modules[i];
    return 0;
}

static int add_visit(struct vp_stalloc_reader *r, const char *name) {
    struct vp_stalloc_plan *plan = r->plan;
    struct vp_stalloc_module *module;
    struct vp_stalloc_visit *visit = add(r, &plan->visits, &r->room.visits, plan->visit_count, sizeof *visit);
    if (!visit || find_module(r, name, &module))
        return -ENOMEM;
    *visit = (struct vp_stalloc_visit){.first = plan->space_count, .at = r->count, .phase = r->phases};
    if (module->first == SIZE_MAX)
        module->first = module->repeat = plan->visit_count;
    else
        plan->visits[module->last].next = plan->visit_count + 1;
    if (module->repeat < r->step)
        module->repeat = plan->visit_count;
    module->last = plan->visit_count++;
    return 0;
}

static int visit(struct vp_stalloc_reader *r, char *line) {
    uint64_t low, high, end = 0;
    char *rest = line, *name;
    strsep(&rest, ",");
    name = strsep(&rest, ",");
    if (r->version < 2 || !decode(name))
        return vp_stalloc_fault(r, r->version < 2 ? "a visit of a module in a plan of version %u" : "no name",
                                r->version);
    int err = r->plan ? add_visit(r, name) : 0;
    while (!err && rest) {
        const char *from = strsep(&rest, ","), *to = rest ? strsep(&rest, ",") : "";
        if (!number(from, r->peak, &low) || !number(to, r->peak, &high) || low < end || low >= high ||
            (low | high) % VP_QUANTUM)
            return vp_stalloc_fault(r, "expected m,NAME,LOW,HIGH,…, in order and within the plan");
        end = high;
        if (!r->plan)
            continue;
        struct vp_stalloc_space *space = add(r, &r->plan->spaces, &r->room.spaces, r->plan->space_count, sizeof *space);
        if (!space)
            return -ENOMEM;
        *space = (struct vp_stalloc_space){low, high};
        r->plan->space_count++;
        r->plan->visits[r->plan->visit_count - 1].count++;
    }
    return err;
}

int vp_stalloc_read_line(struct vp_stalloc_reader *r, char *line, size_t length) {
    r->line++;
    if (strlen(line) != length)
        return vp_stalloc_fault(r, "a zero byte");
    if (r->line <= 3)
        return header(r, line);
    if (r->ended)
        return vp_stalloc_fault(r, "more text behind the end");
    if (!strcmp(line, "end")) {
        r->ended = true;
        return close_device(r);
    }
    if (!strncmp(line, "device,", 7))
        return open_device(r, line);
    if (r->open && !strncmp(line, "r,", 2))
        return request(r, line);
    if (r->open && !strncmp(line, "p,", 2))
        return phase(r, line);
    if (r->open && !strncmp(line, "m,", 2))
        return visit(r, line);
    return vp_stalloc_fault(r, "'%.20s': expected device, p, m, r or end", line);
}

int vp_stalloc_read_end(struct vp_stalloc_reader *r) {
    return r->ended ? 0 : vp_stalloc_fault(r, "the plan is cut off: it has no end");
}
