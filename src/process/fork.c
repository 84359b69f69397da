/* Handles forks, and the end of the process. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/ipc.h"

#include "base/process.h"

/* A tool's callback may fork during a driver call of the library: then this thread has the lock already. If it forks
 * during a driver call of the program, or in a signal handler, another thread may have the lock and wait for what the
 * driver has locked for this one: so the wait for the lock is bounded. Without it, the child is as after _Fork(). */
VP_NOT_ANALYSED /* what it takes, the next two let go */ void vp_api_fork_prepare(void) {
    if (vp_thread.inside || vp_thread.forks || !vp_lock_for_a_while(&vp_imports_in_hand))
        return;
    if ((vp_thread.forks = vp_lock_for_a_while(&vp_library_lock)))
        vp_watch.fork_prepare();
    else
        vp_lock_release(&vp_imports_in_hand);
}

VP_NOT_ANALYSED void vp_api_fork_parent(void) {
    if (!vp_thread.forks)
        return;
    vp_thread.forks = false;
    vp_watch.fork_parent();
    vp_lock_release(&vp_library_lock);
    vp_lock_release(&vp_imports_in_hand);
}

/* The parent's CUDA does not exist in the child: its memory can neither be handed out nor counted. A child whose parent
 * did not use CUDA starts afresh, unless another thread was in the middle of something. Nothing here waits or
 * allocates: after _Fork() it runs late, and other threads may have held any lock. */
VP_NOT_ANALYSED /* there is one thread */ void vp_api_fork_child(void) {
    const bool midway = !vp_thread.forks && atomic_load(&vp_library_lock.word) != VP_LOCK_FREE;
    vp_process_mark();
    vp_thread.forks = false;
    vp_thread_fork_child();
    vp_lock_reset(&vp_library_lock);
    atomic_store(&vp_state.had, atomic_load(&vp_state.came));
    const bool opened = vp_imports_fork_child();
    vp_ipc_leave_to_parent();
    vp_watch.fork_child();
    if (opened || midway || vp_next_pool(-1)) {
        atomic_store(&vp_state.phase, VP_REFUSED);
        atomic_store(&vp_copies_matter, false);
    }
}

void vp_api_exit(void) {
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&said))
        return;
    if (!vp_process_is_marked())
        vp_api_fork_child();
    vp_pressure_stop();
    vp_ipc_stop();
    vp_watch.end();
}
