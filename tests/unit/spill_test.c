/* The host's memory as the last resort: when, within which bounds, and that nothing but its speed tells it from the
 * device's. Its copies are in tests/process/preload/spilled.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include "base/machine.h"
#include "process/ipc.h"
#include "process/spill.h"
#include "watch/snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vpool.h>

static const char SIM[] = "capacity=256M,granularity=64K,lazy=0,devices=2";

static struct vp_pool *pool_of(int dev) {
    return vp_state.pools[dev];
}

static uint64_t spilled(void) {
    return pool_of(0)->mem.stats.spilled_bytes;
}

/* A device of so much memory, and so much of the host's behind it. */
static void open_with(const char *limit, const char *spill) {
    setenv("VPOOL_LIMIT", limit, 1);
    setenv("VPOOL_SPILL", spill, 1);
    setenv("VPOOL_CHECK", "1", 1);
    door_open(SIM);
}

static void refused(size_t size, enum vp_spill_refusal why) {
    CUdeviceptr none;
    const uint64_t before = vp_spill_refused[0][why];
    cr_assert_eq(door_alloc(&none, size), CUDA_ERROR_OUT_OF_MEMORY);
    cr_assert_eq(vp_spill_refused[0][why], before + 1, "refused for another reason");
}

static void fill(CUdeviceptr at, size_t bytes, int seed) {
    for (size_t i = 0; i < bytes; i += 64 * KiB)
        ((unsigned char *)at)[i] = (unsigned char)(seed + i / (64 * KiB));
}

static bool holds(CUdeviceptr at, size_t bytes, int seed) {
    for (size_t i = 0; i < bytes; i += 64 * KiB)
        if (((unsigned char *)at)[i] != (unsigned char)(seed + i / (64 * KiB)))
            return false;
    return true;
}

/* ---- when ---- */

Test(spill, growth_goes_on_in_the_hosts_memory) {
    open_with("48M", "1G");
    CUdeviceptr a = door_malloc(40 * MiB), b = door_malloc(40 * MiB);
    fill(a, 40 * MiB, 1);
    fill(b, 40 * MiB, 2);
    cr_assert_eq(spilled(), 35 * MiB, "what the device still had was taken first: %zu", (size_t)spilled());
    cr_assert_eq(vp_sim_used_vmm(0), 45 * MiB, "and a sixteenth stays for smaller requests");
    cr_assert(holds(a, 40 * MiB, 1) && holds(b, 40 * MiB, 2));
    struct vpool_stats stats = {.size = sizeof stats};
    cr_assert(!vpool_stats(0, &stats) && stats.spilled_bytes == 35 * MiB && stats.peak_spilled_bytes == 35 * MiB);
    cu_ok(door_free(b));
    cr_assert_eq(spilled(), 0, "it goes back at once");
    cr_assert(!vpool_stats(0, &stats) && stats.spilled_bytes == 0 && stats.peak_spilled_bytes == 35 * MiB);
    cr_assert(holds(a, 40 * MiB, 1));
    b = door_malloc(8 * MiB);
    cr_assert_eq(spilled(), 0);
    cu_ok(door_free(a));
    cu_ok(door_free(b));
    door_close();
}

Test(spill, what_is_idle_serves_first) {
    open_with("64M", "1G");
    CUdeviceptr part[8];
    for (int i = 0; i < 8; i++)
        part[i] = door_malloc(8 * MiB);
    for (int i = 0; i < 8; i += 2)
        cu_ok(door_free(part[i]));
    CUdeviceptr a = door_malloc(32 * MiB);
    cr_assert_eq(spilled(), 0, "the idle chunks were enough");
    cu_ok(door_free(a));
    a = door_malloc(40 * MiB);
    cr_assert_eq(spilled(), 12 * MiB);
    fill(a, 40 * MiB, 3);
    cr_assert(holds(a, 40 * MiB, 3));
    cu_ok(door_free(a));
    cr_assert_eq(spilled(), 0);
    a = door_malloc(32 * MiB);
    cr_assert_eq(spilled(), 0, "and are again");
    cu_ok(door_free(a));
    for (int i = 1; i < 8; i += 2)
        cu_ok(door_free(part[i]));
    door_close();
}

Test(spill, by_default_there_is_none) {
    CUdeviceptr none;
    setenv("VPOOL_LIMIT", "48M", 1);
    door_open(SIM);
    CUdeviceptr a = door_malloc(40 * MiB);
    cr_assert_eq(door_alloc(&none, 40 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
    cr_assert_eq(pool_of(0)->mem.stats.spills_refused, 0);
    cu_ok(door_free(a));
    door_close();
}

Test(spill, large_requests_alone_are_served) {
    open_with("16M", "1G");
    refused(32 * MiB, VP_SPILL_small);
    CUdeviceptr a = door_malloc(32 * MiB + 1);
    cr_assert_gt(spilled(), 0);
    cu_ok(door_free(a));
    door_close();
}

/* What is left of a full device is for requests that may not be spilled. */
Test(spill, small_requests_find_room_beside_large_ones) {
    open_with("64M", "1G");
    CUdeviceptr a = door_malloc(34 * MiB), b = door_malloc(40 * MiB);
    cr_assert_eq(spilled(), 14 * MiB);
    CUdeviceptr c = door_malloc(34 * MiB), d = door_malloc(3 * MiB);
    cr_assert_eq(spilled(), 48 * MiB);
    cu_ok(door_free(a));
    a = door_malloc(34 * MiB);
    cr_assert_eq(spilled(), 48 * MiB + 3 * MiB, "what the device has serves, but for that rest");
    cu_ok(door_free(a));
    cu_ok(door_free(d));
    cr_assert_eq(door_alloc(&d, 30 * MiB), 0);
    cr_assert_eq(spilled(), 48 * MiB);
    cu_ok(door_free(b));
    cu_ok(door_free(c));
    cu_ok(door_free(d));
    door_close();
}

Test(spill, a_full_device_keeps_some_memory_for_cuda) {
    setenv("VPOOL_SPILL", "1G", 1);
    door_open("capacity=128M,granularity=64K,lazy=0");
    CUdeviceptr a = door_malloc(40 * MiB), b = door_malloc(100 * MiB);
    cr_assert_eq(spilled(), 20 * MiB);
    cr_assert_eq(vp_sim_used_vmm(0), 120 * MiB);
    cu_ok(door_free(a));
    cu_ok(door_free(b));
    door_close();
}

/* Others could not reach it as they reach the device's. */
Test(spill, not_while_others_may_reach_the_memory) {
    open_with("16M", "1G");
    door_context(0);
    CUdeviceptr a = door_malloc(40 * MiB), shown = 0;
    cu_ok(door_free(a));
    shown = door_malloc(1 * MiB);
    a = door_malloc(40 * MiB);
    cr_assert_eq(vp_pool_export(pool_of(0), vp_pool_find(pool_of(0), shown)), 0);
    refused(40 * MiB, VP_SPILL_exported);
    cu_ok(door_free(shown));
    cr_assert_eq(pool_of(0)->mem.exported, 0);
    vp_api_registered(a);
    refused(40 * MiB, VP_SPILL_registered);
    vp_state.registered = 0;
    vp_api_multicast(a);
    refused(40 * MiB, VP_SPILL_multicast);
    vp_state.multicast = 0;
    cr_assert(vp_memory_add_copier(&pool_of(0)->mem, 1), "what there is can be opened to others");
    refused(40 * MiB, VP_SPILL_peers);
    cu_ok(door_free(a));
    door_close();
}

Test(spill, not_while_a_stream_captures) {
    open_with("16M", "1G");
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr a = door_malloc(40 * MiB);
    cu_ok(door_begin_capture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    refused(40 * MiB, VP_SPILL_capturing);
    cu_ok(door_end_capture(s, NULL));
    cu_ok(door_free(a));
    cu_ok(door_stream_destroy(s));
    door_close();
}

/* ---- how much ---- */

Test(spill, no_more_than_the_user_allows) {
    open_with("16M", "64M");
    CUdeviceptr a = door_malloc(48 * MiB);
    cr_assert_eq(spilled(), 33 * MiB);
    refused(40 * MiB, VP_SPILL_limit);
    CUdeviceptr b = 0;
    cu_ok(door_free(a));
    b = door_malloc(79 * MiB);
    cr_assert_eq(spilled(), 64 * MiB);
    cu_ok(door_free(b));
    refused(79 * MiB + 1, VP_SPILL_limit);
    door_close();
}

Test(spill, in_percent_of_the_device) {
    open_with("16M", "25%"); /* of 256 MiB */
    CUdeviceptr a = door_malloc(78 * MiB);
    refused(40 * MiB, VP_SPILL_limit);
    cu_ok(door_free(a));
    refused(81 * MiB, VP_SPILL_limit);
    door_close();
}

Test(spill, the_driver_may_have_none) {
    setenv("VPOOL_LIMIT", "16M", 1);
    setenv("VPOOL_SPILL", "1G", 1);
    door_open("capacity=64M,granularity=64K,lazy=0,host=64M");
    CUdeviceptr a = door_malloc(48 * MiB);
    refused(64 * MiB, VP_SPILL_driver);
    cr_assert_eq(spilled(), 33 * MiB, "nothing of it stays");
    cr_assert(vp_pool_check(pool_of(0), stderr));
    cu_ok(door_free(a));
    door_close();
}

Test(spill, a_device_may_not_know_how) {
    setenv("VPOOL_LIMIT", "16M", 1);
    setenv("VPOOL_SPILL", "1G", 1);
    door_open("capacity=64M,granularity=64K,lazy=0,host=0");
    CUdeviceptr a = door_malloc(8 * MiB);
    refused(48 * MiB, VP_SPILL_unsupported);
    cu_ok(door_free(a));
    door_close();
}

static void write_file(const char *root, const char *name, const char *text) {
    char path[512], *slash;
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *f = fopen(path, "w");
    cr_assert(f && fputs(text, f) >= 0 && !fclose(f), "%s", path);
}

Test(spill, the_hosts_room_is_what_system_and_groups_leave) {
    char root[] = "/tmp/vpool-spill-XXXXXX", command[64];
    cr_assert(mkdtemp(root));
    cr_assert_eq(vp_host_memory_room(root), 0, "nothing is known");
    write_file(root, "proc/meminfo", "MemTotal: 4096 kB\nMemFree:  10 kB\nMemAvailable:    1000 kB\n");
    cr_assert_eq(vp_host_memory_room(root), 900 * KiB);
    write_file(root, "proc/self/cgroup", "3:cpu:/a\n2:memory:/one/two\n1:name=systemd:/x\n0::/a/b\n");
    cr_assert_eq(vp_host_memory_room(root), 900 * KiB, "groups of which nothing is to be seen");
    write_file(root, "sys/fs/cgroup/a/b/memory.max", "max\n");
    write_file(root, "sys/fs/cgroup/a/memory.max", "700000\n");
    write_file(root, "sys/fs/cgroup/a/memory.current", "300000\n");
    cr_assert_eq(vp_host_memory_room(root), 400000);
    write_file(root, "sys/fs/cgroup/a/memory.stat", "anon 1\nfile 2\nactive_file 9\ninactive_file 50000\n");
    cr_assert_eq(vp_host_memory_room(root), 450000);
    write_file(root, "sys/fs/cgroup/memory/one/memory.limit_in_bytes", "5000");
    write_file(root, "sys/fs/cgroup/memory/one/memory.usage_in_bytes", "6000");
    write_file(root, "sys/fs/cgroup/memory/one/memory.stat", "inactive_file 7\ntotal_inactive_file 2000\n");
    cr_assert_eq(vp_host_memory_room(root), 1000);
    write_file(root, "sys/fs/cgroup/memory/one/two/memory.limit_in_bytes", "9223372036854771712");
    write_file(root, "sys/fs/cgroup/memory/one/two/memory.usage_in_bytes", "10");
    cr_assert_eq(vp_host_memory_room(root), 1000);
    write_file(root, "sys/fs/cgroup/memory/one/memory.stat", "total_inactive_file 0\n");
    cr_assert_eq(vp_host_memory_room(root), 0, "over its limit");
    snprintf(command, sizeof command, "rm -r %s", root);
    cr_assert_eq(system(command), 0);
    cr_assert_gt(vp_host_memory_room(""), 0);
}

/* ---- what is told ---- */

static const CUpointer_attribute ASKED[] = {
    CU_POINTER_ATTRIBUTE_CONTEXT,        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
    CU_POINTER_ATTRIBUTE_HOST_POINTER,   CU_POINTER_ATTRIBUTE_IS_MANAGED,
    CU_POINTER_ATTRIBUTE_MAPPED,         CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    CU_POINTER_ATTRIBUTE_RANGE_SIZE,     CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
    CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
    CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,   CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
    CU_POINTER_ATTRIBUTE_MAPPING_SIZE,
};

static void answers_as(CUdeviceptr a, CUdeviceptr b) {
    for (size_t i = 0; i < sizeof ASKED / sizeof *ASKED; i++) {
        uint64_t one = 0, other = 0;
        CUresult first = door_pointer_attribute(&one, ASKED[i], a + 5),
                 second = door_pointer_attribute(&other, ASKED[i], b + 5);
        cr_expect(first == second && one == other, "%d: %d, %#lx; unspilled %d, %#lx", ASKED[i], first, one, second,
                  other);
    }
}

Test(spill, a_spilled_block_answers_as_any_other) {
    CUdeviceptr at = 0, base = 0;
    size_t size = 0;
    open_with("48M", "1G");
    CUdeviceptr a = door_malloc(40 * MiB), b = door_malloc(40 * MiB);
    answers_as(b, a);
    answers_as(b + 39 * MiB, a + 39 * MiB);
    cu_ok(door_pointer_attribute(&at, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, b + 7));
    cr_assert_eq(at, b + 7);
    cu_ok(door_address_range(&base, &size, b + 30 * MiB));
    cr_assert(base == b && size == 40 * MiB);
    cu_ok(door_free(a));
    cu_ok(door_free(b));
    a = door_take(40 * MiB, 0);
    b = door_take(40 * MiB, 0);
    answers_as(b + 39 * MiB, a + 39 * MiB);
    cu_ok(door_free_async(a, 0));
    cu_ok(door_free_async(b, 0));
    door_close();
}

/* The one question that is answered otherwise: what is announced and what the call then does must agree. */
Test(spill, no_other_process_opens_it) {
    int capable = 1;
    CUipcMemHandle handle;
    open_with("16M", "1G");
    CUdeviceptr a = door_malloc(40 * MiB);
    cu_ok(door_pointer_attribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, a));
    cr_assert_eq(capable, 0);
    cr_assert_eq(vp_api_ipc_get(&handle, a), CUDA_ERROR_INVALID_VALUE);
    cu_ok(door_free(a));
    door_close();
}

Test(spill, the_device_alone_counts_for_the_limit_and_what_is_free) {
    size_t unused = 1, total = 0;
    cuuint64_t used = 0, reserved = 0;
    CUmemoryPool pool;
    open_with("48M", "1G");
    CUdeviceptr a = door_take(40 * MiB, 0), b = door_take(40 * MiB, 0);
    cr_assert(!vp_api_mem_info(&unused, &total));
    cr_assert(total == 48 * MiB && unused == 3 * MiB, "%zu of %zu", unused, total);
    cr_assert_eq(pool_of(0)->mem.stats.held_bytes, 45 * MiB);
    cr_assert_eq(vp_memory_idle(&pool_of(0)->mem), 0);
    cu_ok(cuDeviceGetDefaultMemPool(&pool, 0));
    cu_ok(door_pool_get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    cu_ok(door_pool_get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    cr_assert(used == 80 * MiB && reserved >= used);
    cu_ok(door_free_async(a, 0));
    cu_ok(door_free_async(b, 0));
    cu_ok(door_synchronize());
    cr_assert(!vp_api_mem_info(&unused, &total));
    cr_assert_eq(unused, 48 * MiB);
    door_close();
}

Test(spill, idle_memory_of_the_device_goes_back_by_time) {
    setenv("VPOOL_IDLE_TRIM", "1000", 1);
    open_with("48M", "1G");
    CUdeviceptr a = door_take(40 * MiB, 0), b = door_take(40 * MiB, 0);
    cu_ok(door_free_async(a, 0));
    cu_ok(door_synchronize());
    cr_assert(vp_enter());
    for (int i = 0; i < 2; i++)
        vp_pressure_tick();
    vp_leave();
    cr_assert_eq(spilled(), 35 * MiB);
    cr_assert_eq(vp_sim_used_vmm(0), 5 * MiB, "what is alive elsewhere needs none of it");
    cu_ok(door_free_async(b, 0));
    door_close();
}

/* ---- and back ---- */

Test(spill, it_is_released_when_work_on_it_is_over) {
    open_with("16M", "1G");
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr a = door_take(48 * MiB, s);
    vp_sim_hold(s);
    cu_ok(cuMemsetD8Async(a + 20 * MiB, 1, 20 * MiB, s));
    cu_ok(door_free_async(a, s));
    cr_assert_eq(spilled(), 33 * MiB, "it is being written");
    cr_assert_eq(pool_of(0)->mem.spilled_live, 0);
    cr_assert(!vp_copies_matter, "and is nobody's");
    struct vp_snapshot snap;
    struct vp_digest digest;
    cr_assert(vp_enter() && !vp_snapshot_take(pool_of(0), &snap));
    vp_leave();
    vp_snapshot_digest(&snap, UINT64_MAX, &digest);
    cr_assert_eq(digest.pending + digest.idle, pool_of(0)->mem.stats.held_bytes + spilled(), "a dump has all of it");
    vp_snapshot_finish(&snap);
    vp_sim_release(s);
    cu_ok(door_stream_synchronize(s));
    cr_assert_eq(spilled(), 0);
    cu_ok(door_stream_destroy(s));
    door_close();
}

/* The host's memory is slow: the next request of the size had better find the device's. */
Test(spill, nothing_of_it_is_kept_for_the_next_request) {
    open_with("48M", "1G");
    CUdeviceptr a = door_take(40 * MiB, 0), b = door_take(40 * MiB, 0);
    cu_ok(door_free_async(b, 0));
    cu_ok(door_free_async(a, 0));
    a = door_take(40 * MiB, 0);
    cr_assert_eq(pool_of(0)->mem.spilled_live, 0);
    cu_ok(door_free_async(a, 0));
    cu_ok(door_synchronize());
    cr_assert_eq(spilled(), 0);
    door_close();
}

Test(spill, it_ends_with_its_context) {
    open_with("16M", "1G");
    CUcontext other = door_context(0);
    cu_ok(cuCtxSetCurrent(other));
    door_malloc(40 * MiB);
    cr_assert_gt(spilled(), 0);
    cu_ok(door_context_destroy(other));
    cr_assert_eq(spilled(), 0);
    door_close();
}

Test(spill, it_lies_where_it_is_while_the_device_sleeps) {
    open_with("48M", "1G");
    CUdeviceptr a = door_malloc(40 * MiB), b = door_malloc(40 * MiB), c = door_malloc(40 * MiB);
    fill(a, 40 * MiB, 1);
    fill(b, 40 * MiB, 2);
    fill(c, 40 * MiB, 3);
    cr_assert_eq(vpool_pause(0), 0);
    cr_assert_eq(vp_sim_used_vmm(0), 0);
    cr_assert_eq(spilled(), 75 * MiB);
    cr_assert(vp_pool_check(pool_of(0), stderr));
    cu_ok(door_free(c));
    cr_assert_eq(spilled(), 35 * MiB);
    cr_assert_eq(vpool_resume(0), 0);
    cr_assert(holds(a, 40 * MiB, 1) && holds(b, 40 * MiB, 2));
    cu_ok(door_free(b));
    cr_assert_eq(spilled(), 0);
    cu_ok(door_free(a));
    door_close();
}

Test(spill, it_is_freed_while_the_device_sleeps) {
    open_with("48M", "1G");
    CUdeviceptr a = door_malloc(40 * MiB), b = door_malloc(40 * MiB);
    fill(a, 40 * MiB, 1);
    cr_assert_eq(vpool_pause(0), 0);
    cu_ok(door_free(b));
    cr_assert(vp_pool_check(pool_of(0), stderr));
    cr_assert_eq(vpool_resume(0), 0);
    cr_assert(holds(a, 40 * MiB, 1));
    cr_assert_eq(spilled(), 0);
    cu_ok(door_free(a));
    door_close();
}

/* ---- when the driver fails ---- */

/* Each of its calls in turn: the answer is out of memory or success, nothing is lost, and nothing left behind. */
static void fails(const char *call, CUresult error) {
    for (long nth = 1;; nth++) {
        CUdeviceptr a = door_malloc(40 * MiB), b = 0, c = 0;
        fill(a, 40 * MiB, 7);
        const unsigned long before = vp_sim_calls(call);
        vp_sim_fail(call, nth, error);
        CUresult res = door_alloc(&b, 150 * MiB);
        if (!res)
            fill(b, 150 * MiB, 9);
        CUresult freed = res ? CUDA_SUCCESS : door_free(b);
        const bool reached = vp_sim_calls(call) - before >= (unsigned long)nth;
        vp_sim_fail(call, 0, 0);
        cr_assert(!res || res == CUDA_ERROR_OUT_OF_MEMORY || res == error, "%s %ld: %d", call, nth, res);
        cr_assert(!freed || freed == error, "%s %ld: %d", call, nth, freed);
        if (freed)
            cu_ok(door_free(b));
        cr_assert(vp_pool_check(pool_of(0), stderr) && holds(a, 40 * MiB, 7), "%s %ld", call, nth);
        cr_assert(!door_alloc(&c, 150 * MiB), "%s %ld: not again", call, nth);
        cu_ok(door_free(c));
        cu_ok(door_free(a));
        cu_ok(door_synchronize());
        cr_assert_eq(spilled(), 0, "%s %ld: %zu are left", call, nth, (size_t)spilled());
        if (!reached)
            return;
    }
}

Test(spill, each_call_of_the_driver_may_fail) {
    static const char *const calls[] = {"cuMemCreate",      "cuMemMap",     "cuMemSetAccess",
                                        "cuMemUnmap",       "cuMemRelease", "cuMemAddressReserve",
                                        "cuCtxRecordEvent", "cuEventCreate"};
    setenv("VPOOL_LIMIT", "64M", 1);
    setenv("VPOOL_SPILL", "1G", 1);
    door_open(SIM);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        fails(calls[i], CUDA_ERROR_OUT_OF_MEMORY);
        fails(calls[i], CUDA_ERROR_NOT_SUPPORTED);
    }
    door_close();
}

/* ---- a program of its own, against what it wrote ---- */

Test(spill, blocks_keep_their_bytes, .timeout = 60) {
    enum { BLOCKS = 12 };
    struct {
        CUdeviceptr at;
        size_t size;
        int seed;
    } blocks[BLOCKS] = {0};
    CUstream streams[3] = {0};
    open_with("64M", "128M");
    streams[1] = door_stream(CU_STREAM_NON_BLOCKING);
    streams[2] = door_stream(CU_STREAM_NON_BLOCKING);
    srand(5);
    for (int step = 0; step < 600; step++) {
        const int i = rand() % BLOCKS, way = rand() % 3;
        if (blocks[i].size) {
            cr_assert(holds(blocks[i].at, blocks[i].size, blocks[i].seed), "step %d", step);
            cu_ok(way ? door_free_async(blocks[i].at, streams[way]) : door_free(blocks[i].at));
            blocks[i].size = 0;
            continue;
        }
        const size_t size = (rand() % 3 ? 33 + (size_t)rand() % 16 : 1 + (size_t)rand() % 8) * MiB -
                            (size_t)rand() % 999;
        if (way ? door_alloc_async(&blocks[i].at, size, NULL, streams[way]) : door_alloc(&blocks[i].at, size))
            continue;
        if (way)
            cu_ok(cuStreamSynchronize(streams[way]));
        blocks[i].size = size;
        blocks[i].seed = rand() % 256;
        fill(blocks[i].at, size, blocks[i].seed);
        cr_assert_leq(spilled(), 128 * MiB);
        cr_assert_leq(vp_sim_used_vmm(0), 64 * MiB);
    }
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i].size)
            cu_ok(door_free(blocks[i].at));
    cr_assert_gt(pool_of(0)->mem.stats.spills, 20);
    cu_ok(door_synchronize());
    cr_assert_eq(spilled(), 0);
    door_close();
}
