/* Many threads at one lock, some of which try, or come for a while only, under signals and while the process forks:
 * one has it at a time, nobody sleeps for ever, and errno stays. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "race.h"

#include "base/lock.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLEEPERS = 8, TAKERS = 64, TURNS = 3000, FORKS = 20, CHILD_SECONDS = 20 };

static struct vp_lock lock;
static long inside, turns VP_GUARDED_BY(lock);
static pthread_barrier_t start;

static void interrupted(int sig) {
    (void)sig;
}

/* What the system's threads ask for before they take what is taken. */
static VP_NOT_ANALYSED bool take(unsigned how) {
    if (how == 0)
        return vp_lock_try(&lock);
    if (how == 1)
        return vp_lock_for_a_while(&lock);
    vp_lock_take(&lock);
    return true;
}

static VP_NOT_ANALYSED void *taker(void *arg) {
    unsigned seed = (unsigned)(uintptr_t)arg;
    long own = 0;
    pthread_barrier_wait(&start);
    for (int i = 0; i < TURNS; i++) {
        errno = E2BIG;
        bool has = take((unsigned)rand_r(&seed) % 8);
        CHECK(errno == E2BIG);
        if (!has)
            continue;
        CHECK(++inside == 1);
        if (!(rand_r(&seed) % 64))
            sched_yield(); /* the others come, and sleep */
        turns++;
        own++;
        CHECK(--inside == 0);
        vp_lock_release(&lock);
    }
    return (void *)own;
}

/* Whoever has the lock when the process forks is no thread of the child. */
static VP_NOT_ANALYSED void child(void) {
    alarm(CHILD_SECONDS);
    vp_lock_reset(&lock);
    for (int i = 0; i < TURNS; i++) {
        vp_lock_take(&lock);
        vp_lock_release(&lock);
    }
    _exit(vp_lock_try(&lock) ? 0 : 1);
}

static void forks(void) {
#ifdef VP_LOCK_TOLD_TO_TSAN
    const int most = 0; /* it goes on with what other threads had, in the child, too */
#else
    const int most = FORKS;
#endif
    for (int i = 0; i < most; i++) {
        int status = -1;
        const pid_t pid = fork();
        if (!pid)
            child();
        CHECK(pid > 0);
        while (waitpid(pid, &status, 0) < 0)
            CHECK(errno == EINTR);
        CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
    }
}

static void signals(int each_us) {
    const struct itimerval timer = {{.tv_usec = each_us}, {.tv_usec = each_us}};
    CHECK(!sigaction(SIGALRM, &(struct sigaction){.sa_handler = interrupted}, NULL));
    CHECK(!setitimer(ITIMER_REAL, &timer, NULL));
}

static VP_NOT_ANALYSED void *take_once(void *unused) {
    vp_lock_take(&lock);
    vp_lock_release(&lock);
    return unused;
}

/* Some sleep, and each that has slept wakes the next one: no signal does. */
static VP_NOT_ANALYSED void all_that_sleep_wake(void) {
    pthread_t threads[SLEEPERS];
    alarm(CHILD_SECONDS);
    vp_lock_take(&lock);
    for (int i = 0; i < SLEEPERS; i++)
        CHECK(!pthread_create(&threads[i], NULL, take_once, NULL));
    usleep(100000);
    vp_lock_release(&lock);
    for (int i = 0; i < SLEEPERS; i++)
        CHECK(!pthread_join(threads[i], NULL));
    alarm(0);
}

VP_NOT_ANALYSED int main(void) {
    pthread_t threads[TAKERS];
    long all = 0;
    all_that_sleep_wake();
    pthread_barrier_init(&start, NULL, TAKERS + 1);
    for (uintptr_t i = 0; i < TAKERS; i++)
        CHECK(!pthread_create(&threads[i], NULL, taker, (void *)(i + 1)));
    signals(500);
    pthread_barrier_wait(&start);
    forks();
    for (int i = 0; i < TAKERS; i++) {
        void *own;
        CHECK(!pthread_join(threads[i], &own));
        all += (long)own;
    }
    signals(0);
    CHECK(turns == all && all > TAKERS * TURNS / 2);
    CHECK(!atomic_load(&lock.word));
    return 0;
}
