/* The cancellation state of each thread: see cancel.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cancel.h"

__thread struct vp_cancel vp_cancel __attribute__((tls_model("initial-exec"), visibility("hidden")));

void vp_cancel_defer(void) {
    int type;
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
    vp_cancel.sudden = type == PTHREAD_CANCEL_ASYNCHRONOUS;
    vp_cancel.asked = true;
}
