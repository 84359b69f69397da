/* A replay that starts from what an earlier one has learnt: see second.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/replay/second.h"

#include "base/clock.h"
#include "base/options.h"
#include "pool/learnt/learn.h"
#include "pool/learnt/learnt_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* The current replay: there is one at a time. */
static struct vp_second *running;

const char *vp_second_path(const char *command) {
    static bool said;
    const char *path = vp_options()->plan;
    if (strcmp(path, "auto") != 0)
        return *path ? path : NULL;
    if (!said)
        fprintf(stderr, "vpool %s: VPOOL_PLAN=auto is for programs: a replay needs the name of a file\n", command);
    said = true;
    return NULL;
}

static uint64_t cost(const struct vp_second *s) {
    return s->cost_ns ? s->cost_ns() - s->begin_cost : 0;
}

static uint64_t now(const struct vp_second *s) {
    return s->now_ns + s->waited_ns + (cost(s) - s->background_ns);
}

/* ---- the builder ---- */

static void hand_over(struct vp_second *s) {
    vp_ahead_end(s->pool->ahead, &s->batch, true);
    s->batch.count = 0;
}

/* Begins a batch. False: there is nothing to make now. */
static bool begin_batch(struct vp_second *s, uint64_t at) {
    if (!vp_ahead_begin(s->pool->ahead, &s->batch))
        return false;
    const uint64_t before = cost(s);
    vp_ahead_make(s->drv, &s->batch);
    const uint64_t took = s->cost_ns ? cost(s) - before : 0;
    s->background_ns += s->cost_ns ? took : s->batch.ns;
    s->background_calls += s->batch.calls;
    s->until_ns = at + took;
    return true;
}

static void go_on(struct vp_second *s) {
    while (s->pool->ahead) {
        if (s->pool->ahead->under_way) {
            if (s->until_ns > now(s))
                return;
            hand_over(s);
        }
        const uint64_t at = s->until_ns;
        if (!begin_batch(s, at)) {
            s->until_ns = now(s);
            return;
        }
    }
}

/* The program needs the batch that is under way. */
static bool wait_for_builder(struct vp_pool *pool) {
    struct vp_second *s = running;
    if (!s || s->pool != pool || !pool->ahead->under_way)
        return false;
    const uint64_t at = now(s);
    s->waited_ns += s->until_ns > at ? s->until_ns - at : 0;
    hand_over(s);
    return true;
}

/* ---- from the beginning to the end ---- */

static void read_plan(struct vp_second *s, const char *command) {
    struct vp_learnt learnt;
    char why[256];
    int err = vp_learnt_load(s->path, &learnt, why, sizeof why);
    /* The device of the trace is device 0 here. */
    for (unsigned i = 0; !err && i < learnt.device_count; i++)
        learnt.device[i].device = learnt.device[i].device != s->device;
    if (!err && (err = vp_ahead_start(s->pool, &learnt, false)))
        snprintf(why, sizeof why, "%s", err == -EINVAL ? "it does not suit the device" : strerror(-err));
    if (err && err != -ENOENT)
        fprintf(stderr, "vpool %s: VPOOL_PLAN: %s: %s; the plan is not used\n", command, s->path, why);
    s->used = !err;
}

void vp_second_begin(struct vp_second *s, const char *command, const char *path, unsigned device, struct vp_pool *pool,
                     const struct vp_driver *drv, unsigned long long (*cost_ns)(void)) {
    *s = (struct vp_second){.path = path, .device = device, .pool = pool, .drv = drv, .cost_ns = cost_ns};
    if (!path)
        return;
    running = s;
    s->begin_cost = cost_ns ? cost_ns() : 0;
    read_plan(s, command);
    pool->learn = vp_learn_create();
    pool->config.await_ahead = wait_for_builder;
}

void vp_second_before(struct vp_second *s, uint64_t us, bool round) {
    if (!s->path)
        return;
    if (round)
        s->round_ns = s->now_ns;
    s->now_ns = s->round_ns + us * 1000;
    go_on(s);
}

uint64_t vp_second_program_ns(const struct vp_second *s, uint64_t driver_ns) {
    return s->cost_ns ? driver_ns - s->background_ns + s->waited_ns : driver_ns;
}

/* Keeps what the file has of the trace's other devices, each of which is replayed by itself. */
static void keep_others(const struct vp_second *s, struct vp_learnt *learnt, struct vp_learnt *before) {
    char why[256];
    if (vp_learnt_load(s->path, before, why, sizeof why) || strcmp(before->program, learnt->program) != 0)
        return;
    for (unsigned i = 0; i < before->device_count && learnt->device_count < VP_LEARNT_DEVICES; i++)
        if (before->device[i].device != s->device)
            learnt->device[learnt->device_count++] = before->device[i];
}

static void write_plan(struct vp_second *s, const char *command, const char *program) {
    struct vp_learnt learnt = {0}, before = {0};
    void *mem = NULL;
    size_t bytes = 0;
    int err = vp_learn_sum_up(s->pool, vp_clock_ns() + VP_LEARN_NS, &learnt.device[0], &mem, &bytes);
    if (err == -ENODATA)
        return;
    learnt.device_count = 1;
    learnt.device[0].device = s->device;
    learnt.device[0].driver = CUDA_VERSION;
    snprintf(learnt.made, sizeof learnt.made, "%s", VP_VERSION);
    snprintf(learnt.program, sizeof learnt.program, "%.*s", (int)sizeof learnt.program - 1, program);
    snprintf(learnt.device[0].name, sizeof learnt.device[0].name, "replay");
    keep_others(s, &learnt, &before);
    if (!err)
        err = vp_learnt_save(s->path, &learnt);
    vp_learnt_finish(&before);
    if (mem)
        munmap(mem, bytes);
    if (err)
        fprintf(stderr, "vpool %s: VPOOL_PLAN: %s: %s; the plan is not written\n", command, s->path, strerror(-err));
}

void vp_second_end(struct vp_second *s, const char *command, const char *program, struct vp_second_figures *out) {
    const struct vp_ahead *a = s->path ? s->pool->ahead : NULL;
    *out = (struct vp_second_figures){.wanted = s->path != NULL, .used = s->used};
    if (!s->path)
        return;
    running = NULL;
    if (a) {
        if (a->under_way)
            hand_over(s);
        *out = (struct vp_second_figures){.wanted = true,
                                          .used = true,
                                          .background_ns = s->background_ns,
                                          .background_calls = s->background_calls,
                                          .waited_ns = s->waited_ns,
                                          .requests = a->requests,
                                          .found = a->found,
                                          .served = a->served,
                                          .lacking = a->lacking,
                                          .made_bytes = s->pool->mem.stats.planned_bytes,
                                          .used_bytes = vp_ahead_used_bytes(s->pool),
                                          .returned_bytes = s->pool->mem.stats.planned_returned};
    }
    if (!a || !vp_ahead_fitted(a))
        write_plan(s, command, program);
}
