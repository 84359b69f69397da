/* One thread's mix of operations. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "soak.h"

#include "pool/giving.h"
#include "process/state.h"
#include "sim.h"

#include <string.h>

/* After so many operations a thread ends and another goes on in its place: its per-thread streams end with
 * it. */
enum { TOUR = 20000 };

/* How many operations a phase of one level of memory pressure lasts. */
enum { PHASE = 1500 };

/* xorshift64*, seeded for each thread. */
uint32_t soak_random(struct worker *w, uint32_t below) {
    w->random ^= w->random >> 12;
    w->random ^= w->random << 25;
    w->random ^= w->random >> 27;
    return below ? (uint32_t)((w->random * UINT64_C(0x2545f4914f6cdd1d)) >> 33) % below : 0;
}

void soak_device(struct worker *w, int device) {
    if (w->device == device)
        return;
    MUST(w, NULL, cuCtxSetCurrent(soak.context[device]));
    w->device = device;
}

/* ---- sizes and pressure ---- */

/* Any size from 1 to 2^bits, small ones as likely as large ones. */
static size_t by_magnitude(struct worker *w, unsigned low_bits, unsigned high_bits) {
    unsigned bits = low_bits + soak_random(w, high_bits - low_bits);
    return ((size_t)1 << bits) + soak_random(w, (uint32_t)1 << bits);
}

size_t soak_size(struct worker *w) {
    uint32_t dice = soak_random(w, 100);
    size_t size;
    if (dice < 20)
        return w->repeated[soak_random(w, REPEATED)];
    if (dice < 65)
        size = by_magnitude(w, 0, 16);
    else if (dice < 92)
        size = by_magnitude(w, 16, 20);
    else
        size = by_magnitude(w, 20, 23);
    return size < soak.largest ? size : soak.largest;
}

/* How much of a device the blocks may fill now, in percent: it goes from ease to more than there is. */
static unsigned pressure(const struct worker *w) {
    static const unsigned phases[] = {30, 70, 95, 50, 130, 85};
    unsigned now = phases[(w->ops / PHASE + (unsigned)w->index / 2) % (sizeof phases / sizeof *phases)];
    return now * soak.pressure / 100;
}

static void allocate(struct worker *w) {
    int device = (int)soak_random(w, (uint32_t)soak.devices);
    size_t size = soak_size(w), most = soak.capacity / 100 * pressure(w);
    bool room = atomic_load(&soak.live[device]) + size <= most;
    if (room && w->count < BLOCKS_MOST && block_alloc(w, size, device))
        return;
    /* Whole neighbourhoods come free, or single blocks here and there. */
    for (uint32_t n = 1 + soak_random(w, room ? 12 : 3); n-- && w->count;)
        block_free(w, soak_random(w, (uint32_t)w->count));
}

/* ---- single operations ---- */

static struct block *any_block(struct worker *w) {
    return &w->blocks[soak_random(w, (uint32_t)w->count)];
}

static void rewrite(struct worker *w) {
    struct block *b = any_block(w);
    struct stream *s = block_enter(w, b);
    block_inspect(w, b);
    block_fill(w, b);
    stream_leave(s);
}

static void copy(struct worker *w) {
    block_copy(w, any_block(w), any_block(w));
}

static void move(struct worker *w) {
    struct block *b = any_block(w);
    struct stream *s = stream_pick(w, b->device);
    if (block_reaches(b, s->device))
        block_move(w, b, s);
    stream_leave(s);
}

/* Puts a block on the shelf, or takes another thread's from there. */
static void hand_over(struct worker *w) {
    if (w->count && soak_random(w, 2)) {
        size_t at = soak_random(w, (uint32_t)w->count);
        struct block b = w->blocks[at];
        struct stream *s = block_enter(w, &b);
        /* A plain stream means the same to every thread, and needs no event. */
        if (b.home->kind != PLAIN || soak_random(w, 2)) {
            b.ready = stream_mark(w, s);
            stream_put(b.home);
            b.home = NULL;
        }
        stream_leave(s);
        history_add(w, HAND_OVER, &b, s->handle);
        pthread_mutex_lock(&soak.shelf_lock);
        bool room = soak.shelved < SHELF;
        if (room)
            soak.shelf[soak.shelved++] = b;
        pthread_mutex_unlock(&soak.shelf_lock);
        if (room)
            block_remove(w, at);
        else
            w->blocks[at] = b;
    } else {
        struct block b = {0};
        pthread_mutex_lock(&soak.shelf_lock);
        if (soak.shelved && w->count < BLOCKS_MOST) {
            size_t at = soak_random(w, (uint32_t)soak.shelved);
            b = soak.shelf[at];
            soak.shelf[at] = soak.shelf[--soak.shelved];
        }
        pthread_mutex_unlock(&soak.shelf_lock);
        if (b.ptr)
            w->blocks[w->count++] = b;
    }
}

static void ask(struct worker *w) {
    struct block *b = any_block(w);
    size_t free_bytes, total, size = 0;
    CUdeviceptr base = 0, start = 0;
    soak_device(w, b->device);
    MUST(w, b, door_mem_info(&free_bytes, &total));
    if (free_bytes > total || total != soak.capacity)
        soak_fail(w, NULL, "%zu of %zu bytes are free", free_bytes, total);
    if (!b->served)
        return;
    CUdeviceptr at = b->ptr + soak_random(w, (uint32_t)b->size);
    MUST(w, b, door_address_range(&base, &size, at));
    MUST(w, b, door_pointer_attribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at));
    if (base != b->ptr || start != b->ptr || size != b->size)
        soak_fail(w, b, "a wrong range: %#llx, %#llx, %zu bytes", (unsigned long long)base, (unsigned long long)start,
                  size);
}

/* As when another process lacks so much. */
static void lend(struct worker *w, int device) {
    const size_t bytes = by_magnitude(w, 16, 27);
    if (!vp_enter())
        return;
    if (vp_state.pools[device])
        vp_giving_lend(vp_state.pools[device], bytes);
    vp_leave();
}

static void tune(struct worker *w) {
    int d = (int)soak_random(w, (uint32_t)soak.devices);
    CUmemoryPool standard, pool = soak.pool[d];
    cuuint64_t used = 0, threshold = soak_random(w, 4) ? UINT64_MAX : by_magnitude(w, 10, 27);
    int on = (int)soak_random(w, 4) > 0;
    MUST(w, NULL, cuDeviceGetDefaultMemPool(&standard, d));
    if (soak_random(w, 2))
        pool = standard;
    MUST(w, NULL, door_pool_get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    if (used > soak.capacity)
        soak_fail(w, NULL, "a memory pool that uses %llu bytes", (unsigned long long)used);
    switch (soak_random(w, 6)) {
    case 4: lend(w, d); break;
    case 5: door_relieve(); break;
    case 0: MUST(w, NULL, door_pool_trim(pool, by_magnitude(w, 10, 27))); break;
    case 1: MUST(w, NULL, door_pool_set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold)); break;
    case 2: MUST(w, NULL, door_pool_set(soak.pool[d], CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &on)); break;
    case 3: MUST(w, NULL, door_pool_set(soak.pool[d], CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &on)); break;
    }
}

/* What a program must not do, and what it gets for it. */
static void misuse(struct worker *w) {
    struct block *b = any_block(w);
    CUdeviceptr ptr = 0;
    CUresult interior = b->size > 1 ? door_free(b->ptr + 1) : CUDA_ERROR_INVALID_VALUE,
             huge = door_alloc(&ptr, 2 * soak.capacity);
    if (interior != CUDA_ERROR_INVALID_VALUE)
        soak_fail(w, b, "a free of an interior pointer returned %d", (int)interior);
    if (huge != CUDA_ERROR_OUT_OF_MEMORY || ptr)
        soak_fail(w, b, "an allocation of more than there is returned %d", (int)huge);
    if (door_alloc(&ptr, 0) != CUDA_ERROR_INVALID_VALUE || door_free(0) != CUDA_SUCCESS)
        soak_fail(w, b, "zero bytes were allocated, or NULL could not be freed");
}

static void wait(struct worker *w) {
    struct block *b = any_block(w);
    struct stream *s = block_enter(w, b);
    if (soak_random(w, 4))
        MUST(w, b, door_stream_synchronize(s->handle));
    stream_leave(s);
    inspections_finish(w, false);
}

static void nothing(void *arg) {
    (void)arg;
}

static void host_function(struct worker *w) {
    struct stream *s = stream_pick(w, (int)soak_random(w, (uint32_t)soak.devices));
    MUST(w, NULL, door_host_function(s->handle, nothing, NULL));
    stream_leave(s);
}

/* A program that repeats itself: the same sizes in the same order, and all of them freed. */
static void repeat(struct worker *w) {
    size_t before = w->count;
    int device = (int)soak_random(w, (uint32_t)soak.devices);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < REPEATED && w->count < BLOCKS_MOST; i++)
            if (atomic_load(&soak.live[device]) + w->repeated[i] > soak.capacity ||
                !block_alloc(w, w->repeated[i], device))
                break;
        while (w->count > before)
            block_free(w, w->count - 1);
    }
}

/* Scratch memory of one stream: nobody looks at it, so that its frees pile up in the queue. */
static void fleeting(struct worker *w) {
    int device = (int)soak_random(w, (uint32_t)soak.devices);
    struct block b = {.device = device};
    for (uint32_t n = 1 + soak_random(w, 6); n; n--) {
        b.size = soak_size(w);
        if (atomic_load(&soak.live[device]) + b.size > soak.capacity || !block_scratch(w, &b))
            break;
    }
    stream_put(b.home);
}

/* One of the driver calls that only the pool makes will fail: to the program that is at most out of memory. */
static void fault(struct worker *w) {
    static const char *const calls[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess"};
    const char *call = calls[soak_random(w, sizeof calls / sizeof *calls)];
    vp_sim_fail(call, 0, CUDA_SUCCESS);
    vp_sim_fail(call, 1 + (long)soak_random(w, 4), CUDA_ERROR_OUT_OF_MEMORY);
}

/* Memory that CUDA gives out itself, under whatever pressure there is; kept until the next time. No kind that a capture
 * elsewhere forbids. */
static void others(struct worker *w) {
    int device = (int)soak_random(w, (uint32_t)soak.devices);
    size_t pages = 1 + soak_random(w, soak_random(w, 4) ? 8 : (uint32_t)(soak.capacity / soak.granularity / 2));
    if (w->other.kind) {
        MUST(w, NULL, door_other_give(&w->other));
        return;
    }
    soak_device(w, device);
    CUresult res = door_other_take(&w->other, DOOR_HANDLE, device, pages * soak.granularity);
    if (res != CUDA_SUCCESS && res != CUDA_ERROR_OUT_OF_MEMORY)
        soak_fail(w, NULL, "a handle of the program's own: %d", (int)res);
}

static void release(struct worker *w) {
    block_free(w, soak_random(w, (uint32_t)w->count));
}

/* ---- the mix ---- */

static struct {
    const char *name;
    void (*run)(struct worker *w);
    unsigned weight; /* relative to the others */
    bool needs_block;
} mix[] = {
    {"alloc", allocate, 4200, false},
    {"free", release, 2450, true},
    {"fleeting", fleeting, 300, false},
    {"rewrite", rewrite, 800, true},
    {"copy", copy, 400, true},
    {"move", move, 700, true},
    {"hand-over", hand_over, 700, false},
    {"ask", ask, 300, true},
    {"streams", stream_renew, 150, false},
    {"tune", tune, 60, false},
    {"misuse", misuse, 50, true},
    {"wait", wait, 90, true},
    {"host-function", host_function, 30, false},
    {"fault", fault, 20, false},
    {"others", others, 40, false},
    {"repeat", repeat, 25, false},
    {"capture", episode_capture, 50, false},
    {"context", episode_context, 20, false},
    {"ending", episode_ending, 20, false},
    {"thread", episode_thread, 20, false},
    {"gate", episode_gate, 10, false},
    {"cache", cache_step, 0, false},
};

void mix_with_cache(void) {
    mix[sizeof mix / sizeof *mix - 1].weight = 6000;
}

bool mix_without(const char *name) {
    for (size_t i = 0; i < sizeof mix / sizeof *mix; i++)
        if (!strcmp(mix[i].name, name)) {
            mix[i].weight = 0;
            return true;
        }
    return false;
}

static size_t draw(struct worker *w) {
    uint32_t all = 0, dice;
    size_t i = 0;
    for (size_t k = 0; k < sizeof mix / sizeof *mix; k++)
        all += mix[k].weight;
    for (dice = soak_random(w, all); dice >= mix[i].weight; i++)
        dice -= mix[i].weight;
    return i;
}

static void step(struct worker *w) {
    size_t i = draw(w);
    pthread_rwlock_rdlock(&soak.world);
    inspections_finish(w, false);
    if (!mix[i].needs_block || w->count)
        mix[i].run(w);
    pthread_rwlock_unlock(&soak.world);
    if (w->ops % 4096 == 0)
        episode_alone(w);
}

void *worker_run(void *arg) {
    struct worker *w = arg;
    w->device = -1;
    soak_device(w, 0);
    for (int i = 0; i < TOUR && w->ops < w->quota && !atomic_load(&soak.stop); i++, w->ops++) {
        step(w);
        if ((atomic_fetch_add(&soak.done, 1) + 1) % soak.check_every == 0)
            soak_check(w);
    }
    inspections_finish(w, true);
    streams_end_thread(w);
    return NULL;
}

void worker_release_all(struct worker *w) {
    w->device = -1;
    while (w->count)
        block_free(w, w->count - 1);
    while (w->cached_count)
        cache_free(w, w->cached_count - 1);
    MUST(w, NULL, door_other_give(&w->other));
    inspections_finish(w, true);
    streams_end_thread(w);
}
