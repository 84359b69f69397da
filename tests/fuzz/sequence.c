/* The sequence of a target's operations that an input's bytes make: each one's number, and then its arguments. The
 * driver runs what is queued late and in any order that the rules allow, without data; owners.c sees to it that no byte
 * has two owners, and the pool's invariants are proved now and then. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cache.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* So many operations an input at most. */
enum { OPERATIONS = 20000 };

struct run run;

void must(CUresult res, const char *what) {
    if (res)
        fuzz_fail("%s: %d", what, (int)res);
}

static struct {
    size_t begins[16]; /* of the last operations, in the input */
    unsigned count, done;
    bool repeating;
} sequence;

void say(const char *format, ...) {
    static int shows = -1;
    va_list args;
    if (shows < 0)
        shows = getenv("FUZZ_TRACE") != NULL;
    if (!shows)
        return;
    fputs("-- ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

static void step(void) {
    if (++sequence.done % target.check_every == 0)
        world_check();
    unsigned kind = fuzz_byte(&run.in) % (world.newer ? target.kinds : target.older_kinds);
    say("operation %u: %u", sequence.done, kind);
    target.operations[kind]();
}

/* A program that repeats itself: the last N operations, K times more. */
void repeat(void) {
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
    cache_release_all();
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
    world_open(&run.in, target.bare);
    open_streams();
    cache_open();
    while (run.in.at < size && sequence.done < OPERATIONS) {
        sequence.begins[sequence.count++ % 16] = run.in.at;
        step();
    }
    release_all();
    world_close();
    fuzz_count(run.pool_operations);
    return 0;
}
