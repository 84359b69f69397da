/* How a thread sleeps until a lock is free: see lock.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/lock.h"

#include "base/clock.h"

#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

_Alignas(64) struct vp_lock vp_library_lock;

/* If the lock is then given up on, ThreadSanitizer would report what is read without it; everything is ten times slower
 * there. */
#ifdef VP_LOCK_TOLD_TO_TSAN
static const uint64_t A_WHILE_NS = 100000000000;
#else
static const uint64_t A_WHILE_NS = 1000000000;
#endif

/* The second mutex of Ulrich Drepper, Futexes Are Tricky (2011): a thread that has slept takes the lock as awaited,
 * since it cannot know whether others still sleep. */
static bool is_taken(struct vp_lock *lock) {
    return atomic_exchange_explicit(&lock->word, VP_LOCK_AWAITED, memory_order_acquire) != VP_LOCK_FREE;
}

static void sleep_on(struct vp_lock *lock, const struct timespec *most) {
    syscall(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE, VP_LOCK_AWAITED, most, NULL, 0);
}

void vp_lock_wait(struct vp_lock *lock) {
    const int before = errno;
    while (is_taken(lock))
        sleep_on(lock, NULL);
    errno = before;
}

void vp_lock_wake(struct vp_lock *lock) {
    const int before = errno;
    syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    errno = before;
}

bool vp_lock_for_a_while(struct vp_lock *lock) {
    const int before = errno;
    const uint64_t begin = vp_clock_ns();
    uint64_t passed = 0;
    bool taken;
    VP_LOCK_TSAN(pre_lock(lock, __tsan_mutex_try_lock));
    while (!(taken = !is_taken(lock)) && (passed = vp_clock_ns() - begin) < A_WHILE_NS) {
        const uint64_t left = A_WHILE_NS - passed;
        sleep_on(lock, &(struct timespec){.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000});
    }
    VP_LOCK_TSAN(post_lock(lock, __tsan_mutex_try_lock | (taken ? 0 : __tsan_mutex_try_lock_failed), 0));
    errno = before;
    return taken;
}

void vp_lock_reset(struct vp_lock *lock) {
    atomic_store_explicit(&lock->word, VP_LOCK_FREE, memory_order_relaxed);
}
