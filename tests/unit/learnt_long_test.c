/* A plan that is too long for its file. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "learnt_test.h"

#include <sys/stat.h>

/* So many sizes, each once: their places alone are more than a file may have. */
enum { SIZES = 65000 };

static CUdeviceptr take_one(int i) {
    return fx_alloc(1 * GiB + (size_t)i * 64 * KiB, 1);
}

Test(learnt, of_a_run_that_is_too_long_the_beginning_is_kept) {
    struct stat st;
    open_learning();
    for (int i = 0; i < SIZES; i++)
        fx_free(take_one(i), 1);
    save_plan();
    fx_close();
    cr_assert(!stat(path, &st) && st.st_size <= VP_LEARNT_BYTES && st.st_size > VP_LEARNT_BYTES / 4);
    fx_open_pool(LEDGER, &vp_policy_vpool, &config);
    cr_assert_eq(begin_with_plan(true), 0);
    const struct vp_ahead *plan = fx.pool.ahead;
    cr_assert(plan->plan.request_count >= SIZES / 4 && plan->plan.request_count < SIZES);
    cr_assert_eq(plan->plan.total_requests, SIZES);
    for (int i = 0; i < 1000; i++)
        fx_free(take_one(i), 1);
    cr_assert_eq(plan->served, plan->requests);
    close_with_plan();
}
