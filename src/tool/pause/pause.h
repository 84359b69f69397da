/* The steps that the helper of `vpool pause` and `vpool resume` takes. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "tool/pause/screen.h"

/* How they end. */
enum { VP_PAUSE_DONE, VP_PAUSE_FAILED, VP_PAUSE_USAGE, VP_PAUSE_REFUSED };

/* In a process of its own, as a call of the driver's may never return: one of these, and it is said why. `until_ns` is
 * the end of its time (CLOCK_MONOTONIC), `lock_ms` how long what is queued may take. */
int vp_pause_steps(struct vp_screened *who, uint64_t until_ns, unsigned lock_ms);
int vp_resume_steps(struct vp_screened *who, uint64_t until_ns);
/* The state of the process, a CUprocessState; with `let_go` a locked one runs on. Negative: the driver does not tell.
 */
int vp_pause_state(const struct vp_screened *who, bool let_go);

/* Runs `steps` in a process of its own, for so long at most, and until one of SIGINT, SIGTERM and SIGHUP. What it
 * returned; negative: it was ended. `*interrupted` (may be NULL): by a signal. */
int vp_pause_apart(int (*steps)(void *context), void *context, double seconds, bool *interrupted);
