/* Blocks of GPU memory that are counted, and checked against what was written into them. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "train.h"

#include <stdint.h>

struct block {
    unsigned char *data;
    size_t bytes;
    unsigned char value; /* of every byte, once its stream gets there */
};

/* What the program asked for, and what that cost. */
struct account {
    size_t live, peak_live;      /* bytes, as asked for */
    size_t idle_used, peak_used; /* bytes of the device in use, by anyone */
    size_t calls;                /* allocations and frees */
    double us;                   /* spent inside them */
    int mismatches;              /* windows that did not hold what they should */
};
extern struct account account;

/* After gpu_open(), and before gpu_close(). */
void blocks_open(void);
void blocks_close(void);

/* The same numbers in every run. */
uint32_t random_next(void);

/* Microseconds, from anywhere. */
double now_us(void);

/* A block in the order of `stream`, and one that any stream may use; `stream` fills it. */
struct block block_take_on(enum train_stream stream, size_t bytes, unsigned char value);
void block_give_on(enum train_stream stream, struct block *b);
struct block block_take(enum train_stream stream, size_t bytes, unsigned char value);
void block_give(struct block *b);

void block_fill(struct block *b, enum train_stream stream, unsigned char value);

/* Queues a look at both ends of a block and at one place between; checks_settle() waits and compares. */
void block_check(enum train_stream stream, const struct block *b);
void checks_settle(void);
