/* Profiles by stack: pprof's protocol buffer (github.com/google/pprof, proto/profile.proto), and collapsed stacks.
 *
 * A profile has a sample for each stack, device and stream, with what was allocated in all, what was alive when most
 * was, and what was alive at the end. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/export/export.h"
#include "tool/plan/numbers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is counted ---- */

enum { ALLOCATED, PEAK, END, KINDS };

struct sample {
    uint32_t stack, stream;
    uint16_t device;
    uint64_t blocks[KINDS], bytes[KINDS];
};

static struct sample *sample_of(struct vp_array *samples, struct vp_numbers *numbers, const struct vp_trace_event *e) {
    /* No trace has so many stacks and streams that these keys collide. */
    uint64_t key = vp_numbers_pair(e->stack, (uint32_t)e->device << 22 ^ e->stream);
    uint64_t n = vp_numbers_get(numbers, key);
    if (n)
        return (struct sample *)samples->items + n - 1;
    struct sample *s = vp_array_add(samples, sizeof *s);
    if (!s || vp_numbers_set(numbers, key, samples->count) < 0)
        return NULL;
    *s = (struct sample){.stack = e->stack, .stream = e->stream, .device = e->device};
    return s;
}

static void count(struct sample *s, int kind, uint64_t bytes) {
    s->blocks[kind]++;
    s->bytes[kind] += bytes;
}

/* Counts all samples. 0 or -ENOMEM; the caller frees `samples`. */
static int count_all(const struct vp_trace *t, struct vp_array *samples) {
    struct vp_numbers numbers = {0};
    struct vp_trace_peak peak = {0};
    size_t *ends = malloc((t->blocks + 1u) * sizeof *ends);
    int err = ends && (vp_trace_peak(t, &peak) || !t->count) ? 0 : -ENOMEM;
    for (uint32_t b = 0; b < t->blocks && !err; b++)
        ends[b] = t->count;
    for (size_t i = 0; i < t->count && !err; i++)
        if (!t->events[i].alloc)
            ends[t->events[i].block] = i;
    for (size_t i = 0; i < t->count && !err; i++) {
        const struct vp_trace_event *e = &t->events[i];
        struct sample *s = e->alloc ? sample_of(samples, &numbers, e) : NULL;
        if (!e->alloc)
            continue;
        if (!s) {
            err = -ENOMEM;
            break;
        }
        count(s, ALLOCATED, e->size);
        if (i <= peak.event && ends[e->block] > peak.event)
            count(s, PEAK, e->size);
        if (ends[e->block] == t->count)
            count(s, END, e->size);
    }
    vp_numbers_finish(&numbers);
    free(ends);
    return err;
}

/* ---- collapsed ---- */

/* Semicolons separate frames, and the last blank precedes the number; some readers also end lines at other control
 * characters. */
static void put_collapsed_frame(FILE *file, const struct vp_stacks *s, uint32_t stack) {
    char text[1024];
    vp_frame_text(s, vp_stacks_frame(s, stack), text, sizeof text);
    for (char *c = text; *c; c++)
        putc(*c == ';' ? ':' : (unsigned char)*c < ' ' ? ' ' : *c, file);
}

static void put_collapsed_stack(FILE *file, const struct vp_stacks *s, uint32_t stack) {
    uint32_t parent = vp_stacks_at(s, stack)->parent;
    if (parent) {
        put_collapsed_stack(file, s, parent);
        putc(';', file);
    }
    put_collapsed_frame(file, s, stack);
}

int vp_export_collapsed(FILE *file, const struct vp_export *from) {
    const struct vp_trace *t = from->trace;
    uint64_t *bytes = calloc(t->stacks.stacks.count + 1, sizeof *bytes);
    struct vp_array samples = {0};
    int err = bytes ? count_all(t, &samples) : -ENOMEM;
    const struct sample *s = samples.items;
    for (size_t i = 0; i < samples.count && !err; i++)
        bytes[s[i].stack] += s[i].bytes[PEAK];
    for (uint32_t i = 0; i < t->stacks.stacks.count && !err; i++) {
        if (!bytes[i])
            continue;
        if (i)
            put_collapsed_stack(file, &t->stacks, i);
        else
            fputs("[no stack]", file);
        fprintf(file, " %llu\n", (unsigned long long)bytes[i]);
    }
    free(samples.items);
    free(bytes);
    return err;
}

/* ---- protocol buffers ---- */

static void put_varint(FILE *file, uint64_t n) {
    for (; n > 127; n >>= 7)
        putc((int)(n & 127) | 128, file);
    putc((int)n, file);
}

static void put_number(FILE *file, unsigned field, uint64_t n) {
    put_varint(file, field << 3);
    put_varint(file, n);
}

static void put_bytes(FILE *file, unsigned field, const char *bytes, size_t length) {
    put_varint(file, field << 3 | 2);
    put_varint(file, length);
    fwrite(bytes, 1, length, file);
}

/* A nested message is written to memory first, as its length precedes it. There is one at a time at each depth. */
struct message {
    FILE *file;
    char *bytes;
    size_t length;
};

static FILE *begin_message(struct message *m) {
    return m->file = open_memstream(&m->bytes, &m->length);
}

static void end_message(struct message *m, FILE *out, unsigned field) {
    fclose(m->file);
    put_bytes(out, field, m->bytes, m->length);
    free(m->bytes);
    *m = (struct message){0};
}

/* ---- pprof ---- */

/* Fields of a Profile, and the first strings of its table: all that do not belong to frames. */
enum { SAMPLE_TYPE = 1, SAMPLE, MAPPING, LOCATION, FUNCTION, STRING_TABLE, DURATION = 10, DEFAULT_TYPE = 14 };
static const char *const words[] = {"",           "allocated_blocks", "allocated_space", "peak_blocks",
                                    "peak_space", "inuse_blocks",     "inuse_space",     "count",
                                    "bytes",      "device",           "stream"};
enum { WORDS = sizeof words / sizeof *words, COUNT = 7, BYTES, DEVICE, STREAM };

static int put_types(FILE *file) {
    for (uint64_t i = 0; i < 2 * KINDS; i++) {
        struct message m = {0};
        FILE *inner = begin_message(&m);
        if (!inner)
            return -ENOMEM;
        put_number(inner, 1, i + 1);
        put_number(inner, 2, i % 2 ? BYTES : COUNT);
        end_message(&m, file, SAMPLE_TYPE);
    }
    return 0;
}

/* Writes a number as a text label, as a numeric label would be shown as bytes. The texts of numbers are the last
 * strings of the table. */
static int put_label(FILE *file, const struct vp_stacks *s, unsigned key, uint64_t number) {
    struct message m = {0};
    FILE *inner = begin_message(&m);
    if (!inner)
        return -ENOMEM;
    put_number(inner, 1, key);
    put_number(inner, 2, WORDS + 2 * (s->frames.count + 1) + number);
    end_message(&m, file, 3);
    return 0;
}

/* Locations are frames, numbered from 1; the last location stands for "no stack". */
static int put_sample(FILE *file, const struct vp_stacks *s, const struct sample *sample) {
    struct message m = {0};
    FILE *inner = begin_message(&m);
    if (!inner)
        return -ENOMEM;
    if (!sample->stack)
        put_number(inner, 1, s->frames.count + 1);
    for (uint32_t at = sample->stack; at; at = vp_stacks_at(s, at)->parent)
        put_number(inner, 1, vp_stacks_at(s, at)->frame + 1u);
    for (int k = 0; k < KINDS; k++) {
        put_number(inner, 2, sample->blocks[k]);
        put_number(inner, 2, sample->bytes[k]);
    }
    int err = put_label(inner, s, DEVICE, sample->device);
    if (!err)
        err = put_label(inner, s, STREAM, sample->stream);
    end_message(&m, file, SAMPLE);
    return err;
}

/* Writes a frame as a location and a function of the same number. Its name and its file are two strings of the table.
 */
static int put_location(FILE *file, uint64_t number, uint64_t line) {
    struct message location = {0}, in = {0};
    FILE *outer = begin_message(&location), *inner = outer ? begin_message(&in) : NULL;
    if (!inner) {
        if (outer)
            fclose(outer);
        free(location.bytes);
        return -ENOMEM;
    }
    put_number(outer, 1, number);
    put_number(inner, 1, number);
    put_number(inner, 2, line);
    end_message(&in, outer, 4);
    end_message(&location, file, LOCATION);
    if (!(outer = begin_message(&location)))
        return -ENOMEM;
    put_number(outer, 1, number);
    put_number(outer, 2, WORDS + 2 * (number - 1));
    put_number(outer, 3, WORDS + 2 * (number - 1));
    put_number(outer, 4, WORDS + 2 * (number - 1) + 1);
    end_message(&location, file, FUNCTION);
    return 0;
}

static void put_strings(FILE *file, const struct vp_trace *t) {
    const struct vp_stacks *s = &t->stacks;
    const struct vp_frame *f = s->frames.items;
    char text[512];
    for (size_t i = 0; i < WORDS; i++)
        put_bytes(file, STRING_TABLE, words[i], strlen(words[i]));
    for (size_t i = 0; i < s->frames.count; i++) {
        const char *name = f[i].name ? f[i].name : vp_frame_text(s, &f[i], text, sizeof text);
        put_bytes(file, STRING_TABLE, name, strlen(name));
        put_bytes(file, STRING_TABLE, vp_frame_file(s, &f[i]), strlen(vp_frame_file(s, &f[i])));
    }
    put_bytes(file, STRING_TABLE, "[no stack]", strlen("[no stack]"));
    put_bytes(file, STRING_TABLE, "", 0);
    uint32_t last = t->device_count ? t->devices[t->device_count - 1] : 0;
    for (uint32_t n = 0; n <= last || n < t->streams; n++) {
        snprintf(text, sizeof text, "%u", n);
        put_bytes(file, STRING_TABLE, text, strlen(text));
    }
}

int vp_export_pprof(FILE *file, const struct vp_export *from) {
    const struct vp_trace *t = from->trace;
    const struct vp_frame *frames = t->stacks.frames.items;
    struct vp_array samples = {0};
    int err = count_all(t, &samples);
    const struct sample *s = samples.items;
    if (!err)
        err = put_types(file);
    for (size_t i = 0; i < samples.count && !err; i++)
        err = put_sample(file, &t->stacks, &s[i]);
    for (size_t i = 0; i <= t->stacks.frames.count && !err; i++)
        err = put_location(file, i + 1, i < t->stacks.frames.count ? frames[i].line : 0);
    put_strings(file, t);
    if (t->count)
        put_number(file, DURATION, t->events[t->count - 1].us * 1000);
    put_number(file, DEFAULT_TYPE, 2 * PEAK + 2);
    free(samples.items);
    return err;
}
