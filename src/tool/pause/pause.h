/* The steps that the helper of `vpool pause` and `vpool resume` takes. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "tool/pause/screen.h"

/* Exit statuses of both commands. */
enum { VP_PAUSE_DONE, VP_PAUSE_FAILED, VP_PAUSE_USAGE, VP_PAUSE_REFUSED };

/* To be run in a process of its own, as a driver call may never return. Returns one of these statuses, with a message.
 * `until_ns` is when its time ends (CLOCK_MONOTONIC), `lock_ms` how long queued work may take. */
int vp_pause_steps(struct vp_screened *who, uint64_t until_ns, unsigned lock_ms);
int vp_resume_steps(struct vp_screened *who, uint64_t until_ns);
/* Returns the state of the process, a CUprocessState. With `let_go`, unlocks a locked one. Negative: the driver does
 * not report it. */
int vp_pause_state(const struct vp_screened *who, bool let_go);

/* Runs `steps` in a process of its own, for at most that long, and until SIGINT, SIGTERM or SIGHUP. Returns its result;
 * negative: it was ended. `*interrupted` (may be NULL): it was ended by a signal. */
int vp_pause_apart(int (*steps)(void *context), void *context, double seconds, bool *interrupted);
