/* A recorded trace of either format: read whole, or refused with one line; what is read is consistent. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/read/trace.h"

#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void check(const struct vp_trace *t) {
    unsigned char *live = calloc(t->blocks + 1u, 1);
    if (!live)
        abort();
    for (size_t i = 0; i < t->count; i++) {
        const struct vp_trace_event *e = &t->events[i];
        if (e->block >= t->blocks || e->stream >= t->streams)
            fuzz_fail("event %zu has block %u of %u, stream %u of %u", i, e->block, t->blocks, e->stream, t->streams);
        if (live[e->block] == e->alloc || !e->size == e->alloc)
            fuzz_fail("event %zu: block %u of %zu bytes", i, e->block, (size_t)e->size);
        live[e->block] = e->alloc;
    }
    free(live);
}

/* Everything has a place among the events, and names what there is. */
static void check_records(const struct vp_trace *t) {
    const struct vp_trace_mark *m = t->marks.items;
    const struct vp_trace_range *r = t->ranges.items;
    const struct vp_trace_held *h = t->held.items;
    const struct vp_trace_failure *x = t->failures.items;
    const struct vp_stack *s = t->stacks.stacks.items;
    for (size_t i = 0; i < t->marks.count; i++)
        if (m[i].at > t->count || !m[i].name)
            fuzz_fail("mark %zu is before event %zu of %zu", i, m[i].at, t->count);
    for (size_t i = 0; i < t->ranges.count; i++)
        if (r[i].from > r[i].to || r[i].to > t->count || r[i].from_us > r[i].to_us || !r[i].name)
            fuzz_fail("range %zu is from %zu to %zu of %zu", i, r[i].from, r[i].to, t->count);
    for (size_t i = 0; i < t->held.count; i++)
        if (h[i].at > t->count)
            fuzz_fail("what is held at %zu", h[i].at);
    for (size_t i = 0; i < t->failures.count; i++)
        if (x[i].at > t->count)
            fuzz_fail("a failure at %zu", x[i].at);
    for (size_t i = 1; i < t->stacks.stacks.count; i++)
        if (s[i].parent >= i || s[i].frame >= t->stacks.frames.count)
            fuzz_fail("stack %zu: frame %u called by %u", i, s[i].frame, s[i].parent);
    for (size_t i = 0; i < t->count; i++)
        if (t->events[i].stack >= t->stacks.stacks.count)
            fuzz_fail("event %zu has stack %u", i, t->events[i].stack);
}

/* Native names are left out: they would open whatever files the input names. */
static void check_names(struct vp_trace *t) {
    char text[128];
    if (t->stacks.modules.count)
        return;
    if (vp_trace_name(t) < 0)
        abort();
    for (uint32_t i = 1; i < t->stacks.stacks.count; i++)
        vp_frame_text(&t->stacks, vp_stacks_frame(&t->stacks, vp_stacks_line(&t->stacks, i)), text, sizeof text);
    check_records(t);
}

static void check_parts(const struct vp_trace *t) {
    size_t sum = 0;
    for (unsigned i = 0; i < t->device_count; i++) {
        struct vp_trace part;
        if (vp_trace_of_device(t, i, &part) < 0)
            abort();
        if (!part.count)
            fuzz_fail("device %u has no events", t->devices[i]);
        check(&part);
        check_records(&part);
        sum += part.count;
        vp_trace_finish(&part);
    }
    if (sum != t->count)
        fuzz_fail("%zu events in all, %zu by device", t->count, sum);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct vp_trace trace;
    char path[64], message[256] = "";
#ifdef VP_FUZZING
    /* What is compressed is zlib's, or goes through the gzip program: slow, and not ours. */
    if (size >= 2 && data[0] == 0x1f && data[1] == 0x8b)
        return -1;
#endif
    int fd = memfd_create("trace", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int err = vp_trace_read(&trace, path, message, sizeof message);
    if (!err) {
        check(&trace);
        check_records(&trace);
        check_parts(&trace);
        check_names(&trace);
    } else if (!*message || strchr(message, '\n') || trace.events) {
        fuzz_fail("refused (%d), and said '%s'", err, message);
    }
    if (!err)
        vp_trace_finish(&trace);
    close(fd);
    fuzz_count(0);
    return 0;
}
