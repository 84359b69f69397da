/* Opens the library on a driver, and a pool on each device that is used. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/bare.h"
#include "process/state.h"

#include "base/clock.h"
#include "base/machine.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>

const struct vp_policy *vp_policy_chosen(void) {
    const struct vp_policy *policy = vp_policies[vp_options()->policy];
    return vp_options()->policy == VP_POLICY_NATIVE ? NULL : policy ? policy : &vp_policy_vpool;
}

const char *vp_policy_name(void) {
    const struct vp_policy *policy = vp_policy_chosen();
    return policy ? policy->name : "native";
}

static void announce(void) {
    int choice = vp_options()->policy;
    const char *name = secure_getenv("VPOOL_POLICY");
    vp_options_announce();
    if (choice != VP_POLICY_NATIVE && !vp_policies[choice])
        vp_log(VP_LOG_WARN,
               "VPOOL_POLICY=%.16s is in libvpool-compare.so, not in this library; vpool's own policy serves",
               name ? name : "");
}

static void dropped(CUdevice device, const struct vp_region *block) {
    vp_record('f', device, block->serial, block->asked, 0);
}

/* The limit on addresses, as set by ulimit -v, or by batch systems that limit a job's memory. 0: none. */
static size_t addresses(void) {
    struct rlimit most;
    return getrlimit(RLIMIT_AS, &most) || most.rlim_cur == RLIM_INFINITY ? 0 : most.rlim_cur;
}

static VP_LOCKED struct vp_pool *open_pool(CUdevice dev) {
    if (dev < 0 || dev >= VP_DEVICES || vp_state.refused[dev])
        return NULL;
    const struct vp_options *o = vp_options();
    const struct vp_policy *policy = vp_policy_chosen();
    vp_cancel_hold();
    const struct vp_pool_config config = {
        .handle = o->handle,
        .va = o->va,
        .addresses = addresses(),
        .pages = o->vpmm_pages,
        .rdma = vp_state.rdma,
        .slack = (unsigned)o->slack,
        .check = o->check,
        .account = vp_mempool_account,
        .dropped = dropped,
        .limit = vp_pressure_share(dev, o->limit, "VPOOL_LIMIT"),
        .split_most = o->bfc_max_split,
        .stitch_least = o->gmlake_fragment,
        .stitched_most = o->gmlake_stitched,
        .peers = vp_peers_of(dev),
        .pause = vp_wait_pause,
        .now = vp_clock_ns,
        .now_about = vp_clock_coarse_ns,
    };
    struct vp_pool *pool = policy ? vp_slab_alloc(&vp_state.pool_slab) : NULL;
    int err = pool ? vp_pool_init(pool, &vp_state.drv, &vp_state.timelines, dev, policy, &config) : -ENOENT;
    if (err) {
        vp_slab_free(&vp_state.pool_slab, pool);
        vp_state.refused[dev] = true;
        if (policy)
            vp_log(VP_LOG_WARN, "device %d: %s; its memory is left to CUDA", dev,
                   err == -EOPNOTSUPP ? "no virtual memory management (if it has no pools either, set VPOOL_ADOPT=0)"
                   : err == -ENOMEM   ? "no address range can be reserved"
                                      : "the driver refuses to map memory");
        return NULL;
    }
    vp_state.pools[dev] = pool;
    pool->mem.may_grow = vp_watch.may_grow;
    vp_pressure_start();
    vp_mempool_open_device(dev);
    vp_watch.pool_opened(pool);
    return pool;
}

/* ---- the library ---- */

static VP_LOCKED void closing(void *user, struct vp_timeline *timeline) {
    struct vp_pool *pool = vp_state.pools[timeline->context->device];
    if (pool)
        vp_pool_close_timeline(pool, timeline);
}

static VP_LOCKED void forget_timeline(void *user, struct vp_timeline *timeline) {
    struct vp_pool *pool = vp_state.pools[timeline->context->device];
    if (pool)
        vp_pool_drop_timeline(pool, timeline);
}

static void fill_hooks(void) {
    vp_state.on = (struct vp_hooks){.forked = vp_api_fork_child,
                                    .drop_lost = vp_contexts_drop_lost,
                                    .left = vp_thread_left,
                                    .open_pool = open_pool,
                                    .promised = vp_bare_promised_to_caller};
}

static void init(void) {
    struct vp_timelines *timelines = &vp_state.timelines;
    vp_timelines_init(timelines, &vp_state.drv);
    timelines->arrived = vp_copies_arrived;
    timelines->closing = closing;
    timelines->forget = forget_timeline;
    timelines->of_thread = vp_thread_streams;
    vp_threads_init();
    vp_state.fills = vp_options()->zero || vp_options()->poison;
    vp_state.fast = !vp_options()->check && !vp_state.fills;
    vp_state.recording = vp_watch.wants_events();
    vp_state.rdma = vp_options()->rdma ? vp_options()->rdma == VP_RDMA_YES : vp_rdma_possible("");
    if (!vp_state.rdma)
        vp_log(VP_LOG_INFO, "memory is not made for RDMA (VPOOL_RDMA)");
    vp_state.ranked = vp_process_know_rank();
    vp_list_init(&vp_state.mempools);
    vp_list_init(&vp_state.imports);
    vp_list_init(&vp_state.peers);
    vp_slab_init(&vp_state.mempool_slab, sizeof(struct vp_mempool));
    vp_slab_init(&vp_state.pool_slab, sizeof(struct vp_pool));
    vp_slab_init(&vp_state.peer_slab, sizeof(struct vp_peer));
}

int vp_api_open(void *(*lookup)(const char *name, void *ctx), void *ctx) {
    int phase = atomic_load_explicit(&vp_state.phase, memory_order_acquire);
    if (phase != VP_CLOSED)
        return phase == VP_OPEN ? 0 : -ENODEV;
    if (vp_thread.inside)
        return -EALREADY;
    const char *missing = NULL;
    struct vp_driver drv;
    /* Without the lock: the dynamic linker's own may be held by a library's constructor that waits for ours. */
    int err = vp_driver_fill(&drv, lookup, ctx, &missing);
    vp_thread.inside = true;
    vp_lock_take(&vp_library_lock);
    const bool first = atomic_load(&vp_state.phase) == VP_CLOSED;
    if (first) {
        fill_hooks();
        vp_process_mark();
        announce();
        vp_watch.opening();
        if (!err) {
            vp_state.drv = drv;
            init();
        }
        atomic_store_explicit(&vp_copies_matter, false, memory_order_relaxed);
        atomic_store_explicit(&vp_state.phase, err ? VP_REFUSED : VP_OPEN, memory_order_release);
    }
    vp_lock_release(&vp_library_lock);
    vp_thread.inside = false;
    if (err && first)
        vp_log(VP_LOG_WARN, "this CUDA driver lacks %s: everything is passed on to it", missing);
    return err;
}
