/* The oracle that no byte has two owners, kept beside the allocator and without its help.
 *
 * By marks, which any program can do, on a device too: each owner fills its block with a mark that no other has, and
 * has all of it read back, in the order of its own work, before it lets the block go. Of two owners of one byte the
 * first then finds the mark of the second. This part needs nothing but this header, and nvcc takes it as well.
 *
 * By the map (owners.c), on the simulated driver: an owner begins when the first memset of its block runs (or at once:
 * cudaMalloc's memory may be used by anyone at once), and ends when its last does. The pool is wrong if an owner begins
 * where another has not ended. Physical bytes are known by the driver calls that the pool makes: owners_lookup() stands
 * before these. What is wrong shows where it begins, whoever reads what afterwards. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define OWNER_FUNCTION __host__ __device__ static inline
#else
#define OWNER_FUNCTION static inline
#endif

/* ---- by marks ---- */

/* The mark of the owner of this number. Those of successive numbers differ in every byte, and none comes twice in 2^32;
 * that of 0 is 0, as memory is that nobody has written to. */
OWNER_FUNCTION uint32_t owner_mark(uint32_t number) {
    return number * 2654435761u;
}

/* The mark of which every byte is this value, for blocks that are filled byte by byte. */
OWNER_FUNCTION uint32_t owner_mark_of_bytes(unsigned char value) {
    return value * 0x01010101u;
}

/* A block holds its owner's mark, as words from its beginning, and in a tail of less than a word the mark's lowest
 * byte. Returns where a copy of it holds something else first; `size`: nowhere. */
OWNER_FUNCTION size_t owner_intruder(const void *copy, size_t size, uint32_t mark) {
    const uint32_t *words = (const uint32_t *)copy;
    const unsigned char *bytes = (const unsigned char *)copy;
    size_t n = size / 4, at = 0;
    uint32_t wrong = 0;
    for (size_t i = 0; i < n; i++) /* nothing ends it early: most copies are right, and this is fast */
        wrong |= words[i] ^ mark;
    while (wrong && words[at] == mark)
        at++;
    if (wrong)
        return 4 * at;
    for (at = 4 * n; at < size && bytes[at] == (mark & 255); at++)
        continue;
    return at;
}

/* What a kernel writes instead of the mark itself: a word of its own for each place, so that one block's places
 * do not pass for each other either. */
OWNER_FUNCTION uint64_t owner_word_at(uint32_t mark, uint64_t place) {
    uint64_t z = (place + 1) * 0x9e3779b97f4a7c15u ^ ((uint64_t)mark * 0xd6e8feb86659fd93u);
    z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93u;
    return z ^ (z >> 32);
}

/* ---- by the map ---- */

#ifndef __CUDACC__
#include <cuda.h>
#include <stdbool.h>

struct owner;

/* For vp_api_open(): the calls that map memory, seen by us; NULL for others. */
void *owners_lookup(const char *name);
/* With the granularity of the device, and with what is told of a fault and does not return; then without. No owner may
 * be left. */
void owners_open(size_t granularity, void (*fail)(const char *format, ...) __attribute__((format(printf, 1, 2))));
void owners_close(void);
/* The blocks of the device go to sleep: they may be unmapped, and copies are the library's own. Then they are back, at
 * the same addresses, on whatever memory. */
void owners_sleep(void);
void owners_wake(void);

/* The owner of a block just allocated; NULL: the memory is not the pool's. Not begun yet. */
struct owner *owner_new(CUdeviceptr at, size_t size);
void owner_begin(struct owner *o);
/* The value of a memset by which the owner begins, if it has not, and with `last` ends: when all memsets
 * so announced have run. */
uint32_t owner_word(struct owner *o, bool last);
/* The program is about to free the block: between the two its last memsets are queued. It ends when they have run. */
void owner_ending(struct owner *o);
void owner_ended(struct owner *o);
#endif
