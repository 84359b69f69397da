/* Chooses the allocations whose stacks are recorded, and keeps the stacks of live blocks. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/stacks.h"

#include "watch/stack_peak.h"
#include "watch/stack_walk.h"
#include "base/os_memory.h"
#include "base/table.h"

#include <string.h>
#include <stdio.h>
#include <sys/prctl.h>

/* ---- VPOOL_STACKS ---- */

static struct {
    size_t every; /* SIZE; 0: no stacks are recorded */
    bool native;
} plan;

bool vp_stacks_read(const char *text, size_t *every, bool *native) {
    uint64_t size = 0;
    if (!vp_options_number(&text, true, &size) || (*text && strcmp(text, ",native") != 0) || size > SIZE_MAX / 4)
        return false;
    *every = size;
    *native = *text;
    return true;
}

void vp_stacks_open(void) {
    const char *text = vp_options()->stacks;
    if (*text && !vp_stacks_read(text, &plan.every, &plan.native)) {
        vp_log(VP_LOG_WARN, "VPOOL_STACKS=%.40s is not valid (allowed: SIZE, SIZE,native); no stacks are recorded",
               text);
    } else if (plan.every && vp_stack_table_open()) {
        vp_log(VP_LOG_WARN, "VPOOL_STACKS: no memory for the table; no stacks are recorded");
        plan.every = 0;
    }
}

bool vp_stacks_wanted(void) {
    return plan.every;
}

void vp_stacks_start(void) {
    if (vp_stacks_wanted())
        vp_native_start();
}

/* ---- the blocks ---- */

enum { SHARDS = 16 };

struct block {
    uint64_t key; /* device, serial; plus 1 */
    uint64_t bytes;
    uint32_t stack, blocks; /* the number that it stands for; 0: only itself */
};

/* Each shard has blocks of its own, so that threads seldom meet. After a shard's lock, only the peak's may be taken. */
static struct shard {
    _Alignas(64) struct vp_lock lock;
    struct vp_table blocks; /* of struct block */
    struct vp_slab slab;
} shards[SHARDS] = {[0 ... SHARDS - 1] = {.slab = VP_SLAB(struct block)}};
static atomic_uint_least64_t small_blocks; /* blocks in the shards that are smaller than SIZE */

static uint64_t key_of(CUdevice device, uint64_t serial) {
    return ((uint64_t)device << 48 | serial) + 1;
}

static struct shard *shard_of(uint64_t key) {
    return &shards[key * UINT64_C(0x9e3779b97f4a7c15) >> 60];
}

static void keep(const struct block *block) {
    struct shard *s = shard_of(block->key);
    vp_lock_take(&s->lock);
    struct block *kept = vp_table_reserve(&s->blocks) ? NULL : vp_slab_alloc(&s->slab);
    if (kept) {
        *kept = *block;
        vp_table_add(&s->blocks, kept);
        if (block->blocks)
            atomic_fetch_add_explicit(&small_blocks, 1, memory_order_relaxed);
        vp_stack_peak_add(kept->stack, (int64_t)kept->bytes);
    }
    vp_lock_release(&s->lock);
}

static void forget(uint64_t key, size_t size) {
    struct shard *s = shard_of(key);
    if (size < plan.every && !atomic_load_explicit(&small_blocks, memory_order_relaxed))
        return;
    vp_lock_take(&s->lock);
    struct block *block = vp_table_take(&s->blocks, key);
    if (block) {
        if (block->blocks)
            atomic_fetch_sub_explicit(&small_blocks, 1, memory_order_relaxed);
        vp_stack_peak_add(block->stack, -(int64_t)block->bytes);
        vp_slab_free(&s->slab, block);
    }
    vp_lock_release(&s->lock);
}

/* ---- stacks ---- */

enum words { WORDS_DEEPER = 1 };

/* In a Python program, a thread without Python frames can be recognized only by its name. */
static void add_thread(struct vp_walk *walk) {
    char name[16] = "", text[80];
    struct vp_frame_key key;
    prctl(PR_GET_NAME, name);
    memcpy(&key.a, name, 8);
    memcpy(&key.b, name + 8, 8);
    key.b = (key.b & ~(UINT64_C(255) << 56)) | (uint64_t)'t' << 56;
    uint32_t frame = vp_frame_find(key);
    if (!frame) {
        snprintf(text, sizeof text, "thread %s: no Python frame", name);
        frame = vp_frame_add(key, VP_FRAME_WORDS, text);
    }
    vp_walk_add(walk, frame);
}

/* Puts the native frames before Python's in `walk`. Not inlined into walk_all(): the frame would be too large for some
 * stacks. */
static __attribute__((noinline)) void put_native_first(struct vp_walk *walk) {
    const struct vp_walk python = *walk;
    walk->count = 0;
    vp_native_walk(walk, vp_python_code());
    for (unsigned i = 0; i < python.count && walk->count < VP_STACK_DEPTH; i++)
        walk->frame[walk->count++] = python.frame[i];
}

static void walk_all(struct vp_walk *walk) {
    uint32_t why = 0;
    switch (vp_python_walk(walk)) {
    case VP_PYTHON_FRAMES:
        if (plan.native)
            put_native_first(walk);
        break;
    case VP_PYTHON_OTHER:
        vp_native_walk(walk, NULL);
        add_thread(walk);
        break;
    case VP_PYTHON_UNKNOWN:
        why = walk->count ? walk->frame[0] : 0;
        walk->count = 0;
        vp_native_walk(walk, NULL);
        vp_walk_add(walk, why);
        break;
    case VP_PYTHON_NONE: vp_native_walk(walk, NULL); break;
    }
    if (walk->count >= VP_STACK_DEPTH)
        vp_walk_add_words(walk, WORDS_DEEPER, "deeper: only the innermost frames are recorded");
}

static uint32_t stack_now(void) {
    struct vp_walk walk;
    uint32_t stack = 0;
    walk.count = 0;
    walk_all(&walk);
    if (vp_stack_table_is_full())
        vp_log_once(VP_LOG_WARN, "VPOOL_STACKS: the table of stacks is full; new stacks are not recorded");
    for (unsigned i = walk.count; i-- > 0;)
        if (!(stack = vp_stack_push(stack, walk.frame[i])))
            return 0;
    return stack;
}

/* Samples small blocks: the bytes that a thread allocates are cut into lengths of SIZE, and the block that contains a
 * chosen byte of a length stands for that length. The choice moves from length to length in steps of the golden ratio,
 * which are evenly spread and not in step with the program. With the last byte always, of two blocks of SIZE / 2 that
 * alternate only the second would ever be recorded. */
static __thread struct {
    uint64_t left;    /* bytes up to and with the next chosen byte; 0: none is chosen yet */
    uint64_t behind;  /* bytes behind that one to the end of its length */
    uint32_t lengths; /* so far */
} small __attribute__((tls_model("initial-exec")));

static void choose_byte(void) {
    enum { FIRST = 0xfd70a3d7, STEP = 0x9e3779b9 }; /* in 2^32ths of a length: 0.99, and the golden ratio */
    const uint64_t place = (uint64_t)((__uint128_t)plan.every * (uint32_t)(FIRST + small.lengths++ * (uint32_t)STEP) >>
                                      32);
    small.left = small.behind + place + 1;
    small.behind = plan.every - place - 1;
}

/* How many lengths a block of `size` stands for. */
static uint32_t sample(size_t size) {
    uint32_t lengths = 0;
    if (!small.left)
        choose_byte();
    for (; size >= small.left; lengths++) {
        size -= small.left;
        choose_byte();
    }
    small.left -= size;
    return lengths;
}

uint32_t vp_stacks_event(char op, CUdevice device, uint64_t serial, size_t size) {
    struct block block = {.key = key_of(device, serial), .bytes = size};
    if (op == 'f') {
        forget(block.key, size);
        return 0;
    }
    if (size < plan.every) {
        const uint32_t lengths = sample(size);
        if (!lengths)
            return 0;
        block.bytes = lengths * plan.every;
        block.blocks = (uint32_t)((block.bytes + size / 2) / size);
    }
    block.stack = stack_now();
    if (block.stack)
        keep(&block);
    return block.stack;
}

uint32_t vp_stacks_of(CUdevice device, uint64_t serial) {
    const uint64_t key = key_of(device, serial);
    struct shard *s = shard_of(key);
    if (!vp_stacks_wanted())
        return 0;
    vp_lock_take(&s->lock);
    const struct block *block = vp_table_get(&s->blocks, key);
    const uint32_t stack = block ? block->stack : 0;
    vp_lock_release(&s->lock);
    return stack;
}

/* ---- who holds most ---- */

static void add_up_shard(struct vp_stack_holder *sums, uint32_t stacks, CUdevice device, struct shard *s) {
    if (!vp_lock_for_a_while(&s->lock))
        return;
    for (size_t i = 0; s->blocks.slots && i <= s->blocks.mask; i++) {
        const struct block *block = vp_table_slot(&s->blocks, i);
        if (!block || (block->key - 1) >> 48 != (uint64_t)device || block->stack > stacks)
            continue;
        struct vp_stack_holder *sum = &sums[block->stack];
        sum->stack = block->stack;
        sum->bytes += block->bytes;
        sum->blocks += block->blocks ? block->blocks : 1;
        sum->sampled += block->blocks > 0;
    }
    vp_lock_release(&s->lock);
}

int vp_stacks_holders(CUdevice device, struct vp_stack_holder *out, int most) {
    const uint32_t stacks = vp_stack_count();
    const size_t bytes = (stacks + (size_t)1) * sizeof *out;
    int count = 0;
    if (!vp_stacks_wanted())
        return -1;
    struct vp_stack_holder *sums = vp_os_take_sparse(bytes);
    if (!sums)
        return 0;
    const bool inside = vp_thread.inside;
    vp_thread.inside = true; /* a signal handler that finds this set does not take these locks */
    for (int i = 0; i < SHARDS; i++)
        add_up_shard(sums, stacks, device, &shards[i]);
    vp_thread.inside = inside;
    for (uint32_t i = 1; i <= stacks; i++) {
        struct vp_stack_holder h = sums[i];
        for (int at = 0; h.bytes && at < most; at++) {
            if (at < count && out[at].bytes >= h.bytes)
                continue;
            struct vp_stack_holder other = at < count ? out[at] : (struct vp_stack_holder){0};
            count += at == count;
            out[at] = h;
            h = other;
        }
    }
    vp_os_give(sums, bytes);
    return count;
}

/* ---- forks ---- */

void vp_stacks_fork_child(void) {
    for (int i = 0; i < SHARDS; i++)
        vp_lock_reset(&shards[i].lock);
}
