/* A program's calls, made of an input's bytes: allocations and frees of both kinds on streams of all kinds,
 * work on the blocks, blocks handed from stream to stream, copies between devices, memory pools, and driver
 * calls that fail; and what streams.c and ends.c do. The driver runs what is queued late and in any order
 * that the rules allow, without data; owners.c sees to it that no byte has two owners, and the pool's
 * invariants are proved now and then.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "process/state.h"
#include "watch/dump.h"
#include "base/clock.h"
#include "pool/giving.h"
#include "program.h"
#include "sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vpool.h>

/* So many operations an input at most, and between two proofs of the invariants. */
enum { OPERATIONS = 20000, CHECK_EVERY = 4096 };

static const uint64_t LONG_NS = 4500000000, HELD_NS = 14000000000;

struct run run;

void must(CUresult res, const char *what) {
    if (res)
        fuzz_fail("%s: %d", what, (int)res);
}

/* ---- blocks ---- */

void fill(struct block *b, int stream, bool last) {
    if (!b->owner)
        return;
    struct stream *s = enter(stream);
    size_t words = b->size / 4;
    MUST(cuMemsetD32Async(b->at, owner_word(b->owner, last), words + !words, s->handle));
}

bool reaches(const struct block *b, int stream) {
    return run.streams[stream].device == b->device || (run.peers && b->owner);
}

/* Arms the fault for one call of ours, and disarms it. */
static bool arm(void) {
    if (!run.fault || run.capturing)
        return false;
    vp_sim_fail(run.fault, run.fault_at, run.fault_with);
    return true;
}

static bool disarm(bool armed) {
    if (armed) {
        vp_sim_fail(run.fault, 0, CUDA_SUCCESS);
        run.fault = NULL;
    }
    return armed;
}

size_t any_size(void) {
    unsigned kind = fuzz_byte(&run.in), more = fuzz_byte(&run.in);
    unsigned magnitude = kind % 26;
    size_t size = ((size_t)1 << magnitude) +
                  (magnitude < 8 ? more % (1u << magnitude) : (size_t)more << (magnitude - 8));
    /* Just below, just above and at what things are rounded to. */
    return more == 255 ? ((size_t)1 << magnitude) - (magnitude > 0) : more == 254 ? ((size_t)1 << magnitude) + 1 : size;
}

/* How often other processes were asked for memory: those that happen to live on the machine, in a time that is not
 * ours. */
static uint64_t loans_asked(void) {
    uint64_t asked = 0;
    for (int d = 0; d < world.devices; d++)
        asked += vp_state.pools[d] ? vp_state.pools[d]->mem.stats.loans_asked : 0;
    return asked;
}

static void allocate(bool sync) {
    int stream = any_stream();
    size_t size = any_size();
    if (run.count == BLOCKS || !usable(stream))
        return;
    struct block b = {.size = size, .sync = sync, .home = stream, .device = run.streams[stream].device};
    unsigned lives = run.streams[stream].lives;
    /* What is left to CUDA cannot be allocated meanwhile. */
    const bool native = world.small_are_native || !vp_state.pools[b.device];
    if (run.capturing && ((run.kept_back += size) > world.limit / 16 || native))
        end_captures();
    unsigned which = fuzz_byte(&run.in);
    CUmemoryPool pool = which & 1 ? run.pool[b.device] : NULL;
    struct stream *s = enter(stream);
    bool armed = arm();
    bool others = run.held || run.meanwhile;
    uint64_t began = vp_clock_ns() - run.meanwhile_ns, waited = streams_waited();
    const uint64_t asked = loans_asked();
    if (!armed)
        waits_begin();
    CUresult res = sync ? door_alloc(&b.at, size) : door_alloc_async(&b.at, size, pool, s->handle);
    waits_end();
    armed = disarm(armed);
    run.pool_operations++;
    /* All that is queued can run: to wait for long is to wait for nothing. And whatever is held, no call is
     * held up for ever. */
    uint64_t took = vp_clock_ns() - run.meanwhile_ns - began;
    if (took > (others ? HELD_NS : LONG_NS) && (others || (res && !armed)) && loans_asked() == asked)
        fuzz_fail("an allocation waited for %.1f s in vain", (double)took / 1e9);
    if (world.never_waits && !armed && streams_waited() != waited && vp_sim_used(b.device) + size < world.limit / 4)
        fuzz_fail("a stream was made to wait");
    /* What named a stream or a pool that ended meanwhile may fail in any way. */
    bool ended = lives != run.streams[stream].lives || (pool && pool != run.pool[b.device]);
    if (res == CUDA_ERROR_OUT_OF_MEMORY || (res && (armed || ended)))
        return;
    must(res, "an allocation");
    if (ended) {
        let_all_go();
        run_dry();
    }
    b.owner = owner_new(b.at, size);
    if (sync && b.owner)
        owner_begin(b.owner);
    else if (!sync && usable(stream))
        fill(&b, stream, false);
    run.blocks[run.count++] = b;
}

void alloc_async(void) {
    allocate(false);
}

void alloc_sync(void) {
    allocate(true);
}

/* Can the last work on a block be queued now: on `stream`, behind all that used it, or on each of these (-1)? */
static bool may_end(const struct block *b, int stream) {
    for (int i = 0; i < STREAMS; i++)
        if (b->used >> i & 1 && !usable(i))
            return false;
    return stream < 0 || (usable(stream) && reaches(b, stream));
}

static void queue_last(struct block *b, int stream) {
    if (!b->owner)
        return;
    owner_ending(b->owner);
    for (int i = 0; i < STREAMS; i++) {
        if (!(b->used >> i & 1) || i == stream)
            continue;
        if (stream < 0)
            fill(b, i, true);
        else
            wait_for(i, stream);
    }
    if (stream >= 0)
        fill(b, stream, true);
    owner_ended(b->owner);
}

static CUresult free_now(const struct block *b, int stream) {
    CUresult res;
    /* These wait for the device. */
    if (!b->owner || (stream < 0 && world.sync_free))
        let_all_go();
    if (stream < 0) {
        make_current(b->device);
        res = door_free(b->at);
    } else {
        res = door_free_async(b->at, enter(stream)->handle);
    }
    run.pool_operations++;
    return res;
}

/* On a stream, or as cudaFree does (-1). */
static void free_block(unsigned number, int stream) {
    struct block copy = run.blocks[number], *b = &copy;
    if (run.capturing && !b->owner)
        return;
    /* The driver's own memory of cudaMalloc is not for stream-ordered frees. */
    if (!b->owner && b->sync)
        stream = -1;
    if (!may_end(b, b->sync ? stream : b->home))
        return;
    /* The end of the list is another thread's to add to, while this one waits. */
    run.blocks[number] = run.blocks[--run.count];
    queue_last(b, b->sync ? stream : b->home);
    if (!b->sync && stream >= 0)
        stream = b->home;
    bool armed = arm();
    CUresult res = free_now(b, stream);
    if (disarm(armed) && res)
        res = free_now(b, stream);
    must(res, "a free");
}

/* From one block to another, of whichever devices, on a stream that has to do with one of them. */
static void copy(void) {
    unsigned from = fuzz_byte(&run.in), to = fuzz_byte(&run.in), how = fuzz_byte(&run.in);
    if (run.count < 2)
        return;
    struct block *end[2] = {&run.blocks[from % run.count], &run.blocks[to % run.count]};
    if (end[0] == end[1] || !end[0]->owner || !end[1]->owner)
        return;
    int stream = end[how & 1]->device * STREAMS_EACH + (int)(how / 2 % STREAMS_EACH), own[2] = {-1, -1};
    bool good = usable(stream);
    for (int i = 0; i < 2; i++) {
        struct block *b = end[i];
        own[i] = !b->sync             ? b->home
                 : reaches(b, stream) ? stream
                                      : b->device * STREAMS_EACH + (int)(how / 16 % STREAMS_EACH);
        good &= usable(own[i]);
        for (int k = 0; k < STREAMS; k++)
            good &= !(b->used >> k & 1) || usable(k);
    }
    if (!good)
        return;
    for (int i = 0; i < 2; i++) {
        if (!end[i]->sync && own[i] != stream)
            wait_for(own[i], stream);
        for (int k = 0; k < STREAMS; k++)
            if (end[i]->used >> k & 1 && k != stream)
                wait_for(k, stream);
    }
    size_t bytes = end[0]->size < end[1]->size ? end[0]->size : end[1]->size;
    MUST(door_copy(end[1]->at, end[0]->at, bytes, enter(stream)->handle));
    for (int i = 0; i < 2; i++) {
        if (own[i] != stream)
            wait_for(stream, own[i]);
        if (end[i]->sync)
            end[i]->used |= 1u << own[i];
    }
}

static void release(bool sync) {
    unsigned number = fuzz_byte(&run.in);
    int stream = sync ? -1 : any_stream();
    if (run.count)
        free_block(number % run.count, stream);
}

void free_async(void) {
    release(false);
}

void free_sync(void) {
    release(true);
}

/* As most programs do: the block allocated last. */
void free_last(void) {
    if (run.count)
        free_block(run.count - 1, run.blocks[run.count - 1].home);
}

/* Scratch memory of one stream, again and again. */
static void fleeting(void) {
    int stream = any_stream();
    unsigned how = fuzz_byte(&run.in), blocks = 1 + how % 4, times = 1 + how / 4;
    size_t size = any_size();
    struct block b[4];
    if (!usable(stream) || run.capturing)
        return;
    struct stream *s = enter(stream);
    for (unsigned k = 0; k < times; k++) {
        unsigned n = 0;
        for (; n < blocks; n++) {
            b[n] = (struct block){.size = size};
            CUresult res = door_alloc_async(&b[n].at, size, NULL, s->handle);
            run.pool_operations++;
            if (res == CUDA_ERROR_OUT_OF_MEMORY)
                break;
            must(res, "an allocation");
            b[n].owner = owner_new(b[n].at, size);
        }
        while (n) {
            queue_last(&b[--n], stream);
            must(door_free_async(b[n].at, s->handle), "a free");
            run.pool_operations++;
        }
    }
}

static void use(void) {
    unsigned number = fuzz_byte(&run.in);
    int stream = any_stream();
    if (!run.count)
        return;
    struct block *b = &run.blocks[number % run.count];
    if (!b->sync)
        stream = b->home;
    if (!usable(stream) || !reaches(b, stream))
        return;
    fill(b, stream, false);
    if (b->sync)
        b->used |= 1u << stream;
}

static void move(void) {
    unsigned number = fuzz_byte(&run.in);
    int to = any_stream();
    if (!run.count)
        return;
    struct block *b = &run.blocks[number % run.count];
    if (b->sync || !usable(to) || !usable(b->home) || !reaches(b, to) || b->home == to)
        return;
    wait_for(b->home, to);
    b->home = to;
}

/* ---- the rest ---- */

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
        door_other_take(other, kind, device, world.granularity * (1 + what * what / 8 % 64));
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
static void sleep_and_wake(unsigned what) {
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
    for (unsigned n = what / 2 % 4; n; n--) {
        free_unused();
        alloc_sync();
    }
    while ((err = vpool_resume(device)) == -ENOMEM && run.count)
        free_unused();
    owners_wake();
    if (err)
        fuzz_fail("device %d sleeps on: %d", device, err);
}

void trim(void) {
    unsigned what = fuzz_byte(&run.in);
    if (what < 64) {
        door_relieve();
    } else if (what < 128) {
        others(what - 64);
    } else if (what >= 240 && world.newer) {
        sleep_and_wake(what);
    } else if (vp_enter()) {
        if (what < 224 || !world.newer)
            vp_pressure_tick();
        else if (vp_next_pool(-1))
            vp_giving_lend(vp_next_pool(-1), (size_t)(what - 223) << 17);
        vp_leave();
    }
    run.pool_operations++;
}

static void ask(void) {
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

static void fault(void) {
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

static void peers(void) {
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

static void couple(void) {
    vp_api_coupled("a fuzz target");
}

/* What a program must not do, and what it gets for it. */
static void misuse(void) {
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

/* ---- the sequence ---- */

static void repeat(void);

/* Inputs that are older than the last rows know nothing of them: KINDS stays as it is. */
static void (*const operations[])(void) = {
    alloc_async,  alloc_async,  alloc_async, alloc_async,   alloc_async, alloc_sync,   alloc_sync,   free_async,
    free_async,   free_async,   free_sync,   free_sync,     free_last,   free_last,    free_last,    use,
    use,          move,         move,        synchronize,   synchronize, repeat,       repeat,       repeat,
    renew_stream, capture,      capture,     begin_capture, context,     memory_pool,  trim,         ask,
    fault,        fault,        peers,       couple,        misuse,      fleeting,     fleeting,

    hold,         hold,         hold,        let_go,        let_go,      copy,         copy,         copy,
    context_ends, context_ends, thread_ends, thread_ends,   reset,       during_waits, during_waits, during_waits,
};

enum { KINDS = 39, ALL_KINDS = sizeof operations / sizeof *operations };

static struct {
    size_t begins[16]; /* of the last operations, in the input */
    unsigned count, done;
    bool repeating;
} sequence;

static void step(void) {
    static int trace = -1;
    if (trace < 0)
        trace = getenv("FUZZ_TRACE") != NULL;
    if (++sequence.done % CHECK_EVERY == 0)
        world_check();
    unsigned kind = fuzz_byte(&run.in) % (world.newer ? ALL_KINDS : KINDS);
    if (trace)
        fprintf(stderr, "-- operation %u: %u\n", sequence.done, kind);
    operations[kind]();
}

/* A program that repeats itself: the last N operations, K times more. */
static void repeat(void) {
    unsigned how = fuzz_byte(&run.in), length = 1 + how % 15, times = 1 + how / 15;
    size_t behind = run.in.at;
    if (sequence.repeating || sequence.count < length + 1)
        return;
    sequence.repeating = true;
    size_t begin = sequence.begins[(sequence.count - 1 - length) % 16];
    size_t end = sequence.begins[(sequence.count - 1) % 16];
    for (unsigned k = 0; k < times && sequence.done < OPERATIONS; k++)
        for (run.in.at = begin; run.in.at < end;)
            step();
    run.in.at = behind;
    sequence.repeating = false;
}

static void release_all(void) {
    end_captures();
    let_all_go();
    run.fault = NULL;
    run.meanwhile = 0;
    while (run.count)
        free_block(run.count - 1, run.count % 2 ? -1 : run.blocks[run.count - 1].home);
    for (int i = 0; i < OTHERS; i++)
        MUST(door_other_give(&run.others[i]));
    for (int d = 0; d < world.devices; d++)
        if (run.pool[d])
            MUST(door_pool_destroy(run.pool[d]));
    for (int i = 0; i < world.devices * STREAMS_EACH; i++)
        if (run.streams[i].plain) {
            enter(i);
            MUST(door_stream_destroy(run.streams[i].handle));
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    memset(&run, 0, sizeof run);
    memset(&sequence, 0, sizeof sequence);
    run.in = (struct fuzz_input){data, size, 0};
    world_open(&run.in);
    open_streams();
    while (run.in.at < size && sequence.done < OPERATIONS) {
        sequence.begins[sequence.count++ % 16] = run.in.at;
        step();
    }
    release_all();
    world_close();
    fuzz_count(run.pool_operations);
    return 0;
}
