/* What a trace of ours holds beside allocations and frees, in lines of five fields. US is the time:
 *   m,NAME,THREAD,0,US             a mark of the program's
 *   b,NAME,THREAD,DEPTH,US         a range of the program's begins, within DEPTH others of its thread
 *   e,,THREAD,DEPTH,US             it ends
 *   w,OTHER,0,STREAM,US            the stream waits for all that the other has been given so far (trace.c)
 *   h,DEVICE,HELD,CALLS,US         the pool of the device holds so many bytes, and has made so many driver calls
 *   x,DEVICE,SIZE,STREAM,US        an allocation found no memory
 *   l,MODULE,BUILDID,PATH,US       a module of native code
 *   n,FRAME,KIND,TEXT,US           a frame: p Python, LINE:FUNCTION:FILE; c native, MODULE:OFFSET; t said in words
 *   s,STACK,PARENT,FRAME,US        a stack: a frame, called by another stack (0: by nobody)
 *   +,,,TEXT,US                    the text of the line before goes on
 * Text is percent-encoded. A record whose text may go on is kept until another begins. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/read/trace_read.h"

#include "tool/read/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The longest text: no name needs more. */
enum { TEXT_MOST = 1 << 16, DEPTH_MOST = 4095 };
/* The most frames of a stack, whatever wrote the trace: the library records at most 193. Some functions that read
 * stacks recurse for each frame. */
enum { FRAMES_MOST = 4096 };

static const uint64_t THREAD_MOST = UINT64_MAX >> 13;

/* ---- text ---- */

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* Decodes a text in place. What is no code stays as it is: old traces did not encode. */
static void decode(char *text) {
    char *out = text;
    for (; *text; text++) {
        int high = *text == '%' ? hex_digit(text[1]) : -1, low = high < 0 ? -1 : hex_digit(text[2]);
        *out++ = low < 0 || !(high | low) ? *text : (char)(high << 4 | low);
        text += low < 0 || !(high | low) ? 0 : 2;
    }
    *out = 0;
}

static int more_text(struct vp_trace_reader *r, const char *text) {
    struct vp_trace_text *t = &r->text;
    size_t n = strlen(text);
    if (t->length + n > TEXT_MOST)
        return vp_trace_fault(r, "a text of more than %d bytes", TEXT_MOST);
    char *longer = realloc(t->text, t->length + n + 1);
    if (!longer)
        return -ENOMEM;
    memcpy(longer + t->length, text, n + 1);
    t->text = longer;
    t->length += n;
    return 0;
}

/* ---- marks and ranges ---- */

static uint64_t range_key(uint64_t thread, uint64_t depth) {
    return thread << 12 | depth;
}

static struct vp_trace_range *range_at(struct vp_trace_reader *r, uint64_t number) {
    return (struct vp_trace_range *)r->trace->ranges.items + number - 1;
}

/* Ends a range. A range that is not open was never seen to begin, so its end is ignored. */
static void end_range(struct vp_trace_reader *r, uint64_t key, uint64_t us) {
    uint64_t number = vp_numbers_get(&r->open, key + 1);
    if (!number)
        return;
    struct vp_trace_range *range = range_at(r, number);
    range->to = r->trace->count;
    range->to_us = us;
    range->open = false;
    vp_numbers_drop(&r->open, key + 1);
}

static int add_mark(struct vp_trace_reader *r, char *name) {
    struct vp_trace_mark *m = vp_array_add(&r->trace->marks, sizeof *m);
    if (!m)
        return -ENOMEM;
    *m = (struct vp_trace_mark){.at = r->trace->count, .us = r->text.us, .thread = r->text.thread, .name = name};
    return 0;
}

static int add_range(struct vp_trace_reader *r, char *name) {
    const struct vp_trace_text *t = &r->text;
    uint64_t key = range_key(t->thread, t->depth);
    end_range(r, key, t->us);
    struct vp_trace_range *range = vp_array_add(&r->trace->ranges, sizeof *range);
    if (!range)
        return -ENOMEM;
    *range = (struct vp_trace_range){.from = r->trace->count,
                                     .from_us = t->us,
                                     .to_us = t->us,
                                     .thread = t->thread,
                                     .depth = (uint32_t)t->depth,
                                     .open = true,
                                     .name = name};
    return vp_numbers_set(&r->open, key + 1, r->trace->ranges.count) < 0 ? -EAGAIN : 0;
}

void vp_trace_close_ranges(struct vp_trace_reader *r) {
    struct vp_trace_range *all = r->trace->ranges.items;
    for (size_t i = 0; i < r->trace->ranges.count; i++)
        if (all[i].open) {
            all[i].to = r->trace->count;
            all[i].to_us = r->last_us;
        }
    free(r->text.text);
    free(r->text.build_id);
    r->text = (struct vp_trace_text){0};
}

/* ---- stacks ---- */

/* Lets a number of the file stand for the next item of a table from now on. */
static int define(struct vp_trace_reader *r, struct vp_numbers *numbers, uint64_t number, const char *name,
                  size_t place) {
    if (vp_numbers_get(numbers, number + 1))
        return vp_trace_fault(r, "%s %" PRIu64 " is defined already", name, number);
    return vp_numbers_set(numbers, number + 1, place);
}

/* Reads LINE:FUNCTION:FILE or MODULE:OFFSET from a text, which the frame then owns. */
static int read_frame(struct vp_trace_reader *r, struct vp_frame *f, char *text) {
    char *second = f->kind == VP_FRAME_TEXT ? NULL : strchr(text, ':');
    char *third = second && f->kind == VP_FRAME_PYTHON ? strchr(second + 1, ':') : NULL;
    uint64_t number = 0;
    if (f->kind == VP_FRAME_TEXT)
        return (f->name = strdup(text)) ? 0 : -ENOMEM;
    if (!second || (f->kind == VP_FRAME_PYTHON && !third))
        return vp_trace_fault(r, "'%.40s' is not a valid frame", text);
    *second++ = 0;
    if (vp_trace_field(r, text, UINT32_MAX, f->kind == VP_FRAME_PYTHON ? "line" : "module", &number) < 0)
        return -EINVAL;
    if (f->kind == VP_FRAME_NATIVE) {
        uint64_t place = vp_numbers_get(&r->modules, number + 1);
        f->module = (uint32_t)place - 1;
        if (!place)
            return vp_trace_fault(r, "module %" PRIu64 " is not defined", number);
        return vp_trace_number(second, 16, &f->offset) ? 0 : vp_trace_fault(r, "'%.40s' is not a valid offset", second);
    }
    *third++ = 0;
    f->line = (uint32_t)number;
    f->name = strdup(second);
    f->file = *third ? strdup(third) : NULL;
    return f->name && (f->file || !*third) ? 0 : -ENOMEM;
}

static int add_frame(struct vp_trace_reader *r, char *text) {
    struct vp_stacks *s = &r->trace->stacks;
    struct vp_frame new = {.kind = r->text.of}, *f = vp_array_add(&s->frames, sizeof *f);
    if (!f)
        return -ENOMEM;
    *f = (struct vp_frame){.kind = VP_FRAME_TEXT};
    int err = read_frame(r, &new, text);
    *f = new;
    return err ? err : define(r, &r->frames, r->text.number, "frame", s->frames.count);
}

static int add_module(struct vp_trace_reader *r, char *path) {
    struct vp_stacks *s = &r->trace->stacks;
    struct vp_module *m = vp_array_add(&s->modules, sizeof *m);
    if (!m)
        return -ENOMEM;
    *m = (struct vp_module){.path = path, .build_id = r->text.build_id};
    r->text.build_id = NULL;
    return define(r, &r->modules, r->text.number, "module", s->modules.count);
}

static int add_stack(struct vp_trace_reader *r, char **f) {
    struct vp_stacks *s = &r->trace->stacks;
    uint64_t number, parent, frame;
    if (vp_trace_field(r, f[1], UINT32_MAX, "stack", &number) < 0 ||
        vp_trace_field(r, f[2], UINT32_MAX, "stack", &parent) < 0 ||
        vp_trace_field(r, f[3], UINT32_MAX, "frame", &frame) < 0)
        return -EINVAL;
    uint64_t outer = parent ? vp_numbers_get(&r->stacks, parent + 1) : 0, of = vp_numbers_get(&r->frames, frame + 1);
    if (!number || (parent && !outer))
        return vp_trace_fault(r, number ? "stack %s is not defined" : "stack %s is none", number ? f[2] : f[1]);
    if (!of)
        return vp_trace_fault(r, "frame %s is not defined", f[3]);
    const uint32_t depth = parent ? vp_stacks_at(s, (uint32_t)outer)->depth + 1 : 1;
    if (depth > FRAMES_MOST)
        return vp_trace_fault(r, "stack %s is of more than %d frames", f[1], FRAMES_MOST);
    struct vp_stack *stack = vp_array_add(&s->stacks, sizeof *stack);
    if (!stack)
        return -ENOMEM;
    *stack = (struct vp_stack){.parent = (uint32_t)outer, .frame = (uint32_t)of - 1, .depth = depth};
    return define(r, &r->stacks, number, "stack", s->stacks.count - 1);
}

/* ---- records ---- */

int vp_trace_record_end(struct vp_trace_reader *r) {
    struct vp_trace_text *t = &r->text;
    int err = 0;
    if (!t->kind)
        return 0;
    char *text = t->text;
    decode(text);
    vp_utf8_repair(text);
    t->text = NULL;
    if (t->kind == 'n') {
        err = add_frame(r, text);
        free(text);
    } else {
        size_t before = r->trace->marks.count + r->trace->ranges.count + r->trace->stacks.modules.count;
        err = t->kind == 'm' ? add_mark(r, text) : t->kind == 'b' ? add_range(r, text) : add_module(r, text);
        if (before == r->trace->marks.count + r->trace->ranges.count + r->trace->stacks.modules.count)
            free(text);
    }
    free(t->build_id);
    *t = (struct vp_trace_text){0};
    return err == -EAGAIN ? -ENOMEM : err;
}

/* Begins a record whose text is the field `text`; its other fields are in `r->text`. */
static int begin_text(struct vp_trace_reader *r, char kind, const char *text) {
    r->text.kind = kind;
    return more_text(r, text);
}

static int begin_frame(struct vp_trace_reader *r, char **f) {
    if (vp_trace_field(r, f[1], UINT32_MAX, "frame", &r->text.number) < 0)
        return -EINVAL;
    if (!*f[2] || f[2][1] || !strchr("pct", *f[2]))
        return vp_trace_fault(r, "unknown kind of frame '%.20s': p, c or t", f[2]);
    r->text.of = *f[2];
    return begin_text(r, 'n', f[3]);
}

static int begin_module(struct vp_trace_reader *r, char **f) {
    if (vp_trace_field(r, f[1], UINT32_MAX, "module", &r->text.number) < 0)
        return -EINVAL;
    if (strspn(f[2], "0123456789abcdefABCDEF") != strlen(f[2]))
        return vp_trace_fault(r, "'%.40s' is not a valid build id", f[2]);
    free(r->text.build_id);
    r->text.build_id = strdup(f[2]);
    return r->text.build_id ? begin_text(r, 'l', f[3]) : -ENOMEM;
}

static int add_held(struct vp_trace_reader *r, char **f, uint64_t us) {
    struct vp_trace_held h = {.at = r->trace->count, .us = us}, *new;
    if (vp_trace_field(r, f[1], UINT16_MAX, "device", &h.device) < 0 ||
        vp_trace_field(r, f[2], UINT64_MAX >> 1, "size", &h.held) < 0 ||
        vp_trace_field(r, f[3], UINT64_MAX >> 1, "count", &h.calls) < 0)
        return -EINVAL;
    if (!(new = vp_array_add(&r->trace->held, sizeof *new)))
        return -ENOMEM;
    *new = h;
    return 0;
}

static int add_addressed(struct vp_trace_reader *r, char **f) {
    struct vp_trace_addressed a, *new;
    uint64_t segments;
    if (vp_trace_field(r, f[1], UINT16_MAX, "device", &a.device) < 0 ||
        vp_trace_field(r, f[2], UINT64_MAX >> 1, "size", &a.bytes) < 0 ||
        vp_trace_field(r, f[3], UINT64_MAX >> 1, "count", &segments) < 0)
        return -EINVAL;
    if (!(new = vp_array_add(&r->trace->addressed, sizeof *new)))
        return -ENOMEM;
    *new = a;
    return 0;
}

static int add_failure(struct vp_trace_reader *r, char **f, uint64_t us) {
    struct vp_trace_failure x = {.at = r->trace->count, .us = us}, *new;
    if (vp_trace_field(r, f[1], UINT16_MAX, "device", &x.device) < 0 ||
        vp_trace_field(r, f[2], UINT64_MAX >> 1, "size", &x.size) < 0 ||
        vp_trace_field(r, f[3], UINT64_MAX - 1, "stream", &x.stream) < 0)
        return -EINVAL;
    if (!(new = vp_array_add(&r->trace->failures, sizeof *new)))
        return -ENOMEM;
    *new = x;
    return 0;
}

int vp_trace_record(struct vp_trace_reader *r, char **f) {
    uint64_t us, thread = 0, depth = 0;
    if (vp_trace_field(r, f[4], UINT64_MAX, "time", &us) < 0)
        return -EINVAL;
    if (*f[0] == '+')
        return r->text.kind ? more_text(r, f[3]) : vp_trace_fault(r, "no text goes on here");
    switch (*f[0]) {
    case 'l': return begin_module(r, f);
    case 'n': return begin_frame(r, f);
    case 's': return add_stack(r, f);
    }
    us = vp_trace_time(r, us);
    switch (*f[0]) {
    case 'h': return add_held(r, f, us);
    case 'v': return add_addressed(r, f);
    case 'x': return add_failure(r, f, us);
    }
    if (vp_trace_field(r, f[2], THREAD_MOST, "thread", &thread) < 0 ||
        vp_trace_field(r, f[3], UINT32_MAX, "depth", &depth) < 0)
        return -EINVAL;
    depth = depth < DEPTH_MOST ? depth : DEPTH_MOST;
    if (*f[0] == 'e') {
        end_range(r, range_key(thread, depth), us);
        return 0;
    }
    r->text.us = us;
    r->text.thread = thread;
    r->text.depth = depth;
    return begin_text(r, *f[0], f[1]);
}
