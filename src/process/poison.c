/* Memory is filled when it is handed out and when it is freed: see poison.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/poison.h"

#include "base/clock.h"
#include "memory/sleep.h"

#include <stdio.h>

/* Not a number as a float, and none with its upper half as a bfloat16 or a half; large and odd as an integer. */
enum { PATTERN = 0x7fbadbad };

/* What is compared on the host at a time. */
enum { WINDOW = 4 << 20 };

/* How long a stream may take until its fills can be checked: it may be waiting for this very thread. */
static const uint64_t LOOK_NS = 1000000000;

/* Driver errors after which the device counts as lost. */
enum { ERRORS_MOST = 16 };

/* The number of reports that are printed; further ones are only counted. */
enum { REPORTS = 20 };

struct vp_poison_counts vp_poison_counts;

/* Bytes of a chunk that hold the pattern since the block was freed that they were of. A chunk is known by the number of
 * its memory, and by its device, as each counts its own: records of one that is gone are found by nobody, and swept. */
struct record {
    uint64_t birth;
    size_t begin, end; /* in the chunk */
    CUdeviceptr block; /* the block's address then, how long it was, and what it was */
    size_t asked;
    uint64_t serial;
    size_t at;       /* of `begin`, in the block */
    uint32_t stream; /* the number of the stream that freed it; 0: cudaFree */
    uint32_t stack;  /* who asked for it; 0: not recorded */
    CUdevice device;
    struct record *next;
};

enum { HEADS = 4096 };
static struct record *heads[HEADS];
static struct vp_slab slab = VP_SLAB(struct record);
static size_t records, sweep_at = 1 << 16;

static struct record **head_of(uint64_t birth) {
    return &heads[birth % HEADS];
}

/* Without memory for a record the bytes stay unchecked. */
static void record_add(const struct record *like) {
    struct record *rec = vp_slab_alloc(&slab);
    if (!rec)
        return;
    *rec = *like;
    rec->next = *head_of(rec->birth);
    *head_of(rec->birth) = rec;
    records++;
}

static void record_free(struct record **link) {
    struct record *rec = *link;
    *link = rec->next;
    vp_slab_free(&slab, rec);
    records--;
}

static VP_LOCKED bool is_there(uint64_t birth, CUdevice dev) {
    const struct vp_chunk *chunk;
    vp_list_each(chunk, &vp_state.pools[dev]->mem.chunks, link)
        if (chunk->birth == birth)
            return true;
    return false;
}

/* Of chunks that are gone. Rare: each time there are twice as many records as were left the last time. */
static VP_LOCKED void sweep(void) {
    for (int i = 0; i < HEADS; i++) {
        struct record known = {0};
        bool there = false;
        for (struct record **link = &heads[i]; *link;) {
            if ((*link)->birth != known.birth || (*link)->device != known.device) {
                known = **link;
                there = is_there(known.birth, known.device);
            }
            if (there)
                link = &(*link)->next;
            else
                record_free(link);
        }
    }
    sweep_at = 2 * records + (1 << 16);
}

/* ---- the driver ---- */

/* On the stream, or on one of its own, with the context current, which does not end before it is left. */
struct place {
    struct vp_context *ctx;
    struct vp_entered entered;
    CUstream stream;
    bool own;
    CUstreamCaptureMode mode;
};

static bool enter(struct place *p, const struct vp_timeline *timeline, struct vp_context *ctx) {
    *p = (struct place){.ctx = timeline ? timeline->context : ctx, .own = !timeline};
    if (!p->ctx || p->ctx->ending)
        return false;
    p->entered = vp_context_enter(&vp_state.drv, p->ctx->handle);
    if (p->entered.refused)
        return false;
    p->mode = vp_capture_relax(&vp_state.timelines);
    p->stream = timeline ? timeline->stream : NULL;
    if (!p->own || !vp_state.drv.cuStreamCreate(&p->stream, CU_STREAM_NON_BLOCKING)) {
        p->ctx->waiters++;
        return true;
    }
    vp_capture_restore(&vp_state.timelines, p->mode);
    vp_context_leave(&vp_state.drv, p->entered);
    return false;
}

static void leave(struct place *p) {
    p->ctx->waiters--;
    if (p->own)
        vp_state.drv.cuStreamDestroy_v2(p->stream);
    vp_capture_restore(&vp_state.timelines, p->mode);
    vp_context_leave(&vp_state.drv, p->entered);
}

/* What is filled on a stream of its own is somebody's next. So this needs nothing that the driver may refuse to make:
 * an event, of which there is none left, would leave the fill to run into what its owner has written. */
static VP_LOCKED void wait_for_own(const struct place *p) {
    const uint64_t begin = vp_clock_ns();
    int errors = 0;
    for (CUresult res; errors < ERRORS_MOST && (res = vp_state.drv.cuStreamQuery(p->stream)) != CUDA_SUCCESS;) {
        errors += res != CUDA_ERROR_NOT_READY;
        vp_wait_pause(vp_clock_ns() - begin);
    }
}

/* Waits until the stream has done its work so far: false after the time is up, or an error. */
static VP_LOCKED bool wait_for(const struct place *p, uint64_t most_ns) {
    const uint64_t begin = vp_clock_ns();
    CUevent event;
    bool over = false;
    if (vp_state.drv.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING))
        return false;
    if (!vp_state.drv.cuEventRecord(event, p->stream))
        for (;;) {
            CUresult res = vp_state.drv.cuEventQuery(event);
            uint64_t waited = vp_clock_ns() - begin;
            over = res == CUDA_SUCCESS;
            if (res != CUDA_ERROR_NOT_READY || waited > most_ns || p->ctx->ending)
                break;
            vp_wait_pause(waited);
        }
    vp_state.drv.cuEventDestroy_v2(event);
    return over;
}

static bool fill(const struct place *p, const struct vp_region *r, unsigned word) {
    return !vp_state.drv.cuMemsetD32Async(r->addr, word, r->size / 4, p->stream);
}

/* ---- looking ---- */

/* One that nobody uses; those of copies that are not over in time are lost. Its memory ends with its context. */
static struct window {
    uint32_t *words;
    const struct vp_context *ctx;
    struct window *next;
} *idle_windows;
static struct vp_slab window_slab = VP_SLAB(struct window);

static struct window *window_take(const struct vp_context *ctx) {
    void *words = NULL;
    for (struct window **link = &idle_windows; *link; link = &(*link)->next)
        if ((*link)->ctx == ctx) {
            struct window *w = *link;
            *link = w->next;
            return w;
        }
    struct window *w = vp_slab_alloc(&window_slab);
    if (!w || vp_state.drv.cuMemHostAlloc(&words, WINDOW, CU_MEMHOSTALLOC_PORTABLE)) {
        if (w)
            vp_slab_free(&window_slab, w);
        return NULL;
    }
    *w = (struct window){.words = words, .ctx = ctx};
    return w;
}

void vp_poison_context_over(const struct vp_context *ctx) {
    for (struct window **link = &idle_windows; *link;) {
        struct window *w = *link;
        if (w->ctx == ctx) {
            *link = w->next;
            vp_slab_free(&window_slab, w);
        } else {
            link = &w->next;
        }
    }
}

/* A block lies in several chunks, and others get its bytes part by part: it is told of once. */
static bool told_before(const struct record *rec) {
    enum { TOLD = 64 };
    static struct {
        uint64_t serial;
        CUdevice device;
    } told[TOLD];
    static unsigned next;
    for (unsigned i = 0; i < TOLD; i++)
        if (told[i].serial == rec->serial && told[i].device == rec->device)
            return true;
    told[next].serial = rec->serial;
    told[next].device = rec->device;
    next = (next + 1) % TOLD;
    return false;
}

static VP_LOCKED void report(const struct record *rec, size_t first, size_t words, uint32_t word) {
    char freed[32] = "by cudaFree";
    if (rec->stream)
        snprintf(freed, sizeof freed, "on stream %u", rec->stream);
    if (told_before(rec))
        return;
    if (++vp_poison_counts.written_blocks <= REPORTS) {
        vp_log(VP_LOG_WARN,
               "VPOOL_POISON: a block of %zu bytes at %#llx (device %d, allocation %llu), freed %s, was written to "
               "afterwards: %zu word%s of 4 bytes or more, from its byte %zu on; the first is %#x",
               rec->asked, (unsigned long long)rec->block, (int)rec->device, (unsigned long long)rec->serial, freed,
               words, words == 1 ? "" : "s", rec->at + first, word);
        vp_step_out(); /* the names of functions are the dynamic linker's, which has a lock of its own */
        if (rec->stack)
            vp_watch.tell_stack(rec->stack);
        vp_step_in();
    } else if (vp_poison_counts.written_blocks == REPORTS + 1)
        vp_log(VP_LOG_WARN, "VPOOL_POISON: further blocks are only counted");
}

/* Compares what lies at `addr`, part of a record that was taken out. False: it could not be seen in time. */
static VP_LOCKED bool look(struct place *p, const struct record *rec, CUdeviceptr addr, size_t bytes) {
    struct window *w = window_take(p->ctx);
    for (size_t at = 0; w && at < bytes;) {
        size_t n = bytes - at < WINDOW ? bytes - at : WINDOW, bad = 0, first = 0;
        if (vp_state.drv.cuMemcpyDtoHAsync_v2(w->words, addr + at, n, p->stream) || !wait_for(p, LOOK_NS)) {
            vp_poison_counts.unchecked_bytes += bytes - at;
            return false;
        }
        for (size_t i = n / 4; i-- > 0;)
            if (w->words[i] != PATTERN) {
                bad++;
                first = i;
            }
        if (bad)
            report(rec, at + 4 * first, bad, w->words[first]);
        vp_poison_counts.checked_bytes += n;
        at += n;
    }
    if (w) {
        w->next = idle_windows;
        idle_windows = w;
    }
    return w != NULL;
}

/* The next record that lies in [begin, end) of a chunk, cut to it, comes out in `out`; what lies outside stays. */
static bool take(CUdevice dev, uint64_t birth, size_t begin, size_t end, struct record *out) {
    for (struct record **link = head_of(birth); *link; link = &(*link)->next) {
        struct record *rec = *link;
        if (rec->birth != birth || rec->device != dev || rec->end <= begin || rec->begin >= end)
            continue;
        *out = *rec;
        struct record left = *rec, right = *rec;
        record_free(link);
        if (left.begin < begin) {
            left.end = begin;
            record_add(&left);
            out->at += begin - out->begin;
            out->begin = begin;
        }
        if (right.end > end) {
            right.at += end - right.begin;
            right.begin = end;
            record_add(&right);
            out->end = end;
        }
        return true;
    }
    return false;
}

/* Writes by blocks of PyTorch's cache to a chunk are no fault. */
static void forget_cached(CUdevice dev, struct vp_chunk *chunk) {
    struct record rec;
    while (chunk->cached && take(dev, chunk->birth, 0, chunk->size, &rec))
        vp_poison_counts.unchecked_bytes += rec.end - rec.begin;
    chunk->cached = false;
}

/* A part of a block that lies in one chunk. */
struct part {
    const struct vp_chunk *chunk;
    size_t begin, end; /* in it */
};

/* The part at `*at`, which is advanced; false: there are no more. */
static VP_LOCKED bool part_next(const struct vp_memory *mem, const struct vp_region *r, CUdeviceptr *at,
                                struct part *out) {
    if (*at >= vp_region_end(r))
        return false;
    const struct vp_mapping *m = vp_mapping_at(mem, *at);
    forget_cached(mem->device, m->chunk);
    *out = (struct part){m->chunk, *at - m->addr, m->chunk->size};
    if (vp_region_end(r) < m->addr + out->end)
        out->end = vp_region_end(r) - m->addr;
    *at = m->addr + out->end;
    return true;
}

/* The lock was let go: it may have been freed meanwhile, as by the end of its context. */
static VP_LOCKED bool is_still(struct vp_pool *pool, CUdeviceptr addr, uint64_t serial) {
    const struct vp_region *r = vp_pool_find(pool, addr);
    return r && r->serial == serial;
}

bool vp_poison_handed_out(struct vp_pool *pool, const struct vp_region *r, const struct vp_timeline *timeline,
                          struct vp_context *ctx) {
    const CUdeviceptr addr = r->addr;
    const uint64_t serial = r->serial;
    struct place place;
    struct record rec;
    struct part part;
    const bool entered = enter(&place, timeline, ctx);
    bool in_time = entered, there = true;
    /* What cannot be seen is no longer known to hold the pattern: its new owner writes there. */
    for (CUdeviceptr at = addr; there && part_next(&pool->mem, r, &at, &part);) {
        const CUdeviceptr base = part.chunk->current->addr;
        while (there && take(pool->mem.device, part.chunk->birth, part.begin, part.end, &rec)) {
            if (in_time)
                in_time = look(&place, &rec, base + rec.begin, rec.end - rec.begin);
            else
                vp_poison_counts.unchecked_bytes += rec.end - rec.begin;
            there = is_still(pool, addr, serial);
        }
    }
    /* A program that leans on zeros is to hear of it. */
    if (there && (!entered || !fill(&place, r, vp_options()->zero ? 0 : PATTERN)) && vp_options()->zero)
        vp_log_once(VP_LOG_WARN, "VPOOL_ZERO: the driver refuses to fill memory; not all that is served is zero");
    if (!entered)
        return there;
    /* Anybody may use it at once. */
    if (place.own)
        wait_for_own(&place);
    leave(&place);
    return is_still(pool, addr, serial);
}

void vp_poison_freed(struct vp_pool *pool, const struct vp_region *r, const struct vp_timeline *timeline) {
    const CUdeviceptr addr = r->addr;
    const uint64_t serial = r->serial;
    struct place place;
    struct part part;
    if (r->bare || r->exported || r->spilled || vp_memory_sleeps(&pool->mem, addr) ||
        !enter(&place, timeline, vp_context_on(&vp_state.timelines, pool->mem.device)))
        return;
    const bool filled = fill(&place, r, PATTERN);
    if (place.own)
        wait_for_own(&place);
    leave(&place);
    /* Another thread may have freed it, too, which is an error of the program's. */
    if (!filled || !is_still(pool, addr, serial))
        return;
    if (records > sweep_at)
        sweep();
    const uint32_t stack = vp_watch.stack_of(pool->mem.device, r->serial);
    for (CUdeviceptr at = addr; part_next(&pool->mem, r, &at, &part);)
        record_add(&(struct record){.birth = part.chunk->birth,
                                    .begin = part.begin,
                                    .end = part.end,
                                    .block = addr,
                                    .asked = r->asked,
                                    .serial = r->serial,
                                    .at = part.chunk->current->addr + part.begin - addr,
                                    .stream = timeline ? timeline->number : 0,
                                    .stack = stack,
                                    .device = pool->mem.device});
}
