/* Blocks of the program: allocated and freed in both ways on streams of all kinds, worked on, handed from stream to
 * stream, copied between devices. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "process/state.h"
#include "program.h"
#include "sim.h"

static const uint64_t LONG_NS = 4500000000, HELD_NS = 14000000000;

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

bool arm(void) {
    if (!run.fault || run.capturing)
        return false;
    vp_sim_fail(run.fault, run.fault_at, run.fault_with);
    run.faults++;
    return true;
}

bool disarm(bool armed) {
    if (armed) {
        vp_sim_fail(run.fault, 0, CUDA_SUCCESS);
        run.fault = NULL;
    }
    return armed;
}

size_t any_size(void) {
    unsigned kind = fuzz_byte(&run.in), more = fuzz_byte(&run.in);
    return size_of(kind, more);
}

size_t size_of(unsigned kind, unsigned more) {
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
    const unsigned faults = run.faults;
    bool others = run.held || run.meanwhile;
    uint64_t began = vp_clock_ns() - run.meanwhile_ns, waited = streams_waited();
    const uint64_t asked = loans_asked();
    if (!armed)
        waits_begin();
    CUresult res = sync ? door_alloc(&b.at, size) : door_alloc_async(&b.at, size, pool, s->handle);
    waits_end();
    armed = disarm(armed) || run.faults != faults;
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
    say("[%#llx, +%zu) is allocated%s, stream %d", b.at, b.size, sync ? "" : " in order", stream);
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
    say("[%#llx, +%zu) is freed, stream %d", b->at, b->size, stream);
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

void free_block(unsigned number, int stream) {
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
void copy(void) {
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
void fleeting(void) {
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

void use(void) {
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

void move(void) {
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
