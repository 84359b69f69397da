/* Remembered walks of the native stack: see stack_memo.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/stack_memo.h"

#include "base/os_memory.h"

#include <stdatomic.h>
#include <string.h>

/* Sets for a few hundred places, ways for the paths that lead to each. 12 MiB of addresses, and memory as used. */
enum { SETS = 256, WAYS = 16 };

struct kept {
    atomic_bool taken; /* by the thread that reads or writes it; no thread waits for it */
    unsigned count, frames;
    struct vp_memo_key key;
    struct vp_memo_slot slots[VP_MEMO_SLOTS];
    uint32_t frame[VP_MEMO_SLOTS];
};

static struct kept *_Atomic all;
static atomic_uint turn;

static struct kept *set_of(struct kept *of, const struct vp_memo_key *key) {
    return &of[((key->frame >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 56) % SETS * WAYS];
}

/* Return addresses lie where a sanitizer forbids reads: between the objects on the stack. */
__attribute__((no_sanitize("address"))) static bool is_same(const struct kept *k, const struct vp_memo_key *key) {
    if (!k->count || k->key.frame != key->frame || k->key.until != key->until || k->key.went != key->went)
        return false;
    for (unsigned i = 0; i < k->count; i++) {
        const struct vp_memo_slot *s = &k->slots[i];
        if (*s->at != s->value || (s->saved && s->at[-1] != s->saved))
            return false;
    }
    return true;
}

bool vp_memo_recall(const struct vp_memo_key *key, struct vp_walk *walk) {
    struct kept *of = atomic_load_explicit(&all, memory_order_acquire);
    bool found = false;
    if (!of)
        return false;
    struct kept *set = set_of(of, key);
    for (int i = 0; i < WAYS && !found; i++) {
        struct kept *k = &set[i];
        if (atomic_exchange_explicit(&k->taken, true, memory_order_acquire))
            continue;
        found = is_same(k, key);
        if (found) {
            memcpy(walk->frame + walk->count, k->frame, k->frames * sizeof *k->frame);
            walk->count += k->frames;
        }
        atomic_store_explicit(&k->taken, false, memory_order_release);
    }
    return found;
}

__attribute__((no_sanitize("address"))) void vp_memo_step(struct vp_memo *memo, uintptr_t pc, uintptr_t cfa,
                                                          uintptr_t fp) {
    const uintptr_t *at = (const uintptr_t *)cfa - 1;
    if (memo->lost || memo->count == VP_MEMO_SLOTS || cfa <= memo->key.frame || *at != pc) {
        memo->lost = true;
        return;
    }
    memo->slots[memo->count++] = (struct vp_memo_slot){at, pc, at[-1] == fp ? fp : 0};
}

static struct kept *open_table(void) {
    const size_t bytes = sizeof(struct kept) * SETS * WAYS;
    struct kept *others = NULL, *of = vp_os_take_sparse(bytes);
    if (!of || atomic_compare_exchange_strong(&all, &others, of))
        return of;
    vp_os_give(of, bytes); /* another thread has made a table */
    return others;
}

void vp_memo_keep(const struct vp_memo *memo, const struct vp_walk *walk) {
    struct kept *of = atomic_load_explicit(&all, memory_order_acquire);
    if (memo->lost || !memo->count || walk->count > VP_MEMO_SLOTS || (!of && !(of = open_table())))
        return;
    struct kept *k = &set_of(of, &memo->key)[atomic_fetch_add_explicit(&turn, 1, memory_order_relaxed) % WAYS];
    if (atomic_exchange_explicit(&k->taken, true, memory_order_acquire))
        return;
    k->key = memo->key;
    k->count = memo->count;
    k->frames = walk->count;
    memcpy(k->slots, memo->slots, memo->count * sizeof *memo->slots);
    memcpy(k->frame, walk->frame, walk->count * sizeof *walk->frame);
    atomic_store_explicit(&k->taken, false, memory_order_release);
}
