/* How often a test repeats what it does: all the times where it is built plainly, fewer under a sanitizer.
 *
 * A sanitizer looks at each path once it is gone, and makes it several times as dear to go; whether something shows up
 * only after the ten-thousandth time is the plain build's to find. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define VP_TESTS_SANITIZED 1
#elif defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define VP_TESTS_SANITIZED 1
#endif
#endif

/* `times`, or a fifth of them. */
#ifdef VP_TESTS_SANITIZED
#define VP_FEWER(times) ((times) / 5)
#else
#define VP_FEWER(times) (times)
#endif
