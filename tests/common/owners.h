/*
 * Who has which bytes of physical memory, kept beside the pool and without its help: an owner begins when the first
 * memset of its block runs (or at once: cudaMalloc's memory may be used by anyone at once), and ends when its last
 * does. The pool is wrong if an owner begins where another has not ended.
 *
 * Physical bytes are known by the driver calls that the pool makes: owners_lookup() stands before these.
 */
#ifndef FUZZ_OWNERS_H
#define FUZZ_OWNERS_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct owner;

/* For vp_api_open(): the calls that map memory, seen by us; NULL for others. */
void *owners_lookup(const char *name);
/* With the granularity of the device; then without. No owner may be left. */
void owners_open(size_t granularity);
void owners_close(void);

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
