/* A program whose first run is learnt, and whose second run begins with that: a plan, and its builder by hand. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "fixture.h"

#include "pool/learnt/ahead.h"
#include "pool/learnt/learn.h"
#include "pool/learnt/learnt_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LEDGER "backing=ledger,capacity=8G,lazy=0"

static const struct vp_pool_config config = {.handle = 256 * MiB, .va = 64 * GiB};
static char path[64];

static inline void open_learning(void) {
    fx_open_pool(LEDGER, &vp_policy_vpool, &config);
    fx.pool.learn = vp_learn_create();
}

/* All that the builder may make by now. */
static inline unsigned build_all(void) {
    struct vp_ahead_batch batch;
    unsigned batches = 0;
    while (fx.pool.ahead && vp_ahead_begin(fx.pool.ahead, &batch)) {
        vp_ahead_make(&fx.drv, &batch);
        vp_ahead_end(fx.pool.ahead, &batch, true);
        cr_assert(vp_pool_check(&fx.pool, stderr));
        batches++;
    }
    return batches;
}

/* The builder gets its turn after each request. */
static bool builds;

static inline CUdeviceptr take(size_t size) {
    CUdeviceptr addr = fx_alloc(size, 1);
    if (builds)
        build_all();
    return addr;
}

static inline void save_plan(void) {
    struct vp_learnt learnt = {.made = "test", .program = "a, program", .key = 7, .device_count = 1};
    void *mem = NULL;
    size_t bytes = 0;
    strcpy(path, "/tmp/learnt.XXXXXX");
    int fd = mkstemp(path);
    close(fd);
    cr_assert_eq(vp_learn_sum_up(&fx.pool, 0, &learnt.device[0], &mem, &bytes), 0);
    cr_assert_eq(vp_learnt_save(path, &learnt), 0);
    munmap(mem, bytes);
}

static inline int begin_with_plan(bool trusted) {
    struct vp_learnt learnt;
    char why[256];
    int err = vp_learnt_load(path, &learnt, why, sizeof why);
    cr_assert_eq(err, 0, "%s", why);
    return vp_ahead_start(&fx.pool, &learnt, trusted);
}

static inline void close_with_plan(void) {
    unlink(path);
    fx_close();
}
