/* The fast path: allocates a size that the stream has just freed, and frees it, without the library's lock.
 *
 * Each thread remembers, for a few stream handles, which cache serves the stream, and which memory pool the handle used
 * with it means. Both may be stale: the cache itself checks that the stream is the one it belongs to, and
 * vp_state.mempools_changed shows changes of pools. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/state.h"

#include "pool/parking.h"

enum { SHORTCUTS = 8 };

struct shortcut {
    CUstream stream;
    struct vp_stream_cache *cache; /* NULL: none known */
    CUmemoryPool handle;           /* as given with an allocation; NULL: the device's current pool */
    const struct vp_mempool *mp;
    uint64_t changed; /* vp_state.mempools_changed when `mp` was found */
};

static __thread struct shortcut shortcuts[SHORTCUTS] __attribute__((tls_model("initial-exec")));

static struct shortcut *shortcut_of(CUstream stream) {
    uintptr_t key = (uintptr_t)stream;
    return &shortcuts[(key ^ key >> 6 ^ key >> 12) % SHORTCUTS];
}

/* The cache that probably serves the stream; NULL: ask the slow way. */
static struct vp_stream_cache *cache_of(const struct shortcut *s, CUstream stream) {
    if (s->stream != stream || !s->cache || vp_thread.inside ||
        atomic_load_explicit(&vp_state.phase, memory_order_relaxed) != VP_OPEN)
        return NULL;
    return s->cache;
}

__attribute__((noinline)) static void tell(const struct vp_stream_cache *cache, char op,
                                           const struct vp_stream_cache_block *block) {
    /* Under the trace's lock files may be opened and closed, which are points of cancellation. Who has the library's
     * lock has armed it already. */
    const bool armed = vp_cancel.armed, inside = vp_thread.inside;
    if (!armed)
        vp_cancel_arm();
    vp_thread.tells = !inside;
    vp_thread.inside = true; /* a signal's handler does not come to that lock */
    vp_watch.event(op, cache->all->device, block->serial, block->asked,
                   atomic_load_explicit(&cache->number, memory_order_relaxed));
    vp_thread.inside = inside;
    vp_thread.tells = false;
    if (!armed)
        vp_cancel_release();
}

static inline void record(const struct vp_stream_cache *cache, char op, const struct vp_stream_cache_block *block) {
    if (__builtin_expect(atomic_load_explicit(&vp_state.recording, memory_order_relaxed), false))
        tell(cache, op, block);
}

bool vp_fast_alloc(CUdeviceptr *out, size_t size, CUmemoryPool handle, CUstream stream) {
    const struct shortcut *s = shortcut_of(stream);
    struct vp_stream_cache *cache = cache_of(s, stream);
    if (!cache || !s->mp || s->handle != handle ||
        s->changed != atomic_load_explicit(&vp_state.mempools_changed, memory_order_acquire))
        return false;
    struct vp_stream_cache_block block;
    vp_calls_begin();
    bool served = vp_stream_cache_alloc(cache, stream, size, s->mp, &block);
    vp_calls_end();
    if (served) {
        *out = block.addr;
        record(cache, 'a', &block);
    }
    return served;
}

__attribute__((noinline)) static bool free_with_event(struct vp_stream_cache *cache, CUdeviceptr ptr, CUstream stream) {
    struct vp_stream_cache_block block;
    if (!vp_enter_briefly())
        return false;
    const bool served = vp_parking_free_event(cache, stream, ptr, &block);
    if (served)
        record(cache, 'f', &block);
    vp_leave();
    return served;
}

bool vp_fast_free(CUdeviceptr ptr, CUstream stream) {
    struct vp_stream_cache *cache = cache_of(shortcut_of(stream), stream);
    if (!cache)
        return false;
    struct vp_stream_cache_block block;
    vp_calls_begin();
    enum vp_stream_cache_answer answer = vp_stream_cache_free(cache, stream, ptr, &block);
    vp_calls_end();
    if (__builtin_expect(answer == VP_STREAM_CACHE_DONE, true)) {
        record(cache, 'f', &block);
        return true;
    }
    return answer == VP_STREAM_CACHE_EVENT && free_with_event(cache, ptr, stream);
}

void vp_fast_know(CUstream stream, CUmemoryPool handle, const struct vp_timeline *timeline,
                  const struct vp_mempool *mp) {
    struct shortcut *s = shortcut_of(stream);
    struct vp_stream_cache *cache = vp_state.fast && timeline->store ? timeline->store->cache : NULL;
    if (s->stream != stream || s->cache != cache)
        *s = (struct shortcut){.stream = stream, .cache = cache};
    if (mp) {
        s->handle = handle;
        s->mp = mp;
        s->changed = atomic_load_explicit(&vp_state.mempools_changed, memory_order_relaxed);
    }
}
