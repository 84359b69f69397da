/* Dumps by signal and by time are made by a thread of their own: the handler only wakes it, so that a signal
 * never finds the pool half-way through an operation. The thread takes no signals, calls nothing of CUDA, and
 * ends with the process. A forked child has none, and makes no such dumps; a signal does nothing there. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include "watch/dump.h"
#include "watch/watch.h"
#include "base/clock.h"
#include "base/log.h"

static void on_signal(int number) {
    int kept = errno;
    vp_dump_ask();
    errno = kept;
}

static void *run(void *unused) {
    const uint64_t every_ns = vp_dump_plan()->every_ms * UINT64_C(1000000);
    uint64_t next = vp_clock_ns() + every_ns;
    pthread_setname_np(pthread_self(), "vpool-dump");
    for (;;) {
        if (vp_dump_wait(every_ns ? next : 0)) {
            vp_dump_answer();
            continue;
        }
        vp_dump_make(VP_DUMP_EVERY);
        /* One that took longer than it may is followed by a whole pause. */
        const uint64_t now = vp_clock_ns();
        next += every_ns;
        if (now > next)
            next = now + every_ns;
    }
    return NULL;
}

static void start_handler(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_ONSTACK}, theirs;
    const struct vp_dump_signal named = vp_dump_signal();
    sigemptyset(&action.sa_mask);
    if (sigaction(named.number, NULL, &theirs))
        return;
    if ((theirs.sa_flags & SA_SIGINFO) || theirs.sa_handler != SIG_DFL) {
        vp_log(VP_LOG_WARN,
               "VPOOL_DUMP=signal: the program handles %s itself: no dumps by signal "
               "(VPOOL_DUMP_SIGNAL names another)",
               named.name);
        return;
    }
    sigaction(named.number, &action, NULL);
}

void vp_dumper_start(void) {
    const struct vp_dump_plan *plan = vp_dump_plan();
    if (!plan->when[VP_DUMP_SIGNAL] && !plan->when[VP_DUMP_EVERY])
        return;
    if (vp_thread_start(run)) {
        vp_log(VP_LOG_WARN, "VPOOL_DUMP: no thread is to be had: no dumps by signal or time");
    } else if (plan->when[VP_DUMP_SIGNAL]) {
        vp_shared_stats_take_dumps();
        start_handler();
    }
}
