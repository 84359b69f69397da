/* Counts physical memory that other code in the process makes by cuMemCreate. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/state.h"

struct vp_foreign {
    uint64_t handle;
    CUdevice device;
    unsigned references; /* that the program holds; mappings keep memory too, and are not counted */
    size_t size;
};

void vp_api_other_created(CUdevice dev, CUmemGenericAllocationHandle handle, size_t size) {
    if (dev < 0 || dev >= VP_DEVICES || !handle || !vp_enter())
        return;
    if (!vp_state.other_slab.size)
        vp_slab_init(&vp_state.other_slab, sizeof(struct vp_foreign));
    /* One whose end we did not see has left its handle behind. */
    struct vp_foreign *other = vp_table_take(&vp_state.other_handles, handle);
    if (!other && !vp_table_reserve(&vp_state.other_handles))
        other = vp_slab_alloc(&vp_state.other_slab);
    if (other) {
        struct vp_foreign_sum *all = &vp_state.others[dev];
        *other = (struct vp_foreign){.handle = handle, .device = dev, .references = 1, .size = size};
        vp_table_add(&vp_state.other_handles, other);
        all->handles++;
        all->bytes += size;
        all->peak_bytes = vp_greater(all->peak_bytes, all->bytes);
    }
    vp_leave();
}

void vp_api_other_retained(CUmemGenericAllocationHandle handle) {
    if (!handle || !vp_enter())
        return;
    struct vp_foreign *other = vp_table_get(&vp_state.other_handles, handle);
    if (other)
        other->references++;
    vp_leave();
}

void vp_api_other_released(CUmemGenericAllocationHandle handle) {
    if (!handle || !vp_enter())
        return;
    struct vp_foreign *other = vp_table_get(&vp_state.other_handles, handle);
    if (other && !--other->references) {
        vp_state.others[other->device].handles--;
        vp_state.others[other->device].bytes -= other->size;
        vp_table_take(&vp_state.other_handles, handle);
        vp_slab_free(&vp_state.other_slab, other);
    }
    vp_leave();
}
