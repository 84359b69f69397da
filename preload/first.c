/* Marks the first process of a run; and writes the statistics of a process that a signal ends.
 *
 * The signal handler only wakes a thread, which writes the statistics as at exit and then lets the signal take effect.
 * The interrupted thread waits meanwhile. If it holds the library's lock, the writer goes on without the lock after a
 * second. Signals that the program handles or ignores are left alone, and a handler that the program installs later
 * replaces ours.
 *
 * Python turns SIGINT into a KeyboardInterrupt. If nothing catches it, it ends the interpreter, which then restores the
 * default action and sends itself the signal, so that no exit handler runs. So we wrap Python's own handler, and after
 * such a signal write the statistics when the interpreter ends. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "early.h"
#include "base/options.h"
#include "watch/watch.h"

#define MARK "VPOOL_FIRST"

/* libc's own, as in adopt.c: a shell has others. */
void vp_first_mark(void) {
    char *(*get)(const char *) = (__typeof__(get))vp_real_dlsym(RTLD_NEXT, "getenv");
    int (*set)(const char *, const char *, int) = (__typeof__(set))vp_real_dlsym(RTLD_NEXT, "setenv");
    char own[16];
    if (strcmp(vp_options()->stats, "1") || getauxval(AT_SECURE) || !get || !set)
        return;
    snprintf(own, sizeof own, "%d", (int)getpid());
    const char *marked = get(MARK);
    if (!marked)
        set(MARK, own, 1);
    /* A program that takes this one's place is as much the first. */
    vp_stats_serves(!marked || !strcmp(marked, own));
}

/* ---- signals ---- */

static const int signals[] = {SIGHUP, SIGINT, SIGTERM};

/* The one that came; the thread sleeps on it. */
static atomic_int caught;
static pid_t owner;

/* How long the end may wait for what is to be written; locks are waited for a second each at most. */
enum { PATIENCE_S = 10 };

static void let_end(int number) {
    sigset_t one;
    signal(number, SIG_DFL);
    sigemptyset(&one);
    sigaddset(&one, number);
    kill(getpid(), number);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
}

static void on_signal(int number) {
    int kept = errno, none = 0;
    /* A forked child has no such thread, and one of vfork() would wake its parent's. */
    if (getpid() == owner && atomic_compare_exchange_strong(&caught, &none, number)) {
        syscall(SYS_futex, &caught, FUTEX_WAKE, 1, NULL, NULL, 0);
        nanosleep(&(struct timespec){.tv_sec = PATIENCE_S}, NULL);
    }
    if (!none)
        let_end(number);
    errno = kept;
}

static void *wait_for_signal(void *unused) {
    int number;
    pthread_setname_np(pthread_self(), "vpool-end");
    while (!(number = atomic_load(&caught)))
        syscall(SYS_futex, &caught, FUTEX_WAIT, 0, NULL, NULL, 0);
    vp_stats_write();
    vp_shared_stats_remove();
    let_end(number);
    return NULL;
}

/* ---- Python's interrupt ---- */

static void (*pythons)(int);
static atomic_bool interrupted;

static void on_interrupt(int number) {
    atomic_store(&interrupted, true);
    pythons(number);
}

static void at_pythons_end(void) {
    if (atomic_load(&interrupted))
        vp_stats_write();
}

/* Whether the handler is the interpreter's own: another's may be compared with what is in force. */
static bool is_of_python(const struct sigaction *action, void *within_python) {
    Dl_info handler, python;
    return !(action->sa_flags & SA_SIGINFO) && action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN &&
           action->sa_handler != on_interrupt && dladdr((void *)action->sa_handler, &handler) &&
           dladdr(within_python, &python) && handler.dli_fbase == python.dli_fbase;
}

static void hear_python(void) {
    int (*at_end)(void (*)(void)) = (__typeof__(at_end))vp_real_dlsym(RTLD_DEFAULT, "Py_AtExit");
    struct sigaction theirs, meanwhile;
    if (!at_end || sigaction(SIGINT, NULL, &theirs) || !is_of_python(&theirs, (void *)at_end) || at_end(at_pythons_end))
        return;
    pythons = theirs.sa_handler;
    struct sigaction ours = theirs;
    ours.sa_handler = on_interrupt;
    if (!sigaction(SIGINT, &ours, &meanwhile) && meanwhile.sa_handler != pythons)
        sigaction(SIGINT, &meanwhile, NULL); /* another thread was first */
}

void vp_first_hear_signals(void) {
    const struct vp_options *options = vp_options();
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_ONSTACK}, theirs;
    bool started = false;
    /* A trace needs no such care: it is whole whenever the process ends. */
    if (!*options->stats)
        return;
    hear_python();
    /* The first process of a container is ended by no signal that it has no handler for. */
    if (getpid() == 1)
        return;
    sigfillset(&action.sa_mask);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        if (sigaction(signals[i], NULL, &theirs) || (theirs.sa_flags & SA_SIGINFO) || theirs.sa_handler != SIG_DFL)
            continue;
        owner = getpid();
        if (!started && vp_thread_start(wait_for_signal))
            return;
        started = true;
        sigaction(signals[i], &action, NULL);
    }
}
