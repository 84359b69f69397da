/* The columns of the page. A script element each, so that the page reads only what it shows; in it a few bytes a
 * number, in base64: what happened in each event and where its block lay, from which the page has the state of every
 * moment. data.js and stacks.js read what is written here. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/report/columns.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct vp_base64 begin_column(struct vp_page *page, const char *policy, const char *name) {
    if (vp_progress_due(&page->progress))
        vp_progress_show(&page->progress, "%.40s: writing the page, %s%s%s", page->name, policy ? policy : "",
                         policy ? " " : "", name);
    fprintf(page->file, "<script type=\"text/plain\" id=\"%zu.%s%s%s\">", page->inputs, policy ? policy : "",
            policy ? "." : "", name);
    return (struct vp_base64){.file = page->file};
}

static struct vp_base64 begin_shared(struct vp_page *page, const char *name) {
    fprintf(page->file, "<script type=\"text/plain\" id=\"g%zu.%s\">", page->groups, name);
    return (struct vp_base64){.file = page->file};
}

static void end_column(struct vp_base64 *b) {
    vp_base64_end(b);
    fputs("</script>\n", b->file);
}

void vp_page_put_bytes(struct vp_page *page, const char *name, const char *bytes, size_t length) {
    struct vp_base64 b = begin_column(page, NULL, name);
    for (size_t i = 0; i < length; i++)
        vp_base64_byte(&b, (uint8_t)bytes[i]);
    end_column(&b);
}

/* ---- what happened ---- */

/* Writes, for each event, 0 for an allocation or how many allocations ago the freed block was made; then sizes,
 * streams, times and stacks. */
static void put_events(struct vp_page *page, const struct vp_trace *t) {
    struct vp_base64 b = begin_column(page, NULL, "blocks");
    uint32_t made = 0;
    for (size_t i = 0; i < t->count; i++) {
        vp_base64_number(&b, t->events[i].alloc ? 0 : made - t->events[i].block);
        made += t->events[i].alloc;
    }
    end_column(&b);
    b = begin_column(page, NULL, "sizes");
    for (size_t i = 0; i < t->count; i++)
        if (t->events[i].alloc)
            vp_base64_number(&b, t->events[i].size);
    end_column(&b);
    b = begin_column(page, NULL, "streams");
    for (size_t i = 0; i < t->count && t->streams > 1; i++)
        vp_base64_number(&b, t->events[i].stream);
    end_column(&b);
    b = begin_column(page, NULL, "times");
    for (size_t i = 0; i < t->count; i++)
        vp_base64_number(&b, t->events[i].us - (i ? t->events[i - 1].us : 0));
    end_column(&b);
    b = begin_column(page, NULL, "stacks");
    for (size_t i = 0; i < t->count && t->stacks.stacks.count > 1; i++)
        if (t->events[i].alloc)
            vp_base64_number(&b, t->events[i].stack);
    end_column(&b);
}

/* Writes what the program did: places among the events, as distances; what was held, and how many driver calls were
 * made; how much was requested in vain. */
static void put_truth(struct vp_page *page, const struct vp_trace *t) {
    const struct vp_trace_held *h = t->held.items;
    const struct vp_trace_failure *x = t->failures.items;
    struct vp_base64 b = begin_column(page, NULL, "held");
    for (size_t i = 0; i < t->held.count; i++) {
        vp_base64_number(&b, h[i].at - (i ? h[i - 1].at : 0));
        vp_base64_number(&b, h[i].held);
        vp_base64_number(&b, h[i].calls);
    }
    end_column(&b);
    b = begin_column(page, NULL, "failures");
    for (size_t i = 0; i < t->failures.count; i++) {
        vp_base64_number(&b, x[i].at - (i ? x[i - 1].at : 0));
        vp_base64_number(&b, x[i].us - (i ? x[i - 1].us : 0));
        vp_base64_number(&b, x[i].size);
        vp_base64_number(&b, x[i].stream);
    }
    end_column(&b);
}

/* Writes marks and ranges. Their names are in the group's list, in the same order: marks, then ranges. */
static void put_marks(struct vp_page *page, const struct vp_trace *t) {
    const struct vp_trace_mark *m = t->marks.items;
    const struct vp_trace_range *r = t->ranges.items;
    struct vp_base64 b = begin_column(page, NULL, "marks");
    for (size_t i = 0; i < t->marks.count; i++) {
        vp_base64_number(&b, m[i].at - (i ? m[i - 1].at : 0));
        vp_base64_number(&b, m[i].us - (i ? m[i - 1].us : 0));
        vp_base64_number(&b, m[i].thread);
    }
    end_column(&b);
    b = begin_column(page, NULL, "ranges");
    for (size_t i = 0; i < t->ranges.count; i++) {
        vp_base64_number(&b, r[i].from - (i ? r[i - 1].from : 0));
        vp_base64_number(&b, r[i].to - r[i].from);
        vp_base64_number(&b, r[i].from_us - (i ? r[i - 1].from_us : 0));
        vp_base64_number(&b, r[i].to_us - r[i].from_us);
        vp_base64_number(&b, (uint64_t)r[i].depth * 2 + r[i].open);
        vp_base64_number(&b, r[i].thread);
    }
    end_column(&b);
}

void vp_page_put_trace(struct vp_page *page, const struct vp_trace *t) {
    put_events(page, t);
    put_truth(page, t);
    put_marks(page, t);
}

/* ---- what a recording's devices share ---- */

static void begin_list(struct vp_page *page, const char *name) {
    fprintf(page->file, "<script type=\"application/json\" id=\"g%zu.%s\">[", page->groups, name);
}

/* Writes, for each frame, its text, the full name of its file, and its kind. For each stack: the distance to its parent
 * before it, its frame, and the distance to the stack before it that ends in its line. */
static int put_stacks(struct vp_page *page, const struct vp_stacks *s) {
    const struct vp_frame *f = s->frames.items;
    enum { ROOM = 1024 };
    char *text = malloc(ROOM);
    if (!text)
        return -ENOMEM;
    begin_list(page, "frames");
    for (size_t i = 0; i < s->frames.count; i++) {
        fputs(i ? ",[" : "[", page->file);
        vp_out_string(page->file, vp_frame_text(s, &f[i], text, ROOM));
        putc(',', page->file);
        vp_out_string(page->file, vp_frame_file(s, &f[i]));
        fprintf(page->file, ",\"%c\"]", f[i].kind);
    }
    fputs("]</script>\n", page->file);
    free(text);
    struct vp_base64 b = begin_shared(page, "stacks");
    for (uint32_t i = 1; i < s->stacks.count; i++) {
        vp_base64_number(&b, i - vp_stacks_at(s, i)->parent);
        vp_base64_number(&b, vp_stacks_at(s, i)->frame);
        vp_base64_number(&b, i - vp_stacks_line(s, i));
    }
    end_column(&b);
    return 0;
}

int vp_page_put_group(struct vp_page *page, const struct vp_trace *whole) {
    const struct vp_trace_mark *m = whole->marks.items;
    const struct vp_trace_range *r = whole->ranges.items;
    begin_list(page, "names");
    for (size_t i = 0; i < whole->marks.count + whole->ranges.count; i++) {
        fputs(i ? "," : "", page->file);
        vp_out_string(page->file, i < whole->marks.count ? m[i].name : r[i - whole->marks.count].name);
    }
    fputs("]</script>\n", page->file);
    return put_stacks(page, &whole->stacks);
}

/* ---- how a policy served it ---- */

/* Writes, for each block, the distance from the previous block in quanta, and the bytes added by rounding; both are 0
 * if the pool did not serve it. */
static void put_blocks(struct vp_page *page, const struct vp_record *r) {
    struct vp_base64 b = begin_column(page, r->name, "places");
    uint64_t last = 0;
    for (size_t i = 0; i < r->trace->count; i++) {
        const struct vp_trace_event *e = &r->trace->events[i];
        const struct vp_record_block *block = &r->blocks[e->block];
        if (!e->alloc)
            continue;
        vp_base64_number(&b, block->addr ? block->size - e->size + 1 : 0);
        if (block->addr)
            vp_base64_signed(&b, (int64_t)(block->addr - last) / VP_QUANTUM);
        last = block->addr ? block->addr : last;
    }
    end_column(&b);
}

static void put_mappings(struct vp_page *page, const struct vp_record *r) {
    const struct vp_record_mapping *m = r->mappings.items;
    struct vp_base64 b = begin_column(page, r->name, "mappings");
    for (size_t i = 0; i < r->mappings.count; i++) {
        vp_base64_number(&b, m[i].from - (i ? m[i - 1].from : 0));
        vp_base64_number(&b, (uint64_t)(m[i].to - m[i].from) * 2 + m[i].current);
        vp_base64_signed(&b, (int64_t)(m[i].addr - (i ? m[i - 1].addr : 0)) / (int64_t)r->granularity);
        vp_base64_number(&b, m[i].size / r->granularity);
        vp_base64_signed(&b, (int64_t)(m[i].home - m[i].addr) / (int64_t)r->granularity);
    }
    end_column(&b);
}

static void put_samples(struct vp_page *page, const struct vp_record *r) {
    const struct vp_record_sample *s = r->samples.items;
    struct vp_base64 b = begin_column(page, r->name, "samples");
    for (size_t i = 0; i < r->samples.count; i++) {
        vp_base64_number(&b, s[i].event - (i ? s[i - 1].event : 0));
        vp_base64_number(&b, s[i].live);
        vp_base64_number(&b, s[i].internal);
        vp_base64_number(&b, s[i].pinned);
        vp_base64_number(&b, s[i].pending);
        vp_base64_number(&b, s[i].idle);
    }
    end_column(&b);
}

static void put_calls(struct vp_page *page, const struct vp_record *r) {
    const struct vp_record_calls *c = r->calls.items;
    struct vp_base64 b = begin_column(page, r->name, "calls");
    for (size_t i = 0; i < r->calls.count; i++) {
        vp_base64_number(&b, c[i].event - (i ? c[i - 1].event : 0));
        for (int k = 0; k < VP_RECORD_KINDS; k++)
            vp_base64_number(&b, c[i].count[k]);
        vp_base64_number(&b, c[i].ns);
    }
    end_column(&b);
}

void vp_page_put_run(struct vp_page *page, const struct vp_record *r) {
    put_blocks(page, r);
    put_mappings(page, r);
    put_samples(page, r);
    put_calls(page, r);
}
