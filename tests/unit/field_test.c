/* What went wrong for users of other interposers and of other allocators on virtual memory, where no test of a subject
 * guards it already. field_bugs.txt names the guards of each. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include "process/state.h"

#include <stdlib.h>
#include <string.h>

static const char SIM[] = "capacity=64M,granularity=64K,lazy=0";

/* torch_memory_saver #82: only multiples of the page worked. */
Test(field, sizes_of_every_kind) {
    static const size_t sizes[] = {1,    2,       3,           511,     512,         513,
                                   4095, 4097,    65535,       65536,   65537,       MiB - 1,
                                   MiB,  MiB + 1, 2 * MiB - 1, 2 * MiB, 2 * MiB + 1, 3 * MiB + 12345};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    CUdeviceptr at[2 * COUNT];
    unsigned char *seen;
    door_open("capacity=64M,granularity=2M,lazy=0");
    cu_ok(cuMemAllocHost((void **)&seen, 4 * MiB));
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 2 * COUNT; i++) {
        size_t size = sizes[i / 2];
        at[i] = i % 2 ? door_malloc(size) : door_take(size, s);
        cr_assert_eq(at[i] % 512, 0, "%zu bytes at %#llx", size, at[i]);
        cu_ok(cuMemsetD8Async(at[i], (unsigned char)(i + 1), size, s));
    }
    for (int i = 0; i < 2 * COUNT; i++) {
        size_t size = sizes[i / 2];
        cu_ok(cuMemcpyDtoHAsync(seen, at[i], size, s));
        cu_ok(cuStreamSynchronize(s));
        for (size_t k = 0; k < size; k++)
            cr_assert_eq(seen[k], i + 1, "byte %zu of a block of %zu", k, size);
        cu_ok(i % 2 ? door_free(at[i]) : door_free_async(at[i], s));
    }
    door_close();
}

/* ---- memory that somebody has registered ---- */

static CUdeviceptr registered;
static size_t registered_size;
static int disturbed;
static CUresult (*real_unmap)(CUdeviceptr, size_t),
    (*real_map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);

static void disturb(CUdeviceptr at, size_t size) {
    disturbed += at < registered + registered_size && registered < at + size;
}

static CUresult CUDAAPI watched_unmap(CUdeviceptr at, size_t size) {
    disturb(at, size);
    return real_unmap(at, size);
}

static CUresult CUDAAPI watched_map(CUdeviceptr at, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                                    unsigned long long flags) {
    disturb(at, size);
    return real_map(at, size, offset, handle, flags);
}

static CUmemGenericAllocationHandle handle_at(CUdeviceptr at) {
    CUmemGenericAllocationHandle handle = 0;
    cu_ok(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)at));
    cu_ok(cuMemRelease(handle));
    return handle;
}

/* torch_memory_saver #88, vllm #41237: NCCL or a NIC had registered memory that was then mapped anew. Whatever happens
 * around a live block (ranges stitched of all that is free, idle memory given back, no memory left), its own pages
 * stay what and where they are. */
Test(field, a_live_block_keeps_its_mapping) {
    CUdeviceptr at[40];
    CUmemGenericAllocationHandle before[5];
    door_open(SIM);
    real_unmap = vp_state.drv.cuMemUnmap;
    real_map = vp_state.drv.cuMemMap;
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 40; i++)
        at[i] = door_malloc(MiB + 512);
    registered = at[17];
    registered_size = MiB + 512;
    for (int i = 0; i < 5; i++)
        before[i] = handle_at(registered + (size_t)i * (256 * KiB));
    vp_state.drv.cuMemUnmap = watched_unmap;
    vp_state.drv.cuMemMap = watched_map;
    for (int round = 0; round < 6; round++) {
        for (int i = 0; i < 40; i++)
            if (i != 17 && (i + round) % 2) {
                cu_ok(door_free(at[i]));
                at[i] = 0;
            }
        cu_ok(cuCtxSynchronize());
        CUdeviceptr large = door_take(14 * MiB, s);
        cu_ok(door_free_async(large, s));
        if (round % 2)
            door_relieve();
        /* As much as there is. */
        CUdeviceptr full[16];
        int n = 0;
        while (n < 16 && !door_alloc_async(&full[n], 5 * MiB, NULL, s))
            n++;
        cr_assert(n < 16);
        while (n)
            cu_ok(door_free_async(full[--n], s));
        for (int i = 0; i < 40; i++)
            if (!at[i])
                at[i] = door_malloc(MiB + 512);
    }
    for (int i = 0; i < 5; i++)
        cr_assert_eq(handle_at(registered + (size_t)i * (256 * KiB)), before[i]);
    cr_assert_eq(disturbed, 0, "the driver was called for its addresses %d times", disturbed);
    door_close();
}

static bool asked_for_rdma;
static CUresult (*real_create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long);

static CUresult CUDAAPI watched_create(CUmemGenericAllocationHandle *handle, size_t size,
                                       const CUmemAllocationProp *prop, unsigned long long flags) {
    asked_for_rdma = prop->allocFlags.gpuDirectRDMACapable;
    return real_create(handle, size, prop, flags);
}

/* vllm #29569: a NIC could not register memory that had not been made for it. */
Test(field, handles_are_made_for_rdma_where_the_device_can) {
    int can = 0;
    door_open(SIM);
    real_create = vp_state.drv.cuMemCreate;
    vp_state.drv.cuMemCreate = watched_create;
    cu_ok(cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 0));
    cr_assert(can, "the simulated device can");
    door_malloc(MiB);
    cr_assert(asked_for_rdma);
    door_close();
}

static CUresult (*real_access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);

static CUresult CUDAAPI access_without_rdma(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count) {
    return asked_for_rdma ? CUDA_ERROR_UNKNOWN : real_access(ptr, size, desc, count);
}

/* pytorch #192330: under WSL2 handles are made for RDMA and mapped, and then opened to no device. */
Test(field, memory_that_opens_to_nobody_is_made_for_less) {
    int legacy = 0;
    door_open(SIM);
    real_create = vp_state.drv.cuMemCreate;
    vp_state.drv.cuMemCreate = watched_create;
    real_access = vp_state.drv.cuMemSetAccess;
    vp_state.drv.cuMemSetAccess = access_without_rdma;
    CUdeviceptr a = door_malloc(4 * MiB), b = door_malloc(2 * MiB);
    cr_assert(!asked_for_rdma);
    cu_ok(cuMemsetD8(a, 1, 4 * MiB));
    cu_ok(cuMemsetD8(b, 1, 2 * MiB));
    cu_ok(vp_api_pointer_attribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, a));
    cr_assert(legacy, "they can be exported still");
    cr_assert_eq(vp_state.pools[0]->mem.error, CUDA_SUCCESS);
    cr_assert_eq(vp_state.pools[0]->mem.stats.held_bytes, vp_sim_used_vmm(0));
    cu_ok(door_free(a));
    cu_ok(door_free(b));
    door_close();
}

/* A virtual GPU may announce virtual memory management and refuse each of its calls (xgboost #12217, ppl.nn #8). The
 * first that says so of a device may be the one that makes memory, or that maps it, or opens it. */
Test(field, a_device_that_makes_no_memory_is_left_to_cuda) {
    const char *const calls[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess"};
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr a, b, c;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        vp_sim_fail(calls[i], -1, CUDA_ERROR_NOT_SUPPORTED);
        cr_assert_eq(door_alloc(&a, 4 * MiB), CUDA_SUCCESS, "%s", calls[i]);
        cr_assert(!door_served, "CUDA's own memory");
        cr_assert_eq(door_alloc_async(&b, MiB, NULL, s), CUDA_SUCCESS, "%s", calls[i]);
        cr_assert(!door_served);
        cu_ok(cuMemsetD8(a, 1, 4 * MiB));
        cu_ok(door_free(a));
        cu_ok(door_free_async(b, s));
        cr_assert_eq(vp_state.pools[0]->mem.stats.held_bytes, 0);
        vp_sim_fail(calls[i], 0, CUDA_SUCCESS);
    }
    /* It was for a moment. From then on such an answer is an error. */
    cr_assert_eq(door_alloc(&a, 4 * MiB), CUDA_SUCCESS);
    cr_assert(door_served);
    vp_sim_fail("cuMemCreate", -1, CUDA_ERROR_NOT_SUPPORTED);
    cr_assert_eq(door_alloc(&c, 8 * MiB), CUDA_ERROR_NOT_SUPPORTED);
    cr_assert(door_served);
    vp_sim_fail("cuMemCreate", 0, CUDA_SUCCESS);
    cu_ok(door_free(a));
    door_close();
}

/* UCX and others keep registrations by address, and ask for the buffer's id whether it is the same buffer still. */
Test(field, a_reused_address_has_a_new_buffer_id) {
    unsigned long long ids[40];
    door_open(SIM);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr first = 0;
    for (int i = 0; i < 40; i++) {
        CUdeviceptr at = i % 2 ? door_malloc(3 * MiB) : door_take(3 * MiB, s);
        first = first ? first : at;
        cr_assert_eq(at, first, "the same address each time");
        cr_assert(!vp_api_pointer_attribute(&ids[i], CU_POINTER_ATTRIBUTE_BUFFER_ID, at + 5));
        for (int k = 0; k < i; k++)
            cr_assert_neq(ids[k], ids[i], "allocations %d and %d", k, i);
        cu_ok(i % 2 ? door_free(at) : door_free_async(at, s));
        cu_ok(cuCtxSynchronize());
    }
    door_close();
}

/* ---- addresses ---- */

/* VPMM #179, pytorch #186213: each remapping took new addresses, until there were none. */
Test(field, addresses_are_used_again) {
    enum { TIMES = VP_FEWER(40000) };
    static CUdeviceptr at[64];
    unsigned long at_half = 0;
    uint64_t random = 1;
    setenv("VPOOL_CHECK", "0", 1);
    setenv("VPOOL_VA", "1G", 1);
    door_open("backing=ledger,capacity=64M,granularity=64K,lazy=0");
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < TIMES; i++) {
        if (i == TIMES / 2)
            at_half = vp_sim_calls("cuMemAddressReserve");
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
        size_t k = random >> 58, size = (random >> 20) % (4 * MiB) + 1;
        if (at[k])
            cu_ok(door_free_async(at[k], s));
        at[k] = 0;
        if (door_alloc_async(&at[k], size, NULL, s))
            at[k] = 0;
    }
    cr_assert_geq(vp_state.pools[0]->mem.stats.stitches, 100, "ranges were built");
    /* Old mappings take some, at first. */
    cr_assert_leq(at_half, 8);
    cr_assert_eq(vp_sim_calls("cuMemAddressReserve"), at_half);
    door_close();
}

/* onnxruntime #9509, cosmos-rl #731: a full pool beside somebody's own allocation. */
Test(field, a_full_pool_starves_nobody) {
    CUdeviceptr native = 0;
    door_open(SIM);
    CUdeviceptr kept = door_malloc(25 * MiB), idle = door_malloc(30 * MiB);
    cu_ok(door_free(idle));
    cu_ok(cuCtxSynchronize());
    cr_assert_eq(cuMemAlloc(&native, 32 * MiB), CUDA_ERROR_OUT_OF_MEMORY, "the pool holds it all");
    /* What the door does for a call that it passed on. */
    cr_assert(door_relieve());
    cu_ok(cuMemAlloc(&native, 32 * MiB));
    cu_ok(cuMemFree(native));
    cu_ok(door_free(kept));
    door_close();
}

/* ---- captures ---- */

/* HAMi-core #192. Where cuCtxRecordEvent is missing, a stream gets an event before it captures. */
Test(field, a_capture_begins_beside_another) {
    static const char *const drivers[] = {"", ",driver=12000"};
    CUstreamCaptureStatus status;
    for (int i = 0; i < 2; i++) {
        char sim[96];
        snprintf(sim, sizeof sim, "%s%s", SIM, drivers[i]);
        vp_sim_reset();
        memset(&vp_state, 0, sizeof vp_state);
        door_open(sim);
        CUstream one = door_stream(CU_STREAM_NON_BLOCKING), two = door_stream(CU_STREAM_NON_BLOCKING);
        for (int k = 0; k < 100; k++)
            cu_ok(door_free_async(door_take(MiB, k % 2 ? one : two), k % 2 ? one : two));
        cu_ok(door_begin_capture(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
        for (int k = 0; k < 100; k++) {
            cu_ok(door_begin_capture(two, CU_STREAM_CAPTURE_MODE_GLOBAL));
            cu_ok(cuStreamIsCapturing(one, &status));
            cr_assert_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE, "the first capture was destroyed");
            cu_ok(door_end_capture(two, NULL));
        }
        cu_ok(door_end_capture(one, NULL));
        door_close();
    }
}
