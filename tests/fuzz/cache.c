/* A cache on bare segments: its segments and blocks. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/bare.h"
#include "process/state.h"
#include "cache.h"
#include "sim.h"

#include <errno.h>
#include <string.h>

/* As PyTorch's: blocks up to a MiB lie in segments of 2, those below 10 in segments of 20. */
enum { MIB = 1 << 20, SMALL = MIB, MIDDLE = 10 * MIB, LEAST = 512 };

/* Who waits for so long sees all streams let go, as of others who do not wait. */
enum { HOLD = 24 };

/* Bits of a byte that says how a block is made. */
enum { AT_THE_END = 1, OF_ANY_SIZE = 2, ROUGH = 4, UNKNOWN_SEGMENT = 8, UNKNOWN_USE = 16, ROBBED = 32 };

struct cache cache;

static struct vp_bare_stream on(int stream, bool known) {
    return (struct vp_bare_stream){known ? run.streams[stream].handle : NULL, known};
}

/* ---- places ---- */

static const struct cached *block_in(int segment, CUdeviceptr at, size_t size) {
    for (unsigned i = 0; i < cache.count; i++) {
        const struct cached *b = &cache.blocks[i];
        if (b->segment == segment && b->at < at + size && at < b->at + b->size)
            return b;
    }
    return NULL;
}

static bool place_in(struct cached *b, int segment, unsigned how) {
    const struct segment *s = &cache.segments[segment];
    const struct cached *other;
    if (s->size < b->size)
        return false;
    CUdeviceptr at = how & AT_THE_END ? (s->at + s->size - b->size) / LEAST * LEAST : s->at;
    while ((other = block_in(segment, at, b->size))) {
        if (how & AT_THE_END && other->at - s->at < b->size)
            return false;
        at = how & AT_THE_END ? other->at - b->size : other->at + other->size;
        if (at + b->size > s->at + s->size)
            return false;
    }
    b->at = at;
    b->segment = segment;
    return true;
}

/* In the smallest segment of its stream that has room. What a small block is promised when memory is short is one page
 * of 2 MiB, which is all that it touches in a segment of its own kind. */
static bool place(struct cached *b, int graph, unsigned how) {
    const bool mixed = how & OF_ANY_SIZE && world.granularity < 2 * MIB;
    int best = -1;
    for (int i = 0; i < SEGMENTS; i++) {
        const struct segment *s = &cache.segments[i];
        struct cached copy = *b;
        if (s->at && s->stream == b->home && s->graph == graph &&
            (mixed || (s->size <= 2 * MIB) == (b->size <= SMALL)) &&
            (best < 0 || s->size < cache.segments[best].size) && place_in(&copy, i, how))
            best = i;
    }
    return best >= 0 && place_in(b, best, how);
}

/* ---- segments ---- */

static size_t segment_size(size_t size, unsigned how) {
    if (how & ROUGH)
        return size + LEAST;
    return size <= SMALL ? 2 * MIB : size < MIDDLE ? 2 * MIDDLE : (size + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
}

/* A segment for a block; false: the cache lacks memory, or has too many. While a call of the driver's is to fail it
 * makes none itself. */
static bool grow(const struct cached *b, int graph, unsigned how, bool armed) {
    const int device = run.streams[b->home].device;
    const size_t size = segment_size(b->size, how);
    struct segment *s = NULL;
    if (!armed && !atomic_load(&vp_bare_pools) && vp_bare_is_crowded(device, size))
        cache_empty_device(device, true);
    for (int i = 0; i < SEGMENTS && !s; i++)
        s = cache.segments[i].at ? NULL : &cache.segments[i];
    if (!s)
        return false;
    make_current(device);
    cache.legacy |= b->home % STREAMS_EACH == 0;
    *s = (struct segment){.size = size, .device = device, .stream = b->home, .graph = graph};
    CUresult res = door_segment(&s->at, size, on(b->home, !(how & UNKNOWN_SEGMENT)));
    if (res == CUDA_ERROR_OUT_OF_MEMORY && !armed) {
        cache_empty_device(device, true);
        make_current(device);
        res = door_segment(&s->at, size, on(b->home, !(how & UNKNOWN_SEGMENT)));
    }
    return res == CUDA_SUCCESS;
}

static bool has_blocks(int segment) {
    for (unsigned i = 0; i < cache.count; i++)
        if (cache.blocks[i].segment == segment)
            return true;
    return false;
}

static void free_segment(struct segment *s) {
    const CUdeviceptr at = s->at;
    say("segment %d is freed", (int)(s - cache.segments));
    if (world.sync_free)
        let_all_go();
    make_current(s->device);
    s->at = 0;
    bool armed = arm();
    CUresult res = door_free(at);
    if (disarm(armed) && res)
        res = door_free(at);
    must(res, "a segment's free");
}

void cache_process(void) {
    for (unsigned i = 0; i < cache.count && !run.capturing;) {
        struct cached *b = &cache.blocks[i];
        make_current(cache.segments[b->segment].device);
        CUresult res = b->over ? cuEventQuery(b->over) : CUDA_ERROR_NOT_READY;
        if (res != CUDA_ERROR_NOT_READY) {
            must(res, "cuEventQuery");
            MUST(cuEventDestroy(b->over));
            cache_remove(i);
        } else {
            i++;
        }
    }
}

void cache_empty_device(int device, bool waits) {
    if (waits && !run.capturing) {
        let_all_go();
        make_current(device);
        for (unsigned i = 0; i < cache.count; i++)
            if (cache.blocks[i].over && cache.segments[cache.blocks[i].segment].device == device)
                MUST(cuEventSynchronize(cache.blocks[i].over));
    }
    cache_process();
    for (int i = 0; i < SEGMENTS; i++) {
        struct segment *s = &cache.segments[i];
        if (s->at && s->device == device && s->graph < 0 && !has_blocks(i))
            free_segment(s);
    }
}

/* ---- a block comes ---- */

/* What a device has at most for the cache, if all that can run has run and what is idle is had; 0: it cannot be
 * told. */
static size_t left_of(int device) {
    const size_t ends = 8 * world.granularity, more = 8 * MIB + 32 * world.granularity;
    size_t taken = more + cache.neighbours[device];
    if (run.held || run.capturing || world.no_holds || world.lossy || cache.asleep || cache.pins)
        return 0;
    for (int i = 0; i < OTHERS; i++)
        if (run.others[i].kind)
            return 0;
    for (unsigned i = 0; i < run.count; i++)
        if (run.blocks[i].device == device)
            taken += run.blocks[i].size + 2 * world.handle + 2 * MIB;
    for (unsigned i = 0; i < cache.count; i++)
        if (cache.segments[cache.blocks[i].segment].device == device)
            taken += cache.blocks[i].size + ends;
    /* What was in use while some stream captured may be a graph's until its segment is freed. */
    for (int i = 0; i < SEGMENTS; i++) {
        const struct segment *s = &cache.segments[i];
        const struct vp_bare_segment *of = s->at && s->device == device
                                               ? vp_bare_at(vp_state.pools[device]->bare, s->at)
                                               : NULL;
        taken += of && (of->pinned || of->pins_pages) ? s->size + ends : 0;
    }
    return taken < world.limit ? world.limit - taken : 0;
}

/* Is some of what was promised counted on the device, for a moment? */
static bool is_counted(int device, size_t size) {
    const struct vp_bare *bare = vp_state.pools[device]->bare;
    const size_t touched = vp_bare_touched(bare, size), ends = touched < bare->singles ? touched : bare->singles;
    return bare->bounds ? vp_bare_single_of(bare->used) + ends > vp_bare_single_of(bare->bounds)
                        : bare->counted >= VP_BARE_ENDS;
}

/* Another process has all that the device has left, whatever was promised, and what goes back from now on. Not in a
 * capture: no slot can let go of its single pages there, and chunks that go back may have to make way for them. */
static void rob(int device) {
    const size_t used = vp_sim_used(device);
    if (!atomic_load(&vp_state.timelines.captures))
        vp_sim_others(device, VP_SIM_ALL);
    else if (used < world.capacity)
        vp_sim_others(device, world.capacity - used);
}

/* Without barriers nothing tells, while a blocking stream captures, whether threads' own streams are through. */
static bool is_told(void) {
    return !world.old_driver || !atomic_load(&vp_state.timelines.captures);
}

/* Makes sure of memory, finds a place, and says that it is used. */
static bool get_memory(struct cached *b, int graph, unsigned how, bool armed) {
    const int device = run.streams[b->home].device;
    const unsigned faults = run.faults;
    hold_for(HOLD);
    CUresult res = vp_bare_room(device, b->size, on(b->home, true));
    armed |= run.faults != faults;
    if (res == CUDA_ERROR_OUT_OF_MEMORY && !armed && b->size < left_of(device))
        fuzz_fail("%zu bytes are refused, where there are %zu", b->size, left_of(device));
    if (res == CUDA_ERROR_OUT_OF_MEMORY || (res && (armed || !vp_state.pools[device])))
        return false;
    must(res, "room for a block");
    cache.promised = true;
    if (!place(b, graph, how) && !(grow(b, graph, how, armed) && place(b, graph, how)))
        return false;
    const unsigned resets = cache.resets[device];
    /* Whose segment has passed to another stream tells that one's: where it tells none the segment's own is meant. */
    const bool known = !(how & UNKNOWN_USE) || cache.segments[b->segment].strange;
    hold_for(HOLD);
    if (how & ROBBED && !armed && !run.meanwhile && is_told() && !is_counted(device, b->size))
        rob(device);
    bool is_bare = vp_bare_used(b->at, b->size, on(b->home, known));
    vp_sim_others(device, cache.neighbours[device]);
    if (cache.resets[device] != resets) { /* it has gone with its context */
        world.dropped = true;
        return false;
    }
    if (!is_bare)
        fuzz_fail("no bare segment is known at %#llx", b->at);
    return true;
}

int cache_get(int stream, size_t size, int graph, unsigned how) {
    struct cached b = {.size = size, .home = stream, .told = true};
    if (cache.count == CACHED || cache.busy || !size)
        return -1;
    make_current(run.streams[stream].device);
    cache.busy = stream + 1;
    bool armed = !cache.asleep && arm();
    const unsigned faults = run.faults;
    if (!armed && !cache.asleep)
        waits_begin();
    bool good = get_memory(&b, graph, how, armed);
    waits_end();
    hold_for(0);
    armed = disarm(armed) || run.faults != faults;
    cache.busy = 0;
    cache.promised = false;
    run.pool_operations++;
    if (!good)
        return -1;
    /* What lies there otherwise may be another's by now. */
    b.bad = vp_bare_lacking(vp_state.pools[run.streams[stream].device]->bare, b.at, b.size) > 0;
    if (b.bad && !armed && is_told())
        fuzz_fail("%zu bytes at %#llx that there was room for have no memory", b.size, b.at);
    if (!b.bad && !cache.asleep && !(b.owner = owner_new(b.at, b.size)))
        fuzz_fail("%zu bytes at %#llx are not mapped", b.size, b.at);
    say("block %u: [%#llx, +%zu) of stream %d, in segment %d", cache.count, b.at, b.size, b.home, b.segment);
    cache.blocks[cache.count] = b;
    return (int)cache.count++;
}

size_t cache_size(void) {
    const unsigned kind = fuzz_byte(&run.in), more = fuzz_byte(&run.in);
    const size_t any = kind < 96 ? size_of(kind, more) : (1 + kind % 40) * world.granularity + more * LEAST;
    const size_t size = kind >= 96 && more >= 128 ? any - 256 * LEAST : any;
    return (size + LEAST - 1) / LEAST * LEAST;
}

static void work(const struct cached *b, int stream, bool last) {
    if (b->owner)
        MUST(cuMemsetD32Async(b->at, owner_word(b->owner, last), b->size / 4, enter(stream)->handle));
}

void cache_alloc(void) {
    int stream = any_stream();
    size_t size = cache_size();
    unsigned how = fuzz_byte(&run.in);
    if (!usable(stream) || (run.capturing && (run.kept_back += size) > world.limit / 16))
        return;
    int number = cache_get(stream, size, OF_NO_GRAPH, how);
    if (number >= 0 && usable(stream))
        work(&cache.blocks[number], cache.blocks[number].home, false);
}

/* ---- a block goes ---- */

void cache_remove(unsigned number) {
    cache.blocks[number] = cache.blocks[--cache.count];
}

void cache_tell_unused(const struct cached *b) {
    /* While pools of memory are in use the cache makes no events, and PyTorch's door says so of each block. */
    const bool barrier = b->used || b->strange || (atomic_load(&vp_bare_pools) && cache.other_uses);
    run.pool_operations++;
    say("[%#llx, +%zu) is used no more%s", b->at, b->size, barrier ? ", behind a barrier" : "");
    if (!vp_bare_unused(b->at, b->size, barrier))
        fuzz_fail("no bare segment is known at %#llx any more", b->at);
}

/* An event behind all other streams that used the block. */
static CUevent mark_others(const struct cached *b) {
    CUevent over = NULL;
    int last = -1;
    for (int i = 0; i < STREAMS; i++) {
        if (!(b->used >> i & 1))
            continue;
        if (last >= 0)
            wait_for(last, i);
        last = i;
    }
    if (last >= 0) {
        struct stream *s = enter(last);
        MUST(cuEventCreate(&over, CU_EVENT_DISABLE_TIMING));
        MUST(cuEventRecord(over, s->handle));
    }
    return over;
}

static bool may_go(const struct cached *b) {
    bool good = b->told && !cache.busy && cache.segments[b->segment].graph < 0 && usable(b->home);
    for (int i = 0; i < STREAMS; i++)
        good &= !(b->used >> i & 1) || usable(i);
    return good;
}

static void give(unsigned number) {
    struct cached *b = &cache.blocks[number];
    if (!may_go(b))
        return;
    const struct cached copy = *b;
    if (copy.owner) {
        owner_ending(copy.owner);
        work(&copy, copy.home, true);
        for (int i = 0; i < STREAMS; i++)
            if (copy.used >> i & 1)
                work(&copy, i, true);
        owner_ended(copy.owner);
    }
    b->over = mark_others(&copy);
    b->owner = NULL;
    b->told = false;
    bool armed = arm();
    cache_tell_unused(&copy);
    disarm(armed);
    if (!b->over)
        cache_remove(number);
}

void cache_free(void) {
    unsigned number = fuzz_byte(&run.in);
    if (cache.count)
        give(number % cache.count);
}

void cache_free_last(void) {
    for (unsigned i = cache.count; i-- > 0;)
        if (cache.blocks[i].told) {
            give(i);
            return;
        }
}

/* A temporary block, again and again: before long its pages are a run. */
void cache_again(void) {
    int stream = any_stream();
    size_t size = cache_size();
    unsigned how = fuzz_byte(&run.in);
    if (!usable(stream) || run.capturing)
        return;
    for (unsigned times = 2 + how / 32; times; times--) {
        int number = cache_get(stream, size, OF_NO_GRAPH, how);
        if (number < 0 || !usable(stream)) /* another thread may have begun a capture meanwhile */
            return;
        work(&cache.blocks[number], stream, false);
        give((unsigned)number);
    }
}

/* As many as there is room for, up to some, and every other one goes again. */
void cache_fill(void) {
    int stream = any_stream();
    size_t size = cache_size();
    unsigned how = fuzz_byte(&run.in), first = cache.count;
    if (!usable(stream) || run.capturing)
        return;
    for (unsigned n = 4 + how % 32; n; n--) {
        int number = cache_get(stream, size, OF_NO_GRAPH, how);
        if (number < 0 || !usable(stream))
            break;
        work(&cache.blocks[number], stream, false);
    }
    for (unsigned i = first; i < cache.count && how & 64; i++)
        give(i);
}

/* ---- what happens to it ---- */

static struct cached *any_block(void) {
    unsigned number = fuzz_byte(&run.in);
    return cache.count ? &cache.blocks[number % cache.count] : NULL;
}

void cache_use(void) {
    const struct cached *b = any_block();
    if (b && may_go(b))
        work(b, b->home, false);
}

/* record_stream */
void cache_record(void) {
    struct cached *b = any_block();
    int stream = any_stream();
    if (!b || !may_go(b) || !usable(stream) || b->home == stream ||
        run.streams[stream].device != run.streams[b->home].device)
        return;
    say("[%#llx, +%zu) is used on stream %d, too", b->at, b->size, stream);
    wait_for(b->home, stream);
    work(b, stream, false);
    b->used |= 1u << stream;
    cache.other_uses = true;
}

void cache_empty(void) {
    unsigned what = fuzz_byte(&run.in);
    if (!cache.busy)
        cache_empty_device((int)(what % (unsigned)world.devices), what & 2);
}

/* Another process is shown all of a segment. */
static CUresult show(int device, CUdeviceptr at) {
    if (!vp_enter())
        return CUDA_SUCCESS;
    struct vp_pool *pool = vp_state.pools[device];
    struct vp_region *whole = pool ? vp_pool_find(pool, at) : NULL;
    int err = whole ? vp_bare_pin_range(pool, at, whole->size) : 0;
    if (whole && !err)
        err = vp_pool_export(pool, whole);
    vp_leave();
    return err == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* Somebody is shown a part of a segment. */
void cache_pin(void) {
    unsigned which = fuzz_byte(&run.in), from = fuzz_byte(&run.in), part = fuzz_byte(&run.in);
    const struct segment *s = &cache.segments[which % SEGMENTS];
    if (!s->at || which < 128 || cache.busy) /* seldom */
        return;
    const size_t begin = s->size / 256 * from, size = (s->size - begin) / 256 * part;
    make_current(s->device);
    cache.pins = true;
    bool armed = arm();
    hold_for(HOLD);
    CUresult res = part & 1 ? vp_bare_pin(s->at + begin, size) : show(s->device, s->at);
    hold_for(0);
    armed = disarm(armed);
    run.pool_operations++;
    if (res != CUDA_ERROR_OUT_OF_MEMORY && !armed)
        must(res, "a part of a segment is shown");
}

/* Another process takes memory of a device, or gives it back. */
void cache_others(void) {
    unsigned what = fuzz_byte(&run.in);
    const int device = (int)(what % (unsigned)world.devices);
    const size_t most = world.capacity / 2, used = vp_sim_used(device);
    size_t bytes = what & 2 ? most / 128 * (what / 2) : 0;
    if (used + bytes > world.capacity)
        bytes = used < world.capacity ? world.capacity - used : 0;
    say("others have %zu bytes of device %d", bytes, device);
    cache.neighbours[device] = bytes;
    vp_sim_others(device, bytes);
}

/* ---- what happens to all of it ---- */

void cache_open(void) {
    memset(&cache, 0, sizeof cache);
}

void cache_hand_over(int from, int to) {
    say("stream %d goes on for stream %d", to, from);
    for (unsigned i = 0; i < cache.count; i++) {
        struct cached *b = &cache.blocks[i];
        if (b->used >> from & 1)
            b->used = (b->used & ~(1u << from)) | 1u << to;
        if (b->home == from) {
            b->home = to;
            b->strange = true;
        }
        b->used &= ~(1u << b->home);
    }
    for (int i = 0; i < SEGMENTS; i++)
        if (cache.segments[i].at && cache.segments[i].stream == from) {
            cache.segments[i].stream = to;
            cache.segments[i].strange = true;
        }
    cache_graphs_hand_over(from, to);
}

void cache_alone(void) {
    for (int d = 0; d < world.devices; d++) {
        cache.neighbours[d] = 0;
        vp_sim_others(d, 0);
    }
}

bool cache_on_legacy(void) {
    return cache.legacy;
}

void cache_reset(int device) {
    say("device %d is reset", device);
    cache_graphs_reset(device);
    for (unsigned i = 0; i < cache.count;) {
        struct cached *b = &cache.blocks[i];
        if (cache.segments[b->segment].device != device) {
            b->used &= ~(((1u << STREAMS_EACH) - 1) << device * STREAMS_EACH);
            i++;
            continue;
        }
        if (b->owner) {
            owner_ending(b->owner);
            owner_ended(b->owner);
        }
        if (b->over)
            MUST(cuEventDestroy(b->over));
        world.dropped |= b->told;
        cache_remove(i);
    }
    for (int i = 0; i < SEGMENTS; i++)
        if (cache.segments[i].device == device)
            cache.segments[i].at = 0;
    cache.resets[device]++;
}

/* ---- asleep ---- */

void cache_fall_asleep(void) {
    cache_process();
    cache.asleep = true;
}

bool cache_free_asleep(void) {
    for (unsigned i = cache.count; i-- > 0;) {
        const struct cached b = cache.blocks[i];
        if (!may_go(&b) || b.over)
            continue;
        if (b.owner) {
            owner_ending(b.owner);
            owner_ended(b.owner);
        }
        cache_remove(i);
        cache_tell_unused(&b);
        return true;
    }
    return false;
}

void cache_wake(void) {
    cache.asleep = false;
    for (unsigned i = 0; i < cache.count; i++) {
        struct cached *b = &cache.blocks[i];
        if (b->told && !b->owner && !b->bad && !(b->owner = owner_new(b->at, b->size)))
            fuzz_fail("%zu bytes at %#llx have no memory after sleep", b->size, b->at);
    }
}

void cache_release_all(void) {
    cache_graphs_release();
    cache_alone();
    for (unsigned i = cache.count; i-- > 0;)
        if (cache.blocks[i].told)
            give(i);
    for (int d = 0; d < world.devices; d++)
        cache_empty_device(d, true);
    for (int i = 0; i < SEGMENTS; i++)
        if (cache.segments[i].at)
            fuzz_fail("a segment has blocks for ever");
}
