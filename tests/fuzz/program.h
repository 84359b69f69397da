/* The program that an input is made into: what its parts share. The operations read their arguments from
 * run.in. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "../common/doors.h"
#include "../common/owners.h"
#include "world.h"

enum { DEVICES = 2, STREAMS_EACH = 6, STREAMS = DEVICES * STREAMS_EACH, BLOCKS = 192, OTHERS = 4 };

struct stream {
    CUstream handle;
    int device;
    bool plain; /* may be destroyed */
    bool blocking, capturing;
    bool held;       /* something outside keeps it from getting on */
    uint32_t behind; /* held streams that its work waits for, by bit: the program's own doing */
    unsigned lives;  /* grows when another stream takes its place */
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

struct run {
    struct fuzz_input in;
    struct stream streams[STREAMS];
    struct block blocks[BLOCKS];
    unsigned count;
    CUmemoryPool pool[DEVICES];
    struct door_other others[OTHERS];
    int other_device[OTHERS];
    int capturing;
    size_t kept_back; /* bytes allocated while captures run: what is freed then comes back after them */
    bool peers;
    bool tries_on; /* a call of the driver's own is made again, which a capture would forbid that begins meanwhile */
    const char *fault; /* the call that the next allocation or free will see fail */
    long fault_at;
    CUresult fault_with;
    unsigned faults; /* calls that were to see it, so far: what waits may see what another one was to */
    uint64_t pool_operations;
    unsigned held;                 /* streams */
    uint32_t left_behind[DEVICES]; /* held streams that work of streams waits for which are gone */
    unsigned meanwhile;            /* so many pauses in the library's waits see the program go on in other threads */
    uint64_t meanwhile_ns;         /* that took so long */
    uint64_t waited_before;        /* waits that streams had been made to do when the first was held */
};

extern struct run run;

/* What a program is made of: each operation as often as it is to come. */
struct target {
    void (*const *operations)(void);
    unsigned kinds, older_kinds; /* inputs that are older than some know the first so many */
    unsigned check_every;        /* steps between two proofs of the invariants */
    bool bare;                   /* it has a cache on bare segments: cache.h */
};

extern const struct target target;

void must(CUresult res, const char *what);
#define MUST(call) must(call, #call)

/* ---- streams.c ---- */

void make_current(int device);
/* Its device is current then. */
struct stream *enter(int number);
/* May work be queued there now? A legacy stream's would destroy the capture of a blocking one. */
bool usable(int number);
/* Any stream, of a device that exists. */
int any_stream(void);
void make_stream(int number);
void open_streams(void);
/* What `to` does from now on comes after all that `from` has been given. */
void wait_for(int from, int to);
/* Nothing is left on a stream that another need know of: `to` goes on for it. */
void hand_over_all(int from, int to);
/* Another stream of the same device for all that lies on this one; -1: none may be used now. */
int other_stream(int number);

void end_captures(void);
void renew_stream(void);
void begin_capture(void);
void capture(void);
void synchronize(void);

/* Waits of streams for others that the library has asked for. */
uint64_t streams_waited(void);
/* Nothing keeps any stream from getting on any more; and with all that has been queued. */
void let_all_go(void);
void run_dry(void);
void hold(void);
void let_go(void);

/* ---- sequence.c ---- */

/* With FUZZ_TRACE, among the driver calls: what the program does. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void repeat(void);

/* ---- blocks.c ---- */

size_t any_size(void);
size_t size_of(unsigned kind, unsigned more);
void fill(struct block *b, int stream, bool last);
bool reaches(const struct block *b, int stream);
/* Arms the fault for one call of ours, and disarms it. */
bool arm(void);
bool disarm(bool armed);
/* On a stream, or as cudaFree does (-1). */
void free_block(unsigned number, int stream);
void alloc_async(void);
void alloc_sync(void);
void free_async(void);
void free_sync(void);
void free_last(void);
void fleeting(void);
void use(void);
void move(void);
void copy(void);

/* ---- beside.c ---- */

void memory_pool(void);
void trim(void);
void sleep_and_wake(void);
void ask(void);
void fault(void);
void peers(void);
void couple(void);
void misuse(void);

/* ---- ends.c ---- */

/* After so many pauses of the library in the call that follows, nothing is held any more; 0: it stays so. */
void hold_for(unsigned pauses);

void context(void);
void context_ends(void);
void thread_ends(void);
void reset(void);
/* From now on other threads do something while the library waits. */
void during_waits(void);
/* Calls between these may see it. */
void waits_begin(void);
void waits_end(void);
