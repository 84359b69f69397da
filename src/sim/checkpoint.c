/* The driver's checkpoint of a process: another process locks it, takes its memory off the devices, and restores it.
 *
 * RUNNING -> LOCKED -> CHECKPOINTED -> LOCKED -> RUNNING. The state is in the process's line of the shared file
 * (ledger.c); both processes name the same file. The driver calls of a locked process wait. Its bytes stay where they
 * are, but its device memory does not count while it is checkpointed. If there is no room when it is restored, it is
 * lost: a real process is reported to be stuck then. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_private.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

void sim_nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Changes the state of a process, if it is in the right one, and does what belongs to that. */
static CUresult step(int pid, CUprocessState from, CUprocessState to) {
    struct sim_line *line = sim_ledger_find(pid);
    CUresult result = !line ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
    if (line && line->state != from)
        result = CUDA_ERROR_ILLEGAL_STATE;
    else if (line && to == CU_PROCESS_STATE_CHECKPOINTED)
        sim_ledger_put_away(line);
    else if (line && from == CU_PROCESS_STATE_CHECKPOINTED && !sim_ledger_bring_back(line)) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
        line->state = CU_PROCESS_STATE_FAILED;
    }
    if (result == CUDA_SUCCESS)
        line->state = to;
    sim_ledger_unlock();
    return result;
}

/* Waits until the calls that the process has begun have ended. */
static CUresult wait_until_still(int pid, unsigned most_ms) {
    const uint64_t begin = sim_real_ns();
    for (;; sim_nap()) {
        struct sim_line *line = sim_ledger_find(pid);
        const bool still = line && !line->inside;
        const bool late = most_ms && sim_real_ns() - begin > (uint64_t)most_ms * 1000000;
        if (line && !still && late)
            line->state = CU_PROCESS_STATE_RUNNING;
        sim_ledger_unlock();
        if (!line || still || late)
            return !line ? CUDA_ERROR_NOT_INITIALIZED : still ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    }
}

SIM_API(0, 12080, cuCheckpointProcessLock, (int pid, CUcheckpointLockArgs *args), (pid, args)) {
    if (pid <= 0 || pid == getpid() || (args && args->reserved0))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = step(pid, CU_PROCESS_STATE_RUNNING, CU_PROCESS_STATE_LOCKED);
    return result ? result : wait_until_still(pid, args ? args->timeoutMs : 0);
}

SIM_API(0, 12080, cuCheckpointProcessCheckpoint, (int pid, CUcheckpointCheckpointArgs *args), (pid, args)) {
    (void)args;
    return step(pid, CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_CHECKPOINTED);
}

SIM_API(0, 12080, cuCheckpointProcessRestore, (int pid, CUcheckpointRestoreArgs *args), (pid, args)) {
    (void)args;
    return step(pid, CU_PROCESS_STATE_CHECKPOINTED, CU_PROCESS_STATE_LOCKED);
}

SIM_API(0, 12080, cuCheckpointProcessUnlock, (int pid, CUcheckpointUnlockArgs *args), (pid, args)) {
    (void)args;
    return step(pid, CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_RUNNING);
}

SIM_API(0, 12080, cuCheckpointProcessGetState, (int pid, CUprocessState *state), (pid, state)) {
    const struct sim_line *line = state ? sim_ledger_find(pid) : NULL;
    if (!state)
        return CUDA_ERROR_INVALID_VALUE;
    if (line)
        *state = (CUprocessState)line->state;
    sim_ledger_unlock();
    return line ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

/* Restoring needs no thread of its own here. */
SIM_API(0, 12080, cuCheckpointProcessGetRestoreThreadId, (int pid, int *tid), (pid, tid)) {
    const bool there = tid && sim_ledger_find(pid);
    if (!tid)
        return CUDA_ERROR_INVALID_VALUE;
    sim_ledger_unlock();
    if (there)
        *tid = pid;
    return there ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}
