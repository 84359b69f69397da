/* Reads the stacks of dumps. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/read/dump_stacks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char no_memory[] = "out of memory";

/* Stacks that the library records have at most 193 frames. */
enum { DEEPEST = 4096 };

struct frame {
    uint64_t number; /* 0: a holder's */
    uint64_t line, address;
    char *function, *file, *module, *build_id, *text;
    unsigned row;
    bool of_holder;
};

struct stack {
    uint64_t number, parent, frame;
    unsigned row;
};

/* Reads a number; 0 if it can be none. */
static uint64_t number_of(const char *value) {
    const uint64_t n = strtoull(value, NULL, 10);
    return n < UINT32_MAX ? n : 0;
}

/* Returns the last frame, or a new one if a new row begins. */
static struct frame *frame_of(struct vp_dump_stacks *d, unsigned row, bool of_holder) {
    struct frame *last = d->frames.count ? (struct frame *)d->frames.items + d->frames.count - 1 : NULL;
    if (last && last->row == row && last->of_holder == of_holder)
        return last;
    if (!(last = vp_array_add(&d->frames, sizeof *last)))
        return NULL;
    *last = (struct frame){.row = row, .of_holder = of_holder};
    return last;
}

static int set(struct frame *f, const char *field, const char *value) {
    struct {
        const char *name;
        char **to;
    } texts[] = {{"function", &f->function},
                 {"file", &f->file},
                 {"module", &f->module},
                 {"build_id", &f->build_id},
                 {"text", &f->text}};
    if (!strcmp(field, "frame"))
        f->number = number_of(value);
    else if (!strcmp(field, "line"))
        f->line = strtoull(value, NULL, 10);
    else if (!strcmp(field, "address"))
        f->address = strtoull(value, NULL, 16);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!strcmp(field, texts[i].name)) {
            free(*texts[i].to);
            if (!(*texts[i].to = strdup(value)))
                return -ENOMEM;
        }
    return 0;
}

int vp_dump_stacks_frame(struct vp_dump_stacks *d, unsigned row, const char *field, const char *value) {
    struct frame *f = frame_of(d, row, false);
    return f ? set(f, field, value) : -ENOMEM;
}

int vp_dump_stacks_holder(struct vp_dump_stacks *d, unsigned row, const char *field, const char *value) {
    struct frame *f = frame_of(d, row, true);
    return f ? set(f, field, value) : -ENOMEM;
}

int vp_dump_stacks_stack(struct vp_dump_stacks *d, unsigned row, const char *field, const char *value) {
    struct stack *s = d->stacks.count ? (struct stack *)d->stacks.items + d->stacks.count - 1 : NULL;
    if (!s || s->row != row) {
        if (!(s = vp_array_add(&d->stacks, sizeof *s)))
            return -ENOMEM;
        *s = (struct stack){.row = row};
    }
    const uint64_t n = number_of(value);
    if (!strcmp(field, "stack"))
        s->number = n;
    else if (!strcmp(field, "parent"))
        s->parent = n;
    else if (!strcmp(field, "frame"))
        s->frame = n;
    return 0;
}

/* ---- what they make ---- */

static bool same(const char *a, const char *b) {
    return !strcmp(a ? a : "", b ? b : "");
}

/* Finds or adds a module, and takes the frame's texts. Returns its index; -1: no memory. */
static int64_t module_of(struct vp_stacks *out, struct frame *f) {
    const struct vp_module *known = out->modules.items;
    for (size_t i = 0; i < out->modules.count; i++)
        if (same(known[i].path, f->module) && same(known[i].build_id, f->build_id))
            return (int64_t)i;
    struct vp_module *m = vp_array_add(&out->modules, sizeof *m);
    if (!m)
        return -1;
    *m = (struct vp_module){.path = f->module, .build_id = f->build_id ? f->build_id : strdup("")};
    f->module = f->build_id = NULL;
    return m->build_id ? (int64_t)out->modules.count - 1 : -1;
}

/* Makes a frame. One without its texts becomes a frame of words that says so. */
static const char *make_frame(struct vp_stacks *out, struct frame *f) {
    struct vp_frame *made = vp_array_add(&out->frames, sizeof *made);
    if (!made)
        return no_memory;
    *made = (struct vp_frame){.kind = VP_FRAME_TEXT};
    if (f->module) {
        const int64_t module = module_of(out, f);
        if (module < 0)
            return no_memory;
        made->kind = VP_FRAME_NATIVE;
        made->module = (uint32_t)module;
        made->offset = f->address;
        return NULL;
    }
    made->kind = f->text || !f->file ? VP_FRAME_TEXT : VP_FRAME_PYTHON;
    made->name = f->text ? f->text : f->function ? f->function : strdup("?");
    if (made->kind == VP_FRAME_PYTHON) {
        made->file = f->file;
        made->line = f->line > UINT32_MAX ? 0 : (uint32_t)f->line;
        f->file = NULL;
    }
    *(f->text ? &f->text : &f->function) = NULL;
    return made->name ? NULL : no_memory;
}

static const char *make_stacks(struct vp_dump_stacks *d, struct vp_stacks *out, const struct vp_numbers *frames) {
    const struct stack *s = d->stacks.items;
    for (size_t i = 0; i < d->stacks.count; i++) {
        const uint64_t frame = vp_numbers_get(frames, s[i].frame + 1);
        const uint32_t parent = s[i].parent ? vp_dump_stacks_at(d, s[i].parent) : 0;
        if (!s[i].number || !frame || (s[i].parent && !parent))
            return "one of its stacks has a caller or a frame that is missing";
        if (vp_dump_stacks_at(d, s[i].number))
            return "two of its stacks have the same number";
        const uint32_t depth = vp_stacks_at(out, parent)->depth + 1;
        if (depth > DEEPEST)
            return "one of its stacks is too deep";
        struct vp_stack *made = vp_array_add(&out->stacks, sizeof *made);
        if (!made || vp_numbers_set(&d->numbers, s[i].number + 1, out->stacks.count - 1))
            return no_memory;
        *made = (struct vp_stack){.parent = parent, .frame = (uint32_t)frame - 1, .depth = depth};
    }
    return NULL;
}

const char *vp_dump_stacks_make(struct vp_dump_stacks *d, struct vp_stacks *out) {
    struct vp_numbers numbers = {0};
    struct frame *f = d->frames.items;
    const char *fault = NULL;
    struct vp_stack *none = vp_array_add(&out->stacks, sizeof *none);
    if (!none)
        return no_memory;
    *none = (struct vp_stack){0};
    for (size_t i = 0; i < d->frames.count && !fault; i++) {
        fault = make_frame(out, &f[i]);
        if (!fault && f[i].number && vp_numbers_set(&numbers, f[i].number + 1, out->frames.count))
            fault = no_memory;
    }
    fault = fault ? fault : make_stacks(d, out, &numbers);
    vp_numbers_finish(&numbers);
    return fault;
}

uint32_t vp_dump_stacks_at(const struct vp_dump_stacks *d, uint64_t number) {
    return number && number < UINT32_MAX ? (uint32_t)vp_numbers_get(&d->numbers, number + 1) : 0;
}

void vp_dump_stacks_finish(struct vp_dump_stacks *d) {
    struct frame *f = d->frames.items;
    for (size_t i = 0; i < d->frames.count; i++) {
        free(f[i].function);
        free(f[i].file);
        free(f[i].module);
        free(f[i].build_id);
        free(f[i].text);
    }
    free(d->frames.items);
    free(d->stacks.items);
    vp_numbers_finish(&d->numbers);
    *d = (struct vp_dump_stacks){0};
}
