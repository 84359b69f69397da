/* What each stack held at the peak. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/stack_peak.h"

#include "watch/stack_table.h"
#include "base/clock.h"
#include "base/os_memory.h"

struct held {
    int64_t bytes, before; /* now; before the first change since the peak `since` */
    uint64_t since;
};

struct vp_lock vp_stack_peak_guard; /* comes last */
static struct {
    struct held *stacks; /* by number, one more than the table has room for; NULL: no block came yet */
    int64_t alive, most;
    uint64_t peaks;     /* so far */
    uint64_t first, at; /* by vp_clock_ns(): the first block, the last peak */
    bool has_none;      /* there was no memory */
} peak VP_GUARDED_BY(vp_stack_peak_guard);

static VP_REQUIRES(vp_stack_peak_guard) bool have_stacks(void) {
    if (!peak.stacks && !peak.has_none) {
        peak.stacks = vp_os_take_sparse((VP_STACKS_MOST + 1) * sizeof(struct held));
        peak.has_none = !peak.stacks;
        peak.first = vp_clock_ns();
    }
    return peak.stacks;
}

void vp_stack_peak_add(uint32_t stack, int64_t bytes) {
    vp_lock_take(&vp_stack_peak_guard);
    if (stack <= VP_STACKS_MOST && have_stacks()) {
        struct held *h = &peak.stacks[stack];
        if (h->since != peak.peaks)
            *h = (struct held){.bytes = h->bytes, .before = h->bytes, .since = peak.peaks};
        h->bytes += bytes;
        peak.alive += bytes;
        if (peak.alive > peak.most) {
            peak.most = peak.alive;
            peak.peaks++;
            peak.at = vp_clock_ns();
        }
    }
    vp_lock_release(&vp_stack_peak_guard);
}

static VP_REQUIRES(vp_stack_peak_guard) int64_t then(const struct held *h) {
    return h->since == peak.peaks ? h->before : h->bytes;
}

bool vp_stack_peak(struct vp_stack_peak *out, void (*held)(void *to, uint32_t stack, uint64_t bytes), void *to) {
    if (!vp_lock_for_a_while(&vp_stack_peak_guard))
        return false;
    const bool some = peak.stacks && peak.most > 0;
    if (some) {
        *out = (struct vp_stack_peak){.bytes = (uint64_t)peak.most, .ns = peak.at - peak.first};
        const uint32_t count = vp_stack_count();
        for (uint32_t i = 1; i <= count && i <= VP_STACKS_MOST; i++)
            if (then(&peak.stacks[i]) > 0)
                held(to, i, (uint64_t)then(&peak.stacks[i]));
    }
    vp_lock_release(&vp_stack_peak_guard);
    return some;
}
