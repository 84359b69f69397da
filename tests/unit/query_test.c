/* What CUDA tells about our memory must be what it tells about its own: each attribute of a block of the pool
 * beside that of a native block made by the same call. Also memory that others make, which is only counted. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include "pool/parking.h"
#include "process/bare.h"
#include "process/state.h"

#include <pthread.h>
#include <unistd.h>
#include <vpool.h>

static const char SIM[] = "capacity=64M,granularity=64K,lazy=0";

/* As the door does it: what the api leaves open is the driver's to answer. */
static CUresult ask(void *data, CUpointer_attribute which, CUdeviceptr ptr) {
    CUresult res = vp_api_pointer_attribute(data, which, ptr);
    return res == VP_NOT_OURS ? cuPointerGetAttribute(data, which, ptr) : res;
}

static const struct {
    const char *name;
    CUpointer_attribute which;
} attributes[] = {
    {"CONTEXT", CU_POINTER_ATTRIBUTE_CONTEXT},
    {"MEMORY_TYPE", CU_POINTER_ATTRIBUTE_MEMORY_TYPE},
    {"HOST_POINTER", CU_POINTER_ATTRIBUTE_HOST_POINTER},
    {"P2P_TOKENS", CU_POINTER_ATTRIBUTE_P2P_TOKENS},
    {"IS_MANAGED", CU_POINTER_ATTRIBUTE_IS_MANAGED},
    {"MAPPED", CU_POINTER_ATTRIBUTE_MAPPED},
    {"DEVICE_ORDINAL", CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL},
    {"IS_LEGACY_CUDA_IPC_CAPABLE", CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE},
    {"RANGE_SIZE", CU_POINTER_ATTRIBUTE_RANGE_SIZE},
    {"ALLOWED_HANDLE_TYPES", CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES},
    {"IS_GPU_DIRECT_RDMA_CAPABLE", CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE},
    {"IS_HW_DECOMPRESS_CAPABLE", CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE},
    {"ACCESS_FLAGS", CU_POINTER_ATTRIBUTE_ACCESS_FLAGS},
    {"MEMPOOL_HANDLE", CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE},
    {"SYNC_MEMOPS", CU_POINTER_ATTRIBUTE_SYNC_MEMOPS},
};

static void same_answers_but(CUpointer_attribute but, CUdeviceptr ours, CUdeviceptr native) {
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
        uint64_t a[2] = {0}, b[2] = {0};
        CUresult ra = ask(a, attributes[i].which, ours + 5);
        CUresult rb = cuPointerGetAttribute(b, attributes[i].which, native + 5);
        if (attributes[i].which != but)
            cr_expect(ra == rb && a[0] == b[0], "%s: %d, %#lx; natively %d, %#lx", attributes[i].name, ra, a[0], rb,
                      b[0]);
    }
}

static void same_answers(CUdeviceptr ours, CUdeviceptr native) {
    same_answers_but(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, ours, native); /* which is not among them */
}

Test(query, a_synchronous_block_answers_as_cuMemAlloc_memory) {
    CUdeviceptr native;
    size_t size = 0;
    door_open(SIM);
    CUdeviceptr ours = door_malloc(3 * MiB);
    cu_ok(cuMemAlloc(&native, 3 * MiB));
    same_answers(ours, native);
    cu_ok(ask(&size, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, ours));
    cr_assert_eq(size, 3 * MiB);
    cu_ok(cuMemFree(native));
    cu_ok(door_free(ours));
    door_close();
}

Test(query, a_block_that_sleeps_answers_as_when_it_is_awake) {
    CUdeviceptr native;
    door_open(SIM);
    CUdeviceptr blocks[] = {door_malloc(3 * MiB), door_take(3 * MiB, NULL)};
    for (int i = 0; i < 2; i++) {
        cu_ok(i ? cuMemAllocAsync(&native, 3 * MiB, NULL) : cuMemAlloc(&native, 3 * MiB));
        cu_ok(door_synchronize());
        cr_assert_eq(vpool_pause(0), 0);
        /* It cannot be shown to others now, which it says. */
        same_answers_but(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, blocks[i], native);
        cr_assert_eq(vpool_resume(0), 0);
        same_answers(blocks[i], native);
        cu_ok(cuMemFree(native));
    }
    door_close();
}

/* Where nobody could reach its memory, that is not made for it, and says what CUDA's does all the same. */
Test(query, a_block_says_what_cudas_would_where_nobody_does_rdma) {
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop;
    CUdeviceptr native, ordered;
    setenv("VPOOL_RDMA", "0", 1);
    door_open(SIM);
    CUdeviceptr ours = door_malloc(3 * MiB), beside = door_take(3 * MiB, 0);
    cu_ok(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)ours));
    cu_ok(cuMemGetAllocationPropertiesFromHandle(&prop, handle));
    cu_ok(cuMemRelease(handle));
    cr_assert_eq(prop.allocFlags.gpuDirectRDMACapable, 0);
    cr_assert_eq(prop.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    cu_ok(cuMemAlloc(&native, 3 * MiB));
    cu_ok(cuMemAllocAsync(&ordered, 3 * MiB, 0));
    same_answers(ours, native);
    same_answers(beside, ordered);
    cu_ok(cuMemFreeAsync(ordered, 0));
    cu_ok(cuMemFree(native));
    cu_ok(door_free(ours));
    cu_ok(door_free_async(beside, 0));
    door_close();
}

static const char WITH_AN_ENGINE[] = "capacity=64M,granularity=64K,lazy=0,decompress=1";

/* The engine takes cuMemAlloc's memory, and of a memory pool what that was made for: nvCOMP asks. Handles for it are
 * made where there is one; if the driver refuses them, they keep what else they are for. */
static void decompressed_into(const char *sim, bool refused, bool made) {
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop;
    CUdeviceptr native, ordered;
    int can = refused;
    door_open(sim);
    if (refused)
        vp_sim_fail("cuMemCreate", 1, CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr ours = door_malloc(3 * MiB), beside = door_take(3 * MiB, 0);
    cu_ok(cuMemAlloc(&native, 3 * MiB));
    cu_ok(cuMemAllocAsync(&ordered, 3 * MiB, 0));
    if (!refused)
        same_answers(ours, native);
    else
        cu_ok(ask(&can, CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, ours));
    cr_assert(!can);
    same_answers(beside, ordered);
    cu_ok(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)ours));
    cu_ok(cuMemGetAllocationPropertiesFromHandle(&prop, handle));
    cu_ok(cuMemRelease(handle));
    cr_assert_eq(prop.allocFlags.usage, made ? CU_MEM_CREATE_USAGE_HW_DECOMPRESS : 0);
    cr_assert_eq(prop.allocFlags.gpuDirectRDMACapable, 1);
    cu_ok(cuMemFreeAsync(ordered, 0));
    cu_ok(cuMemFree(native));
    cu_ok(door_free(ours));
    cu_ok(door_free_async(beside, 0));
    door_close();
}

Test(query, a_synchronous_block_can_be_decompressed_into) {
    decompressed_into(WITH_AN_ENGINE, false, true);
}

Test(query, a_block_says_that_it_can_without_an_engine_too) {
    decompressed_into(SIM, false, false);
}

Test(query, a_block_that_cannot_be_decompressed_into_can_be_registered_still) {
    decompressed_into(WITH_AN_ENGINE, true, false);
}

/* Where a block lies, and where none does: many ask about the first byte of what a block lies in. */
Test(query, a_bare_segment_answers_as_cuMemAlloc_memory) {
    CUdeviceptr native, seg;
    struct vp_bare_stream stream = {.known = false};
    door_open(WITH_AN_ENGINE);
    cu_ok(vp_bare_segment(&seg, 3 * MiB, stream));
    cu_ok(cuMemAlloc(&native, 3 * MiB));
    cu_ok(vp_bare_room(0, MiB, stream));
    cr_assert(vp_bare_used(seg + MiB, MiB, stream));
    same_answers(seg + MiB, native + MiB);
    same_answers(seg, native);
    cu_ok(cuMemFree(native));
    cu_ok(door_free(seg));
    door_close();
}

Test(query, a_stream_ordered_block_answers_as_cuMemAllocAsync_memory) {
    CUdeviceptr native;
    int ipc = 1;
    door_open(SIM);
    CUdeviceptr ours = door_take(3 * MiB, 0);
    cu_ok(cuMemAllocAsync(&native, 3 * MiB, 0));
    same_answers(ours, native);
    cu_ok(ask(&ipc, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, ours));
    cr_assert_eq(ipc, 0);
    cu_ok(cuMemFreeAsync(native, 0));
    cu_ok(door_free_async(ours, 0));
    door_close();
}

/* UCX asks whether memory may be shown before it shows any. */
Test(query, what_comes_after_a_question_whether_it_can_be_shown_lies_alone) {
    CUdeviceptr at[6];
    int can[6] = {0};
    door_open("capacity=64M,granularity=2M,lazy=0");
    /* Of memory that has no such handles that says nothing. */
    CUdeviceptr ordered = door_take(1000, 0), beside = door_take(1000, 0);
    cu_ok(ask(&can[0], CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, ordered));
    cr_assert(!can[0]);
    cu_ok(door_free_async(ordered, 0));
    cu_ok(door_free_async(beside, 0));
    for (int i = 0; i < 6; i++)
        at[i] = door_malloc(MiB + 1000);
    cu_ok(ask(&can[0], CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at[0]));
    cr_assert(can[0] && at[1] % (2 * MiB), "others lie beside it");
    for (int i = 0; i < 6; i++)
        cu_ok(door_free(at[i]));
    cu_ok(door_synchronize());
    for (int i = 0; i < 6; i++)
        at[i] = door_malloc(MiB + 1000);
    for (int i = 0; i < 6; i++) {
        cu_ok(ask(&can[i], CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at[i]));
        cr_assert(can[i] && at[i] % (2 * MiB) == 0);
    }
    for (int i = 0; i < 6; i++)
        cu_ok(door_free(at[i]));
    door_close();
}

static CUresult sync_memops(const void *on, CUdeviceptr ptr) {
    CUresult res = vp_api_sync_memops(on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr);
    return res == VP_NOT_OURS ? cuPointerSetAttribute(on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr) : res;
}

static int value_after_memset(CUdeviceptr ptr, unsigned char value) {
    cu_ok(cuMemsetD8(ptr, value, 1));
    return *(unsigned char *)ptr;
}

/* Open MPI, NVSHMEM over InfiniBand and GDRCopy go on only where it can be set. */
Test(query, calls_on_a_block_are_over_when_they_return_where_that_is_set) {
    const unsigned on = 1, off = 0;
    unsigned set = 0;
    CUcontext later;
    door_open("capacity=64M,granularity=64K,lazy=100,memset=late");
    CUdeviceptr ours = door_malloc(3 * MiB), other = door_malloc(MiB), ordered = door_take(MiB, 0);
    cr_assert_neq(value_after_memset(ours, 1), 1);
    cu_ok(sync_memops(&on, ours));
    cu_ok(sync_memops(&on, ordered));
    cr_assert_eq(value_after_memset(ours, 2), 2);
    cu_ok(ask(&set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ours + MiB));
    cr_assert_eq(set, 1);
    cu_ok(ask(&set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, other));
    cr_assert_eq(set, 0);
    cr_assert(vp_state.registered & 1, "a network has it now");
    cu_ok(cuCtxCreate(&later, NULL, 0, 0));
    vp_api_context_created(later, false);
    cr_assert_eq(value_after_memset(ours, 3), 3);
    cu_ok(sync_memops(&off, ours));
    cu_ok(ask(&set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ours));
    cr_assert_eq(set, 0);
    cu_ok(cuCtxDestroy(later));
    cu_ok(door_free_async(ordered, 0));
    cu_ok(door_free(other));
    cu_ok(door_free(ours));
    cr_assert_neq(sync_memops(&on, ours), CUDA_SUCCESS);
    cr_assert_neq(vp_api_sync_memops(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ours), CUDA_SUCCESS);
    door_close();
}

/* As after cudaDeviceReset, which blocks of memory pools survive. */
Test(query, what_is_set_where_there_is_no_context_is_for_the_next) {
    const unsigned on = 1;
    unsigned set = 0;
    CUcontext later;
    door_open("capacity=64M,granularity=64K,lazy=100,memset=late");
    CUdeviceptr ordered = door_take(MiB, 0);
    cu_ok(cuCtxSynchronize());
    cu_ok(door_primary_reset(0));
    cu_ok(sync_memops(&on, ordered));
    cu_ok(cuCtxCreate(&later, NULL, 0, 0));
    vp_api_context_created(later, false);
    cu_ok(ask(&set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ordered));
    cr_assert_eq(set, 1);
    cr_assert_eq(value_after_memset(ordered, 3), 3);
    cu_ok(cuCtxDestroy(later));
    door_close();
}

/* Nobody has asked for it: neither those that are made later, nor whatever flags the program gives them. */
Test(query, a_block_that_need_not_wait_leaves_contexts_alone) {
    const unsigned off = 0;
    CUcontext later;
    door_open("capacity=64M,granularity=64K,lazy=100,memset=late");
    CUdeviceptr ours = door_malloc(MiB);
    cu_ok(sync_memops(&off, ours));
    cr_assert_eq(vp_sync_flag, 0);
    cu_ok(cuCtxCreate(&later, NULL, 0, 0));
    vp_api_context_created(later, false);
    cr_assert_neq(value_after_memset(ours, 1), 1);
    cu_ok(cuCtxDestroy(later));
    cu_ok(door_free(ours));
    door_close();
}

/* The driver's lock of a context is a launch's for as long as that waits for room in its queue, and what it waits for
 * may wait for who registers a buffer (UCX #11705). */
Test(query, a_context_is_told_once_to_be_over_when_calls_return) {
    const unsigned on = 1, off = 0;
    CUdeviceptr ptr[3];
    door_open(SIM);
    for (int i = 0; i < 3; i++) {
        ptr[i] = i < 2 ? door_malloc(MiB) : door_take(MiB, 0);
        cu_ok(sync_memops(&on, ptr[i]));
        cr_assert_eq(vp_sim_calls("cuCtxSetFlags"), 1);
    }
    cu_ok(sync_memops(&off, ptr[0]));
    cu_ok(sync_memops(&on, ptr[0]));
    cr_assert_eq(vp_sim_calls("cuCtxSetFlags"), 1);
    for (int i = 0; i < 3; i++)
        cu_ok(door_free(ptr[i]));
    door_close();
}

/* Open MPI asks for the handle before each message: what streams have freed last is still at hand then. */
Test(query, a_block_that_is_shown_again_leaves_the_caches_alone) {
    CUipcMemHandle handle, again;
    door_open(SIM);
    CUdeviceptr ours = door_malloc(2 * MiB);
    cu_ok(vp_api_ipc_get(&handle, ours));
    cu_ok(door_free_async(door_take(3000, 0), 0));
    cr_assert(vp_parking_holds(vp_state.pools[0]));
    cu_ok(vp_api_ipc_get(&again, ours));
    cr_assert(vp_parking_holds(vp_state.pools[0]));
    cr_assert_arr_eq(&again, &handle, sizeof handle);
    cu_ok(door_free(ours));
    door_close();
}

/* Nothing is promised that does not hold. */
Test(query, calls_cannot_be_made_to_wait_on_old_drivers) {
    const unsigned on = 1;
    door_open("capacity=64M,granularity=64K,lazy=0,driver=12000");
    CUdeviceptr ours = door_malloc(3 * MiB);
    cr_assert_eq(sync_memops(&on, ours), CUDA_ERROR_NOT_SUPPORTED);
    cu_ok(door_free(ours));
    door_close();
}

static void *asks_about_the_hosts(void *ptr) {
    unsigned type;
    CUdeviceptr base;
    size_t size;
    const CUdeviceptr at = (CUdeviceptr)(uintptr_t)ptr;
    cr_assert_eq(vp_api_pointer_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at), VP_NOT_OURS);
    cr_assert_eq(vp_api_address_range(&base, &size, at), VP_NOT_OURS);
    cr_assert_eq(vp_api_asked_address(at), at);
    cr_assert_eq(vp_api_mapped_address(at, 0, false), at);
    cr_assert(!vp_api_owns(at));
    return NULL;
}

/* MPI and PyTorch ask about the host's memory, too, time and again. */
Test(query, memory_of_the_host_waits_for_nobody, .timeout = 20) {
    pthread_t thread;
    int here;
    door_open(SIM);
    CUdeviceptr ours = door_malloc(MiB);
    cr_assert(vp_enter());
    cr_assert(!pthread_create(&thread, NULL, asks_about_the_hosts, &here));
    cr_assert(!pthread_join(thread, NULL));
    vp_leave();
    cr_assert(vp_api_owns(ours));
    cu_ok(door_free(ours));
    door_close();
}

/* As in CUDA, where it is mapped other blocks may be, too. */
Test(query, every_block_has_an_id_of_its_own) {
    uint64_t base = 0, first = 0, second = 0;
    door_open(SIM);
    CUdeviceptr a = door_malloc(1000), b = door_malloc(1000);
    cr_assert(vp_api_owns(a) && vp_api_owns(b + 999) && !vp_api_owns(0x1000));
    cu_ok(ask(&base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, b + 500));
    cr_assert_eq(base, b / (64 << 10) * (64 << 10));
    cu_ok(ask(&first, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, a));
    cu_ok(ask(&second, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, b));
    cr_assert_neq(first, second);
    cu_ok(door_free(a));
    cr_assert(!vp_api_owns(a));
    cu_ok(door_free(b));
    door_close();
}

/* The driver knows a chunk there: it is asked about another address. */
Test(query, a_freed_block_is_nobodys) {
    CUdeviceptr base;
    int type;
    door_open(SIM);
    CUdeviceptr a = door_malloc(1000), b = door_malloc(3 * MiB);
    cr_assert(vp_api_asked_address(a + 999) == a + 999 && vp_api_asked_address(b) == b);
    cr_assert(vp_api_asked_address(0x1000) == 0x1000 && vp_api_asked_address(0) == 0);
    cr_assert_neq(vp_api_asked_address(a + 1000), a + 1000);
    cr_assert(vp_api_address_range(&base, NULL, a + 1000) == VP_NOT_OURS);
    cu_ok(door_free(b));
    cr_assert_neq(vp_api_asked_address(b), b);
    cr_assert_eq(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, vp_api_asked_address(b)),
                 CUDA_ERROR_INVALID_VALUE);
    cu_ok(door_free(a));
    door_close();
}

Test(query, a_dma_buf_covers_a_block_of_several_handles) {
    int fd = -1;
    door_open(SIM);
    CUdeviceptr ours = door_malloc(24 * MiB);
    cu_ok(cuMemGetHandleForAddressRange(&fd, ours, 24 * MiB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    cr_assert_geq(fd, 0);
    close(fd);
    cu_ok(door_free(ours));
    door_close();
}

/* Whoever shows a block rounds it to pages; what was freed is shown in no page of its own. */
Test(query, what_is_shown_has_a_live_block) {
    door_open(SIM);
    CUdeviceptr a = door_malloc(1000), b = door_malloc(1000), c = door_malloc(3 * MiB), page = b / 4096 * 4096;
    cr_assert(vp_api_shown_address(page, 4096) == page && vp_api_shown_address(page, 64 << 10) == page);
    cr_assert(vp_api_shown_address(c, 3 * MiB) == c && vp_api_shown_address(c + MiB, 4096) == c + MiB);
    cr_assert(vp_api_shown_address(0x1000, 4096) == 0x1000 && vp_api_shown_address(c, 0) == c);
    cr_assert_neq(vp_api_shown_address(c, SIZE_MAX), c);
    cu_ok(door_free(a));
    cr_assert_eq(vp_api_shown_address(page, 4096), page);
    cu_ok(door_free(b));
    cu_ok(door_free(c));
    cr_assert(vp_api_shown_address(page, 4096) != page && vp_api_shown_address(c + MiB, 4096) != c + MiB);
    cr_assert_neq(vp_api_shown_address(c, 3 * MiB), c);
    door_close();
}

/* Beside a block as much as may be mapped for it. */
Test(query, what_is_mapped_beside_a_block_is_shown_with_it) {
    door_open("capacity=64M,lazy=0");
    CUdeviceptr a = door_malloc(1000), c = door_malloc(3 * MiB), base = a / (2 * MiB) * (2 * MiB);
    cr_assert_eq(vp_api_shown_address(base, 2 * MiB), base);
    cr_assert_eq(vp_api_shown_address(c, 4 * MiB), c);
    cr_assert_neq(vp_api_shown_address(c, 16 * MiB), c);
    cu_ok(door_free(a));
    cu_ok(door_free(c));
    door_close();
}

/* ---- memory of others ---- */

Test(query, handles_of_others_are_counted) {
    door_open(SIM);
    const struct vp_foreign_sum *of = &vp_state.others[0];
    vp_api_other_created(0, 11, 6 * MiB);
    vp_api_other_created(0, 12, 2 * MiB);
    vp_api_other_retained(11);
    vp_api_other_retained(99);
    cr_assert(of->handles == 2 && of->bytes == 8 * MiB && of->peak_bytes == 8 * MiB);
    vp_api_other_released(12);
    vp_api_other_released(12);
    vp_api_other_released(11);
    cr_assert(of->handles == 1 && of->bytes == 6 * MiB, "a reference is left");
    vp_api_other_released(11);
    cr_assert(of->handles == 0 && of->bytes == 0 && of->peak_bytes == 8 * MiB);
    vp_api_other_created(-1, 13, MiB);
    vp_api_other_created(1, 14, MiB);
    cr_assert_eq(vp_state.others[1].bytes, MiB);
    door_close();
}

/* The time of a question about a block. */
static uint64_t asked_for(CUdeviceptr block) {
    CUdeviceptr base;
    size_t size;
    const uint64_t took = LEAST_NS(cu_ok(vp_api_address_range(&base, &size, block + 100)));
    cr_assert(base == block && size == 512);
    return took;
}

/* A granule's blocks were gone through in the order of their addresses, 4,096 of the smallest: 20 us. */
Test(query, a_small_block_is_found_at_once_among_thousands) {
    enum { BLOCKS = 2048 };
    static CUdeviceptr blocks[BLOCKS];
    CUdeviceptr base, low, high;
    size_t size;
    door_open("capacity=64M,granularity=2M,lazy=0,backing=ledger");
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = door_malloc(512);
    low = high = blocks[0];
    for (int i = 0; i < BLOCKS; i++) {
        low = blocks[i] < low ? blocks[i] : low;
        high = blocks[i] > high ? blocks[i] : high;
    }
    const uint64_t of_first = asked_for(low), of_last = asked_for(high);
    cr_assert_lt(of_last, 4 * of_first + 500, "%lu and %lu ns", of_first, of_last);
    /* What is gone is not found by its neighbours, nor is what lies behind a block. */
    cu_ok(door_free(blocks[100]));
    cr_assert_eq(vp_api_address_range(&base, &size, blocks[100] + 100), VP_NOT_OURS);
    const CUdeviceptr odd = door_malloc(5000);
    cu_ok(vp_api_address_range(&base, &size, odd + 4999));
    cr_assert(base == odd && size == 5000);
    cr_assert_eq(vp_api_address_range(&base, &size, odd + 5000), VP_NOT_OURS);
    door_close();
}
