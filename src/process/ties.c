/* Counts what ties the process to others or to the host, so that the driver's checkpoint cannot take it: for the page
 * that `vpool pause` reads.
 *
 * Managed memory is known by its addresses, since the same call frees all memory. Of memory shared with or by others it
 * is only known that there was some: it may end by calls that the library does not see. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/state.h"

struct managed {
    uint64_t ptr;
};

static VP_LOCKED void count(enum vp_tie tie, int more) {
    vp_state.ties[tie] += (unsigned)more;
    vp_state.tied = (vp_state.tied & ~(1u << tie)) | (unsigned)(vp_state.ties[tie] != 0) << tie;
}

void vp_api_tied(enum vp_tie tie) {
    if (!vp_enter())
        return;
    count(tie, 1);
    vp_leave();
}

void vp_api_managed(CUdeviceptr ptr) {
    if (!ptr || !vp_enter())
        return;
    if (!vp_state.managed_slab.size)
        vp_slab_init(&vp_state.managed_slab, sizeof(struct managed));
    struct managed *m = vp_table_take(&vp_state.managed, ptr);
    if (m)
        count(VP_TIE_MANAGED, -1); /* it went with its context */
    else if (!vp_table_reserve(&vp_state.managed))
        m = vp_slab_alloc(&vp_state.managed_slab);
    if (m) {
        m->ptr = ptr;
        vp_table_add(&vp_state.managed, m);
    }
    /* One that there was no room to write down is there for good. */
    count(VP_TIE_MANAGED, 1);
    vp_leave();
}

void vp_ties_freed(CUdeviceptr ptr) {
    struct managed *m = vp_state.managed.used ? vp_table_take(&vp_state.managed, ptr) : NULL;
    if (!m)
        return;
    vp_slab_free(&vp_state.managed_slab, m);
    count(VP_TIE_MANAGED, -1);
}
