/* The processes under the library, as their shared statistics show them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/top/processes.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a stranger wrote goes to a terminal: printable ASCII alone does. */
static void copy_text(char *to, size_t room, const char *from, size_t length) {
    size_t n = 0;
    for (; n + 1 < room && n < length && from[n]; n++)
        to[n] = from[n] >= ' ' && from[n] < 127 ? from[n] : '?';
    to[n] = 0;
}

static void read_command(struct vp_watched *w, int pid) {
    char name[32], text[sizeof w->command];
    snprintf(name, sizeof name, "/proc/%d/cmdline", pid);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0) {
        snprintf(w->command, sizeof w->command, "%s", w->program);
        return;
    }
    text[n] = 0;
    /* The folder of the program is of no interest. */
    char *slash = strrchr(text, '/');
    size_t skip = slash ? (size_t)(slash + 1 - text) : 0;
    for (ssize_t i = 0; i + 1 < n; i++)
        if (!text[i])
            text[i] = ' ';
    copy_text(w->command, sizeof w->command, text + skip, (size_t)n - skip);
}

/* The names of the users met last. A directory of users may be far away. */
static const char *user_name(uid_t uid) {
    enum { KEPT = 16 };
    static struct {
        uid_t uid;
        char name[VP_USER_TEXT];
    } users[KEPT];
    static unsigned count;
    for (unsigned i = 0; i < count && i < KEPT; i++)
        if (users[i].uid == uid)
            return users[i].name;
    unsigned place = count++ % KEPT;
    const struct passwd *entry = getpwuid(uid);
    users[place].uid = uid;
    if (entry)
        copy_text(users[place].name, sizeof users[place].name, entry->pw_name, strlen(entry->pw_name));
    else
        snprintf(users[place].name, sizeof users[place].name, "%u", (unsigned)uid);
    return users[place].name;
}

static void read_figures(const struct vp_shared_stats_device *device, struct vp_shared_stats_figures *out) {
#define LOAD(field, ...) out->field = device->field;
    VP_SHARED_STATS_FIGURES(LOAD)
#undef LOAD
}

static const struct vp_row *row_before(const struct vp_sample *before, const struct vp_watched *w, uint64_t device) {
    for (unsigned i = 0; before && i < before->row_count; i++) {
        const struct vp_row *row = &before->rows[i];
        const struct vp_watched *then = &before->processes[row->process];
        if (row->device == device && then->page.pid == w->page.pid &&
            vp_process_same(&then->page.stats->process, &w->page.stats->process))
            return row;
    }
    return NULL;
}

/* While a sample is taken. */
struct taking {
    struct vp_sample *sample;
    const struct vp_sample *before;
    const int *pids;
    unsigned pid_count;
};

static void fill_row(struct vp_row *row, const struct taking *t, const struct vp_watched *w, uint32_t i) {
    const struct vp_shared_stats *stats = w->page.stats;
    *row = (struct vp_row){.device = stats->device[i].device,
                           .total = stats->total[i],
                           .place = stats->place[i],
                           .process = t->sample->process_count,
                           .allocs_per_s = -1,
                           .driver_calls_per_s = -1};
    read_figures(&stats->device[i], &row->now);
    const struct vp_row *then = row_before(t->before, w, row->device);
    double seconds = then ? (double)(t->sample->ns - t->before->ns) / 1e9 : 0;
    if (seconds > 0) {
        row->allocs_per_s = (double)(row->now.allocs - then->now.allocs) / seconds;
        row->driver_calls_per_s = (double)(row->now.driver_calls - then->now.driver_calls) / seconds;
    }
}

static bool wanted(const struct taking *t, int pid) {
    for (unsigned i = 0; i < t->pid_count; i++)
        if (t->pids[i] == pid)
            return true;
    return t->pid_count == 0;
}

/* Who owns a page may copy it, and may write into it that it is of one device twice. Two series of the same labels are
 * none to Prometheus, and cost it all the others. */
static bool is_known(const struct vp_sample *s, int pid) {
    for (unsigned i = 0; i < s->process_count; i++)
        if (s->processes[i].page.pid == pid)
            return true;
    return false;
}

static bool is_repeated(const struct vp_shared_stats *stats, uint32_t device) {
    for (uint32_t i = 0; i < device; i++)
        if (stats->device[i].device == stats->device[device].device)
            return true;
    return false;
}

static int add_process(void *context, const struct vp_page *page) {
    const struct taking *t = context;
    struct vp_sample *s = t->sample;
    uint32_t devices = atomic_load(&page->stats->devices);
    devices = devices < VP_SHARED_STATS_DEVICES ? devices : VP_SHARED_STATS_DEVICES;
    if (!wanted(t, page->pid) || is_known(s, page->pid))
        return 0;
    struct vp_watched *processes = reallocarray(s->processes, s->process_count + 1, sizeof *processes);
    if (processes)
        s->processes = processes;
    struct vp_row *rows = reallocarray(s->rows, s->row_count + devices + 1, sizeof *rows);
    if (rows)
        s->rows = rows;
    struct vp_shared_stats *stats = processes && rows ? malloc(sizeof *stats) : NULL;
    if (!stats)
        return -ENOMEM;
    memcpy(stats, page->stats, sizeof *stats);
    struct vp_watched *w = &processes[s->process_count];
    *w = (struct vp_watched){.page = *page};
    w->page.stats = stats;
    copy_text(w->program, sizeof w->program, stats->program, sizeof stats->program);
    copy_text(w->policy, sizeof w->policy, stats->policy, sizeof stats->policy);
    copy_text(w->release, sizeof w->release, stats->release, sizeof stats->release);
    copy_text(w->rank, sizeof w->rank, stats->rank, sizeof stats->rank);
    snprintf(w->user, sizeof w->user, "%s", user_name(page->uid));
    read_command(w, page->pid);
    for (uint32_t i = 0; i < devices; i++)
        if (!is_repeated(stats, i))
            fill_row(&rows[s->row_count++], t, w, i);
    s->process_count++;
    return 0;
}

int vp_sample_take(struct vp_sample *sample, const struct vp_sample *before, const int *pids, unsigned pid_count) {
    struct vp_sample s = {.ns = vp_clock_ns()};
    struct taking taking = {&s, before, pids, pid_count};
    vp_shared_stats_sweep(UINT_MAX, UINT_MAX);
    int err = vp_pages_each(add_process, &taking);
    if (err)
        vp_sample_drop(&s);
    else
        *sample = s;
    return err;
}

void vp_sample_drop(struct vp_sample *sample) {
    for (unsigned i = 0; i < sample->process_count; i++)
        free(sample->processes[i].page.stats);
    free(sample->processes);
    free(sample->rows);
    *sample = (struct vp_sample){0};
}
