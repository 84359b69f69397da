/*
 * Recording: each allocation and free that is served, as a line of the trace that `vpool replay` reads. Called under the lock.
 *
 * A program that is killed keeps what it recorded: see base/journal.h.
 */
#include "api/api_private.h"

#include "base/clock.h"
#include "base/journal.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static struct {
    struct vp_journal file;
    bool tried, on;
    pid_t owner;                /* a child that was forked has the mapping too, and must leave it alone */
    uint64_t begin;
} trace;

static void begin(void) {
    static const char header[] = "op,id,size,stream,us\n";
    char name[VP_OPTION_TEXT + 16];
    trace.tried = true;
    if (!*vp_options()->trace)
        return;
    int err = vp_file_name(name, sizeof name, vp_options()->trace) ? vp_journal_open(&trace.file, name) : -ENAMETOOLONG;
    if (!err && !(err = vp_journal_append(&trace.file, header, sizeof header - 1))) {
        trace.on = true;
        trace.owner = getpid();
        trace.begin = vp_clock_ns();
        return;
    }
    const char *why = err == -EBUSY    ? "another process records to it (%p in a name is the process id)"
                      : err == -ENODEV ? "it is no regular file"
                                       : strerror(-err);
    vp_log(VP_LOG_WARN, "VPOOL_TRACE: %s: %s; nothing is recorded", name, why);
}

static char *put_number(char *at, uint64_t n, char behind) {
    char digits[20];
    size_t count = 0;
    do
        digits[count++] = (char)('0' + n % 10);
    while (n /= 10);
    while (count)
        *at++ = digits[--count];
    *at++ = behind;
    return at;
}

/* Allocations are numbered in each pool: the device in the upper bits keeps them apart. */
void vp_trace_event(char op, const struct vp_pool *pool, const struct vp_region *r, const struct vp_line *line) {
    char text[VP_JOURNAL_LINE], *at = text;
    if (!trace.tried)
        begin();
    if (!trace.on)
        return;
    *at++ = op;
    *at++ = ',';
    at = put_number(at, (uint64_t)pool->device << 48 | r->serial, ',');
    at = put_number(at, op == 'a' ? r->asked : 0, ',');
    at = put_number(at, line ? line->number : 0, ',');
    at = put_number(at, (vp_clock_ns() - trace.begin) / 1000, '\n');
    int err = vp_journal_append(&trace.file, text, (size_t)(at - text));
    if (err) {
        trace.on = false;
        vp_log(VP_LOG_WARN, "VPOOL_TRACE: the file cannot grow: %s; recording stops, what is in it is whole", strerror(-err));
    }
}

/* Other threads may still be at work, or be stopped under the lock. Without it the file stays as a killed process would leave it. */
void vp_trace_end(void) {
    struct timespec until;
    if (!trace.on || trace.owner != getpid())
        return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    if (pthread_mutex_timedlock(&vp_state.lock, &until))
        return;
    if (trace.on) {
        trace.on = false;
        int err = vp_journal_close(&trace.file);
        if (err)
            vp_log(VP_LOG_WARN, "VPOOL_TRACE: the file cannot be closed: %s", strerror(-err));
    }
    pthread_mutex_unlock(&vp_state.lock);
}
