/* What a run has learnt, as any bytes: read whole, or refused; what is read keeps its bounds, and is read again from
 * what is written of it. The hash at its end is put right first: else nearly all bytes were refused for that alone. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"
#include "memory/memory.h"
#include "pool/learnt/learnt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_agains(const struct vp_learnt_device *d) {
    uint64_t handles = 0;
    for (size_t i = 0; i < d->again_count; i++) {
        const struct vp_learnt_again *again = &d->agains[i];
        const uint64_t bytes = again->size * again->count;
        handles += again->count;
        if (!again->size || !again->count || again->size % d->granularity || again->from % d->granularity ||
            again->to % d->granularity || bytes > VP_LEARNT_MOST || again->from + bytes > VP_LEARNT_MOST ||
            again->to + bytes > VP_LEARNT_MOST || (i && again->need < again[-1].need))
            fuzz_fail("handles %zu mapped again on device %u", i, d->device);
    }
    if (handles > VP_LEARNT_HANDLES)
        fuzz_fail("%zu handles mapped again", (size_t)handles);
}

static void check_device(const struct vp_learnt_device *d) {
    uint64_t handles = 0;
    if (!d->granularity || d->granularity & (d->granularity - 1) || d->run_count > VP_LEARNT_RUNS ||
        d->slot_count > VP_LEARNT_SLOTS || d->request_count > VP_LEARNT_REQUESTS || d->again_count > VP_LEARNT_AGAINS ||
        d->window_count > VP_LEARNT_WINDOWS || !memchr(d->name, 0, sizeof d->name))
        fuzz_fail("device %u is out of its bounds", d->device);
    for (size_t i = 0; i < d->run_count; i++) {
        const struct vp_learnt_run *run = &d->runs[i];
        handles += run->count;
        if (run->zone >= VP_ZONES || !run->size || !run->count || run->size % d->granularity ||
            run->offset % d->granularity || run->size * run->count > VP_LEARNT_MOST ||
            run->offset + run->size * run->count > VP_LEARNT_MOST || (i && run->need < run[-1].need))
            fuzz_fail("run %zu of device %u", i, d->device);
    }
    for (size_t i = 0; i < d->slot_count; i++)
        if (!d->slots[i].size || d->slots[i].size % VP_QUANTUM || d->slots[i].offset % VP_QUANTUM ||
            d->slots[i].offset + d->slots[i].size > VP_LEARNT_MOST)
            fuzz_fail("place %zu of device %u", i, d->device);
    for (size_t i = 0; i < d->request_count; i++)
        if (d->requests[i] >= d->slot_count)
            fuzz_fail("request %zu of device %u", i, d->device);
    if (handles > VP_LEARNT_HANDLES)
        fuzz_fail("%zu handles", (size_t)handles);
    check_agains(d);
}

static bool same(const struct vp_learnt_device *a, const struct vp_learnt_device *b) {
    bool equal = a->run_count == b->run_count && a->slot_count == b->slot_count && a->device == b->device &&
                 a->request_count == b->request_count && a->memory == b->memory && !strcmp(a->name, b->name) &&
                 a->again_count == b->again_count && a->window_count == b->window_count;
    for (size_t i = 0; equal && i < a->run_count; i++)
        equal = a->runs[i].offset == b->runs[i].offset && a->runs[i].size == b->runs[i].size &&
                a->runs[i].count == b->runs[i].count && a->runs[i].need == b->runs[i].need &&
                a->runs[i].zone == b->runs[i].zone;
    for (size_t i = 0; equal && i < a->slot_count; i++)
        equal = a->slots[i].size == b->slots[i].size && a->slots[i].offset == b->slots[i].offset &&
                a->slots[i].alone == b->slots[i].alone;
    for (size_t i = 0; equal && i < a->again_count; i++)
        equal = a->agains[i].from == b->agains[i].from && a->agains[i].to == b->agains[i].to &&
                a->agains[i].size == b->agains[i].size && a->agains[i].count == b->agains[i].count &&
                a->agains[i].need == b->agains[i].need;
    return equal && !memcmp(a->requests, b->requests, a->request_count * sizeof *a->requests) &&
           !memcmp(a->windows, b->windows, a->window_count * sizeof *a->windows);
}

static void check_again(const struct vp_learnt *learnt) {
    static char text[VP_LEARNT_BYTES];
    struct vp_learnt again;
    const char *why = NULL;
    unsigned line;
    const size_t size = vp_learnt_print(learnt, text);
    if (!size) /* longer than what was read, by its numbers' zeros */
        return;
    if (vp_learnt_parse(text, size, &again, &why, &line))
        fuzz_fail("what was written is refused: line %u: %s", line, why);
    if (learnt->device_count != again.device_count || learnt->key != again.key ||
        strcmp(learnt->program, again.program) != 0)
        fuzz_fail("another plan was written");
    for (unsigned d = 0; d < learnt->device_count; d++)
        if (!same(&learnt->device[d], &again.device[d]))
            fuzz_fail("device %u was written otherwise", learnt->device[d].device);
    vp_learnt_finish(&again);
}

/* In front of what stands for the last line, if any does. */
static size_t body(const char *text, size_t size) {
    for (size_t i = size; i >= 5; i--)
        if (!memcmp(text + i - 5, "\nend,", 5))
            return i - 4;
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct vp_learnt learnt;
    const char *why = NULL;
    unsigned line = 0;
    char *text = malloc(size + 32);
    fuzz_count(0);
    if (!text)
        abort();
    memcpy(text, data, size);
    const int raw = vp_learnt_parse(text, size, &learnt, &why, &line);
    if ((raw == -EINVAL) != (raw && raw != -EPROTO && raw != -ENOMEM) || (raw && raw != -ENOMEM && !why))
        fuzz_fail("%d without a reason", raw);
    if (!raw)
        vp_learnt_finish(&learnt);
    size_t used = body(text, size);
    used += (size_t)snprintf(text + used, 32, "end,%016llx\n",
                             (unsigned long long)vp_learnt_hash(VP_LEARNT_HASH, text, used));
    if (!vp_learnt_parse(text, used, &learnt, &why, &line)) {
        for (unsigned d = 0; d < learnt.device_count; d++)
            check_device(&learnt.device[d]);
        check_again(&learnt);
        vp_learnt_finish(&learnt);
    }
    free(text);
    return 0;
}
