/* What the pool leaves to others: limits, and idle memory given back. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include "process/state.h"

#include <stdlib.h>
#include <time.h>

static const char SIM[] = "capacity=64M,granularity=64K,lazy=0";

Test(pressure, a_limit_is_the_size_of_the_device) {
    CUdeviceptr more = 0;
    size_t unused = 0, total = 0;
    setenv("VPOOL_LIMIT", "16M", 1);
    door_open(SIM);
    CUdeviceptr a = door_malloc(12 * MiB);
    cr_assert(!vp_api_mem_info(&unused, &total));
    cr_assert_eq(total, 16 * MiB);
    cr_assert_eq(unused, 4 * MiB);
    cr_assert_eq(door_alloc(&more, 5 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
    cr_assert_leq(vp_sim_used_vmm(0), 16 * MiB);
    cu_ok(door_free(a));
    a = door_malloc(16 * MiB);
    cr_assert_eq(vp_sim_used_vmm(0), 16 * MiB, "idle memory counts, and is used again");
    cu_ok(door_free(a));
    door_close();
}

Test(pressure, a_limit_in_percent) {
    CUdeviceptr more = 0;
    setenv("VPOOL_LIMIT", "25%", 1);
    door_open(SIM);
    CUdeviceptr a = door_malloc(15 * MiB);
    cr_assert_eq(door_alloc(&more, 2 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
    cu_ok(door_free(a));
    door_close();
}

Test(pressure, what_was_not_needed_for_a_period_goes_back) {
    door_open(SIM);
    CUdeviceptr a = door_malloc(8 * MiB), b = door_malloc(16 * MiB);
    cu_ok(door_free(b));
    cr_assert(vp_enter());
    vp_pressure_tick();
    cr_assert_geq(vp_sim_used_vmm(0), 24 * MiB, "it was needed in this period");
    vp_pressure_tick();
    vp_leave();
    cr_assert_lt(vp_sim_used_vmm(0), 9 * MiB);
    cu_ok(door_free(a));
    door_close();
}

/* Pool memory never went back to other processes (onnxruntime #9509, jax #20022). */
Test(pressure, idle_memory_goes_back_by_time) {
    setenv("VPOOL_IDLE_TRIM", "1", 1);
    door_open(SIM);
    cu_ok(door_free(door_malloc(16 * MiB)));
    for (int i = 0; i < 100 && vp_sim_used_vmm(0); i++)
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    cr_assert_eq(vp_sim_used_vmm(0), 0);
    door_close();
}
