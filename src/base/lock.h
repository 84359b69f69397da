/* A lock of one word: an atomic exchange takes it, another releases it, and a thread that finds it taken sleeps in the
 * kernel.
 *
 * It is like the system's mutex, without what that must decide at each call (its kind, its owner, robustness): an
 * allocation and its free take the library's lock twice. Like a mutex it is not fair, not recursive and no cancellation
 * point. It keeps errno. All zero: free. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/thread_safety.h"

#include <stdatomic.h>
#include <stdbool.h>

/* ThreadSanitizer sees the order that the word creates; these calls also tell it of locks, whose order it checks. */
#if defined(__SANITIZE_THREAD__)
#define VP_LOCK_TOLD_TO_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define VP_LOCK_TOLD_TO_TSAN 1
#endif
#endif
#ifdef VP_LOCK_TOLD_TO_TSAN
#include <sanitizer/tsan_interface.h>
#define VP_LOCK_TSAN(call) __tsan_mutex_##call
#else
#define VP_LOCK_TSAN(call) ((void)0)
#endif

enum { VP_LOCK_FREE, VP_LOCK_TAKEN, VP_LOCK_AWAITED };

struct VP_LOCK_TYPE vp_lock {
    atomic_uint word; /* VP_LOCK_AWAITED: taken, and some thread may sleep until it is free */
};

/* The library's lock. It guards the state of process/ (process/state.h), and all layers below. */
extern struct vp_lock vp_library_lock;
/* For functions whose caller holds it: static VP_LOCKED int f(void). */
#define VP_LOCKED VP_REQUIRES(vp_library_lock)
#define VP_UNLOCKED VP_EXCLUDES(vp_library_lock)
#define VP_GUARDED VP_GUARDED_BY(vp_library_lock)
/* Tells the analysis that the lock is held here, for instance in a function that is called through a pointer. */
static inline VP_ASSERTS(vp_library_lock) void vp_lock_is_held(void) {
}

/* The slow parts of the inline functions below. */
void vp_lock_wait(struct vp_lock *lock) __attribute__((cold));
void vp_lock_wake(struct vp_lock *lock) __attribute__((cold));

/* The bodies of these four are not analysed, since they implement the lock. */
static inline bool vp_lock_try(struct vp_lock *lock) VP_TRIES(*lock) VP_NOT_ANALYSED;
static inline void vp_lock_take(struct vp_lock *lock) VP_ACQUIRES(*lock) VP_NOT_ANALYSED;
static inline void vp_lock_release(struct vp_lock *lock) VP_RELEASES(*lock) VP_NOT_ANALYSED;
/* Tries for a second at most: for callers that come when the holder may hang, or be gone. */
bool vp_lock_for_a_while(struct vp_lock *lock) VP_TRIES(*lock) VP_NOT_ANALYSED;
/* In the child of a fork: makes the lock free, whoever held it. */
void vp_lock_reset(struct vp_lock *lock);

static inline bool vp_lock_try(struct vp_lock *lock) {
    unsigned free = VP_LOCK_FREE;
    VP_LOCK_TSAN(pre_lock(lock, __tsan_mutex_try_lock));
    const bool taken = atomic_compare_exchange_strong_explicit(&lock->word, &free, VP_LOCK_TAKEN, memory_order_acquire,
                                                               memory_order_relaxed);
    VP_LOCK_TSAN(post_lock(lock, __tsan_mutex_try_lock | (taken ? 0 : __tsan_mutex_try_lock_failed), 0));
    return taken;
}

static inline void vp_lock_take(struct vp_lock *lock) {
    unsigned free = VP_LOCK_FREE;
    VP_LOCK_TSAN(pre_lock(lock, 0));
    if (__builtin_expect(!atomic_compare_exchange_strong_explicit(&lock->word, &free, VP_LOCK_TAKEN,
                                                                  memory_order_acquire, memory_order_relaxed),
                         false))
        vp_lock_wait(lock);
    VP_LOCK_TSAN(post_lock(lock, 0, 0));
}

static inline void vp_lock_release(struct vp_lock *lock) {
    VP_LOCK_TSAN(pre_unlock(lock, 0));
    if (__builtin_expect(atomic_exchange_explicit(&lock->word, VP_LOCK_FREE, memory_order_release) == VP_LOCK_AWAITED,
                         false))
        vp_lock_wake(lock);
    VP_LOCK_TSAN(post_unlock(lock, 0));
}
