/* vpool doctor: what keeps idle memory from processes that lack it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/process.h"
#include "tool/doctor/doctor.h"
#include "tool/top/processes.h"
#include "tool/top/top.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef void teller(enum mark mark, const char *line);

/* How many processes are reported at most. */
enum { TOLD = 8 };

/* Why no page can be created, also where permissions do not show it (a full folder, root): errno, or 0. */
static int page_obstacle(void) {
    int fd = open(VP_SHARED_STATS_FOLDER, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR))
        return access(VP_SHARED_STATS_FOLDER, R_OK | W_OK | X_OK) ? errno : 0;
    if (fd < 0)
        return errno;
    int err = posix_fallocate(fd, 0, VP_SHARED_STATS_SIZE);
    close(fd);
    return err;
}

/* Reports what applies here to a process that is started now. */
static void check_here(const struct vp_options *o, teller *say) {
    char line[256];
    int err;
    if (!o->page)
        say(NOTE, "VPOOL_PAGE=0: other processes do not see this one and ask it for no idle memory");
    else if (!o->lend)
        say(NOTE, "VPOOL_LEND=0: idle memory is not given back to processes that lack memory");
    else if ((err = page_obstacle())) {
        snprintf(line, sizeof line, "%s: %s: processes do not see each other there, and lend no idle memory",
                 VP_SHARED_STATS_FOLDER, strerror(err));
        say(NOTE, line);
    } else if (!vp_process_namespace())
        say(NOTE, "/proc does not show the namespace of process ids, so no idle memory is lent");
    else
        say(OK, "idle memory is lent to processes of this user on the same device, in this container (VPOOL_LEND)");
}

/* Why the process gives no idle memory to others here; NULL: it gives. */
static const char *reason_of(const struct vp_page *page) {
    const struct vp_shared_stats *stats = page->stats;
    if (stats->namespace != vp_process_namespace())
        return "it is in another container";
    if (stats->ties.paused)
        return "vpool pause has put it to sleep";
    if (!(stats->loans.takes & VP_LOANS_LENT))
        return stats->loans.takes ? "VPOOL_LEND=0" : "it does not hear what is asked";
    return vp_process_is_stopped(page->pid) ? "it is stopped" : NULL;
}

static uint64_t idle_of(const struct vp_sample *sample, unsigned process) {
    uint64_t idle = 0;
    for (unsigned i = 0; i < sample->row_count; i++)
        if (sample->rows[i].process == process)
            idle += vp_row_free(&sample->rows[i]);
    return idle;
}

/* Reports running processes that give nothing. */
static void check_processes(teller *say) {
    struct vp_sample sample;
    char line[256];
    unsigned told = 0;
    if (vp_sample_take(&sample, NULL, NULL, 0))
        return;
    for (unsigned i = 0; i < sample.process_count && told < TOLD; i++) {
        const struct vp_watched *w = &sample.processes[i];
        const char *reason = w->page.uid == geteuid() ? reason_of(&w->page) : NULL;
        const uint64_t idle = idle_of(&sample, i);
        if (!reason || !idle)
            continue;
        snprintf(line, sizeof line, "process %d (%s) gives nothing of what it has idle, about %.1f MiB: %s",
                 w->page.pid, w->program, (double)idle / (1 << 20), reason);
        say(NOTE, line);
        told++;
    }
    vp_sample_drop(&sample);
}

void vp_doctor_lending(const struct vp_options *o, teller *say) {
    check_here(o, say);
    check_processes(say);
}
