/* Threads that are cancelled (pthread_cancel) while they hold the library's lock would hold it for ever. Cancellation
 * is held off before whatever may be a point of it: a nap, a file, a driver call that goes to the kernel.
 * Telling the system so costs an atomic operation each way, so the shortest calls, which come to no such point, only
 * say that they may have to: vp_cancel_arm(), and what they come to holds it off.
 *
 * Threads that are cancelled at any instruction (PTHREAD_CANCEL_ASYNCHRONOUS) may call neither libc nor CUDA by POSIX,
 * and may take locks of theirs along. Not the library's: while it is armed they are cancelled at points alone. That is
 * asked once for each thread, when it is armed first. A stream cache's own lock, taken without, is no part of that. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

struct vp_cancel {
    bool armed, held;   /* the lock is held, or about to be; cancellation was held off since */
    bool asked, sudden; /* its type is known; it is asynchronous, but while it is armed */
    int before;         /* the thread's own state, where it was */
};

extern __thread struct vp_cancel vp_cancel __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Makes the thread's type deferred, and keeps what it was. */
void vp_cancel_defer(void) __attribute__((cold));

static inline void vp_cancel_arm(void) {
    if (__builtin_expect(!vp_cancel.asked || vp_cancel.sudden, false))
        vp_cancel_defer();
    vp_cancel.armed = true;
}

/* Before a possible point of cancellation. Nothing happens where nobody has armed it. */
static inline void vp_cancel_hold(void) {
    if (vp_cancel.armed && !vp_cancel.held)
        vp_cancel.held = !pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &vp_cancel.before);
}

/* The lock was let go: the thread's own state holds again. */
static inline void vp_cancel_release(void) {
    const bool held = vp_cancel.held;
    vp_cancel.armed = vp_cancel.held = false;
    if (held)
        pthread_setcancelstate(vp_cancel.before, NULL);
    if (__builtin_expect(vp_cancel.sudden, false))
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
}
