/* Memory that reads zero, and faults of programs that VPOOL_POISON finds: planted here, each of its kind. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "api_test.h"

#include "process/bare.h"
#include "process/poison.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <vpool.h>

static const char DEVICE[] = "capacity=64M,granularity=64K,lazy=30,timeout=300,devices=2";

enum { PATTERN = 0x7fbadbad };

static uint64_t found(void) {
    return vp_poison_counts.written_blocks;
}

static void write_late(CUdeviceptr at, size_t bytes, CUstream s) {
    cu_ok(cuMemsetD8Async(at, 0x11, bytes, s));
}

static unsigned word_at(CUdeviceptr at, CUstream s) {
    cu_ok(cuStreamSynchronize(s));
    unsigned word;
    memcpy(&word, (void *)at, sizeof word);
    return word;
}

static CUstream open_with(const char *variable) {
    setenv(variable, "1", 1);
    door_open(DEVICE);
    return door_stream(CU_STREAM_NON_BLOCKING);
}

static void all_are(CUdeviceptr at, size_t bytes, unsigned word) {
    for (size_t i = 0; i < bytes / 4; i++)
        if (((unsigned *)at)[i] != word)
            cr_assert(false, "word %zu of %zu bytes is %#x", i, bytes, ((unsigned *)at)[i]);
}

/* ---- zero ---- */

Test(poison, memory_handed_out_reads_zero) {
    CUstream s = open_with("VPOOL_ZERO"), t = door_stream(CU_STREAM_NON_BLOCKING);
    for (int round = 0; round < 3; round++) {
        CUdeviceptr a = door_malloc(3 * MiB);
        all_are(a, 3 * MiB, 0);
        CUdeviceptr b = door_take(5 * MiB, s), c = door_take(1000, t);
        /* In the stream's order, and not before. */
        cu_ok(cuStreamSynchronize(s));
        cu_ok(cuStreamSynchronize(t));
        all_are(b, 5 * MiB, 0);
        all_are(c, 1000, 0);
        write_late(a, 3 * MiB, s);
        write_late(b, 5 * MiB, s);
        write_late(c, 1000, t);
        cu_ok(door_free(a));
        cu_ok(door_free_async(b, s));
        cu_ok(door_free_async(c, t));
    }
    door_close();
}

/* A fill that still runs when memory is handed out, or out again, takes what its owner has written: the driver may
 * refuse whatever it likes. */
Test(poison, a_fill_is_over_whatever_the_driver_refuses) {
    static const char *const refused[] = {"cuEventCreate", "cuEventRecord", "cuStreamCreate", "cuMemsetD32Async"};
    setenv("VPOOL_POISON", "1", 1);
    setenv("VPOOL_ZERO", "1", 1);
    door_open("capacity=64M,granularity=64K,lazy=100,timeout=300");
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        vp_sim_fail(refused[i], -1, CUDA_ERROR_OUT_OF_MEMORY);
        vp_sim_fail("cuStreamQuery", 1, CUDA_ERROR_OUT_OF_MEMORY);
        CUdeviceptr a = door_malloc(3 * MiB);
        write_late(a, 3 * MiB, s);
        cu_ok(cuStreamSynchronize(s));
        cu_ok(cuCtxSynchronize());
        all_are(a, 3 * MiB, 0x11111111);
        cu_ok(door_free(a));
        vp_sim_fail(refused[i], 0, CUDA_SUCCESS);
        vp_sim_fail("cuStreamQuery", 0, CUDA_SUCCESS);
        CUdeviceptr b = door_take(3 * MiB, s);
        write_late(b, 3 * MiB, s);
        cu_ok(cuCtxSynchronize());
        all_are(b, 3 * MiB, 0x11111111);
        cu_ok(door_free_async(b, s));
    }
    cr_assert_eq(found(), 0);
    door_close();
}

Test(poison, zeros_come_before_what_the_program_queues) {
    CUstream s = open_with("VPOOL_ZERO");
    vp_sim_hold(s);
    CUdeviceptr a = door_take(MiB, s);
    write_late(a, MiB, s);
    vp_sim_release(s);
    cu_ok(cuStreamSynchronize(s));
    all_are(a, MiB, 0x11111111);
    door_close();
}

/* ---- planted faults, of four kinds ---- */

Test(poison, finds_a_write_after_a_streams_free) {
    CUstream s = open_with("VPOOL_POISON");
    CUdeviceptr a = door_take(2 * MiB, s);
    cu_ok(door_free_async(a, s));
    write_late(a + MiB, 64, s);
    cr_assert_eq(found(), 0, "nobody has looked yet");
    CUdeviceptr b = door_take(2 * MiB, s);
    cr_assert_eq(b, a);
    cr_assert_eq(found(), 1);
    cu_ok(cuStreamSynchronize(s));
    all_are(b, 2 * MiB, PATTERN);
    struct vpool_stats stats = {.size = sizeof stats};
    cr_assert(!vpool_stats(0, &stats) && stats.written_after_free == 1);
    door_close();
}

Test(poison, finds_a_stream_that_the_free_knew_nothing_of) {
    CUstream s = open_with("VPOOL_POISON"), side = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr a = door_take(MiB, s);
    vp_sim_hold(side);
    write_late(a, MiB, side);
    /* record_stream() is missing here. */
    cu_ok(door_free_async(a, s));
    cu_ok(cuStreamSynchronize(s));
    vp_sim_release(side);
    cu_ok(cuStreamSynchronize(side));
    door_take(MiB, s);
    cr_assert_eq(found(), 1);
    door_close();
}

Test(poison, finds_a_write_after_cudaFree) {
    CUstream s = open_with("VPOOL_POISON");
    CUdeviceptr a = door_malloc(2 * MiB);
    cu_ok(door_free(a));
    write_late(a + 12345, 1, s);
    cu_ok(cuStreamSynchronize(s));
    CUdeviceptr b = door_malloc(2 * MiB);
    cr_assert_eq(b, a);
    cr_assert_eq(found(), 1);
    all_are(b, 2 * MiB, PATTERN);
    door_close();
}

Test(poison, shows_what_is_read_before_it_is_written_or_after_its_free) {
    CUstream s = open_with("VPOOL_POISON");
    CUdeviceptr fresh = door_malloc(MiB), a = door_take(MiB, s);
    all_are(fresh, MiB, PATTERN);
    cr_assert_eq(word_at(a, s), PATTERN, "nobody has written to it");
    write_late(a, MiB, s);
    cu_ok(door_free_async(a, s));
    cr_assert_eq(word_at(a + 512 * KiB, s), PATTERN, "it is freed");
    float none;
    const unsigned pattern = PATTERN;
    memcpy(&none, &pattern, sizeof none);
    cr_assert(none != none, "it is no number");
    cr_assert_eq(found(), 0, "reading is no writing");
    door_close();
}

/* Whoever has the bytes next, at whatever address: its first, its last, and what was only a part of it. */
Test(poison, finds_it_wherever_the_bytes_have_gone) {
    CUstream s = open_with("VPOOL_POISON");
    CUdeviceptr a = door_take(4 * MiB, s), wall = door_take(MiB, s), b = door_take(4 * MiB, s),
                wall2 = door_take(MiB, s);
    cu_ok(door_free_async(a, s));
    cu_ok(door_free_async(b, s));
    write_late(b + 4 * MiB - 1, 1, s);
    CUdeviceptr both = door_take(8 * MiB, s);
    cr_assert(both != a && both != b, "it is stitched");
    cr_assert_eq(found(), 1);
    cu_ok(door_free_async(both, s));
    write_late(both, 1, s);
    for (int i = 0; i < 8; i++)
        door_take(MiB - 512, s);
    cr_assert_eq(found(), 2);
    cu_ok(door_free_async(wall, s));
    cu_ok(door_free_async(wall2, s));
    door_close();
}

/* ---- and no false alarm ---- */

Test(poison, a_right_program_is_never_accused) {
    enum { BLOCKS = 40, ROUNDS = 1500 };
    struct {
        CUdeviceptr at;
        size_t size;
        int stream;
    } block[BLOCKS] = {{0}};
    CUstream s[3] = {open_with("VPOOL_POISON")};
    unsigned random = 1;
    for (int i = 1; i < 3; i++)
        s[i] = door_stream(CU_STREAM_NON_BLOCKING);
    for (int round = 0; round < ROUNDS; round++) {
        random = random * 1103515245 + 12345;
        int i = (int)(random >> 16) % BLOCKS;
        if (block[i].at) {
            write_late(block[i].at, block[i].size, s[block[i].stream == 3 ? 0 : block[i].stream]);
            cu_ok(block[i].stream == 3 ? door_free(block[i].at) : door_free_async(block[i].at, s[block[i].stream]));
            block[i].at = 0;
            continue;
        }
        random = random * 1103515245 + 12345;
        block[i].stream = (int)(random >> 20) % 4;
        block[i].size = 1 + (random >> 8) % (size_t)(random & 1 ? 3 * MiB : 40 * KiB);
        CUresult res = block[i].stream == 3 ? door_alloc(&block[i].at, block[i].size)
                                            : door_alloc_async(&block[i].at, block[i].size, NULL, s[block[i].stream]);
        if (res)
            block[i].at = 0;
        else
            write_late(block[i].at, block[i].size, s[block[i].stream == 3 ? 0 : block[i].stream]);
        if (round % 200 == 0)
            cu_ok(door_pool_trim(default_pool(0), 0));
        if (round % 500 == 250) {
            cr_assert_eq(vpool_pause(0), 0);
            cr_assert_eq(vpool_resume(0), 0);
        }
    }
    cr_assert_eq(found(), 0);
    cr_assert_gt(vp_poison_counts.checked_bytes, 100 * MiB);
    door_close();
}

/* Its stream waits for the host, which is in the call. */
Test(poison, a_stream_that_is_held_up_holds_up_no_allocation) {
    CUstream s = open_with("VPOOL_POISON");
    CUdeviceptr a = door_take(MiB, s);
    cu_ok(door_free_async(a, s));
    vp_sim_hold(s);
    door_take(MiB, s);
    cr_assert_eq(vp_poison_counts.unchecked_bytes, MiB);
    vp_sim_release(s);
    cr_assert_eq(found(), 0);
    door_close();
}

/* What it is copied to is the context's, and goes with it. */
Test(poison, what_a_reset_has_taken_is_not_looked_into) {
    CUcontext ctx, again;
    setenv("VPOOL_POISON", "1", 1);
    ctx = door_open(DEVICE);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    cu_ok(door_free_async(door_take(3 * MiB, s), s));
    CUdeviceptr kept = door_take(3 * MiB, s);
    cu_ok(cuCtxSynchronize());
    vp_api_context_destroying(ctx);
    cu_ok(cuDevicePrimaryCtxReset(0));
    vp_api_context_destroyed(ctx, true);
    cu_ok(cuDevicePrimaryCtxRetain(&again, 0));
    vp_api_context_created(again, true);
    cu_ok(cuCtxSetCurrent(again));
    cu_ok(door_free(kept));
    cu_ok(door_free(door_malloc(3 * MiB)));
    cr_assert_eq(found(), 0);
    cr_assert_eq(vp_sim_violations(), 0);
    door_close();
}

static atomic_bool allocates;

static void *allocate_until_over(void *ctx) {
    CUdeviceptr a;
    cuCtxSetCurrent(ctx);
    atomic_store(&allocates, true);
    while (!door_alloc(&a, 3 * MiB) && !door_free(a))
        continue;
    return NULL;
}

/* The host waits for the fill without the lock, and what was handed out goes with its context meanwhile. */
Test(poison, what_a_context_takes_while_it_is_filled_is_freed_once) {
    CUcontext ctx, own;
    pthread_t thread;
    setenv("VPOOL_POISON", "1", 1);
    own = door_open("capacity=64M,granularity=64K,lazy=100,timeout=300");
    for (int i = 0; i < 30; i++) {
        cu_ok(door_context_create(&ctx, 0));
        cu_ok(cuCtxSetCurrent(own));
        atomic_store(&allocates, false);
        cr_assert_eq(pthread_create(&thread, NULL, allocate_until_over, ctx), 0);
        while (!atomic_load(&allocates))
            nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
        nanosleep(&(struct timespec){.tv_nsec = 1000000 + 37000 * i}, NULL);
        cu_ok(door_context_destroy(ctx));
        pthread_join(thread, NULL);
        cu_ok(door_free(door_malloc(MiB)));
    }
    door_close();
}

/* Each device counts its own memory. */
Test(poison, what_was_freed_on_one_device_is_not_looked_for_on_another) {
    CUcontext ctx;
    CUstream s = open_with("VPOOL_POISON");
    cu_ok(door_free_async(door_take(3 * MiB, s), s));
    cu_ok(door_free(door_malloc(5 * MiB)));
    cu_ok(cuCtxSynchronize());
    cu_ok(door_primary(&ctx, 1));
    cu_ok(cuCtxSetCurrent(ctx));
    CUstream t = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr a = door_take(3 * MiB, t), b = door_malloc(5 * MiB);
    cr_assert_eq(found(), 0);
    cu_ok(door_free_async(a, t));
    write_late(a, MiB, t);
    cu_ok(door_free(b));
    door_take(3 * MiB, t);
    cr_assert_eq(found(), 1);
    door_close();
}

/* Its blocks are filled and looked at by nobody, and its memory serves others, too. */
Test(poison, what_pytorchs_cache_writes_is_no_fault) {
    enum { BLOCKS = 6 };
    CUstream s = open_with("VPOOL_POISON");
    const struct vp_bare_stream on = {.handle = s, .known = true};
    CUdeviceptr seg, mine[BLOCKS];
    cu_ok(vp_bare_segment(&seg, 24 * MiB, on));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < BLOCKS; i++)
            mine[i] = door_malloc(4 * MiB);
        for (int i = 0; i < BLOCKS; i++)
            cu_ok(door_free(mine[i]));
        cu_ok(vp_bare_room(0, 24 * MiB, on));
        cr_assert(vp_bare_used(seg, 24 * MiB, on));
        write_late(seg, 24 * MiB, s);
        cu_ok(cuStreamSynchronize(s));
        cr_assert(vp_bare_unused(seg, 24 * MiB, false));
    }
    cr_assert_eq(found(), 0, "%lu", found());
    /* What is freed since then is looked at as ever. */
    for (int i = 0; i < BLOCKS; i++)
        mine[i] = door_malloc(4 * MiB);
    cu_ok(door_free(mine[0]));
    write_late(mine[0] + MiB, 1000, s);
    cu_ok(cuStreamSynchronize(s));
    for (int i = 0; i < 4 * BLOCKS; i++)
        door_malloc(MiB);
    cr_assert_eq(found(), 1, "%lu", found());
    door_close();
}

/* A free waits for the device; in the middle of that a capture may begin, and CUDA says so. */
Test(poison, what_may_be_in_use_is_not_filled) {
    CUstream s = open_with("VPOOL_POISON");
    for (int refused = 0; refused < 2; refused++) {
        CUdeviceptr a = door_malloc(MiB);
        cu_ok(cuMemsetD8Async(a, 7, MiB, s));
        unsigned long fills = vp_sim_calls("cuMemsetD32Async");
        vp_sim_fail("cuEventSynchronize", refused, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        cu_ok(door_free(a));
        cr_assert_eq(vp_sim_calls("cuMemsetD32Async") - fills, !refused);
    }
    door_close();
}

Test(poison, a_capture_is_left_alone) {
    CUstream s = open_with("VPOOL_POISON"), t = door_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr a = door_take(MiB, t), b = door_malloc(2 * MiB);
    cu_ok(door_begin_capture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    cu_ok(door_free_async(a, t));
    cu_ok(door_free(b));
    door_take(MiB, t);
    door_malloc(3 * MiB);
    cu_ok(door_end_capture(s, NULL));
    cr_assert_eq(found(), 0);
    door_close();
}

Test(poison, off_nothing_is_filled) {
    door_open(DEVICE);
    CUstream s = door_stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 5; i++) {
        cu_ok(door_free_async(door_take(MiB, s), s));
        cu_ok(door_free(door_malloc(MiB)));
    }
    cr_assert_eq(vp_sim_calls("cuMemsetD32Async"), 0);
    cr_assert(!vp_state.fills);
    door_close();
}
