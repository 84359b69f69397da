/* PyTorch's memory snapshot (torch.cuda.memory._dump_snapshot), which its memory_viz page opens: the history of events,
 * and the segments with their blocks as they are at the end. Chunks are told as parts of expandable segments are, by
 * segment_map and segment_unmap: the viewer joins neighbours, so that a block may lie in several.
 *
 * The file is a pickle of protocol 2, with no more than the opcodes that the viewer's own reader knows. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/export/export.h"

#include "base/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- a pickle ---- */

/* How many items are appended to a list at once; the viewer keeps all of them on its stack. */
enum { BATCH = 512, WORDS = 64 };

/* Numbers in the memo: words first, then lists of frames by stack, then frames. */

struct pickle {
    FILE *file;
    const char *words[WORDS]; /* those written before, by their number in the pickle's memo */
    unsigned count;
    const struct vp_stacks *stacks;
    bool *written; /* stacks, then frames, that are in the memo */
};

struct list {
    struct pickle *p;
    unsigned open; /* items since the last mark */
};

static void op(struct pickle *p, char code) {
    putc(code, p->file);
}

static void bytes(struct pickle *p, uint64_t n, int count) {
    for (; count > 0; count--, n >>= 8)
        putc((int)(n & 255), p->file);
}

static void put_int(struct pickle *p, uint64_t n) {
    if (n < 256) {
        op(p, 'K');
        bytes(p, n, 1);
    } else if (n < 65536) {
        op(p, 'M');
        bytes(p, n, 2);
    } else if (n <= INT32_MAX) {
        op(p, 'J');
        bytes(p, n, 4);
    } else {
        /* Two's complement: a highest bit that is set would mean a negative number. */
        int length = (64 - __builtin_clzll(n)) / 8 + 1;
        op(p, '\x8a');
        bytes(p, (uint64_t)length, 1);
        bytes(p, n, length < 8 ? length : 8);
        bytes(p, 0, length - 8);
    }
}

/* Writes a text as valid UTF-8, as readers fail on anything else; file names need not be UTF-8. */
static void put_text(struct pickle *p, const char *text) {
    op(p, 'X');
    bytes(p, strlen(text), 4);
    for (size_t length; *text; text += length ? length : 1)
        if ((length = vp_utf8_length((const unsigned char *)text)))
            fwrite(text, 1, length, p->file);
        else
            putc((unsigned char)*text < ' ' ? *text : '?', p->file);
}

/* Writes a word, which the pickle stores only once, as words are repeated often. It must outlive the pickle. */
static void put_word(struct pickle *p, const char *word) {
    unsigned n = 0;
    while (n < p->count && strcmp(p->words[n], word))
        n++;
    if (n < p->count) {
        op(p, 'h');
        bytes(p, n, 1);
        return;
    }
    put_text(p, word);
    if (n < WORDS) {
        p->words[p->count++] = word;
        op(p, 'q');
        bytes(p, n, 1);
    }
}

static void put_bool(struct pickle *p, bool value) {
    op(p, value ? '\x88' : '\x89');
}

static void begin_dict(struct pickle *p) {
    op(p, '}');
    op(p, '(');
}

static void end_dict(struct pickle *p) {
    op(p, 'u');
}

static void member(struct pickle *p, const char *key, uint64_t n) {
    put_word(p, key);
    put_int(p, n);
}

static struct list begin_list(struct pickle *p) {
    op(p, ']');
    return (struct list){p, 0};
}

/* To be called before each item. */
static void item(struct list *l) {
    if (l->open == BATCH) {
        op(l->p, 'e');
        l->open = 0;
    }
    if (!l->open++)
        op(l->p, '(');
}

static void end_list(struct list *l) {
    if (l->open)
        op(l->p, 'e');
}

/* ---- segments ---- */

struct block {
    uint64_t addr, size, asked;
    uint32_t stack;
};

struct stretch {
    uint64_t addr, size;
};

static int by_address(const void *a, const void *b) {
    const uint64_t *x = a, *y = b; /* both structs begin with it */
    return *x < *y ? -1 : *x > *y;
}

static void put_frames(struct pickle *p, const char *name, size_t line) {
    put_word(p, "frames");
    struct list frames = begin_list(p);
    if (name) {
        item(&frames);
        begin_dict(p);
        put_word(p, "name");
        put_word(p, "event");
        put_word(p, "filename");
        put_word(p, name);
        member(p, "line", line);
        end_dict(p);
    }
    end_list(&frames);
}

/* Writes a reference to the memo's entry with that number. True: there is none yet, and the caller must write it. */
static bool is_new(struct pickle *p, size_t number) {
    if (!p->written[number])
        return p->written[number] = true;
    op(p, 'j');
    bytes(p, WORDS + number, 4);
    return false;
}

static void remember(struct pickle *p, size_t number) {
    op(p, 'r');
    bytes(p, WORDS + number, 4);
}

static void put_frame(struct pickle *p, uint32_t number) {
    const struct vp_frame *f = (const struct vp_frame *)p->stacks->frames.items + number;
    char text[256];
    if (!is_new(p, p->stacks->stacks.count + number))
        return;
    begin_dict(p);
    put_word(p, "name");
    put_text(p, f->name ? f->name : vp_frame_text(p->stacks, f, text, sizeof text));
    put_word(p, "filename");
    put_text(p, vp_frame_file(p->stacks, f));
    member(p, "line", f->line);
    end_dict(p);
    remember(p, p->stacks->stacks.count + number);
}

/* The innermost first. */
static void put_stack(struct pickle *p, uint32_t stack) {
    put_word(p, "frames");
    if (!is_new(p, stack))
        return;
    struct list frames = begin_list(p);
    remember(p, stack);
    for (uint32_t at = stack; at; at = vp_stacks_at(p->stacks, at)->parent) {
        item(&frames);
        put_frame(p, vp_stacks_at(p->stacks, at)->frame);
    }
    end_list(&frames);
}

static void put_block(struct list *blocks, uint64_t addr, uint64_t size, uint64_t asked, bool live, uint32_t stack) {
    struct pickle *p = blocks->p;
    if (!size)
        return;
    item(blocks);
    begin_dict(p);
    member(p, "address", addr);
    member(p, "size", size);
    member(p, "requested_size", asked);
    put_word(p, "state");
    put_word(p, live ? "active_allocated" : "inactive");
    if (stack)
        put_stack(p, stack);
    else
        put_frames(p, NULL, 0);
    end_dict(p);
}

/* Writes a segment and the live blocks in it, of which `*at` is the first; advances `*at` past them. */
static void put_segment(struct list *segments, uint64_t device, const struct stretch *s, const struct block *live,
                        size_t count, size_t *at) {
    struct pickle *p = segments->p;
    uint64_t end = s->addr + s->size, taken = 0, asked = 0, next = s->addr;
    for (size_t i = *at; i < count && live[i].addr < end; i++) {
        taken += live[i].size;
        asked += live[i].asked;
    }
    item(segments);
    begin_dict(p);
    member(p, "device", device);
    member(p, "address", s->addr);
    member(p, "total_size", s->size);
    member(p, "allocated_size", taken);
    member(p, "active_size", taken);
    member(p, "requested_size", asked);
    member(p, "stream", 0);
    put_word(p, "segment_type");
    put_word(p, "large");
    put_word(p, "segment_pool_id");
    put_int(p, 0);
    put_int(p, 0);
    op(p, '\x86');
    put_word(p, "is_expandable");
    put_bool(p, true);
    put_frames(p, NULL, 0);
    put_word(p, "blocks");
    struct list blocks = begin_list(p);
    for (; *at < count && live[*at].addr < end; ++*at) {
        const struct block *b = &live[*at];
        put_block(&blocks, next, b->addr - next, 0, false, 0);
        put_block(&blocks, b->addr, b->size, b->asked, true, b->stack);
        next = b->addr + b->size;
    }
    put_block(&blocks, next, end - next, 0, false, 0);
    end_list(&blocks);
    end_dict(p);
}

/* Writes segments: neighbouring stretches are one segment. Sorts everything. */
static void put_segments(struct list *segments, uint64_t device, struct stretch *held, size_t stretches,
                         struct block *live, size_t blocks) {
    size_t at = 0;
    if (stretches)
        qsort(held, stretches, sizeof *held, by_address);
    if (blocks)
        qsort(live, blocks, sizeof *live, by_address);
    for (size_t i = 0; i < stretches;) {
        struct stretch s = held[i++];
        for (; i < stretches && held[i].addr == s.addr + s.size; i++)
            s.size += held[i].size;
        put_segment(segments, device, &s, live, blocks, &at);
    }
}

/* ---- of a trace ---- */

struct walk {
    struct pickle *p;
    const struct vp_record *r;
    const char *name;
    uint64_t device;
    uint32_t *stacks; /* by block */
    struct list events;
    size_t begun, ended; /* mappings */
    size_t *ends;
};

static void put_event(struct walk *w, size_t i, const char *action, uint64_t addr, uint64_t size, bool segment) {
    const struct vp_trace_event *e = &w->r->trace->events[i];
    struct pickle *p = w->p;
    item(&w->events);
    begin_dict(p);
    put_word(p, "action");
    put_word(p, action);
    member(p, "addr", addr);
    member(p, "size", size);
    member(p, "stream", segment ? 0 : e->stream);
    member(p, "time_us", e->us);
    member(p, "device", w->device);
    if (w->stacks[e->block])
        put_stack(p, w->stacks[e->block]);
    else
        put_frames(p, w->name, i + 1);
    end_dict(p);
}

static void put_mappings(struct walk *w, size_t i) {
    const struct vp_record_mapping *m = w->r->mappings.items;
    for (; w->ended < w->r->mappings.count && m[w->ends[w->ended]].to <= i; w->ended++)
        if (m[w->ends[w->ended]].current)
            put_event(w, i, "segment_unmap", m[w->ends[w->ended]].addr, m[w->ends[w->ended]].size, true);
    for (; w->begun < w->r->mappings.count && m[w->begun].from <= i; w->begun++)
        if (m[w->begun].current)
            put_event(w, i, "segment_map", m[w->begun].addr, m[w->begun].size, true);
}

/* Writes the history. `asked` of every block becomes 0 when the block is freed, so what is live at the end remains. */
static void put_history(struct walk *w, uint64_t *asked) {
    const struct vp_trace *t = w->r->trace;
    w->events = begin_list(w->p);
    for (size_t i = 0; i < t->count; i++) {
        const struct vp_trace_event *e = &t->events[i];
        uint64_t addr = w->r->blocks[e->block].addr;
        if (e->alloc) {
            put_mappings(w, i);
            asked[e->block] = e->size;
            if (addr)
                put_event(w, i, "alloc", addr, e->size, false);
            continue;
        }
        if (addr) {
            put_event(w, i, "free_requested", addr, asked[e->block], false);
            put_event(w, i, "free_completed", addr, asked[e->block], false);
        }
        asked[e->block] = 0;
        put_mappings(w, i);
    }
    end_list(&w->events);
}

/* The history of one device into `devices`, and what is left at its end into `segments`, which follow. */
struct end {
    struct stretch *held;
    struct block *live;
    size_t stretches, blocks;
};

static int put_device_trace(struct pickle *p, const struct vp_record *r, const char *name, uint64_t device,
                            struct end *end) {
    const struct vp_record_mapping *m = r->mappings.items;
    const struct vp_trace *t = r->trace;
    struct walk w = {.p = p, .r = r, .name = name, .device = device, .ends = vp_export_ends(r)};
    uint64_t *asked = calloc(t->blocks + 1u, sizeof *asked);
    w.stacks = calloc(t->blocks + 1u, sizeof *w.stacks);
    end->held = malloc((r->mappings.count + 1) * sizeof *end->held);
    end->live = malloc((t->blocks + 1u) * sizeof *end->live);
    int err = w.ends && w.stacks && asked && end->held && end->live ? 0 : -ENOMEM;
    for (size_t i = 0; i < t->count && !err; i++)
        if (t->events[i].alloc)
            w.stacks[t->events[i].block] = t->events[i].stack;
    if (!err)
        put_history(&w, asked);
    for (size_t i = 0; i < r->mappings.count && !err; i++)
        if (m[i].current && m[i].to == t->count)
            end->held[end->stretches++] = (struct stretch){m[i].addr, m[i].size};
    for (uint32_t b = 0; b < t->blocks && !err; b++)
        if (asked[b] && r->blocks[b].addr)
            end->live[end->blocks++] = (struct block){r->blocks[b].addr, r->blocks[b].size, asked[b], w.stacks[b]};
    free(w.ends);
    free(w.stacks);
    free(asked);
    return err;
}

/* The viewer finds a device's history by the device's number, so numbers without a device get an empty one. */
static int put_trace(struct pickle *p, const struct vp_export *from) {
    const struct vp_trace *t = from->trace;
    const char *slash = strrchr(from->name, '/'), *name = slash ? slash + 1 : from->name;
    struct end ends[VP_TRACE_DEVICES] = {0};
    int err = 0;
    p->stacks = &t->stacks;
    p->written = calloc(t->stacks.stacks.count + t->stacks.frames.count + 1, sizeof *p->written);
    put_word(p, "device_traces");
    struct list devices = begin_list(p), segments;
    unsigned d = 0, most = t->device_count ? t->devices[t->device_count - 1] : 0;
    for (unsigned number = 0; number <= most && !err; number++) {
        item(&devices);
        if (d == t->device_count || t->devices[d] != number)
            op(p, ']');
        else
            err = p->written ? put_device_trace(p, &from->records[d], name, number, &ends[d]) : -ENOMEM, d++;
    }
    end_list(&devices);
    put_word(p, "segments");
    segments = begin_list(p);
    for (d = 0; d < t->device_count && !err; d++)
        put_segments(&segments, t->devices[d], ends[d].held, ends[d].stretches, ends[d].live, ends[d].blocks);
    end_list(&segments);
    for (d = 0; d < t->device_count; d++) {
        free(ends[d].held);
        free(ends[d].live);
    }
    free(p->written);
    return err;
}

/* ---- of a dump ---- */

static int put_device(struct list *segments, const struct vp_dump_device *d) {
    struct stretch *held = malloc((d->count + 1) * sizeof *held);
    struct block *live = malloc((d->count + 1) * sizeof *live);
    size_t stretches = 0, blocks = 0;
    int err = held && live ? 0 : -ENOMEM;
    for (size_t i = 0; i < d->count && !err; i++) {
        const struct vp_dump_region *r = &d->regions[i];
        if (r->state == VP_DUMP_LIVE || r->state == VP_DUMP_FREE)
            held[stretches++] = (struct stretch){r->addr, r->size};
        if (r->state == VP_DUMP_LIVE)
            live[blocks++] = (struct block){r->addr, r->size, r->asked ? r->asked : r->size, (uint32_t)r->stack};
    }
    if (!err)
        put_segments(segments, d->device, held, stretches, live, blocks);
    free(held);
    free(live);
    return err;
}

static int put_dump(struct pickle *p, const struct vp_dump_file *dump) {
    uint64_t most = 0;
    p->stacks = &dump->stacks;
    p->written = calloc(dump->stacks.stacks.count + dump->stacks.frames.count + 1, sizeof *p->written);
    int err = p->written ? 0 : -ENOMEM;
    put_word(p, "segments");
    struct list segments = begin_list(p);
    for (size_t i = 0; i < dump->count && !err; i++) {
        err = put_device(&segments, &dump->devices[i]);
        most = dump->devices[i].device >= most && dump->devices[i].device < 64 ? dump->devices[i].device + 1 : most;
    }
    end_list(&segments);
    /* A dump has no history, so each device has an empty one. */
    put_word(p, "device_traces");
    struct list devices = begin_list(p);
    for (uint64_t i = 0; i < most; i++) {
        item(&devices);
        op(p, ']');
    }
    end_list(&devices);
    free(p->written);
    return err;
}

int vp_export_snapshot(FILE *file, const struct vp_export *from) {
    struct pickle p = {.file = file};
    op(&p, '\x80');
    bytes(&p, 2, 1);
    begin_dict(&p);
    int err = from->trace ? put_trace(&p, from) : put_dump(&p, from->dump);
    put_word(&p, "allocator_settings");
    op(&p, '}');
    put_word(&p, "external_annotations");
    op(&p, ']');
    end_dict(&p);
    op(&p, '.');
    return err;
}
