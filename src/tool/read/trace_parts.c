/* A trace as a whole, and what of it was of one device. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/read/trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void vp_trace_finish(struct vp_trace *trace) {
    struct vp_trace_mark *marks = trace->marks.items;
    struct vp_trace_range *ranges = trace->ranges.items;
    for (size_t i = 0; !trace->part && i < trace->marks.count; i++)
        free(marks[i].name);
    for (size_t i = 0; !trace->part && i < trace->ranges.count; i++)
        free(ranges[i].name);
    if (!trace->part)
        vp_stacks_finish(&trace->stacks);
    free(trace->events);
    free(trace->marks.items);
    free(trace->ranges.items);
    free(trace->held.items);
    free(trace->addressed.items);
    free(trace->failures.items);
    free(trace->orders.items);
    *trace = (struct vp_trace){0};
}

int vp_trace_name(struct vp_trace *trace) {
    uint32_t *map;
    int err = vp_stacks_name(&trace->stacks, &map);
    for (size_t i = 0; !err && map && i < trace->count; i++)
        trace->events[i].stack = map[trace->events[i].stack];
    free(err ? NULL : map);
    return err;
}

/* ---- a part ---- */

/* New numbers, by the old ones; UINT32_MAX: none yet. */
static uint32_t *no_numbers(uint32_t count) {
    uint32_t *numbers = malloc((count + 1u) * sizeof *numbers);
    if (numbers)
        memset(numbers, 0xff, (count + 1u) * sizeof *numbers);
    return numbers;
}

static uint32_t renumber(uint32_t *numbers, uint32_t old, uint32_t *count) {
    if (numbers[old] == UINT32_MAX)
        numbers[old] = (*count)++;
    return numbers[old];
}

/* Takes the events of a device. `places` gets, for each event of the whole and for its end, how many events of the part
 * come before it. */
static int take_events(const struct vp_trace *whole, uint16_t device, struct vp_trace *part, uint32_t *places) {
    uint32_t *blocks = no_numbers(whole->blocks), *streams = no_numbers(whole->streams);
    part->events = malloc((whole->count + 1) * sizeof *part->events);
    int err = blocks && streams && part->events ? 0 : -ENOMEM;
    for (size_t i = 0; i < whole->count && !err; i++) {
        struct vp_trace_event e = whole->events[i];
        places[i] = (uint32_t)part->count;
        if (e.device != device)
            continue;
        e.block = renumber(blocks, e.block, &part->blocks);
        e.stream = renumber(streams, e.stream, &part->streams);
        part->events[part->count++] = e;
    }
    places[whole->count] = (uint32_t)part->count;
    const struct vp_trace_order *o = whole->orders.items;
    for (size_t i = 0; i < whole->orders.count && !err; i++) {
        /* Streams without events have no work. */
        if (streams[o[i].stream] == UINT32_MAX || streams[o[i].other] == UINT32_MAX)
            continue;
        struct vp_trace_order *new = vp_array_add(&part->orders, sizeof *new);
        err = new ? 0 : -ENOMEM;
        if (new)
            *new = (struct vp_trace_order){places[o[i].at], streams[o[i].stream], streams[o[i].other]};
    }
    free(blocks);
    free(streams);
    return err;
}

static int copy(struct vp_array *to, const struct vp_array *from, size_t size) {
    to->items = malloc((from->count + 1) * size);
    if (!to->items)
        return -ENOMEM;
    if (from->count)
        memcpy(to->items, from->items, from->count * size);
    to->count = from->count;
    to->room = from->count + 1;
    return 0;
}

static int take_records(const struct vp_trace *whole, uint16_t device, struct vp_trace *part, const uint32_t *places) {
    if (copy(&part->marks, &whole->marks, sizeof(struct vp_trace_mark)) < 0 ||
        copy(&part->ranges, &whole->ranges, sizeof(struct vp_trace_range)) < 0 ||
        copy(&part->held, &whole->held, sizeof(struct vp_trace_held)) < 0 ||
        copy(&part->addressed, &whole->addressed, sizeof(struct vp_trace_addressed)) < 0 ||
        copy(&part->failures, &whole->failures, sizeof(struct vp_trace_failure)) < 0)
        return -ENOMEM;
    struct vp_trace_mark *m = part->marks.items;
    struct vp_trace_range *r = part->ranges.items;
    struct vp_trace_held *h = part->held.items;
    struct vp_trace_failure *x = part->failures.items;
    size_t kept = 0;
    for (size_t i = 0; i < part->marks.count; i++)
        m[i].at = places[m[i].at];
    for (size_t i = 0; i < part->ranges.count; i++) {
        r[i].from = places[r[i].from];
        r[i].to = places[r[i].to];
    }
    for (size_t i = 0; i < part->held.count; i++)
        if (h[i].device == device) {
            h[kept] = h[i];
            h[kept].at = places[h[kept].at];
            kept++;
        }
    part->held.count = kept;
    kept = 0;
    for (size_t i = 0; i < part->failures.count; i++)
        if (x[i].device == device) {
            x[kept] = x[i];
            x[kept].at = places[x[kept].at];
            kept++;
        }
    part->failures.count = kept;
    return 0;
}

int vp_trace_of_device(const struct vp_trace *whole, unsigned device, struct vp_trace *part) {
    uint32_t *places = malloc((whole->count + 1) * sizeof *places);
    *part = (struct vp_trace){.stacks = whole->stacks, .part = true, .device_count = 1};
    part->devices[0] = whole->devices[device];
    int err = places ? take_events(whole, whole->devices[device], part, places) : -ENOMEM;
    if (!err)
        err = take_records(whole, whole->devices[device], part, places);
    free(places);
    if (err)
        vp_trace_finish(part);
    return err;
}

/* ---- what is asked of a trace ---- */

struct vp_trace_truth vp_trace_truth(const struct vp_trace *trace, uint16_t device) {
    struct vp_trace_truth truth = {0};
    const struct vp_trace_held *h = trace->held.items;
    const struct vp_trace_failure *x = trace->failures.items;
    for (size_t i = 0; i < trace->held.count; i++)
        if (h[i].device == device) {
            truth.known = true;
            truth.peak_held_bytes = h[i].held > truth.peak_held_bytes ? h[i].held : truth.peak_held_bytes;
            truth.driver_calls = h[i].calls > truth.driver_calls ? h[i].calls : truth.driver_calls;
        }
    const struct vp_trace_addressed *a = trace->addressed.items;
    for (size_t i = 0; i < trace->addressed.count; i++)
        if (a[i].device == device && a[i].bytes > truth.peak_addressed_bytes)
            truth.peak_addressed_bytes = a[i].bytes;
    for (size_t i = 0; i < trace->failures.count; i++)
        truth.failures += x[i].device == device;
    return truth;
}

bool vp_trace_peak(const struct vp_trace *trace, struct vp_trace_peak *peak) {
    uint64_t *sizes = calloc(trace->blocks + 1u, sizeof *sizes), live = 0;
    *peak = (struct vp_trace_peak){0};
    for (size_t i = 0; sizes && i < trace->count; i++) {
        const struct vp_trace_event *e = &trace->events[i];
        if (e->alloc)
            sizes[e->block] = e->size;
        live += e->alloc ? e->size : -sizes[e->block];
        if (live > peak->bytes)
            *peak = (struct vp_trace_peak){i, live};
    }
    free(sizes);
    return sizes && trace->count;
}
