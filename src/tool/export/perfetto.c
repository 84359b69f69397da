/* Chrome's trace event format, for https://ui.perfetto.dev. Times are in microseconds, as in the program; the durations
 * of driver calls are modelled, and a slice is cut where the next event of its stream begins. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/export/export.h"
#include "tool/out.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Blocks from this size on get a slice: they are few, and make up nearly all bytes. */
enum { LARGE = 1 << 20 };

static const char *const call_names[] = {
#define CALL_NAME(name, function) #function,
    VP_RECORD_CALLS(CALL_NAME)
#undef CALL_NAME
};

static void name_of(FILE *file, const char *what, unsigned pid, unsigned tid, const char *name) {
    fprintf(file, "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%u,\"tid\":%u,\"args\":{\"name\":", what, pid, tid);
    vp_out_string(file, name);
    fputs("}},\n", file);
}

static void counter(FILE *file, unsigned pid, uint64_t us, const char *name, uint64_t bytes) {
    fprintf(file, "{\"ph\":\"C\",\"name\":\"%s\",\"pid\":%u,\"ts\":%" PRIu64 ",\"args\":{\"bytes\":%" PRIu64 "}},\n",
            name, pid, us, bytes);
}

static void waste(FILE *file, unsigned pid, uint64_t us, uint64_t internal, uint64_t pinned, uint64_t pending,
                  uint64_t idle) {
    const struct {
        const char *name;
        uint64_t bytes;
    } all[] = {
        {"waste: internal", internal}, {"waste: pinned", pinned}, {"waste: pending", pending}, {"waste: idle", idle}};
    for (int i = 0; i < 4; i++)
        counter(file, pid, us, all[i].name, all[i].bytes);
}

/* The state of a walk through a trace. */
struct walk {
    FILE *file;
    unsigned pid;
    const struct vp_record *r;
    uint64_t *sizes; /* by block, the size asked for; 0 once the block is free */
    int64_t *held;   /* by event, the change of the held bytes */
    uint64_t *next;  /* by event, the time of the next event of its stream */
    uint64_t live;
    size_t sample, call; /* indices of the next ones */
};

/* Writes the line that people look for, and all frames, the innermost first. */
static void put_stack(FILE *file, const struct vp_stacks *s, uint32_t stack) {
    enum { ROOM = 512 };
    char text[ROOM];
    fputs(",\"line\":", file);
    vp_out_string(file, vp_frame_text(s, vp_stacks_frame(s, vp_stacks_line(s, stack)), text, ROOM));
    fputs(",\"stack\":[", file);
    for (uint32_t at = stack; at; at = vp_stacks_at(s, at)->parent) {
        fputs(at == stack ? "" : ",", file);
        vp_out_string(file, vp_frame_text(s, vp_stacks_frame(s, at), text, ROOM));
    }
    fputs("]", file);
}

static void put_block(struct walk *w, const struct vp_trace_event *e) {
    uint64_t size = e->alloc ? e->size : w->sizes[e->block];
    if (!w->r->blocks[e->block].addr)
        return;
    w->live += e->alloc ? size : -size;
    counter(w->file, w->pid, e->us, "live", w->live);
    if (size < LARGE)
        return;
    unsigned class = 63u - (unsigned)__builtin_clzll(size) - 20;
    fprintf(
        w->file,
        "{\"ph\":\"%c\",\"cat\":\"block\",\"name\":\"blocks of %llu to %llu MiB\",\"id\":\"%u.%u\",\"pid\":%u,\"tid\":%u,\"ts\":%" PRIu64
        ",\"args\":{\"bytes\":%" PRIu64 ",\"address\":\"0x%" PRIx64 "\",\"stream\":%u",
        e->alloc ? 'b' : 'e', 1ull << class, 2ull << class, w->pid, e->block, w->pid, e->stream + 1, e->us, size,
        w->r->blocks[e->block].addr, e->stream);
    if (e->stack)
        put_stack(w->file, &w->r->trace->stacks, e->stack);
    fputs("}},\n", w->file);
}

static void put_calls(struct walk *w, size_t i, const struct vp_trace_event *e) {
    const struct vp_record_calls *c = (const struct vp_record_calls *)w->r->calls.items + w->call;
    if (w->call == w->r->calls.count || c->event != i)
        return;
    w->call++;
    double us = (double)c->ns / 1e3, room = (double)(w->next[i] - e->us);
    fprintf(w->file,
            "{\"ph\":\"X\",\"cat\":\"driver\",\"name\":\"%s\",\"pid\":%u,\"tid\":%u,\"ts\":%" PRIu64
            ",\"dur\":%.3f,\"args\":{\"modelled_us\":%.3f",
            e->alloc ? "allocate" : "free", w->pid, e->stream + 1, e->us, us < room ? us : room, us);
    for (int k = 0; k < VP_RECORD_KINDS; k++)
        if (c->count[k])
            fprintf(w->file, ",\"%s\":%u", call_names[k], c->count[k]);
    fputs("}},\n", w->file);
}

static void put_events(struct walk *w) {
    const struct vp_trace *t = w->r->trace;
    uint64_t held = 0;
    for (size_t i = 0; i < t->count; i++) {
        const struct vp_trace_event *e = &t->events[i];
        const struct vp_record_sample *s = (const struct vp_record_sample *)w->r->samples.items + w->sample;
        if (e->alloc)
            w->sizes[e->block] = e->size;
        put_block(w, e);
        put_calls(w, i, e);
        held += (uint64_t)w->held[i];
        if (w->held[i])
            counter(w->file, w->pid, e->us, "held", held);
        if (w->sample < w->r->samples.count && s->event == i) {
            waste(w->file, w->pid, e->us, s->internal, s->pinned, s->pending, s->idle);
            w->sample++;
        }
        if (!e->alloc)
            w->sizes[e->block] = 0;
    }
}

/* Writes what was held and which allocations failed when the program ran. */
static void put_truth(const struct walk *w) {
    const struct vp_trace_held *h = w->r->trace->held.items;
    const struct vp_trace_failure *x = w->r->trace->failures.items;
    for (size_t i = 0; i < w->r->trace->held.count; i++)
        counter(w->file, w->pid, h[i].us, "held as it ran", h[i].held);
    for (size_t i = 0; i < w->r->trace->failures.count; i++)
        fprintf(
            w->file,
            "{\"ph\":\"i\",\"s\":\"p\",\"cat\":\"failure\",\"name\":\"out of memory\",\"pid\":%u,\"tid\":0,\"ts\":%" PRIu64
            ",\"args\":{\"bytes\":%" PRIu64 "}},\n",
            w->pid, x[i].us, x[i].size);
}

static int put_device(FILE *file, const struct vp_record *r, unsigned pid) {
    const struct vp_trace *t = r->trace;
    const struct vp_record_mapping *m = r->mappings.items;
    uint64_t end = t->count ? t->events[t->count - 1].us + 1 : 0, *last = malloc((t->streams + 1) * sizeof *last);
    struct walk w = {.file = file,
                     .pid = pid,
                     .r = r,
                     .sizes = calloc(t->blocks + 1, sizeof *w.sizes),
                     .held = calloc(t->count + 1, sizeof *w.held),
                     .next = calloc(t->count + 1, sizeof *w.next)};
    int err = last && w.sizes && w.held && w.next ? 0 : -ENOMEM;
    if (!err) {
        for (size_t i = 0; i < r->mappings.count; i++)
            if (m[i].current) {
                w.held[m[i].from] += (int64_t)m[i].size;
                w.held[m[i].to] -= (int64_t)m[i].size;
            }
        for (uint32_t s = 0; s < t->streams; s++)
            last[s] = end;
        for (size_t i = t->count; i-- > 0; last[t->events[i].stream] = t->events[i].us)
            w.next[i] = last[t->events[i].stream];
        for (uint32_t s = 0; s < t->streams; s++) {
            char name[32];
            snprintf(name, sizeof name, "stream %u", s);
            name_of(file, "thread_name", pid, s + 1, name);
        }
        put_events(&w);
        put_truth(&w);
    }
    free(w.sizes);
    free(w.held);
    free(w.next);
    free(last);
    return err;
}

/* Writes a range. A range of the process (thread 0) is not nested in others, so it has a track of its own. */
static void put_range(FILE *file, const struct vp_trace_range *r, size_t number, int pid) {
    for (int end = 0; end < (r->thread ? 1 : 2); end++) {
        fprintf(file, "{\"ph\":\"%s\",\"cat\":\"range\",\"name\":", r->thread ? "X" : end ? "e" : "b");
        vp_out_string(file, r->name);
        if (!r->thread)
            fprintf(file, ",\"id\":\"range %zu\"", number);
        fprintf(file, ",\"pid\":%d,\"tid\":%" PRIu64 ",\"ts\":%" PRIu64, pid, r->thread, end ? r->to_us : r->from_us);
        if (r->thread)
            fprintf(file, ",\"dur\":%" PRIu64, r->to_us - r->from_us);
        fputs("},\n", file);
    }
}

/* Writes what the program's threads marked: marks as instants, ranges as slices. They are shown above the devices. */
static void put_marks(FILE *file, const struct vp_trace *t) {
    enum { PROGRAM = 1000 };
    const struct vp_trace_mark *m = t->marks.items;
    const struct vp_trace_range *r = t->ranges.items;
    if (t->marks.count + t->ranges.count)
        name_of(file, "process_name", PROGRAM, 0, "marks and ranges");
    for (size_t i = 0; i < t->marks.count; i++) {
        fputs("{\"ph\":\"i\",\"s\":\"g\",\"cat\":\"mark\",\"name\":", file);
        vp_out_string(file, m[i].name);
        fprintf(file, ",\"pid\":%d,\"tid\":%" PRIu64 ",\"ts\":%" PRIu64 "},\n", PROGRAM, m[i].thread, m[i].us);
    }
    for (size_t i = 0; i < t->ranges.count; i++)
        put_range(file, &r[i], i, PROGRAM);
}

static int put_trace(FILE *file, const struct vp_export *from) {
    int err = 0;
    for (unsigned d = 0; d < from->trace->device_count && !err; d++) {
        char name[512];
        snprintf(name, sizeof name, "%.400s, device %u", from->name, from->trace->devices[d]);
        name_of(file, "process_name", d + 1, 0, from->trace->device_count > 1 ? name : from->name);
        err = put_device(file, &from->records[d], d + 1);
    }
    put_marks(file, from->trace);
    return err;
}

int vp_export_perfetto(FILE *file, const struct vp_export *from) {
    int err = 0;
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", file);
    if (from->trace)
        err = put_trace(file, from);
    else
        name_of(file, "process_name", 1, 0, from->name);
    for (size_t i = 0; from->dump && i < from->dump->count; i++) {
        const struct vp_dump_device *d = &from->dump->devices[i];
        unsigned pid = (unsigned)i + 1;
        char name[48];
        snprintf(name, sizeof name, "device %" PRIu64, d->device);
        name_of(file, "process_name", pid, 0, name);
        counter(file, pid, 0, "live", d->live_bytes);
        counter(file, pid, 0, "held", d->held_bytes);
        waste(file, pid, 0, d->internal, d->pinned, d->pending, d->idle);
    }
    /* The last item of a list has no comma. */
    fprintf(file, "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":1,\"args\":{\"sort_index\":0}}\n]}\n");
    return err;
}
