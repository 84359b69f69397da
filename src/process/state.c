/* The base of this folder: the state, how it is entered and left, and look-ups in it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/state.h"

#include <signal.h>

struct vp_state vp_state;

__thread struct vp_thread vp_thread __attribute__((tls_model("initial-exec"), visibility("hidden")));

const char *const vp_passed_names[] = {
#define PASSED_NAME(name) #name,
    VP_PASSED_CALLS(PASSED_NAME)
#undef PASSED_NAME
};

bool vp_api_ready(void) {
    return atomic_load_explicit(&vp_state.phase, memory_order_acquire) == VP_OPEN;
}

void vp_api_passed(enum vp_passed call) {
    atomic_fetch_add_explicit(&vp_state.passed[call], 1, memory_order_relaxed);
}

atomic_bool vp_copies_between;

void vp_api_coupled(const char *why) {
    if (!atomic_exchange(&vp_state.coupled, true))
        vp_log(VP_LOG_INFO, "coupled with other processes or devices (%s): no stream waits early", why);
}

void vp_api_shares(const char *why) {
    atomic_store(&vp_state.shares, true);
    vp_api_coupled(why);
}

void vp_api_ranks(void) {
    atomic_store(&vp_state.ranks, true);
    vp_api_shares("an NCCL communicator of several ranks");
    /* Whoever looks at the page is to know. */
    if (vp_enter())
        vp_leave();
}

/* ---- in and out ---- */

/* A thread that was promised memory is on its way with the block as long as others have the lock. */
void vp_lock_behind_others(void) {
    struct vp_bare *bare = vp_state.on.promised();
    atomic_fetch_add_explicit(&vp_state.came, 1, memory_order_relaxed);
    if (bare)
        atomic_store(&bare->held_up, true);
    vp_lock_take(&vp_library_lock);
    if (bare)
        atomic_store(&bare->held_up, false);
    atomic_fetch_add_explicit(&vp_state.had, 1, memory_order_relaxed);
}

void vp_forked(void) {
    if (vp_state.on.forked)
        vp_state.on.forked();
}

bool vp_enter(void) {
    if (!vp_enter_briefly())
        return false;
    vp_cancel_hold();
    return true;
}

void vp_leave(void) {
    if (vp_state.published)
        vp_watch.publish();
    vp_lock_release(&vp_library_lock);
    vp_thread.inside = false;
    if (__builtin_expect(vp_thread.tells_end, false))
        vp_state.on.left();
    vp_cancel_release();
}

void vp_step_out(void) {
    vp_cancel_hold();
    if (vp_state.published)
        vp_watch.publish();
    vp_lock_release(&vp_library_lock);
    vp_thread.inside = false;
}

void vp_step_in(void) {
    vp_thread.inside = true;
    vp_lock_in_turn();
}

/* The stack of a thread that calls the driver and writes files. The program's default may be less. */
enum { STACK_LEAST = 1 << 20 };

int vp_thread_start(void *(*run)(void *)) {
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_t thread;
    size_t stack;
    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (!pthread_attr_getstacksize(&attr, &stack) && stack < STACK_LEAST)
        pthread_attr_setstacksize(&attr, STACK_LEAST);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int err = -pthread_create(&thread, &attr, run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return err;
}

/* ---- looked up ---- */

struct vp_region *vp_state_find(CUdeviceptr ptr, struct vp_pool **pool) {
    vp_pools_each(one) {
        struct vp_region *r = vp_pool_find(one, ptr);
        if (r) {
            vp_pool_expect_free(r); /* it is mostly sought to be freed */
            *pool = one;
            return r;
        }
    }
    return NULL;
}

struct vp_region *vp_state_find_inside(CUdeviceptr ptr, struct vp_pool **pool) {
    vp_pools_each(one) {
        struct vp_region *r = vp_pool_find_inside(one, ptr);
        if (r) {
            *pool = one;
            return r;
        }
    }
    return NULL;
}

uint64_t vp_peers_of(CUdevice dev) {
    uint64_t devices = 0;
    const struct vp_peer *peer;
    const struct vp_mempool *mp;
    vp_list_each(peer, &vp_state.peers, link)
        if (peer->to->device == dev)
            devices |= UINT64_C(1) << peer->from->device;
    vp_list_each(mp, &vp_state.mempools, link)
        if (mp->device == dev)
            devices |= mp->access;
    return devices & ~(UINT64_C(1) << dev);
}
