/* A recorded trace of either format: read whole, or refused with one line; what is read is consistent. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/trace.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct vp_trace trace;
    char path[64], message[256] = "";
#ifdef VP_FUZZING
    /* What is compressed goes through the gzip program: thousands of times slower, and not ours. */
    if (size >= 2 && data[0] == 0x1f && data[1] == 0x8b)
        return -1;
#endif
    int fd = memfd_create("trace", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int err = vp_trace_read(&trace, path, message, sizeof message);
    if (!err)
        check(&trace);
    else if (!*message || strchr(message, '\n') || trace.events)
        fuzz_fail("refused (%d), and said '%s'", err, message);
    if (!err)
        vp_trace_finish(&trace);
    close(fd);
    fuzz_count(0);
    return 0;
}
