/* The processes under the library, as their shared statistics show them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/processes.h"

#include "base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a stranger wrote goes to a terminal: printable ASCII alone does. */
static void copy_text(char *to, size_t room, const char *from, size_t length) {
    size_t n = 0;
    for (; n + 1 < room && n < length && from[n]; n++)
        to[n] = from[n] >= ' ' && from[n] < 127 ? from[n] : '?';
    to[n] = 0;
}

static void read_command(struct vp_watched *w, uint32_t pid) {
    char name[32], text[sizeof w->command];
    snprintf(name, sizeof name, "/proc/%u/cmdline", pid);
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

/* Maps the statistics in a file; NULL: there are none that we can read. */
static struct vp_shared_stats *map(const char *file) {
    struct stat st;
    int fd = open(file, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    bool good = !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() && st.st_size >= VP_SHARED_STATS_SIZE;
    void *stats = good ? mmap(NULL, VP_SHARED_STATS_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    return stats == MAP_FAILED ? NULL : stats;
}

static bool readable(const struct vp_shared_stats *stats) {
    return atomic_load_explicit(&stats->magic, memory_order_acquire) == VP_SHARED_STATS_MAGIC &&
           stats->version == VP_SHARED_STATS_VERSION && stats->size >= VP_SHARED_STATS_SIZE &&
           stats->namespace == vp_process_namespace();
}

/* The figures of one moment, unless the writer is so busy that a hundred tries meet it writing. */
static void read_figures(struct vp_shared_stats_device *device, struct vp_shared_stats_figures *out) {
    uint64_t before, after;
    int tries = 0;
    do {
        before = atomic_load_explicit(&device->changes, memory_order_acquire);
#define LOAD(field, ...) out->field = atomic_load_explicit(&device->field, memory_order_acquire);
        VP_SHARED_STATS_FIGURES(LOAD)
#undef LOAD
        after = atomic_load_explicit(&device->changes, memory_order_relaxed);
    } while ((before != after || before & 1) && ++tries < 100);
}

static const struct vp_row *row_before(const struct vp_sample *before, const struct vp_watched *w, uint64_t device) {
    for (unsigned i = 0; before && i < before->row_count; i++) {
        const struct vp_row *row = &before->rows[i];
        const struct vp_shared_stats *stats = before->processes[row->process].stats;
        if (row->device == device && stats->pid == w->stats->pid &&
            vp_process_same(&stats->process, &w->stats->process))
            return row;
    }
    return NULL;
}

static int add_process(struct vp_sample *s, const struct vp_sample *before, struct vp_shared_stats *stats) {
    uint32_t devices = atomic_load(&stats->devices);
    devices = devices < VP_SHARED_STATS_DEVICES ? devices : VP_SHARED_STATS_DEVICES;
    struct vp_watched *processes = reallocarray(s->processes, s->process_count + 1, sizeof *processes);
    if (processes)
        s->processes = processes;
    struct vp_row *rows = reallocarray(s->rows, s->row_count + devices + 1, sizeof *rows);
    if (rows)
        s->rows = rows;
    if (!processes || !rows)
        return -ENOMEM;
    struct vp_watched *w = &processes[s->process_count];
    *w = (struct vp_watched){.stats = stats};
    copy_text(w->program, sizeof w->program, stats->program, sizeof stats->program);
    copy_text(w->policy, sizeof w->policy, stats->policy, sizeof stats->policy);
    copy_text(w->release, sizeof w->release, stats->release, sizeof stats->release);
    read_command(w, stats->pid);
    for (uint32_t i = 0; i < devices; i++) {
        struct vp_row *row = &rows[s->row_count++];
        *row = (struct vp_row){.device = stats->device[i].device,
                               .process = s->process_count,
                               .allocs_per_s = -1,
                               .driver_calls_per_s = -1};
        read_figures(&stats->device[i], &row->now);
        const struct vp_row *then = row_before(before, w, row->device);
        double seconds = then ? (double)(s->ns - before->ns) / 1e9 : 0;
        if (seconds > 0) {
            row->allocs_per_s = (double)(row->now.allocs - then->now.allocs) / seconds;
            row->driver_calls_per_s = (double)(row->now.driver_calls - then->now.driver_calls) / seconds;
        }
    }
    s->process_count++;
    atomic_fetch_add(&stats->asked, 1);
    return 0;
}

static bool wanted(int pid, const int *pids, unsigned count) {
    for (unsigned i = 0; i < count; i++)
        if (pids[i] == pid)
            return true;
    return count == 0;
}

int vp_sample_take(struct vp_sample *sample, const struct vp_sample *before, const int *pids, unsigned pid_count) {
    char file[96];
    int err = 0;
    struct vp_sample s = {.ns = vp_clock_ns()};
    vp_shared_stats_sweep(UINT_MAX, UINT_MAX);
    DIR *folder = opendir(VP_SHARED_STATS_FOLDER);
    if (!folder)
        return -errno;
    for (struct dirent *entry; !err && (entry = readdir(folder));) {
        int pid = vp_shared_stats_owner(entry->d_name);
        if (!pid || !wanted(pid, pids, pid_count))
            continue;
        snprintf(file, sizeof file, VP_SHARED_STATS_FOLDER "/%.60s", entry->d_name);
        struct vp_shared_stats *stats = map(file);
        bool shown = stats && readable(stats);
        if (shown)
            err = add_process(&s, before, stats);
        if (stats && (!shown || err))
            munmap(stats, VP_SHARED_STATS_SIZE);
    }
    closedir(folder);
    if (err)
        vp_sample_drop(&s);
    else
        *sample = s;
    return err;
}

void vp_sample_drop(struct vp_sample *sample) {
    for (unsigned i = 0; i < sample->process_count; i++)
        munmap(sample->processes[i].stats, VP_SHARED_STATS_SIZE);
    free(sample->processes);
    free(sample->rows);
    *sample = (struct vp_sample){0};
}
