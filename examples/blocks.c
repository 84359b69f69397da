/* Blocks of GPU memory that are counted, and checked against what was written into them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "blocks.h"

#include "../tests/common/owners.h" /* owner_intruder(): has another owner written there? */

#include <time.h>

struct account account;

static uint64_t random_state = 0x9e3779b97f4a7c15u;

uint32_t random_next(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void account_call(double start_us, ptrdiff_t change) {
    account.us += now_us() - start_us;
    account.calls++;
    account.live += (size_t)change;
    if (account.live > account.peak_live)
        account.peak_live = account.live;
    size_t used = gpu_used();
    if (used > account.peak_used)
        account.peak_used = used;
}

void block_fill(struct block *b, enum train_stream stream, unsigned char value) {
    b->value = value;
    gpu_fill(stream, b->data, value, b->bytes);
}

struct block block_take_on(enum train_stream stream, size_t bytes, unsigned char value) {
    struct block b = {.bytes = bytes};
    double start = now_us();
    b.data = gpu_alloc_on(stream, bytes);
    account_call(start, (ptrdiff_t)bytes);
    block_fill(&b, stream, value);
    return b;
}

void block_give_on(enum train_stream stream, struct block *b) {
    double start = now_us();
    gpu_free_on(stream, b->data);
    account_call(start, -(ptrdiff_t)b->bytes);
    b->data = NULL;
}

struct block block_take(enum train_stream stream, size_t bytes, unsigned char value) {
    struct block b = {.bytes = bytes};
    double start = now_us();
    b.data = gpu_alloc(bytes);
    account_call(start, (ptrdiff_t)bytes);
    block_fill(&b, stream, value);
    return b;
}

void block_give(struct block *b) {
    double start = now_us();
    gpu_free(b->data);
    account_call(start, -(ptrdiff_t)b->bytes);
    b->data = NULL;
}

/* ---- checks: fetched in the order of a stream, compared once the host has waited for it ---- */

enum { WINDOW = 4096, WINDOWS = 512 };

static struct {
    unsigned char *host; /* WINDOWS windows, pinned */
    int used;
    struct {
        size_t bytes;
        uint32_t mark;
    } of[WINDOWS];
} checks;

void checks_settle(void) {
    gpu_synchronize(SIDE);
    gpu_synchronize(COMPUTE);
    for (int w = 0; w < checks.used; w++) {
        size_t bytes = checks.of[w].bytes;
        if (owner_intruder(checks.host + (size_t)w * WINDOW, bytes, checks.of[w].mark) < bytes)
            account.mismatches++;
    }
    checks.used = 0;
}

static void check_window(enum train_stream stream, const struct block *b, size_t offset) {
    size_t bytes = b->bytes - offset < WINDOW ? b->bytes - offset : WINDOW;
    if (checks.used == WINDOWS)
        checks_settle();
    checks.of[checks.used].bytes = bytes;
    checks.of[checks.used].mark = owner_mark_of_bytes(b->value);
    gpu_fetch(stream, checks.host + (size_t)checks.used * WINDOW, b->data + offset, bytes);
    checks.used++;
}

/* The ends are where a neighbour would reach in. */
void block_check(enum train_stream stream, const struct block *b) {
    check_window(stream, b, 0);
    if (b->bytes > WINDOW) {
        check_window(stream, b, b->bytes - WINDOW);
        check_window(stream, b, random_next() % (b->bytes - WINDOW));
    }
}

void blocks_open(void) {
    checks.host = gpu_host_alloc((size_t)WINDOWS * WINDOW);
    account.idle_used = account.peak_used = gpu_used();
}

void blocks_close(void) {
    gpu_host_free(checks.host);
}
