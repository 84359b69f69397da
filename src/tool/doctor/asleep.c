/* vpool doctor: processes that vpool pause has handled, and the state that the driver reports for each. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/doctor/doctor.h"

#include "tool/pause/asleep.h"
#include "tool/pause/pause.h"

#include <cuda.h>
#include <stdio.h>

/* How long the driver may take to report a state. */
enum { SECONDS = 10 };

static int look(void *who) {
    const int state = vp_pause_state(who, false);
    return state < 0 ? 100 : state;
}

static enum mark judge(int state, const struct vp_asleep *a, char *line, size_t room) {
    const int pid = (int)a->pid;
    switch (state) {
    case CU_PROCESS_STATE_RUNNING:
        snprintf(line, room, "process %d runs: its pause was cut short before it began", pid);
        return NOTE;
    case CU_PROCESS_STATE_LOCKED:
        snprintf(line, room,
                 "process %d is locked, its pause or its waking was cut short: vpool resume %d lets it run on", pid,
                 pid);
        return WRONG;
    case CU_PROCESS_STATE_CHECKPOINTED:
        snprintf(line, room, "process %d sleeps%s: vpool resume %d wakes it", pid,
                 a->stage == VP_ASLEEP_DONE ? "" : ", and its pause was cut short at the end", pid);
        return NOTE;
    case CU_PROCESS_STATE_FAILED:
        snprintf(line, room, "process %d cannot be brought back, the driver has given it up: end it", pid);
        return WRONG;
    default:
        snprintf(line, room, "process %d was paused, and the driver does not tell its state; try vpool resume %d", pid,
                 pid);
        return WRONG;
    }
}

static void take(void *context, uid_t uid, const struct vp_asleep *a) {
    void (*say)(enum mark mark, const char *line) = *(void (**)(enum mark, const char *))context;
    static struct vp_screened who;
    char line[256];
    enum mark mark = NOTE;
    if (!vp_screen(&who, a->pid))
        return;
    if (vp_asleep_is_helped(a) && a->stage != VP_ASLEEP_DONE) {
        snprintf(line, sizeof line, "process %d is being put to sleep by process %d", (int)a->pid, (int)a->helper);
    } else {
        const int state = vp_pause_apart(look, &who, SECONDS, NULL);
        mark = judge(state, a, line, sizeof line);
        if (state == CU_PROCESS_STATE_RUNNING) {
            vp_asleep_remove(uid, a->pid);
            vp_screen_mark(&who, false);
        }
    }
    say(mark, line);
}

void vp_doctor_asleep(void (*say)(enum mark mark, const char *line)) {
    vp_asleep_each(take, &say);
}
