/* A thread that is cancelled (pthread_cancel) while it holds the library's lock would hold it for ever. So cancellation
 * is disabled before anything that may be a cancellation point: a nap, a file, a driver call that goes to the kernel.
 *
 * Disabling costs an atomic operation each way. The shortest calls, which reach no such point, therefore only arm it
 * (vp_cancel_arm()); whatever comes to a point then disables it (vp_cancel_hold()).
 *
 * By POSIX a thread that is cancelled at any instruction (PTHREAD_CANCEL_ASYNCHRONOUS) may call neither libc nor CUDA,
 * and may take their locks along. Not the library's lock: while armed, the thread is cancelled at points only. Its type
 * is asked for once, when it first arms. A stream cache's lock, taken without the library's, is not covered. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

struct vp_cancel {
    bool armed, held;   /* the lock is held, or about to be; cancellation has been disabled since */
    bool asked, sudden; /* the thread's cancellation type is known; it is asynchronous, except while armed */
    int before;         /* the thread's own cancellation state, while `held` */
};

extern __thread struct vp_cancel vp_cancel __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Makes the thread's type deferred, and notes what it was. */
void vp_cancel_defer(void) __attribute__((cold));

static inline void vp_cancel_arm(void) {
    if (__builtin_expect(!vp_cancel.asked || vp_cancel.sudden, false))
        vp_cancel_defer();
    vp_cancel.armed = true;
}

/* To be called before a possible cancellation point. Does nothing in a thread that has not armed it. */
static inline void vp_cancel_hold(void) {
    if (vp_cancel.armed && !vp_cancel.held)
        vp_cancel.held = !pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &vp_cancel.before);
}

/* To be called after the lock was released: restores the thread's own state. */
static inline void vp_cancel_release(void) {
    const bool held = vp_cancel.held;
    vp_cancel.armed = vp_cancel.held = false;
    if (held)
        pthread_setcancelstate(vp_cancel.before, NULL);
    if (__builtin_expect(vp_cancel.sudden, false))
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
}
