/* What clang's analysis of locks reads (-Wthread-safety): which lock guards what, and who takes it. Empty elsewhere.
 *
 * A member of a structure cannot name another one as its lock in C, so a lock that guards data has a name of its own,
 * and what a lock in an object guards is told in words. The analysis looks at one function at a time, and follows
 * neither pointers to functions nor what is taken in one function and let go in another, like the locks around a fork:
 * those say VP_NOT_ANALYSED, and why. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#if defined(__clang__)
#define VP_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define VP_THREAD_SAFETY(attribute)
#endif

/* A type of locks. */
#define VP_LOCK_TYPE VP_THREAD_SAFETY(capability("mutex"))
/* Data, not to be touched without the lock. */
#define VP_GUARDED_BY(lock) VP_THREAD_SAFETY(guarded_by(lock))
/* Functions: the caller holds the lock, and has it afterwards; or does not hold it, as the function takes it itself. */
#define VP_REQUIRES(...) VP_THREAD_SAFETY(requires_capability(__VA_ARGS__))
#define VP_EXCLUDES(...) VP_THREAD_SAFETY(locks_excluded(__VA_ARGS__))
/* They take it, take it if they return true, or let it go. */
#define VP_ACQUIRES(...) VP_THREAD_SAFETY(acquire_capability(__VA_ARGS__))
#define VP_TRIES(...) VP_THREAD_SAFETY(try_acquire_capability(true, __VA_ARGS__))
#define VP_RELEASES(...) VP_THREAD_SAFETY(release_capability(__VA_ARGS__))
/* From here on the lock counts as held: what called has it, in a way that the analysis does not see. */
#define VP_ASSERTS(...) VP_THREAD_SAFETY(assert_capability(__VA_ARGS__))
#define VP_NOT_ANALYSED VP_THREAD_SAFETY(no_thread_safety_analysis)
