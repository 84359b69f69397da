/* Many threads and streams allocate, write late, read late and free early, by every pair of calls that CUDA
 * allows, and every byte of every block is checked by the device.
 *
 * A kernel that spins for a random time stands before many of the writes and reads: memory that was given to a
 * new owner too early is then still written by the old one, and one of the two finds the other's pattern.
 *
 * usage: stress [--seed N] [--threads N] [--ops N] [--seconds S] [--live MIB] [--leave MIB] [--spin US]
 *   --ops      operations of each thread, at most
 *   --seconds  stop then, whatever is left to do
 *   --live     bytes alive at once, of all threads together
 *   --leave    hold the rest of the device's memory, so that no more than this can be had; then an
 *              out-of-memory error is no failure, only counted */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common.cuh"

#include <getopt.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

enum { STREAMS = 8, LEGACY = 0, PER_THREAD = 1, FIRST_OWN = 2 };

static struct {
    uint64_t seed = 1;
    int threads = 6;
    long ops = 1000000;
    double seconds = 10;
    size_t live = (size_t)3 << 30;
    size_t leave = 0;
    uint64_t spin_us = 200;
} options;

struct block {
    unsigned char *data;
    size_t bytes;
    uint32_t pattern;
    bool async; /* which call it came from */
    int stream; /* that its last work is queued on, of the owner's streams */
};

/* A block on its way to another thread; the event follows its last work. */
struct parcel {
    struct block block;
    cudaEvent_t event;
};

static std::mutex mail_lock;
static std::vector<struct parcel> mail;

static std::atomic<size_t> live, peak_live;
static std::atomic<uint32_t> marks; /* given out so far */
static std::atomic<long> ops, allocs, frees, ooms, misaligned;
static __device__ struct wrong wrong_on_device;
static struct wrong *wrong;
static double deadline;

/* Frees a block whose last work is still queued on `stream`. */
static void free_behind(const struct block *b, cudaStream_t stream, bool by_stream) {
    if (!b->async) {
        CHECK(cudaFree(b->data)); /* of plain memory: it is the allocator's part to see to the work */
    } else if (by_stream) {
        CHECK(cudaFreeAsync(b->data, stream));
    } else { /* of stream-ordered memory: cudaFree waits for nothing, and the work is the program's part */
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaFree(b->data));
    }
}

struct worker {
    struct random_numbers numbers;
    cudaStream_t streams[STREAMS];
    std::vector<struct block> blocks;
    bool draining = false; /* the end: nothing spins any more */

    explicit worker(int index) : numbers{options.seed * 1000003 + (uint64_t)index} {
    }

    void stream_create(int i) {
        int lowest, highest;
        CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
        unsigned flags = numbers.chance(50) ? cudaStreamNonBlocking : cudaStreamDefault;
        int priority = numbers.chance(50) ? lowest : highest;
        cudaError_t error = cudaStreamCreateWithPriority(&streams[i], flags, priority);
        if (error == cudaErrorMemoryAllocation && options.leave) { /* a stream needs memory too */
            make_room();
            error = cudaStreamCreateWithPriority(&streams[i], flags, priority);
        }
        check(error, "cudaStreamCreateWithPriority", __FILE__, __LINE__);
    }

    /* After an out-of-memory error: half of what is ours goes. */
    void make_room() {
        cudaMemPool_t pool;
        cudaGetLastError();
        ooms++;
        for (size_t half = blocks.size() / 2; half > 0; half--)
            release(numbers.below(blocks.size()));
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
        CHECK(cudaMemPoolTrimTo(pool, 0));
    }

    int any_stream() {
        return (int)numbers.below(STREAMS);
    }

    void maybe_spin(int stream) {
        if (!draining && numbers.chance(30))
            spin_on(streams[stream], numbers.below(options.spin_us * 1000));
    }

    void write(struct block *b) {
        maybe_spin(b->stream);
        b->pattern = owner_mark(++marks);
        pattern_write_on(streams[b->stream], b->data, b->bytes, b->pattern);
    }

    void verify(const struct block *b) {
        maybe_spin(b->stream);
        pattern_verify_on(streams[b->stream], b->data, b->bytes, b->pattern, wrong);
    }

    /* Later work of the block goes to another stream, behind what is queued. */
    void move(struct block *b, int stream) {
        cudaEvent_t event;
        if (stream == b->stream)
            return;
        CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        CHECK(cudaEventRecord(event, streams[b->stream]));
        CHECK(cudaStreamWaitEvent(streams[stream], event, 0));
        CHECK(cudaEventDestroy(event));
        b->stream = stream;
    }

    size_t any_size() {
        int kind = (int)numbers.below(20);
        return kind < 10   ? numbers.size_between(0, 16)
               : kind < 17 ? numbers.size_between(16, 22)
                           : numbers.size_between(22, 26);
    }

    void allocate() {
        struct block b = {};
        b.bytes = any_size();
        b.async = numbers.chance(55);
        b.stream = any_stream();
        cudaError_t error = b.async ? cudaMallocAsync(&b.data, b.bytes, streams[b.stream])
                                    : cudaMalloc(&b.data, b.bytes);
        if (error == cudaErrorMemoryAllocation && options.leave) {
            make_room();
            return;
        }
        check(error, b.async ? "cudaMallocAsync" : "cudaMalloc", __FILE__, __LINE__);
        allocs++;
        if ((uintptr_t)b.data % 256)
            misaligned++;
        size_t now = live += b.bytes, peak = peak_live;
        while (now > peak && !peak_live.compare_exchange_weak(peak, now))
            ;
        /* Plain memory belongs to every stream from the start, other memory to those that come behind its own. */
        if (!b.async)
            b.stream = any_stream();
        else if (numbers.chance(30))
            move(&b, any_stream());
        write(&b);
        blocks.push_back(b);
    }

    void release(size_t i) {
        struct block b = blocks[i];
        blocks[i] = blocks.back();
        blocks.pop_back();

        if (numbers.chance(30))
            move(&b, any_stream());
        verify(&b);
        live -= b.bytes; /* before the call: the next owner may count it at once */
        frees++;
        free_behind(&b, streams[b.stream], numbers.chance(95));
    }

    void rewrite(size_t i) {
        struct block *b = &blocks[i];
        if (numbers.chance(50))
            move(b, any_stream());
        verify(b);
        write(b);
    }

    void send(size_t i) {
        struct parcel p = {blocks[i], NULL};
        std::lock_guard<std::mutex> hold(mail_lock);
        if (mail.size() >= 64)
            return;
        CHECK(cudaEventCreateWithFlags(&p.event, cudaEventDisableTiming));
        CHECK(cudaEventRecord(p.event, streams[p.block.stream]));
        blocks[i] = blocks.back();
        blocks.pop_back();
        mail.push_back(p);
    }

    void receive() {
        struct parcel p;
        {
            std::lock_guard<std::mutex> hold(mail_lock);
            if (mail.empty())
                return;
            size_t i = numbers.below(mail.size());
            p = mail[i];
            mail[i] = mail.back();
            mail.pop_back();
        }
        p.block.stream = any_stream();
        CHECK(cudaStreamWaitEvent(streams[p.block.stream], p.event, 0));
        CHECK(cudaEventDestroy(p.event));
        verify(&p.block);
        blocks.push_back(p.block);
    }

    /* A stream goes with its work still queued, and another comes in its place. */
    void renew_stream() {
        int old = FIRST_OWN + (int)numbers.below(STREAMS - FIRST_OWN);
        for (struct block &b : blocks)
            if (b.stream == old)
                move(&b, (old + 1) % STREAMS);
        cudaStream_t gone = streams[old];
        if (numbers.chance(50)) { /* so that the new one may get the handle of the old */
            CHECK(cudaStreamDestroy(gone));
            streams[old] = cudaStreamPerThread;
            stream_create(old);
        } else {
            stream_create(old);
            CHECK(cudaStreamDestroy(gone));
        }
    }

    void run() {
        CHECK(cudaSetDevice(0));
        streams[LEGACY] = cudaStreamLegacy;
        streams[PER_THREAD] = cudaStreamPerThread;
        for (int i = FIRST_OWN; i < STREAMS; i++)
            stream_create(i);

        for (long op = 0; op < options.ops && now_s() < deadline; op++, ops++) {
            int kind = (int)numbers.below(1000);
            bool full = live > options.live;
            if (blocks.empty() || (kind < 450 && !full && blocks.size() < 1000))
                allocate();
            else if (kind < 800)
                release(numbers.below(blocks.size()));
            else if (kind < 950)
                rewrite(numbers.below(blocks.size()));
            else if (kind < 970)
                send(numbers.below(blocks.size()));
            else if (kind < 990)
                receive();
            else if (kind < 994)
                renew_stream();
            else if (kind < 999)
                CHECK(cudaStreamSynchronize(streams[any_stream()]));
            else
                CHECK(cudaDeviceSynchronize());
        }

        draining = true;
        CHECK(cudaDeviceSynchronize());
        while (!blocks.empty())
            release(blocks.size() - 1);
        for (int i = FIRST_OWN; i < STREAMS; i++)
            CHECK(cudaStreamDestroy(streams[i]));
    }
};

static void parse(int argc, char **argv) {
    static const struct option known[] = {
        {"seed", required_argument, NULL, 's'}, {"threads", required_argument, NULL, 't'},
        {"ops", required_argument, NULL, 'o'},  {"seconds", required_argument, NULL, 'd'},
        {"live", required_argument, NULL, 'l'}, {"leave", required_argument, NULL, 'r'},
        {"spin", required_argument, NULL, 'p'}, {NULL, 0, NULL, 0},
    };
    int c;
    while ((c = getopt_long(argc, argv, "", known, NULL)) != -1)
        switch (c) {
        case 's': options.seed = strtoull(optarg, NULL, 0); break;
        case 't': options.threads = atoi(optarg); break;
        case 'o': options.ops = atol(optarg); break;
        case 'd': options.seconds = atof(optarg); break;
        case 'l': options.live = (size_t)atol(optarg) << 20; break;
        case 'r': options.leave = (size_t)atol(optarg) << 20; break;
        case 'p': options.spin_us = strtoull(optarg, NULL, 0) + 1; break;
        default: exit(2);
        }
}

int main(int argc, char **argv) {
    void *ballast = NULL;
    size_t held = 0, free_bytes, total;

    parse(argc, argv);
    CHECK(cudaGetSymbolAddress((void **)&wrong, wrong_on_device));
    CHECK(cudaMemGetInfo(&free_bytes, &total));
    if (options.leave && free_bytes > options.leave) {
        held = (free_bytes - options.leave) & ~(((size_t)2 << 20) - 1);
        CHECK(cudaMalloc(&ballast, held));
    }

    double start = now_s();
    deadline = start + options.seconds;
    std::vector<std::thread> threads;
    for (int i = 0; i < options.threads; i++)
        threads.emplace_back([i] { worker(i).run(); });
    for (std::thread &t : threads)
        t.join();
    for (struct parcel &p : mail) { /* what nobody came to fetch */
        CHECK(cudaEventSynchronize(p.event));
        CHECK(cudaEventDestroy(p.event));
        pattern_verify_on(0, p.block.data, p.block.bytes, p.block.pattern, wrong);
        live -= p.block.bytes;
        frees++;
        free_behind(&p.block, 0, true);
    }
    CHECK(cudaDeviceSynchronize());
    double seconds = now_s() - start;
    CHECK(cudaFree(ballast));

    struct wrong found;
    CHECK(cudaMemcpyFromSymbol(&found, wrong_on_device, sizeof found));
    if (found.count)
        fprintf(stderr, "%llu wrong; first in block 0x%llx of %llu bytes, pattern %08llx: at byte %llu read 0x%llx\n",
                found.count, found.block, found.bytes, found.pattern, found.index, found.value);
    bool ok = found.count == 0 && misaligned == 0 && live == 0;
    printf("{\"ok\": %s, \"mismatches\": %llu, \"misaligned\": %ld, \"ops\": %ld, \"allocs\": %ld, "
           "\"frees\": %ld, \"ooms\": %ld, \"peak_live_bytes\": %zu, \"ballast_bytes\": %zu, \"seconds\": %.3f, "
           "\"ops_per_s\": %.0f}\n",
           ok ? "true" : "false", found.count, misaligned.load(), ops.load(), allocs.load(), frees.load(), ooms.load(),
           peak_live.load() + held, held, seconds, ops / seconds);
    return ok ? 0 : 1;
}
