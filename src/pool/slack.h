/* How much may be held above the peak for the sake of fewer calls, and in how large handles: as much as the program
 * pays for, and nothing if it repeats itself.
 *
 * A program that repeats itself comes to rest: each size finds its place again, and no call is made. One whose sizes
 * never come again makes the pool move memory for ever, as there is never more of it than what is alive. Two signals
 * tell them apart:
 *   - novelty: of 256 requests of 1 MiB and more, those whose size was not seen before. A program that repeats itself
 *     has none to speak of but at its beginning; random sizes come close to all of them;
 *   - the price: what the driver's maps cost, by their number. No clock is read, so a replay does what the program did.
 * And there are two knobs: slack, a share of the peak (VPOOL_SLACK at most) that is made anew instead of moved; and
 * larger handles, of which fewer are moved.
 *
 * A program of which much is new *roams*: it is served from one piece of free memory that is as long as can be, where a
 * program that repeats itself gets its old places.
 *
 * A neighbour of throttle.h, which makes room for a GPU that lags. Only vpool's own policy asks here, and bare
 * segments. Under pressure packing comes first, and for a while after it. The caller holds the library's lock. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "pool/pool.h"

/* A request was served, and by no cache: those know its size. What was counted is looked at once a window. */
void vp_slack_note(struct vp_pool *pool, const struct vp_request *req);
/* Nothing is left to be made: what is there is packed, now and for some windows. `s`: the pool's, or that of blocks
 * over bare segments. */
void vp_slack_press(const struct vp_pool *pool, struct vp_slack *s);

/* The same for blocks over bare segments, which their cache places, and of which slack is all that follows. Once that
 * is open, who holds the cache's lock, and not the library's, counts the large ones; with both locks it is looked at
 * what has been counted. True: it had better be. */
void vp_slack_open_blocks(struct vp_pool *pool);
bool vp_slack_count_block(struct vp_pool *pool, size_t size);
void vp_slack_look_at_blocks(struct vp_pool *pool);
/* Bytes that may be held for them above the peak, for the sake of fewer calls. */
size_t vp_slack_of_blocks(const struct vp_pool *pool);

/* Are so many bytes rather to be made anew than idle memory to be moved there? */
bool vp_slack_room(const struct vp_pool *pool, const struct vp_request *req, size_t fresh);
/* The largest handle for a request, which is made of `fresh` new bytes; 0: as ever. */
size_t vp_slack_handle(const struct vp_pool *pool, const struct vp_request *req, size_t fresh);
/* Bytes held beyond what is allowed now. */
size_t vp_slack_excess(const struct vp_pool *pool);
/* Are most sizes new, or is it too early to tell? */
bool vp_slack_novel(const struct vp_pool *pool);
/* Is it a small program, as far as can be told by now? Its handles are smaller. */
bool vp_slack_small(const struct vp_pool *pool);
/* Are the sizes of its first requests, small ones too, nearly all new? */
bool vp_slack_early(const struct vp_pool *pool);

/* Does the program roam? */
bool vp_slack_roams(const struct vp_pool *pool);
/* Does the request's old place come before what is free all the same? */
bool vp_slack_keeps_place(const struct vp_pool *pool, const struct vp_request *req);
/* Do several streams, so that what lies in pieces is much? */
bool vp_slack_roams_apart(const struct vp_pool *pool);
/* Is new memory for the request made in handles of a granule, each of which may serve another stream later? */
bool vp_slack_fine(const struct vp_pool *pool, const struct vp_request *req, size_t fresh);
/* Do several streams roam, and is no slack left for the request? */
bool vp_slack_crowded(const struct vp_pool *pool, const struct vp_request *req);
/* Does it count what a block pins beside it in its chunk? */
bool vp_slack_spares(struct vp_pool *pool);
/* Does what is moved for the request stay? In a program that roams its old place is not wanted again, and here it lies
 * beside the rest; so does a small request's where several streams roam, as the next one of its stream would move it
 * again. */
bool vp_slack_stays(const struct vp_pool *pool, const struct vp_request *req);
/* Is the request to lie right behind what is there, and not to get addresses of its own to grow in? */
bool vp_slack_packs(const struct vp_pool *pool, const struct vp_request *req);

/* Is what lies at the ends of what is mapped to be brought to the rest, before anything is created? */
bool vp_slack_gathers(const struct vp_pool *pool, const struct vp_request *req);

/* Frees our memory. */
void vp_slack_finish(struct vp_pool *pool);
/* Bytes of it. */
size_t vp_slack_metadata(const struct vp_pool *pool);

/* What is shown of it. */
struct vp_slack_state {
    double percent; /* in force */
    double novelty; /* of the last window, from 0 to 1 */
    uint64_t steps; /* up and down, so far */
};

struct vp_slack_state vp_slack_state(const struct vp_pool *pool);
double vp_slack_percent(const struct vp_pool *pool);
double vp_slack_novelty(const struct vp_pool *pool);
