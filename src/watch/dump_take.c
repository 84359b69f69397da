/* A dump in memory: of all pools at one moment, added up. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/dump.h"

#include "base/os_memory.h"
#include "watch/watch.h"

#include <errno.h>
#include <string.h>

/* The figures of the request's device. */
static VP_LOCKED void ask_device(const struct vp_pool *pool, struct vp_dump_device *d) {
    static const CUdevice_attribute where[] = {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
                                               CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID};
    for (int i = 0; i < 3; i++)
        if (vp_state.drv.cuDeviceGetAttribute(&d->pci[i], where[i], d->snap.device))
            d->pci[i] = 0;
    if (!vp_memory_ask_device(&pool->mem, &d->free, &d->total))
        d->total = 0;
}

static VP_LOCKED int take_all(struct vp_dump *dump, const struct vp_dump_request *request) {
    vp_pools_each(pool) {
        struct vp_dump_device *d = &dump->device[dump->count];
        int err = vp_snapshot_take(pool, &d->snap);
        if (err)
            return err;
        d->limit = pool->mem.limit;
        d->plan = vp_plans_figures(pool);
        d->stitches = !pool->traits.never_stitches;
        if (request && request->device == pool->mem.device)
            ask_device(pool, d);
        dump->count++;
    }
    return 0;
}

static VP_LOCKED struct vp_dump *take(enum vp_dump_reason reason, const struct vp_dump_request *request, int *err) {
    size_t pools = 0;
    vp_pools_each(pool) pools++;
    size_t bytes = sizeof(struct vp_dump) + pools * sizeof(struct vp_dump_device);
    struct vp_dump *dump = vp_os_take(bytes);
    *err = dump ? 0 : -ENOMEM;
    if (!dump)
        return NULL;
    dump->reason = reason;
    dump->bytes = bytes;
    if (request)
        dump->request = *request;
    *err = take_all(dump, request);
    if (*err || !vp_stats_has_used_cuda()) {
        vp_dump_free(dump);
        return NULL;
    }
    return dump;
}

/* The lock is taken, and given back, without what vp_enter() and vp_leave() do beside: they may call the driver, and a
 * dump is made where CUDA may be gone. */
struct vp_dump *vp_dump_take(enum vp_dump_reason reason, const struct vp_dump_request *request) {
    int err = -EBUSY;
    if (atomic_load_explicit(&vp_state.phase, memory_order_acquire) != VP_OPEN || vp_thread.inside)
        return NULL;
    struct vp_dump *dump = NULL;
    if (vp_lock_for_a_while(&vp_library_lock)) {
        vp_calls_begin();
        dump = take(reason, request, &err);
        vp_calls_end();
        vp_lock_release(&vp_library_lock);
    }
    if (err)
        vp_log_once(VP_LOG_WARN, "VPOOL_DUMP: no dump: %s",
                    err == -EBUSY ? "another thread is in the driver, or in a pause, for too long" : strerror(-err));
    for (int i = 0; dump && i < dump->count; i++) {
        struct vp_dump_device *d = &dump->device[i];
        bool failed = request && request->device == d->snap.device && request->stream;
        vp_snapshot_digest(&d->snap, failed ? request->stream : UINT64_MAX, &d->digest);
    }
    return dump;
}

void vp_dump_free(struct vp_dump *dump) {
    if (!dump)
        return;
    for (int i = 0; i < dump->count; i++)
        vp_snapshot_finish(&dump->device[i].snap);
    vp_os_give(dump, dump->bytes);
}

size_t vp_dump_fresh(const struct vp_dump_device *d) {
    size_t held = d->snap.stats.held_bytes, fresh = d->total ? d->free : 0,
           allowed = d->limit > held ? d->limit - held : 0;
    if (d->limit && fresh > allowed)
        fresh = allowed;
    return fresh / d->snap.granularity * d->snap.granularity;
}

size_t vp_dump_largest(const struct vp_dump_device *d) {
    size_t fresh = vp_dump_fresh(d);
    size_t built = d->stitches ? fresh + d->digest.idle : fresh;
    return d->digest.largest_block > built ? d->digest.largest_block : built;
}
