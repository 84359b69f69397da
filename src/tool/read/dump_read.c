/* Reads dumps that the library has written, for the report and the tests. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/read/dump_read.h"

#include "tool/read/dump_stacks.h"
#include "tool/read/json_read.h"
#include "tool/read/source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The newest known version. */
enum { FORMAT_VERSION = 1 };

/* Limits of devices in a machine, and of regions on a device: more cannot be right. */
enum { DEVICES = 64, REGIONS = 1 << 28 };

enum { LONGEST_NUMBER = 4096 };
/* The most bytes of a dump. */
#define MOST (UINT64_C(1) << 32)

struct reader {
    struct vp_dump_file *dump;
    struct vp_dump_stacks stacks;
    const char *fault;
    char format[16];
    unsigned long version;
};

bool vp_dump_is(const char *path) {
    char head[512];
    const ssize_t n = vp_source_peek(path, head, sizeof head - 1);
    head[n > 0 ? n : 0] = 0;
    return head[strspn(head, " \n\r\t")] == '{';
}

static struct vp_dump_device *device_of(struct reader *r, unsigned n) {
    struct vp_dump_file *dump = r->dump;
    if (n >= DEVICES) {
        r->fault = "it has too many devices";
        return NULL;
    }
    if (n >= dump->count) {
        void *devices = realloc(dump->devices, (n + 1) * sizeof *dump->devices);
        if (!devices) {
            r->fault = "out of memory";
            return NULL;
        }
        dump->devices = devices;
        memset(dump->devices + dump->count, 0, (n + 1 - dump->count) * sizeof *dump->devices);
        dump->count = n + 1;
    }
    return &dump->devices[n];
}

static struct vp_dump_region *region_of(struct reader *r, struct vp_dump_device *d, unsigned n) {
    if (n >= REGIONS || n > d->count) {
        r->fault = "it has too many regions";
        return NULL;
    }
    if (n == d->room) {
        size_t room = d->room ? d->room * 2 : 1024;
        void *regions = realloc(d->regions, room * sizeof *d->regions);
        if (!regions) {
            r->fault = "out of memory";
            return NULL;
        }
        d->regions = regions;
        d->room = room;
    }
    if (n == d->count)
        d->regions[d->count++] = (struct vp_dump_region){0};
    return &d->regions[n];
}

static void set_region(struct vp_dump_region *region, const char *field, const char *value) {
    uint64_t n = strtoull(value, NULL, 0);
    if (!strcmp(field, "addr"))
        region->addr = n;
    else if (!strcmp(field, "size"))
        region->size = n;
    else if (!strcmp(field, "asked"))
        region->asked = n;
    else if (!strcmp(field, "stream"))
        region->stream = n;
    else if (!strcmp(field, "stack"))
        region->stack = n;
    else if (!strncmp(field, "waits_for.", 10))
        region->waits = true;
    else if (!strcmp(field, "state"))
        region->state = !strcmp(value, "live")     ? VP_DUMP_LIVE
                        : !strcmp(value, "backed") ? VP_DUMP_LIVE
                        : !strcmp(value, "free")   ? VP_DUMP_FREE
                        : !strcmp(value, "zombie") ? VP_DUMP_ZOMBIE
                                                   : VP_DUMP_HOLE;
}

static void set_device(struct vp_dump_device *d, const char *field, const char *value) {
    const struct {
        const char *name;
        uint64_t *to;
    } fields[] = {
        {"device", &d->device},         {"live_bytes", &d->live_bytes},   {"held_bytes", &d->held_bytes},
        {"free_bytes", &d->free_bytes}, {"waste.internal", &d->internal}, {"waste.pinned", &d->pinned},
        {"waste.pending", &d->pending}, {"waste.idle", &d->idle},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!strcmp(field, fields[i].name))
            *fields[i].to = strtoull(value, NULL, 0);
}

/* Takes a value of a stack, or of a frame of one. False: it was none. */
static bool told_stacks(struct reader *r, const char *path, const char *value) {
    unsigned device, holder, row;
    int at = 0, err = 0;
    if (sscanf(path, "stacks.%u.%n", &row, &at) == 1 && at)
        err = vp_dump_stacks_stack(&r->stacks, row, path + at, value);
    else if (sscanf(path, "frames.%u.%n", &row, &at) == 1 && at)
        err = vp_dump_stacks_frame(&r->stacks, row, path + at, value);
    else if (sscanf(path, "devices.%u.holders.%u.stack.%u.%n", &device, &holder, &row, &at) == 3 && at)
        err = vp_dump_stacks_holder(&r->stacks, (device * 64 + holder) << 12 | row, path + at, value);
    else
        return false;
    if (err)
        r->fault = "out of memory";
    return true;
}

static void value_told(void *context, const char *path, const char *value) {
    struct reader *r = context;
    struct vp_dump_device *d;
    struct vp_dump_region *region;
    unsigned device, number;
    int at = 0;
    if (r->fault)
        return;
    if (!strcmp(path, "format"))
        snprintf(r->format, sizeof r->format, "%s", value);
    if (!strcmp(path, "version"))
        r->version = strtoul(value, NULL, 10);
    if (told_stacks(r, path, value) || sscanf(path, "devices.%u.%n", &device, &at) < 1 || !at ||
        !(d = device_of(r, device)))
        return;
    path += at;
    at = 0;
    if (sscanf(path, "regions.%u.%n", &number, &at) < 1 || !at)
        set_device(d, path, value);
    else if ((region = region_of(r, d, number)))
        set_region(region, path + at, value);
}

/* Checks that regions are in address order and do not overlap. */
static const char *fault_of(const struct vp_dump_device *d) {
    for (size_t i = 0; i < d->count; i++) {
        const struct vp_dump_region *r = &d->regions[i];
        if (!r->size || r->addr + r->size < r->addr || (i && r->addr < r[-1].addr + r[-1].size))
            return "its regions do not follow each other";
    }
    return NULL;
}

static void not_told(void *context, const char *path, const char *value) {
    (void)context, (void)path, (void)value;
}

/* Can what was read so far begin a JSON text? A number that is cut off counts as a fault near the end. */
static bool can_be_json(const struct vp_dump_file *dump) {
    const char *end = dump->text + dump->length, *at = vp_json_fault(dump->text, not_told, NULL);
    return !at || end - at < LONGEST_NUMBER;
}

/* Reads the text. What is no JSON may be endless: it is read only until that shows, and the caller reports the fault.
 */
static int read_text(struct vp_dump_file *dump, const char *path) {
    const int fd = vp_source_fd(path);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    size_t room = 0, n = 1;
    while (file && n && !ferror(file)) {
        if (dump->length + 1 >= room) {
            if (room && !can_be_json(dump)) {
                n = 0;
                break;
            }
            if (room >= MOST) {
                errno = EFBIG;
                break;
            }
            char *text = realloc(dump->text, room = room ? room * 2 : 65536);
            if (!text)
                break;
            dump->text = text;
        }
        dump->length += n = fread(dump->text + dump->length, 1, room - dump->length - 1, file);
        dump->text[dump->length] = 0;
    }
    bool good = file && !n && !ferror(file);
    if (file)
        fclose(file);
    else if (fd >= 0)
        close(fd);
    return good ? 0 : -1;
}

static unsigned line_of(const char *text, const char *at) {
    unsigned line = 1;
    for (; text < at; text++)
        line += *text == '\n';
    return line;
}

static void find_stacks(struct reader *r) {
    struct vp_dump_file *dump = r->dump;
    r->fault = vp_dump_stacks_make(&r->stacks, &dump->stacks);
    for (size_t d = 0; d < dump->count; d++)
        for (size_t i = 0; i < dump->devices[d].count && !r->fault; i++) {
            struct vp_dump_region *region = &dump->devices[d].regions[i];
            const uint32_t stack = vp_dump_stacks_at(&r->stacks, region->stack);
            if (region->stack && !stack)
                r->fault = "one of its regions names a stack that is missing";
            region->stack = stack;
        }
}

int vp_dump_read(struct vp_dump_file *dump, const char *path, char *message, size_t room) {
    struct reader r = {.dump = dump};
    *dump = (struct vp_dump_file){0};
    message[0] = 0;
    if (read_text(dump, path) < 0) {
        snprintf(message, room, "%s: %s", path, strerror(errno));
        vp_dump_finish(dump);
        return -1;
    }
    const char *at = vp_json_fault(dump->text, value_told, &r);
    if (!at && strlen(dump->text) != dump->length)
        at = dump->text + strlen(dump->text);
    if (at)
        snprintf(message, room, "%s:%u: it is not JSON, or it is cut off", path, line_of(dump->text, at));
    else if (strcmp(r.format, "vpool-dump"))
        snprintf(message, room, "%s:1: it is not a dump of vpool (\"format\": \"vpool-dump\")", path);
    else if (r.version != FORMAT_VERSION)
        snprintf(message, room, "%s:1: a dump of version %lu; this vpool reads version %d", path, r.version,
                 FORMAT_VERSION);
    for (size_t i = 0; i < dump->count && !r.fault; i++)
        r.fault = fault_of(&dump->devices[i]);
    if (!r.fault && !*message)
        find_stacks(&r);
    vp_dump_stacks_finish(&r.stacks);
    if (r.fault && !*message)
        snprintf(message, room, "%s:1: %s", path, r.fault);
    if (*message)
        vp_dump_finish(dump);
    return *message ? -1 : 0;
}

int vp_dump_name(struct vp_dump_file *dump) {
    uint32_t *map;
    const int err = vp_stacks_name(&dump->stacks, &map);
    for (size_t d = 0; d < dump->count && map; d++)
        for (size_t i = 0; i < dump->devices[d].count; i++)
            dump->devices[d].regions[i].stack = map[dump->devices[d].regions[i].stack];
    free(map);
    return err;
}

void vp_dump_finish(struct vp_dump_file *dump) {
    for (size_t i = 0; i < dump->count; i++)
        free(dump->devices[i].regions);
    free(dump->devices);
    free(dump->text);
    vp_stacks_finish(&dump->stacks);
    *dump = (struct vp_dump_file){0};
}
