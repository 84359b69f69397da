/*
 * A program's calls, made of an input's bytes: allocations and frees of both kinds on streams of all kinds, work on
 * the blocks, blocks handed from stream to stream, captures, contexts, memory pools, and driver calls that fail. The
 * driver runs what is queued late and in any order that the rules allow, without data; owners.c sees to it that no
 * byte has two owners, and the pool's invariants are proved now and then.
 */
#include "../doors/doors.h"
#include "api/api_private.h"
#include "api/dump.h"
#include "base/clock.h"
#include "owners.h"
#include "sim.h"
#include "world.h"

#include <string.h>

enum { DEVICES = 2, STREAMS_EACH = 6, STREAMS = DEVICES * STREAMS_EACH, BLOCKS = 192, OTHERS = 4 };

/* So many operations an input at most, and between two proofs of the invariants. */
enum { OPERATIONS = 20000, CHECK_EVERY = 4096 };

static const uint64_t LONG_NS = 4500000000;

struct stream {
    CUstream handle;
    int device;
    bool plain; /* may be destroyed */
    bool blocking, capturing;
};

struct block {
    CUdeviceptr at;
    size_t size;
    struct owner *owner; /* NULL: the driver's own memory */
    int device;
    bool sync;
    int home;      /* of a stream-ordered block */
    uint32_t used; /* streams that have worked on a synchronous one, by bit */
};

static struct {
    struct fuzz_input in;
    struct stream streams[STREAMS];
    struct block blocks[BLOCKS];
    unsigned count;
    CUmemoryPool pool[DEVICES];
    struct door_other others[OTHERS];
    int capturing;
    size_t kept_back; /* bytes allocated while captures run: what is freed then comes back after them */
    bool peers;
    const char *fault; /* the call that the next allocation or free will see fail */
    long fault_at;
    CUresult fault_with;
    uint64_t pool_operations;
} run;

static void must(CUresult res, const char *what)
{
    if (res)
        fuzz_fail("%s: %d", what, (int)res);
}
#define MUST(call) must(call, #call)

/* ---- streams ---- */

static void make_current(int device)
{
    MUST(cuCtxSetCurrent(world.context[device]));
}

static struct stream *enter(int number)
{
    make_current(run.streams[number].device);
    return &run.streams[number];
}

/* May work be queued there now? A legacy stream's would destroy the capture of a blocking one. */
static bool usable(int number)
{
    const struct stream *s = &run.streams[number];
    if (s->capturing)
        return false;
    for (int i = 0; i < STREAMS && run.capturing && s->handle == CU_STREAM_LEGACY; i++)
        if (run.streams[i].capturing && run.streams[i].blocking)
            return false;
    return true;
}

/* Any stream, of a device that exists. */
static int any_stream(void)
{
    return (int)(fuzz_byte(&run.in) % (unsigned)(world.devices * STREAMS_EACH));
}

static void make_stream(int number)
{
    struct stream *s = &run.streams[number];
    *s = (struct stream){.device = number / STREAMS_EACH, .plain = true, .blocking = number % 3 == 0};
    make_current(s->device);
    MUST(door_stream_create(&s->handle, s->blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
}

static void open_streams(void)
{
    for (int i = 0; i < world.devices * STREAMS_EACH; i++)
        if (i % STREAMS_EACH > 1)
            make_stream(i);
        else
            run.streams[i] = (struct stream){.handle = i % STREAMS_EACH ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY,
                                             .device = i / STREAMS_EACH,
                                             .blocking = true};
}

/* What `to` does from now on comes after all that `from` has been given. */
static void wait_for(int from, int to)
{
    CUevent event;
    struct stream *s = enter(from);
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventRecord(event, s->handle));
    s = enter(to);
    MUST(cuStreamWaitEvent(s->handle, event, 0));
    MUST(cuEventDestroy(event));
}

/* Nothing is left on a stream that another need know of: `to` goes on for it. */
static void hand_over_all(int from, int to)
{
    wait_for(from, to);
    for (unsigned i = 0; i < run.count; i++) {
        struct block *b = &run.blocks[i];
        if (!b->sync && b->home == from)
            b->home = to;
        if (b->used >> from & 1)
            b->used = (b->used & ~(1u << from)) | 1u << to;
    }
}

/* Another stream of the same device for all that lies on this one; -1: none may be used now. */
static int other_stream(int number)
{
    for (int i = number / STREAMS_EACH * STREAMS_EACH, n = 0; n < STREAMS_EACH; n++, i++)
        if (i != number && usable(i))
            return i;
    return -1;
}

/* ---- blocks ---- */

static void fill(struct block *b, int stream, bool last)
{
    if (!b->owner)
        return;
    struct stream *s = enter(stream);
    size_t words = b->size / 4;
    MUST(cuMemsetD32Async(b->at, owner_word(b->owner, last), words + !words, s->handle));
}

static bool reaches(const struct block *b, int stream)
{
    return run.streams[stream].device == b->device || (run.peers && b->owner);
}

/* Arms the fault for one call of ours, and disarms it. */
static bool arm(void)
{
    if (!run.fault || run.capturing)
        return false;
    vp_sim_fail(run.fault, run.fault_at, run.fault_with);
    return true;
}

static bool disarm(bool armed)
{
    if (armed) {
        vp_sim_fail(run.fault, 0, CUDA_SUCCESS);
        run.fault = NULL;
    }
    return armed;
}

static void end_capture(int number)
{
    CUgraph graph = NULL;
    CUdeviceptr at = 0;
    if (!run.streams[number].capturing)
        return;
    struct stream *s = enter(number);
    if (number & 1) {
        /* A node of the graph; it may find the device full. */
        CUresult res = door_alloc_async(&at, 4096, NULL, s->handle);
        if (!res) {
            MUST(cuMemsetD32Async(at, 0, 1024, s->handle));
            MUST(door_free_async(at, s->handle));
        } else if (res != CUDA_ERROR_OUT_OF_MEMORY) {
            must(res, "an allocation on a capturing stream");
        }
    }
    MUST(door_end_capture(s->handle, &graph));
    MUST(cuGraphDestroy(graph));
    s->capturing = false;
    run.capturing--;
}

static void end_captures(void)
{
    for (int i = 0; i < STREAMS; i++)
        end_capture(i);
}

static size_t any_size(void)
{
    unsigned kind = fuzz_byte(&run.in), more = fuzz_byte(&run.in);
    unsigned magnitude = kind % 26;
    size_t size = ((size_t)1 << magnitude) + (magnitude < 8 ? more % (1u << magnitude) : (size_t)more << (magnitude - 8));
    /* Just below, just above and at what things are rounded to. */
    return more == 255 ? ((size_t)1 << magnitude) - (magnitude > 0) : more == 254 ? ((size_t)1 << magnitude) + 1 : size;
}

static void allocate(bool sync)
{
    int stream = any_stream();
    size_t size = any_size();
    if (run.count == BLOCKS || !usable(stream))
        return;
    struct block b = {.size = size, .sync = sync, .home = stream, .device = run.streams[stream].device};
    if (run.capturing && ((run.kept_back += size) > world.limit / 16 || world.small_are_native))
        end_captures();
    unsigned which = fuzz_byte(&run.in);
    CUmemoryPool pool = which & 1 ? run.pool[b.device] : NULL;
    struct stream *s = enter(stream);
    bool armed = arm();
    uint64_t began = vp_clock_ns();
    CUresult res = sync ? door_alloc(&b.at, size) : door_alloc_async(&b.at, size, pool, s->handle);
    armed = disarm(armed);
    run.pool_operations++;
    /* All that is queued can run: to wait for long is to wait for nothing. */
    if (res && !armed && vp_clock_ns() - began > LONG_NS)
        fuzz_fail("an allocation waited for %.1f s in vain", (double)(vp_clock_ns() - began) / 1e9);
    if (res == CUDA_ERROR_OUT_OF_MEMORY || (res && armed))
        return;
    must(res, "an allocation");
    b.owner = owner_new(b.at, size);
    if (sync && b.owner)
        owner_begin(b.owner);
    else if (!sync)
        fill(&b, stream, false);
    run.blocks[run.count++] = b;
}

static void alloc_async(void)
{
    allocate(false);
}

static void alloc_sync(void)
{
    allocate(true);
}

/* Can the last work on a block be queued now: on `stream`, behind all that used it, or on each of these (-1)? */
static bool may_end(const struct block *b, int stream)
{
    for (int i = 0; i < STREAMS; i++)
        if (b->used >> i & 1 && !usable(i))
            return false;
    return stream < 0 || (usable(stream) && reaches(b, stream));
}

static void queue_last(struct block *b, int stream)
{
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

static CUresult free_now(const struct block *b, int stream)
{
    CUresult res;
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
static void free_block(unsigned number, int stream)
{
    struct block *b = &run.blocks[number];
    if (run.capturing && !b->owner)
        return;
    /* The driver's own memory of cudaMalloc is not for stream-ordered frees. */
    if (!b->owner && b->sync)
        stream = -1;
    if (!may_end(b, b->sync ? stream : b->home))
        return;
    queue_last(b, b->sync ? stream : b->home);
    if (!b->sync && stream >= 0)
        stream = b->home;
    bool armed = arm();
    CUresult res = free_now(b, stream);
    if (disarm(armed) && res)
        res = free_now(b, stream);
    must(res, "a free");
    run.blocks[number] = run.blocks[--run.count];
}

static void release(bool sync)
{
    unsigned number = fuzz_byte(&run.in);
    int stream = sync ? -1 : any_stream();
    if (run.count)
        free_block(number % run.count, stream);
}

static void free_async(void)
{
    release(false);
}

static void free_sync(void)
{
    release(true);
}

/* As most programs do: the block allocated last. */
static void free_last(void)
{
    if (run.count)
        free_block(run.count - 1, run.blocks[run.count - 1].home);
}

/* Scratch memory of one stream, again and again. */
static void fleeting(void)
{
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

static void use(void)
{
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

static void move(void)
{
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

static void synchronize(void)
{
    unsigned how = fuzz_byte(&run.in);
    int stream = any_stream();
    struct stream *s = enter(stream);
    if (how < 128)
        vp_sim_step(how % 16);
    else if (!run.capturing && how < 224)
        MUST(cuStreamSynchronize(s->handle));
    else if (!run.capturing)
        MUST(cuCtxSynchronize());
}

static void renew_stream(void)
{
    int number = any_stream(), to = other_stream(number);
    struct stream *s = &run.streams[number];
    if (!s->plain || to < 0)
        return;
    /* A capturing stream has nothing on it, and its capture ends with it. */
    if (s->capturing)
        run.capturing--;
    else
        hand_over_all(number, to);
    make_current(s->device);
    MUST(door_stream_destroy(s->handle));
    make_stream(number);
}

static void begin_capture(void)
{
    static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                                CU_STREAM_CAPTURE_MODE_GLOBAL};
    int number = any_stream(), to = other_stream(number);
    unsigned mode = fuzz_byte(&run.in) % 3;
    size_t live = 0;
    if (!run.streams[number].plain || run.capturing == 2 || !world.captures || !usable(number) || to < 0)
        return;
    for (unsigned i = 0; i < run.count && !run.capturing; i++)
        live += run.blocks[i].size;
    if (live > world.limit / 2)
        return;
    hand_over_all(number, to);
    struct stream *s = enter(number);
    MUST(door_begin_capture(s->handle, modes[mode]));
    s->capturing = true;
    if (!run.capturing++)
        run.kept_back = 0;
}

static void capture(void)
{
    for (int i = 0; i < STREAMS; i++)
        if (run.streams[i].capturing) {
            end_capture(i);
            return;
        }
    begin_capture();
}

/* One more stream, while another captures. */
static void capture_too(void)
{
    begin_capture();
}

/* A context of its own: its synchronous blocks end with it, the stream-ordered ones stay. */
static void context(void)
{
    int device = (int)(fuzz_byte(&run.in) % (unsigned)world.devices);
    unsigned blocks = fuzz_byte(&run.in) % 4;
    CUcontext ctx;
    CUstream stream;
    if (run.capturing || run.count + blocks > BLOCKS)
        return;
    make_current(device);
    MUST(door_context_create(&ctx, device));
    MUST(door_stream_create(&stream, CU_STREAM_NON_BLOCKING));
    struct owner *dying[4];
    size_t dying_count = 0;
    for (unsigned i = 0; i < blocks; i++) {
        struct block b = {.size = any_size(), .device = device, .home = device * STREAMS_EACH};
        b.sync = fuzz_byte(&run.in) & 1;
        CUresult res = b.sync ? door_alloc(&b.at, b.size) : door_alloc_async(&b.at, b.size, NULL, stream);
        run.pool_operations++;
        if (res == CUDA_ERROR_OUT_OF_MEMORY)
            continue;
        must(res, "an allocation in a context of its own");
        if ((b.owner = owner_new(b.at, b.size))) {
            size_t words = b.size / 4;
            MUST(cuMemsetD32Async(b.at, owner_word(b.owner, false), words + !words, stream));
        }
        if (!b.sync) {
            run.blocks[run.count++] = b;
        } else if (b.owner) {
            owner_begin(b.owner);
            dying[dying_count++] = b.owner;
        }
    }
    /* A program's duty, if it goes on with memory of a context that ends. */
    MUST(cuStreamSynchronize(stream));
    for (size_t i = 0; i < dying_count; i++) {
        owner_ending(dying[i]);
        owner_ended(dying[i]);
    }
    MUST(door_context_destroy(ctx));
    make_current(device);
}

static void memory_pool(void)
{
    unsigned what = fuzz_byte(&run.in);
    int device = (int)(what % (unsigned)world.devices), on = what >> 7;
    if (run.capturing)
        return;
    make_current(device);
    CUmemoryPool *pool = &run.pool[device];
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
static void others(unsigned what)
{
    struct door_other *other = &run.others[what % OTHERS];
    enum door_other_kind kind = DOOR_HANDLE + what / OTHERS % 3;
    int device = (int)(what % (unsigned)world.devices);
    if (run.capturing)
        return;
    make_current(device);
    if (other->kind)
        MUST(door_other_give(other));
    else
        door_other_take(other, kind, device, world.granularity * (1 + what * what / 8 % 64));
}

static void trim(void)
{
    unsigned what = fuzz_byte(&run.in);
    if (what < 64) {
        vp_api_relieve();
    } else if (what < 128) {
        others(what - 64);
    } else if (vp_enter()) {
        vp_pressure_tick();
        vp_leave();
    }
    run.pool_operations++;
}

static void ask(void)
{
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

static void fault(void)
{
    static const char *const calls[] = {"cuMemCreate",      "cuMemMap",          "cuMemSetAccess", "cuMemAddressReserve",
                                        "cuEventCreate",    "cuEventRecord",     "cuEventQuery",   "cuStreamWaitEvent",
                                        "cuCtxRecordEvent", "cuMemUnmap",        "cuMemRelease",   "cuStreamGetId"};
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
        world.captures = false;
    }
}

static void peers(void)
{
    if (world.devices < 2 || run.peers || run.capturing)
        return;
    for (int d = 0; d < 2; d++) {
        make_current(d);
        MUST(door_enable_peer(world.context[1 - d]));
    }
    run.peers = true;
}

static void couple(void)
{
    vp_api_coupled("a fuzz target");
}

/* What a program must not do, and what it gets for it. */
static void misuse(void)
{
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

static void (*const operations[])(void) = {
    alloc_async,  alloc_async, alloc_async, alloc_async, alloc_async, alloc_sync,  alloc_sync,  free_async,
    free_async,   free_async,  free_sync,   free_sync,   free_last,   free_last,   free_last,   use,
    use,          move,        move,        synchronize, synchronize, repeat,      repeat,      repeat,
    renew_stream, capture,     capture,     capture_too, context,     memory_pool, trim,        ask,
    fault,        fault,       peers,       couple,      misuse,      fleeting,    fleeting,
};

enum { KINDS = sizeof operations / sizeof *operations };

static struct {
    size_t begins[16]; /* of the last operations, in the input */
    unsigned count, done;
    bool repeating;
} sequence;

static void step(void)
{
    if (++sequence.done % CHECK_EVERY == 0)
        world_check();
    operations[fuzz_byte(&run.in) % KINDS]();
}

/* A program that repeats itself: the last N operations, K times more. */
static void repeat(void)
{
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

static void release_all(void)
{
    end_captures();
    run.fault = NULL;
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
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
