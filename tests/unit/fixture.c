/* What the unit tests of the pool stand on: see fixture.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include "process/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct fixture fx;

void fx_driver(struct vp_driver *drv) {
    const char *missing = "";
    cr_assert(!vp_driver_fill(drv, doors_lookup, NULL, &missing), "the simulator lacks %s", missing);
}

/* ---- a pool by itself ---- */

static void closing(void *pool, struct vp_timeline *timeline) {
    vp_pool_close_timeline(pool, timeline);
}

static void forget_timeline(void *pool, struct vp_timeline *timeline) {
    vp_pool_drop_timeline(pool, timeline);
}

void fx_open(const char *sim) {
    fx = (struct fixture){.waits = VP_WAITS_EARLY};
    vp_sim_reset();
    cr_assert(!vp_sim_configure(sim));
    cu_ok(cuInit(0));
    cu_ok(cuDevicePrimaryCtxRetain(&fx.handle, 0));
    cu_ok(cuCtxSetCurrent(fx.handle));
    cu_ok(cuMemAlloc(&fx.scratch, 64 * KiB));
    for (int i = 1; i < FX_STREAMS; i++)
        cu_ok(cuStreamCreate(&fx.stream[i], CU_STREAM_NON_BLOCKING));
    fx_driver(&fx.drv);
    vp_timelines_init(&fx.timelines, &fx.drv);
    fx.context = vp_context_current(&fx.timelines);
    cr_assert(fx.context);
}

void fx_open_pool(const char *sim, const struct vp_policy *policy, const struct vp_pool_config *config) {
    const struct vp_pool_config plain = {.handle = MiB, .va = GiB, .rdma = true};
    fx_open(sim);
    fx.timelines.closing = closing;
    fx.timelines.forget = forget_timeline;
    fx.timelines.user = &fx.pool;
    cr_assert(!vp_pool_init(&fx.pool, &fx.drv, &fx.timelines, 0, policy, config ? config : &plain));
}

void fx_close(void) {
    for (int i = 1; i < FX_STREAMS; i++)
        fx_idle(i);
    cu_ok(cuCtxSynchronize());
    if (fx.pool.mem.drv) {
        cr_assert(vp_pool_check(&fx.pool, stderr));
        vp_pool_finish(&fx.pool);
    }
    vp_timelines_finish(&fx.timelines);
    for (int i = 1; i < FX_STREAMS; i++)
        cu_ok(cuStreamDestroy(fx.stream[i]));
    cu_ok(cuMemFree(fx.scratch));
    cu_ok(cuDevicePrimaryCtxReset(0));
    if (!fx.lossy) {
        cr_assert(vp_sim_leaks(stderr) == 0, "something leaked at the driver");
        cr_assert(vp_sim_used(0) == 0, "physical memory leaked");
    }
    cr_assert(vp_sim_violations() == 0);
}

static struct vp_timeline *timeline_of(int stream) {
    struct vp_timeline *timeline;
    cr_assert(!vp_timeline_get(&fx.timelines, fx.stream[stream], &timeline));
    return timeline;
}

int fx_try(size_t size, int stream, CUdeviceptr *out) {
    struct vp_request req = {
        .asked = size, .context = fx.context, .timeline = stream ? timeline_of(stream) : NULL, .waits = fx.waits};
    struct vp_region *r;
    int err;
    while ((err = vp_pool_alloc(&fx.pool, &req, &r)) == -EAGAIN) {
        fx.awaits++;
        req.impatient = cuEventQuery(req.await->handle) != CUDA_SUCCESS;
        vp_event_put(&fx.timelines, req.await);
    }
    if (!err)
        *out = r->addr;
    return err;
}

CUdeviceptr fx_alloc(size_t size, int stream) {
    CUdeviceptr addr = 0;
    int err = fx_try(size, stream, &addr);
    cr_assert(!err, "%zu bytes on stream %d: %s", size, stream, strerror(-err));
    return addr;
}

void fx_free(CUdeviceptr addr, int stream) {
    struct vp_region *r = vp_pool_find(&fx.pool, addr);
    struct vp_fence fence = {0};
    cr_assert(r, "%#llx is no block", addr);
    if (stream) {
        cr_assert(!vp_pool_free_async(&fx.pool, r, timeline_of(stream)));
    } else {
        cr_assert(!vp_fence_add_barrier(&fx.timelines, &fence, fx.context, true));
        vp_pool_free(&fx.pool, r, &fence);
    }
}

void fx_busy(int stream) {
    vp_sim_hold(fx.stream[stream]);
    cu_ok(cuMemsetD8Async(fx.scratch, 0, 1, fx.stream[stream]));
}

void fx_idle(int stream) {
    vp_sim_release(fx.stream[stream]);
    cu_ok(cuStreamSynchronize(fx.stream[stream]));
}

uint64_t fx_calls(void) {
    uint64_t sum = 0;
#define ADD(field, name) sum += fx.pool.mem.stats.calls.field;
    VP_MEMORY_CALLS(ADD)
#undef ADD
    return sum;
}

/* ---- scripts ---- */

struct script {
    size_t unit;
    int stream;
    struct {
        CUdeviceptr addr;
        size_t size;
    } block[26];
    uint64_t calls;
    struct vp_memory_stats mark;
    int awaits;
};

/* What a word of the form name=N asks for, or UINT64_MAX. */
static uint64_t measure(const struct script *s, const char *word) {
    const struct vp_memory_stats *now = &fx.pool.mem.stats;
    const struct {
        const char *name;
        uint64_t value;
    } all[] = {
        {"held=", now->held_bytes / s->unit},
        {"grown=", (now->held_bytes - s->mark.held_bytes) / s->unit},
        {"waits=", now->waits_gpu - s->mark.waits_gpu},
        {"retaken=", now->reactivations - s->mark.reactivations},
        {"stitches=", now->stitches - s->mark.stitches},
        {"awaits=", (uint64_t)(fx.awaits - s->awaits)},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strncmp(word, all[i].name, strlen(all[i].name)))
            return all[i].value;
    return UINT64_MAX;
}

static void run_block(struct script *s, const char *text, const char *word) {
    int a = word[0] - 'a', b = word[2] - 'a';
    size_t size = strtoull(word + 2, NULL, 10) * s->unit;
    CUdeviceptr addr = 0;
    int err;
    switch (word[1]) {
    case '+':
        err = fx_try(size, s->stream, &addr);
        cr_assert(!err, "'%s' of '%s': %s", word, text, strerror(-err));
        s->block[a].addr = addr;
        s->block[a].size = size;
        return;
    case '!':
        err = fx_try(size, s->stream, &addr);
        cr_assert(err == -ENOMEM, "'%s' of '%s': %d", word, text, err);
        return;
    case '-': fx_free(s->block[a].addr, s->stream); return;
    }
    CUdeviceptr at = s->block[a].addr, of = s->block[b].addr, end = of + s->block[b].size;
    bool right = word[1] == '@' ? at == of : word[1] == '>' ? at == end : at >= end || at + s->block[a].size <= of;
    cr_assert(right, "'%s' of '%s': %#llx and [%#llx, %#llx)", word, text, at, of, end);
}

static void run_word(struct script *s, const char *text, const char *word) {
    const char *equals = strchr(word, '=');
    if (equals)
        cr_assert(measure(s, word) == strtoull(equals + 1, NULL, 10), "'%s' of '%s': it is %llu", word, text,
                  (unsigned long long)measure(s, word));
    else if (!strcmp(word, "early") || !strcmp(word, "late") || !strcmp(word, "never"))
        fx.waits = *word == 'e' ? VP_WAITS_EARLY : *word == 'l' ? VP_WAITS_LATE : VP_WAITS_NEVER;
    else if (!strcmp(word, "mark"))
        s->calls = fx_calls(), s->mark = fx.pool.mem.stats, s->awaits = fx.awaits;
    else if (!strcmp(word, "quiet"))
        cr_assert(fx_calls() == s->calls, "'%s': %llu driver calls", text, (unsigned long long)(fx_calls() - s->calls));
    else if (!strcmp(word, "trim"))
        vp_pool_trim(&fx.pool, 0);
    else if (!strncmp(word, "busy", 4))
        fx_busy(word[4] - '0');
    else if (!strncmp(word, "idle", 4))
        fx_idle(word[4] - '0');
    else if (*word == 'S')
        s->stream = word[1] - '0';
    else
        run_block(s, text, word);
}

void fx_script(const char *text, size_t unit) {
    struct script s = {.unit = unit, .stream = 1};
    char *copy = strdup(text), *rest = copy, *word;
    while ((word = strsep(&rest, " ")) != NULL) {
        if (!*word)
            continue;
        run_word(&s, text, word);
        cr_assert(vp_pool_check(&fx.pool, stderr), "after '%s' of '%s'", word, text);
    }
    free(copy);
}

/* ---- the doors' calls ---- */

CUcontext door_open(const char *sim) {
    CUcontext ctx;
    cr_assert(!vp_sim_configure(sim));
    setenv("VPOOL_VA", "1G", 0);
    setenv("VPOOL_HANDLE", "1M", 0);
    setenv("VPOOL_CHECK", "1", 0);
    cu_ok(cuInit(0));
    doors_pause = false;
    cr_assert(!doors_open());
    cu_ok(door_primary(&ctx, 0));
    cu_ok(cuCtxSetCurrent(ctx));
    return ctx;
}

void door_close(void) {
    for (int i = 0; i < VP_DEVICES; i++)
        if (vp_state.pools[i])
            cr_expect(vp_pool_check(vp_state.pools[i], stderr));
    cr_expect(vp_sim_violations() == 0);
}

CUstream door_stream(unsigned flags) {
    CUstream stream;
    cu_ok(door_stream_create(&stream, flags));
    return stream;
}

CUcontext door_context(int device) {
    CUcontext ctx;
    cu_ok(door_context_create(&ctx, device));
    return ctx;
}

CUdeviceptr door_take(size_t size, CUstream stream) {
    CUdeviceptr ptr = 0;
    cu_ok(door_alloc_async(&ptr, size, NULL, stream));
    cr_assert(door_served);
    return ptr;
}

CUdeviceptr door_malloc(size_t size) {
    CUdeviceptr ptr = 0;
    cu_ok(door_alloc(&ptr, size));
    cr_assert(door_served);
    return ptr;
}
