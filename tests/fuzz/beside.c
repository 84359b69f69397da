/* What a program does beside its blocks: memory pools, memory that CUDA gives out itself, pauses and trims, questions,
 * driver calls that fail, and what it must not do. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/giving.h"
#include "process/state.h"
#include "cache.h"
#include "watch/dump.h"

#include <errno.h>
#include <vpool.h>

void memory_pool(void) {
    unsigned what = fuzz_byte(&run.in);
    int device = (int)(what % (unsigned)world.devices), on = what >> 7;
    if (run.capturing)
        return;
    make_current(device);
    CUmemoryPool *pool = &run.pool[device];
    let_all_go();
    if (!*pool) {
        MUST(door_pool_create(pool, device));
    } else if (what & 2) {
        MUST(door_pool_set(*pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &on));
    } else if (what & 4) {
        MUST(door_pool_trim(*pool, (size_t)what << 16));
        run.pool_operations++;
    } else {
        MUST(door_pool_destroy(*pool));
        *pool = NULL;
    }
}

/* Memory that CUDA gives out itself, while the pool holds idle and pending memory: it may be all there is. */
static void others(unsigned what) {
    struct door_other *other = &run.others[what % OTHERS];
    enum door_other_kind kind = DOOR_HANDLE + what / OTHERS % 3;
    int device = (int)(what % (unsigned)world.devices);
    if (run.capturing)
        return;
    make_current(device);
    if (other->kind) {
        let_all_go();
        MUST(door_other_give(other));
    } else {
        waits_begin();
        run.tries_on = true;
        door_other_take(other, kind, device, world.granularity * (1 + what * what / 8 % 64));
        run.tries_on = false;
        waits_end();
        run.other_device[what % OTHERS] = device;
    }
}

/* The block allocated last, as nothing is at work: no more is done with it. */
static void free_unused(void) {
    if (!run.count)
        return;
    const struct block b = run.blocks[--run.count];
    make_current(b.device);
    if (b.owner) {
        owner_ending(b.owner);
        owner_ended(b.owner);
    }
    MUST(door_free(b.at));
}

/* The device's memory goes to the host and back, and some is freed and allocated meanwhile. By contract no work is
 * queued on what sleeps, nor is any left: a stream that is held would be waited for in vain. */
static void sleep_for(unsigned what) {
    /* A thread copies what is kept, for nothing: with this driver there are no bytes. */
    const bool kept = what & 1 && world.capacity <= (size_t)64 << 20;
    struct vpool_pause how = {.size = sizeof how, .wait_ms = 50, .contents = kept ? VPOOL_KEEP : VPOOL_DROP};
    int device = (int)(what % (unsigned)world.devices), err;
    if (run.capturing || run.fault || run.meanwhile)
        return;
    let_all_go();
    run_dry();
    owners_sleep();
    if (vpool_pause_with(device, &how)) {
        owners_wake();
        return;
    }
    cache_fall_asleep();
    for (unsigned n = what / 2 % 4; n; n--) {
        free_unused();
        alloc_sync();
    }
    for (unsigned n = target.bare ? what / 8 % 8 : 0; n; n--) {
        if (n % 4)
            cache_free_asleep();
        cache_alloc();
    }
    while ((err = vpool_resume(device)) == -ENOMEM && (run.count || cache_free_asleep()))
        free_unused();
    if (err == -ENOMEM && target.bare) {
        cache_alone();
        cache_empty_device(device, false); /* what a capture has pinned goes with its segment */
        err = vpool_resume(device);
    }
    owners_wake();
    cache_wake();
    if (err)
        fuzz_fail("device %d sleeps on: %d", device, err);
}

void sleep_and_wake(void) {
    sleep_for(fuzz_byte(&run.in));
}

void trim(void) {
    unsigned what = fuzz_byte(&run.in);
    if (what < 64) {
        door_relieve();
    } else if (what < 128) {
        others(what - 64);
    } else if (what >= 240 && world.newer) {
        sleep_for(what);
    } else if (vp_enter()) {
        if (what < 224 || !world.newer)
            vp_pressure_tick();
        else if (vp_next_pool(-1))
            vp_giving_lend(vp_next_pool(-1), (size_t)(what - 223) << 17);
        vp_leave();
    }
    run.pool_operations++;
}

void ask(void) {
    unsigned number = fuzz_byte(&run.in), where = fuzz_byte(&run.in);
    size_t size, free_bytes, total;
    CUdeviceptr base;
    if (!run.count)
        return;
    const struct block *b = &run.blocks[number % run.count];
    make_current(b->device);
    MUST(door_mem_info(&free_bytes, &total));
    if (free_bytes > total)
        fuzz_fail("%zu of %zu bytes are free", free_bytes, total);
    if (where == 255)
        vp_dump_free(vp_dump_take(VP_DUMP_EXIT, NULL));
    if (!b->owner)
        return;
    MUST(door_address_range(&base, &size, b->at + b->size * where / 256));
    if (base != b->at || size != b->size)
        fuzz_fail("the block [%#llx, +%zu) is told as [%#llx, +%zu)", b->at, b->size, base, size);
}

void fault(void) {
    static const char *const calls[] = {"cuMemCreate",      "cuMemMap",      "cuMemSetAccess", "cuMemAddressReserve",
                                        "cuEventCreate",    "cuEventRecord", "cuEventQuery",   "cuStreamWaitEvent",
                                        "cuCtxRecordEvent", "cuMemUnmap",    "cuMemRelease",   "cuStreamGetId"};
    static const CUresult results[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_NOT_SUPPORTED,
                                       CUDA_ERROR_UNKNOWN};
    unsigned what = fuzz_byte(&run.in), when = fuzz_byte(&run.in);
    run.fault = calls[what % 12];
    run.fault_at = 1 + when % 8;
    if (when & 128)
        run.fault_at = -run.fault_at;
    run.fault_with = results[what / 12 % 4];
    world.lossy |= what % 12 == 9 || what % 12 == 10;
    /* A device whose addresses are refused is left to the driver, which destroys captures. */
    if (what % 12 == 3) {
        end_captures();
        let_all_go();
        world.no_holds = true;
        world.captures = false;
    }
}

void peers(void) {
    if (world.devices < 2 || run.peers || run.capturing)
        return;
    if (!world.can_peer) {
        make_current(0);
        must(door_enable_peer(world.context[1]) != CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "an access that cannot be");
        return;
    }
    for (int d = 0; d < 2; d++) {
        make_current(d);
        MUST(door_enable_peer(world.context[1 - d]));
    }
    run.peers = true;
}

void couple(void) {
    vp_api_shares("a fuzz target");
}

/* What a program must not do, and what it gets for it. */
void misuse(void) {
    unsigned number = fuzz_byte(&run.in);
    CUdeviceptr at = 0;
    make_current(0);
    if (run.capturing || !run.count)
        return;
    const struct block *b = &run.blocks[number % run.count];
    if (b->owner && b->size > 1 && door_free(b->at + 1) != CUDA_ERROR_INVALID_VALUE)
        fuzz_fail("a pointer into a block was freed");
    if (door_alloc(&at, SIZE_MAX - number) != CUDA_ERROR_OUT_OF_MEMORY || at)
        fuzz_fail("all there is was allocated, or an error gave a pointer");
    if (door_alloc(&at, 0) != CUDA_ERROR_INVALID_VALUE || door_free(0) != CUDA_SUCCESS)
        fuzz_fail("zero bytes were allocated, or NULL could not be freed");
}
