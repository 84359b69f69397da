/* Annotations for clang's analysis of locks (-Wthread-safety): which lock guards what, and who takes it. Empty for
 * other compilers.
 *
 * In C a struct member cannot name another member as its lock. So locks that guard data are global objects, and what a
 * lock inside an object guards is only described in comments. The analysis looks at one function at a time. It follows
 * neither function pointers nor a lock that one function takes and another releases, as around a fork: such functions
 * say VP_NOT_ANALYSED, and why. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#if defined(__clang__)
#define VP_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define VP_THREAD_SAFETY(attribute)
#endif

/* A type that is a lock. */
#define VP_LOCK_TYPE VP_THREAD_SAFETY(capability("mutex"))
/* For data that must not be touched without the lock. */
#define VP_GUARDED_BY(lock) VP_THREAD_SAFETY(guarded_by(lock))
/* For functions: the caller holds the lock throughout; the caller does not hold it, since the function takes it. */
#define VP_REQUIRES(...) VP_THREAD_SAFETY(requires_capability(__VA_ARGS__))
#define VP_EXCLUDES(...) VP_THREAD_SAFETY(locks_excluded(__VA_ARGS__))
/* For functions that take it, take it if they return true, or release it. */
#define VP_ACQUIRES(...) VP_THREAD_SAFETY(acquire_capability(__VA_ARGS__))
#define VP_TRIES(...) VP_THREAD_SAFETY(try_acquire_capability(true, __VA_ARGS__))
#define VP_RELEASES(...) VP_THREAD_SAFETY(release_capability(__VA_ARGS__))
/* From here on the lock counts as held: the caller holds it in a way that the analysis does not see. */
#define VP_ASSERTS(...) VP_THREAD_SAFETY(assert_capability(__VA_ARGS__))
#define VP_NOT_ANALYSED VP_THREAD_SAFETY(no_thread_safety_analysis)
