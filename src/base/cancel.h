/* Threads that are cancelled (pthread_cancel) while they hold the library's lock would hold it for ever. Cancellation
 * is held off before whatever may be a point of it: a message, a nap, a file, a driver call that goes to the kernel.
 * Telling the system so costs an atomic operation each way, so the shortest calls, which come to no such point, only
 * say that they may have to: vp_cancel_arm(), and what they come to holds it off.
 *
 * Threads that are cancelled at any instruction (PTHREAD_CANCEL_ASYNCHRONOUS) may call neither libc nor CUDA by POSIX,
 * and may take locks of theirs along. Not the library's: while it is armed they are cancelled at points alone, which
 * costs no atomic operation where they are anyway. A stream cache's own lock, taken without, is no part of that.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

struct vp_cancel {
    bool armed, held; /* the lock is held, or about to be; cancellation was held off since */
    int before;       /* the thread's own state, where it was */
    int type;         /* and its own type, while it is armed: this one is deferred */
};

extern __thread struct vp_cancel vp_cancel __attribute__((tls_model("initial-exec"), visibility("hidden")));

static inline void vp_cancel_arm(void) {
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &vp_cancel.type);
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
    if (__builtin_expect(vp_cancel.type == PTHREAD_CANCEL_ASYNCHRONOUS, false)) {
        vp_cancel.type = PTHREAD_CANCEL_DEFERRED;
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    }
}
