/* Each driver call of a scripted run fails in turn: the error comes out as CUDA would give it, the pool is as
 * before, live bytes are intact, the same call succeeds when it is made again, and at the end nothing is left
 * at the driver. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include "compare/stalloc.h"
#include "pool/giving.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char SIM[] = "capacity=20M,granularity=1M,lazy=0,devices=2";

/* What fails, on which device: vpool's own policy on a small one, but where a test says otherwise. */
static const struct vp_policy *policy = &vp_policy_vpool;
static const char *sim = SIM;
static const struct vp_pool_config *opened_with; /* NULL: the fixture's own */

/* Words: stream, block, + and KiB, or -. Chunks are joined, taken apart, joined otherwise, and taken back;
 * one wait before growing, one when growing has failed; lending and trimming make room; peers come and go; blocks of
 * all kinds and sizes. */
static const char program[] =
    "1a+1024 1w+1024 1c+1024 1x+1024 1g+1024 1y+1024 1a- 1c- 1e+2048 1e- 1g- 1h+3072 1h- "
    "1p+1024 1r+2048 1r- 1p- 1s+3072 "
    "peer1 2b+1024 2b- 1w- 1x- busy1 1s- 2t+3072 idle1 late 0c+2048 busy2 2t- 1u+8192 1v+7168 "
    "idle2 early 1u- 1v- trim peer0 0i+9216 0c- 2j+640 0i- 2j- lend 1y- trim 1a+4096 0b+100 0c+1200";

/* Every call of the table, but for those that the driver answers only before a pool exists. */
static const char *const calls[] = {
    "cuCtxGetCurrent",  "cuCtxPushCurrent_v2", "cuMemAddressReserve", "cuMemCreate",
    "cuMemMap",         "cuMemSetAccess",      "cuMemUnmap",          "cuMemRelease",
    "cuEventCreate",    "cuEventRecord",       "cuEventQuery",        "cuStreamWaitEvent",
    "cuStreamGetId",    "cuStreamGetCtx",      "cuStreamGetFlags",    "cuThreadExchangeStreamCaptureMode",
    "cuCtxRecordEvent",
};

struct run {
    const char *call; /* made to fail; NULL: none is */
    CUresult error;
    unsigned long nth;
    struct {
        CUdeviceptr addr;
        size_t size;
    } block[26];
};

static void describe(const struct run *run, const char *word, const char *what) {
    cr_assert(false, "%s %lu of the run fails with %d: at '%s': %s", run->call, run->nth, run->error, word, what);
}

/* What CUDA would give: the call's own error. A question about the stream that fails is passed on to CUDA,
 * which fails likewise. */
static bool as_cuda_would(const struct run *run, int err) {
    return err == -ENODEV || (run->error == CUDA_ERROR_OUT_OF_MEMORY && err == -ENOMEM) ||
           (err == -EIO && vp_pool_error(&fx.pool, fx.context) == run->error);
}

/* Enough bytes of each block to tell it from others: one in each granule would do, and the last. */
enum { STRIDE = 64 * 1024 };

static unsigned char pattern(int block) {
    return (unsigned char)(block * 7 + 1);
}

static void fill(CUdeviceptr addr, size_t size, int block) {
    unsigned char *bytes = (unsigned char *)addr;
    for (size_t at = 0; at < size; at += STRIDE)
        bytes[at] = pattern(block);
    bytes[size - 1] = pattern(block);
}

static void check(const struct run *run, const char *word) {
    if (!vp_pool_check(&fx.pool, stderr))
        describe(run, word, "the pool is not sound");
    for (int i = 0; i < 26; i++) {
        const unsigned char *bytes = (const unsigned char *)run->block[i].addr;
        size_t size = run->block[i].size;
        for (size_t at = 0; at < size; at += STRIDE)
            if (bytes[at] != pattern(i) || bytes[size - 1] != pattern(i))
                describe(run, word, "a live byte has changed");
    }
}

static int alloc(struct run *run, int block, size_t size, int stream) {
    struct vp_request req = {.asked = size, .context = fx.context, .waits = fx.waits};
    struct vp_region *r;
    int err = stream ? vp_timeline_get(&fx.timelines, fx.stream[stream], &req.timeline) : 0;
    while (!err && (err = vp_pool_alloc(&fx.pool, &req, &r)) == -EAGAIN) {
        vp_event_put(&fx.timelines, req.await);
        req.impatient = true;
        err = 0;
    }
    if (err)
        return err;
    run->block[block].addr = r->addr;
    run->block[block].size = size;
    fill(r->addr, size, block);
    return 0;
}

static int release(struct run *run, int block, int stream) {
    struct vp_region *r = vp_pool_find(&fx.pool, run->block[block].addr);
    struct vp_fence fence = {0};
    struct vp_timeline *timeline;
    int err = stream ? vp_timeline_get(&fx.timelines, fx.stream[stream], &timeline) : 0;
    if (!err)
        err = stream ? vp_pool_free_async(&fx.pool, r, timeline)
                     : vp_fence_add_barrier(&fx.timelines, &fence, fx.context, r->asked >= MiB);
    if (err)
        return err;
    run->block[block].size = 0;
    if (!stream)
        vp_pool_free(&fx.pool, r, &fence);
    return 0;
}

static int do_word(struct run *run, const char *word) {
    int stream = word[0] - '0', block = word[1] - 'a';
    vp_pool_error_forget(&fx.pool, fx.context);
    if (!strncmp(word, "peer", 4))
        return vp_memory_set_peers(&fx.pool.mem, word[4] == '1' ? 1 << 1 : 0);
    if (!strcmp(word, "lend"))
        vp_giving_lend(&fx.pool, 3 << 20);
    else if (!strcmp(word, "trim"))
        vp_pool_trim(&fx.pool, 0);
    else if (!strcmp(word, "late") || !strcmp(word, "early"))
        fx.waits = *word == 'l' ? VP_WAITS_LATE : VP_WAITS_EARLY;
    else if (!strncmp(word, "busy", 4))
        fx_busy(word[4] - '0');
    else if (!strncmp(word, "idle", 4))
        fx_idle(word[4] - '0');
    else
        return word[2] == '+' ? alloc(run, block, strtoul(word + 3, NULL, 10) * KiB, stream)
                              : release(run, block, stream);
    return 0;
}

static void go(struct run *run) {
    char *copy = strdup(program), *rest = copy, *word;
    while ((word = strsep(&rest, " ")) != NULL) {
        int err = do_word(run, word);
        check(run, word);
        /* A free whose event was refused cannot be waited for by a stream: the doors then wait for the work
         * itself. */
        if (err == -ENOMEM && run->call && !strncmp(run->call, "cuEvent", 7)) {
            fx_idle(1);
            fx_idle(2);
            err = do_word(run, word);
        }
        if (err && (!run->call || !as_cuda_would(run, err)))
            describe(run, word, strerror(-err));
        if (err && do_word(run, word))
            describe(run, word, "the second attempt fails too");
        check(run, word);
    }
    free(copy);
}

static void run_with(const char *call, unsigned long nth, CUresult error) {
    struct run run = {.call = call, .nth = nth, .error = error};
    fx_open_pool(sim, policy, opened_with);
    fx.lossy = call && (!strcmp(call, "cuMemUnmap") || !strcmp(call, "cuMemRelease"));
    if (call)
        vp_sim_fail(call, (long)nth, error);
    go(&run);
    if (call)
        vp_sim_fail(call, 0, CUDA_SUCCESS);
    fx_close();
}

/* How often the undisturbed run makes the call. */
static unsigned long times(const char *call) {
    struct run run = {0};
    fx_open_pool(sim, policy, opened_with);
    unsigned long before = vp_sim_calls(call);
    go(&run);
    unsigned long made = vp_sim_calls(call) - before;
    fx_close();
    return made;
}

Test(fault, the_run_does_what_it_is_for) {
    struct run run = {0};
    fx_open_pool(SIM, &vp_policy_vpool, NULL);
    go(&run);
    const struct vp_memory_stats *s = &fx.pool.mem.stats;
    cr_assert(s->stitches > 5 && s->reactivations > 0 && s->waits_gpu > 1 && s->calls.release > 5 && s->calls.unmap > 5,
              "%d %d %d", (int)s->stitches, (int)s->reactivations, (int)s->waits_gpu);
    fx_close();
}

static void fail_each(CUresult error) {
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        unsigned long n = times(calls[i]);
        cr_log_info("%s: %lu times", calls[i], n);
        for (unsigned long nth = 1; nth <= n; nth++)
            run_with(calls[i], nth, error);
    }
}

Test(fault, each_call_out_of_memory) {
    fail_each(CUDA_ERROR_OUT_OF_MEMORY);
}

Test(fault, each_call_otherwise) {
    fail_each(CUDA_ERROR_LAUNCH_FAILED);
}

/* PyTorch's segments and pages are too large for the small device. */
Test(fault, each_call_of_the_published_policies) {
    const struct vp_policy *const published[] = {&vp_policy_bfc, &vp_policy_es, &vp_policy_gmlake};
    sim = "capacity=200M,granularity=1M,lazy=0,devices=2";
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        policy = published[i];
        fail_each(CUDA_ERROR_OUT_OF_MEMORY);
    }
}

/* With places for each request of the run; some of them lie on others that are still alive. */
Test(fault, each_call_of_stalloc) {
    static struct vp_stalloc_place places[64];
    static const size_t most = 24 * MiB;
    struct vp_stalloc_plan plan = {.places = places, .peak = most};
    size_t offset = 0;
    for (const char *word = program; (word = strchr(word, '+')); word++) {
        const size_t size = strtoul(word + 1, NULL, 10) * KiB;
        offset = offset + size > most ? 0 : offset;
        places[plan.count++] = (struct vp_stalloc_place){size, offset, (uint32_t)plan.count % 2};
        offset += size;
    }
    const struct vp_pool_config planned = {.handle = MiB, .va = GiB, .plan = &plan};
    sim = "capacity=200M,granularity=1M,lazy=0,devices=2";
    policy = &vp_policy_stalloc;
    opened_with = &planned;
    fail_each(CUDA_ERROR_OUT_OF_MEMORY);
    fail_each(CUDA_ERROR_LAUNCH_FAILED);
    struct run run = {0};
    fx_open_pool(sim, policy, opened_with);
    go(&run);
    const struct vp_stalloc_figures f = vp_stalloc_figures(&fx.pool);
    cr_assert(f.placed > 5 && f.missed > 2, "%d placed, %d missed", (int)f.placed, (int)f.missed);
    fx_close();
}

/* Opening a pool: all or nothing. */
Test(fault, opening) {
    const char *const at_first[] = {"cuMemGetAllocationGranularity",
                                    "cuDeviceGetAttribute",
                                    "cuMemAddressReserve",
                                    "cuMemCreate",
                                    "cuMemMap",
                                    "cuMemSetAccess"};
    const struct vp_pool_config config = {.va = GiB, .pages = 4};
    for (size_t i = 0; i < sizeof at_first / sizeof *at_first; i++)
        for (int nth = 1; nth <= 3; nth++) {
            fx_open(SIM);
            vp_sim_fail(at_first[i], nth, CUDA_ERROR_OUT_OF_MEMORY);
            int err = vp_pool_init(&fx.pool, &fx.drv, &fx.timelines, 0, &vp_policy_vpmm, &config);
            vp_sim_fail(at_first[i], 0, CUDA_SUCCESS);
            cr_assert(!err || err == -ENOMEM || err == -EOPNOTSUPP || err == -EIO, "%s: %d", at_first[i], err);
            if (err)
                fx.pool.mem.drv = NULL;
            fx_close();
        }
}

/* The device has no more, for good: what is live stays, what is freed can be had again. */
Test(fault, no_more_memory_from_some_point_on) {
    for (long nth = 1; nth <= 30; nth++) {
        struct run run = {.call = "cuMemCreate", .nth = (unsigned long)nth, .error = CUDA_ERROR_OUT_OF_MEMORY};
        int failed = 0;
        fx_open_pool(SIM, &vp_policy_vpool, NULL);
        vp_sim_fail("cuMemCreate", -nth, CUDA_ERROR_OUT_OF_MEMORY);
        for (int i = 0; i < 12; i++) {
            int err = alloc(&run, i, (size_t)(1 + i % 3) * MiB, 1 + i % 2);
            cr_assert(!err || err == -ENOMEM);
            failed += err != 0;
            check(&run, "alloc");
            if (run.block[i / 2].size && i % 3 == 2)
                cr_assert(!release(&run, i / 2, 1));
        }
        cr_assert(failed || nth > 10);
        vp_sim_fail("cuMemCreate", 0, CUDA_SUCCESS);
        cr_assert(!alloc(&run, 25, 2 * MiB, 1));
        check(&run, "end");
        fx_close();
    }
}
