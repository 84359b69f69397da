/* Loads the file of a plan in a program: for each device, into anonymous memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "compare/stalloc_file.h"

#include "base/log.h"
#include "base/os_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The largest plan file: some hundred million requests. */
static const off_t MOST = (off_t)4 << 30;

struct loading {
    unsigned device, devices;
    bool any; /* any device's number will do, as the file has only one */
    struct vp_stalloc_plan plan;
    bool found;
};

static void *grow(void *context, void *old, size_t had, size_t wanted) {
    return old ? vp_os_lengthen(old, had, wanted) : vp_os_take(wanted);
}

static int device(void *context, uint16_t number, uint64_t bound, struct vp_stalloc_plan **plan) {
    struct loading *l = context;
    l->devices++;
    if (!l->found && (l->any || number == l->device)) {
        l->found = true;
        *plan = &l->plan;
    }
    return 0;
}

static int read_text(struct vp_stalloc_reader *r, char *text, size_t size) {
    int err = 0;
    for (char *end; !err && size; size -= (size_t)(end + 1 - text), text = end + 1) {
        end = memchr(text, '\n', size);
        if (!end) {
            r->line++;
            return vp_stalloc_fault(r, "the last line is cut off");
        }
        *end = 0;
        err = vp_stalloc_read_line(r, text, (size_t)(end - text));
    }
    return err ? err : vp_stalloc_read_end(r);
}

/* Reads a file. 0 or a negative errno, with a message. The file's pages are mapped privately, as lines are cut into
 * fields. */
static int read_file(struct loading *l, const char *path, char *message, size_t room) {
    struct stat st;
    struct vp_stalloc_reader r = {
        .path = path, .message = message, .message_room = room, .context = l, .grow = grow, .device = device};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), err = fd < 0 || fstat(fd, &st) < 0 ? -errno : 0;
    if (!err && (!S_ISREG(st.st_mode) || st.st_size > MOST))
        err = -EFBIG;
    char *text = MAP_FAILED;
    if (!err && st.st_size)
        text = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (!err && st.st_size && text == MAP_FAILED)
        err = -errno;
    if (fd >= 0)
        close(fd);
    snprintf(message, room, "%s: %s", path, err == -EFBIG ? "no plan" : strerror(-err));
    if (err)
        return err;
    err = read_text(&r, text, st.st_size ? (size_t)st.st_size : 0);
    if (st.st_size)
        vp_os_give(text, (size_t)st.st_size);
    if (err == -ENOMEM)
        snprintf(message, room, "%s: out of memory", path);
    return err;
}

static void drop(void *items, size_t count, size_t size) {
    if (items)
        vp_os_give(items, vp_stalloc_room(count) * size);
}

static void drop_arrays(const struct vp_stalloc_plan *plan) {
    drop(plan->places, plan->count, sizeof *plan->places);
    drop(plan->modules, plan->module_count, sizeof *plan->modules);
    drop(plan->visits, plan->visit_count, sizeof *plan->visits);
    drop(plan->spaces, plan->space_count, sizeof *plan->spaces);
    drop(plan->names, plan->names_size, 1);
}

void vp_stalloc_unload(struct vp_stalloc_plan *plan) {
    if (plan) {
        drop_arrays(plan);
        vp_os_give(plan, sizeof *plan);
    }
}

struct vp_stalloc_plan *vp_stalloc_load(const char *path, unsigned number) {
    char message[512];
    struct loading l = {.device = number};
    struct vp_stalloc_plan *kept = grow(NULL, NULL, 0, sizeof *kept);
    int err = kept ? read_file(&l, path, message, sizeof message) : -ENOMEM;
    if (!err && !l.found && l.devices == 1) {
        l = (struct loading){.device = number, .any = true};
        err = read_file(&l, path, message, sizeof message);
    }
    if (!kept)
        snprintf(message, sizeof message, "%s: out of memory", path);
    if (err)
        vp_log(VP_LOG_WARN, "VPOOL_PLAN: %s; the cache serves", message);
    else if (!l.found)
        vp_log(VP_LOG_WARN, "VPOOL_PLAN: %s has no plan of device %u; the cache serves", path, number);
    if (!err && l.found) {
        *kept = l.plan;
        return kept;
    }
    drop_arrays(&l.plan);
    if (kept)
        vp_os_give(kept, sizeof *kept);
    return NULL;
}
