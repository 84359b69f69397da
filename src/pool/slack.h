/* How much may be held above the peak to save driver calls, and how large handles are: as much as the program's calls
 * are worth, and nothing if it repeats itself.
 *
 * A program that repeats itself comes to rest: each size finds its place again, with no driver call. For one whose
 * sizes never come again the pool would move memory for ever, as it holds no more than what is alive. Two signals tell
 * them apart:
 *   - Novelty: of 256 requests of 1 MiB and more, how many have a size not seen before. A program that repeats itself
 *     has next to none except at its beginning; with random sizes nearly all are new.
 *   - Price: what the driver's maps cost, by their number. No clock is read, so a replay does what the program did.
 *
 * They set two things: slack, a share of the peak (at most VPOOL_SLACK) that is created instead of moved; and the size
 * of handles, as fewer large ones are moved.
 *
 * A program with many new sizes *roams*: it is served from one piece of free memory that is kept as long as possible,
 * while a program that repeats itself gets its old places.
 *
 * throttle.h, in contrast, makes room for a GPU that lags. Only vpool's own policy and bare segments use slack. When
 * memory is short, and for a while after, nothing is held for it. The caller holds the library's lock. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/pool.h"

/* Notes a request that no cache served (a cache's sizes are known). Evaluates the counts at the end of each window. */
void vp_slack_note(struct vp_pool *pool, const struct vp_request *req);
/* No more memory can be created: no slack now and for some windows. `s`: the pool's own, or that of blocks over bare
 * segments. */
void vp_slack_press(const struct vp_pool *pool, struct vp_slack *s);

/* Slack for blocks over bare segments, which PyTorch's cache places; nothing else here applies to them. open: begins
 * counting. count: counts a large block, under the cache's lock and without the library's; true: look_at should be
 * called. look_at: evaluates the counts, under both locks. */
void vp_slack_open_blocks(struct vp_pool *pool);
bool vp_slack_count_block(struct vp_pool *pool, size_t size);
void vp_slack_look_at_blocks(struct vp_pool *pool);
/* Bytes that may be held above the peak for such blocks, to save driver calls. */
size_t vp_slack_of_blocks(const struct vp_pool *pool);

/* Are `fresh` bytes to be created rather than moving idle memory there? */
bool vp_slack_room(const struct vp_pool *pool, const struct vp_request *req, size_t fresh);
/* The largest handle for a request that needs `fresh` new bytes, in bytes; 0: the usual one. */
size_t vp_slack_handle(const struct vp_pool *pool, const struct vp_request *req, size_t fresh);
/* Bytes held beyond what is allowed now. */
size_t vp_slack_excess(const struct vp_pool *pool);
/* Are most sizes new, or is it too early to tell? */
bool vp_slack_novel(const struct vp_pool *pool);
/* Is the program small, as far as is known by now? It gets smaller handles. */
bool vp_slack_small(const struct vp_pool *pool);
/* Were most sizes of the first requests new and different, small requests included? */
bool vp_slack_early(const struct vp_pool *pool);

/* Does the program roam? */
bool vp_slack_roams(const struct vp_pool *pool);
/* Does the old place of this request come before other free memory all the same? */
bool vp_slack_keeps_place(const struct vp_pool *pool, const struct vp_request *req);
/* Does a program with several streams roam? Then much memory lies in pieces. */
bool vp_slack_roams_apart(const struct vp_pool *pool);
/* Is memory for the request created in handles of one granule, each of which can serve another stream later? */
bool vp_slack_fine(const struct vp_pool *pool, const struct vp_request *req, size_t fresh);
/* Do several streams roam, and is no slack left for the request? */
bool vp_slack_crowded(const struct vp_pool *pool, const struct vp_request *req);
/* Does it matter now how much of its chunks a block pins beside itself? */
bool vp_slack_spares(struct vp_pool *pool);
/* Does memory that was moved for the request stay there, and not go home? In a program that roams the old place is not
 * wanted again, and here it lies beside the rest. So it does for a small request where several streams roam: the next
 * one of its stream would move it again. */
bool vp_slack_stays(const struct vp_pool *pool, const struct vp_request *req);
/* Is the request placed right behind existing memory, rather than at addresses of its own to grow in? */
bool vp_slack_packs(const struct vp_pool *pool, const struct vp_request *req);

/* Is free memory at the ends of what is mapped to be moved to the rest before anything is created? */
bool vp_slack_gathers(const struct vp_pool *pool, const struct vp_request *req);

/* Frees the sets of sizes. */
void vp_slack_finish(struct vp_pool *pool);
/* Their bytes. */
size_t vp_slack_metadata(const struct vp_pool *pool);

/* What statistics show of it. */
struct vp_slack_state {
    double percent; /* slack in force, percent of the peak */
    double novelty; /* share of new sizes in the last window, 0 to 1 */
    uint64_t steps; /* steps up and down so far */
};

struct vp_slack_state vp_slack_state(const struct vp_pool *pool);
double vp_slack_percent(const struct vp_pool *pool);
double vp_slack_novelty(const struct vp_pool *pool);
