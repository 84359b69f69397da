/* A plan, as any bytes: read whole, or refused with one line; what is read lies within its peak, and is read again from
 * what is written of it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"
#include "memory/memory.h"
#include "tool/plan/planned.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void check(const struct vp_planned *p) {
    const struct vp_planned_phase *phases = p->phases.items;
    for (size_t i = 0; i < p->plan.count; i++) {
        const struct vp_stalloc_place *place = &p->plan.places[i];
        if (!place->size || place->size % VP_QUANTUM || place->offset % VP_QUANTUM || place->size > p->plan.peak ||
            place->offset > p->plan.peak - place->size)
            fuzz_fail("request %zu of %zu bytes at %zu", i, (size_t)place->size, (size_t)place->offset);
    }
    for (size_t v = 0; v < p->plan.visit_count; v++) {
        const struct vp_stalloc_visit *visit = &p->plan.visits[v];
        if (visit->first + visit->count > p->plan.space_count || visit->next > p->plan.visit_count ||
            (visit->next && visit->next <= v + 1) || visit->at > p->plan.count)
            fuzz_fail("visit %zu of %zu", v, p->plan.visit_count);
    }
    for (size_t i = 0; i < p->plan.space_count; i++)
        if (p->plan.spaces[i].low >= p->plan.spaces[i].high || p->plan.spaces[i].high > p->plan.peak)
            fuzz_fail("room from %zu to %zu", (size_t)p->plan.spaces[i].low, (size_t)p->plan.spaces[i].high);
    for (size_t m = 0; m < p->plan.module_count; m++)
        if (p->plan.modules[m].first >= p->plan.visit_count || p->plan.modules[m].repeat >= p->plan.visit_count ||
            p->plan.modules[m].name + strlen(p->plan.names + p->plan.modules[m].name) >= p->plan.names_size)
            fuzz_fail("module %zu of %zu", m, p->plan.module_count);
    for (size_t i = 0; i < p->phases.count; i++)
        if (phases[i].first > p->plan.count || !phases[i].name || (i && phases[i].first < phases[i - 1].first))
            fuzz_fail("phase %zu begins before request %zu", i, phases[i].first);
}

static bool same(const struct vp_planned *a, const struct vp_planned *b) {
    const struct vp_planned_phase *p = a->phases.items, *q = b->phases.items;
    bool equal = a->device == b->device && a->plan.count == b->plan.count && a->plan.peak == b->plan.peak &&
                 a->figures.lower_bound == b->figures.lower_bound && a->phases.count == b->phases.count;
    for (size_t i = 0; equal && i < a->plan.count; i++)
        equal = a->plan.places[i].size == b->plan.places[i].size &&
                a->plan.places[i].offset == b->plan.places[i].offset &&
                a->plan.places[i].stream == b->plan.places[i].stream;
    equal = equal && a->plan.repeat == b->plan.repeat && a->plan.module_count == b->plan.module_count &&
            a->plan.visit_count == b->plan.visit_count && a->plan.space_count == b->plan.space_count &&
            a->plan.names_size == b->plan.names_size;
    if (equal && a->plan.visit_count)
        equal = !memcmp(a->plan.visits, b->plan.visits, a->plan.visit_count * sizeof *a->plan.visits) &&
                !memcmp(a->plan.modules, b->plan.modules, a->plan.module_count * sizeof *a->plan.modules) &&
                !memcmp(a->plan.names, b->plan.names, a->plan.names_size);
    if (equal && a->plan.space_count)
        equal = !memcmp(a->plan.spaces, b->plan.spaces, a->plan.space_count * sizeof *a->plan.spaces);
    for (size_t i = 0; equal && i < a->phases.count; i++)
        equal = p[i].first == q[i].first && !strcmp(p[i].name, q[i].name);
    return equal;
}

static int read_text(const void *text, size_t size, struct vp_planned_file *file, char *message, size_t room) {
    char path[64];
    int fd = memfd_create("plan", MFD_CLOEXEC);
    if (fd < 0 || write(fd, text, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int err = vp_planned_read(file, path, message, room);
    close(fd);
    return err;
}

static void check_again(const struct vp_planned_file *file) {
    struct vp_planned_file again;
    char *text = NULL, message[256];
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        abort();
    if (vp_planned_write(out, file))
        abort();
    fclose(out);
    if (read_text(text, size, &again, message, sizeof message))
        fuzz_fail("what was written is refused: %s", message);
    if (strcmp(file->trace, again.trace) || file->device_count != again.device_count ||
        file->published != again.published)
        fuzz_fail("another plan was written");
    for (unsigned d = 0; d < file->device_count; d++)
        if (!same(&file->devices[d], &again.devices[d]))
            fuzz_fail("device %u was written otherwise", file->devices[d].device);
    vp_planned_file_finish(&again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct vp_planned_file file;
    char message[256] = "";
#ifdef VP_FUZZING
    /* What is compressed is zlib's, or goes through the gzip program: slow, and not ours. */
    if (size >= 2 && data[0] == 0x1f && data[1] == 0x8b)
        return -1;
#endif
    int err = read_text(data, size, &file, message, sizeof message);
    if (!err) {
        for (unsigned d = 0; d < file.device_count; d++)
            check(&file.devices[d]);
        check_again(&file);
        vp_planned_file_finish(&file);
    } else if (!*message || strchr(message, '\n') || file.device_count || file.trace) {
        fuzz_fail("refused (%d), and said '%s'", err, message);
    }
    fuzz_count(0);
    return 0;
}
