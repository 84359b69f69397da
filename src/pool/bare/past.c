/* Which blocks came in which order, and what is to come. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/bare/past.h"

#include "base/os_memory.h"

#include <errno.h>

/* Blocks in the same order as before from which on the program seems to repeat itself. */
enum { ALIKE = 8 };

/* Uses of one slot that are looked back at; a slot with more of them is used all the time. */
enum { LOOKS = 16 };

struct vp_bare_use {
    uint32_t time;
    uint32_t before; /* the slot's use before this one, as a number of vp_bare_past.uses; 0: none */
};

/* When the last few blocks were last in that order. */
struct vp_bare_recent {
    uint32_t check; /* the part of the hash that is not the index */
    uint32_t time;
};

struct vp_bare_record {
    uint64_t blocks[VP_BARE_BLOCKS]; /* a hash of each block, by time */
    struct vp_bare_use log[VP_BARE_USES];
    struct vp_bare_recent recent[VP_BARE_BLOCKS]; /* by a hash of the last few blocks */
};

static const uint64_t FACTOR = UINT64_C(0x9e3779b97f4a7c15);

static uint64_t to_the_power(uint64_t factor, unsigned n) {
    uint64_t product = 1;
    while (n--)
        product *= factor;
    return product;
}

int vp_bare_past_init(struct vp_bare_past *past) {
    *past = (struct vp_bare_past){.record = vp_os_take_sparse(sizeof *past->record)};
    return past->record ? 0 : -ENOMEM;
}

void vp_bare_past_finish(struct vp_bare_past *past) {
    if (past->record)
        vp_os_give(past->record, sizeof *past->record);
    *past = (struct vp_bare_past){0};
}

size_t vp_bare_past_bytes(const struct vp_bare_past *past) {
    return past->record ? sizeof *past->record : 0;
}

static uint64_t *block_at(const struct vp_bare_past *past, uint32_t time) {
    return &past->record->blocks[time % VP_BARE_BLOCKS];
}

void vp_bare_past_block(struct vp_bare_past *past, uint64_t addr, uint64_t size) {
    const uint64_t block = (addr ^ size * FACTOR) * FACTOR;
    uint32_t now = vp_bare_past_now(past);
    const uint64_t left = now >= ALIKE ? *block_at(past, now - ALIKE) : 0;
    if (past->match)
        past->match = now - past->match < VP_BARE_BLOCKS && *block_at(past, past->match) == block ? past->match + 1 : 0;
    *block_at(past, now) = block;
    atomic_store_explicit(&past->now, ++now, memory_order_relaxed);
    past->hash = past->hash * FACTOR + block - left * to_the_power(FACTOR, ALIKE);
    const uint64_t mixed = past->hash ^ past->hash >> 32;
    struct vp_bare_recent *recent = &past->record->recent[mixed % VP_BARE_BLOCKS];
    const uint32_t check = (uint32_t)(mixed >> 32);
    if (!past->match && recent->time && recent->check == check && now - recent->time < VP_BARE_BLOCKS)
        past->match = recent->time;
    *recent = (struct vp_bare_recent){check, now};
}

void vp_bare_past_slot(struct vp_bare_past *past, uint32_t *last) {
    const struct vp_bare_use *use = &past->record->log[*last % VP_BARE_USES];
    if (*last && past->uses - *last < VP_BARE_USES && use->time == vp_bare_past_now(past))
        return;
    past->uses++;
    past->record->log[past->uses % VP_BARE_USES] = (struct vp_bare_use){vp_bare_past_now(past), *last};
    *last = past->uses;
}

/* The use with number `last`; NULL: no longer remembered. */
static const struct vp_bare_use *use_of(const struct vp_bare_past *past, uint32_t last) {
    return last && past->uses - last < VP_BARE_USES ? &past->record->log[last % VP_BARE_USES] : NULL;
}

uint32_t vp_bare_past_next(const struct vp_bare_past *past, uint32_t last, uint32_t other) {
    const struct vp_bare_use *use = use_of(past, last), *more = use_of(past, other);
    uint32_t next = VP_BARE_NEVER;
    for (int looks = 0; use || more;) {
        const bool second = !use || (more && more->time > use->time);
        const struct vp_bare_use *latest = second ? more : use;
        if (latest->time <= past->match)
            break;
        if (looks == LOOKS)
            return past->match;
        looks += latest->time != next;
        next = latest->time;
        if (second)
            more = use_of(past, latest->before);
        else
            use = use_of(past, latest->before);
    }
    return next;
}

/* The slot has rested for a while: its next pause is taken to be the shortest of those that were longer. If none was,
 * it rests twice as long again from now. */
uint32_t vp_bare_past_guess(const struct vp_bare_past *past, uint32_t last) {
    const struct vp_bare_use *use = use_of(past, last);
    if (!use)
        return VP_BARE_NEVER;
    const uint32_t latest = use->time, now = vp_bare_past_now(past), rested = now - latest;
    uint32_t pause = VP_BARE_NEVER, time = latest;
    for (int looks = 0; looks < LOOKS && (use = use_of(past, use->before)); looks++) {
        if (time - use->time > rested && time - use->time < pause)
            pause = time - use->time;
        time = use->time;
    }
    return pause == VP_BARE_NEVER ? now + 2 * rested : latest + pause;
}

void vp_bare_past_unite(struct vp_bare_past *past, uint32_t *last, uint32_t other) {
    uint32_t times[LOOKS + 1], base = *last;
    const struct vp_bare_use *use = use_of(past, base), *more = use_of(past, other);
    unsigned n = 0;
    while (more && n <= LOOKS) {
        const bool second = !use || more->time > use->time;
        const struct vp_bare_use *latest = second ? more : use;
        if (!n || times[n - 1] != latest->time)
            times[n++] = latest->time;
        if (second) {
            more = use_of(past, latest->before);
        } else {
            base = latest->before;
            use = use_of(past, base);
        }
    }
    while (n) {
        past->uses++;
        past->record->log[past->uses % VP_BARE_USES] = (struct vp_bare_use){times[--n], base};
        *last = base = past->uses;
    }
}
