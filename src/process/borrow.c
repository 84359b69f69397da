/* Borrowing: an allocation that would fail for lack of memory asks the user's other processes for their idle memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/ipc.h"

#include "base/clock.h"

#include <string.h>

/* A process asks at most once in this time, unless it was given what it lacked. If it was given all that it asked for,
 * it next asks for twice as many bytes. An allocation waits as long as a process that has just given is spared. */
static const uint64_t ASK_EVERY_NS = 1000000000, BORROW_NS = 6000000000;

/* Room for the rounding of handles. */
enum { ROUNDING = 32 << 20 };

/* How much device memory a request of this size lacks; 0: it does not fail for lack of memory. */
static VP_LOCKED size_t lack_of(struct vp_pool *pool, size_t size) {
    const size_t free_bytes = vp_memory_device_free(&pool->mem), idle = vp_pool_idle(pool);
    size = vp_round_up(size, pool->mem.granularity);
    if (size <= free_bytes)
        return 0;
    /* What is idle here did not help: it waits for work, or lies in pieces. */
    return ROUNDING + (size > free_bytes + idle ? size - free_bytes - idle : size - free_bytes);
}

bool vp_borrow_held_back(struct vp_pool *pool, unsigned *seen) {
    const uint64_t begin = vp_clock_ns();
    for (; !vp_watch.may_grow(pool->mem.device); pool->mem.held_back++)
        vp_wait_pause(vp_clock_ns() - begin);
    /* It may have been so when memory was refused, and be over by now. */
    const bool was = pool->mem.held_back != *seen;
    *seen = pool->mem.held_back;
    return was;
}

/* The last request to others, by any pool: what, when, and whether all of it, or all that was lacking, was given. */
struct asked {
    uint64_t when, want;
    bool had_all, sufficed;
};

/* A process that lacks memory will soon lack more, and may not ask again at once. So it asks for as much as it once had
 * or, if it has about that already, for half of what it has and a little more; never beyond the limit. */
static VP_LOCKED size_t worth_asking(const struct vp_pool *pool, size_t lack, const struct asked *last) {
    const size_t held = pool->mem.stats.held_bytes, peak = pool->mem.stats.peak_held_bytes, limit = pool->mem.limit;
    const size_t there = vp_memory_device_free(&pool->mem), more = peak - held > held / 16 ? peak - held : held / 2;
    size_t want = lack + held / 16 + more;
    if (last->had_all && want < 2 * last->want)
        want = 2 * last->want;
    want -= want < there ? want : there;
    if (limit && want > (limit > held ? limit - held : 0))
        want = limit > held ? limit - held : 0;
    return want > lack ? want : lack;
}

bool vp_borrow(struct vp_pool *pool, size_t size, uint64_t *begin) {
    static struct asked last;
    const CUuuid uuid = vp_ipc_uuid(pool->mem.device), none = {{0}};
    const size_t lack = lack_of(pool, size);
    const bool first = !*begin;
    if (first)
        *begin = vp_clock_ns();
    if (pool->mem.limit && pool->mem.stats.held_bytes + (lack ? lack - ROUNDING : size) > pool->mem.limit)
        return false;
    /* There was too little a moment ago. */
    if (!lack || !memcmp(&uuid, &none, sizeof uuid))
        return !lack && first;
    /* What another process gives up by its end, say, is no loan, and will do. */
    for (const size_t before = vp_memory_device_free(&pool->mem);;) {
        const uint64_t now = vp_clock_ns();
        const bool is_new = !last.when || now - last.when >= ASK_EVERY_NS, asks = is_new || last.sufficed;
        enum vp_lend_some some;
        if (now - *begin > BORROW_NS)
            return vp_memory_device_free(&pool->mem) > before;
        if (is_new)
            last.had_all = false;
        const uint64_t want = asks ? worth_asking(pool, lack, &last) : 0;
        if (asks)
            last = (struct asked){.when = now, .want = want};
        vp_step_out();
        const uint64_t got = vp_watch.borrow(&uuid, want, lack > ROUNDING ? lack - ROUNDING : lack, &some);
        if (!got && some == VP_LEND_LATER && !asks)
            vp_clock_sleep(20000000);
        vp_step_in();
        if (asks)
            last = (struct asked){some ? last.when : 0 /* nobody was asked */, last.want, got >= want,
                                  got + ROUNDING >= lack};
        pool->mem.stats.loans_asked += some && asks;
        if (got || some != VP_LEND_LATER || atomic_load(&vp_state.timelines.captures))
            return got > 0 || vp_memory_device_free(&pool->mem) > before || (first && !lack_of(pool, size));
    }
}
