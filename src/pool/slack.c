/* Slack and handle size, which follow what the program does: see slack.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/slack.h"

#include "base/os_memory.h"

#include <sys/mman.h>

/* The least size of requests that count, and how many of them make a window. */
enum { WORTH = 1 << 20, WINDOW = 256 };

/* Sizes that are remembered: several times as many as a large training step has; beyond that, random ones are
 * forgotten. Each WAYS of them form a set, so that a look-up touches one cache line. */
enum { SIZES = 4096, WAYS = 8 };

/* Slack is for programs of which more than a twentieth is new for so many windows in a row; for one window if most is
 * new (the last grade below). */
enum { NOVEL = WINDOW / 20, NOVEL_WINDOWS = 3 };

/* The price of a map with its share of related calls; what a request may cost (5 us) before more memory is held for it;
 * and below what (an eighth of that), for how many windows, less is held. */
enum { MAP_NS = 40000, DEAR_NS = 5000, CHEAP_NS = DEAR_NS / 8, CHEAP_WINDOWS = 16 };

/* The steps, in thousandths of what the user allows. Steps beyond STEPS are only for blocks over bare segments, if a
 * block still costs more than 20 us: a cache that keeps many more addresses than it uses has no memory at most of them,
 * and 5 % more does not change that. Such a program took six times as long as with all the memory that its cache keeps.
 * Each further step takes at most half of what the device has left. */
static const unsigned STEP[] = {0, 400, 700, 1000, 2000, 4000, 7000, 10000};
enum { STEPS = 4, BLOCK_STEPS = sizeof STEP / sizeof *STEP, DEARER_NS = 20000 };

/* Allowed beyond that share: rounding of some chunks; less in small programs, whose handles are not larger either. */
enum { ROOM = 32 << 20, ROOM_SHARE = 16 };

/* The same where several streams use chunks below APART_GRANULES. What is missing because no chunk is wholly free adds
 * to it: with all of ROOM two thousand streams with 6.3 GiB hold up to 1.05501 times that by slack alone. */
enum { SEVERAL_ROOM = 30 << 20 };

/* Handles grow with novelty in grades: a share of the request, and at least `least`. The first grade is for all
 * programs that roam. The last is for programs of which most is new, and which have little use for small pieces; with
 * handles twice as large, random sizes of 1 MiB to 1 GiB hold up to 1.06 times what is alive. */
static const struct {
    unsigned novel; /* more new sizes than this in a window */
    unsigned first; /* or among the first requests */
    size_t share, least;
} GRADE[] = {
    {0, 0, 32, 8 << 20},
    {WINDOW / 4, 20, 16, 8 << 20},
    {WINDOW * 5 / 8, 30, 12, 32 << 20},
};
enum { GRADES = sizeof GRADE / sizeof *GRADE };

/* At the beginning, when most memory is created, all sizes are new; after so many requests it shows whether they come
 * again. To wait for the first window is too late: the pool is already cut into small chunks, few of which are ever
 * created anew. */
enum { FIRST = 32 };

/* A program that is small (pool.h) after so many requests, or of which most sizes are new, is expected to stay so for
 * now. Recorded programs that grow larger make no more calls for that. */
enum { STAYS_SMALL = 96 };

/* A program roams if more than a twelfth of a window's sizes are new (recorded ones have up to a fifteenth, in their
 * first window); or if its first requests say so; or if of any 32 requests in a row more than ROAMS_RECENT have sizes
 * that are new and differ (recorded ones up to 12). Until that is known each new size gets addresses of its own, and
 * free memory lies in as many places. */
enum { ROAMS = WINDOW / 12, ROAMS_RECENT = 20 };

/* It goes on roaming when nothing is new any more. Tables that double have some hundred sizes, all known after a while
 * but never in the same order; serving them in old places again would split what is in one piece by now. But after so
 * many windows with next to nothing new and next to no cost it needs no slack. */
enum { STILL_WINDOWS = 32 };

/* Where the host waits and a GPU lags, what several streams have freed becomes theirs piece by piece: free memory is
 * not ready, and new memory is created again and again. There a block of at least this share of the peak goes to its
 * old place first, behind its own stream's work. */
enum { OLD_SHARE = 256 };

/* New sizes are alike if most differ by at most an eighth from the new one before. */
enum { ALIKE = 8 };

/* With several streams, blocks of so many granules get addresses of their own: side by side, parts of one chunk would
 * wait for different streams. */
enum { APART_GRANULES = 8 };

/* Where several streams use chunks that large, only so much slack, in thousandths, is used at once: what is missing
 * because parts of it wait for other streams adds to it. With all of it 16 streams of mixed sizes hold up to 1.0555
 * times what is alive, and 1.0528 so. */
enum { APART_SLACK = 800 };
/* Where several streams roam, smaller blocks that need at most so many new granules get handles of one granule each: a
 * handle of two, half of it pinned by another block, serves no other stream. Two thousand streams so hold 1.055 times
 * what is alive, and 1.06 without; with all handles of one granule they take a fifth longer. */
enum { FINE_GRANULES = 2 };

/* Handles are larger only while more than this share of the device, or of the user's limit, is left: close to the end,
 * what lies beside a live block in its chunk would be missing. */
enum { EDGE_SHARE = 8 };

/* Windows without slack after memory was short. */
enum { REST_WINDOWS = 64 };

/* Was the size seen before? Remembers it. */
static bool seen(struct vp_slack *s, size_t size) {
    const uint64_t hash = (size / VP_QUANTUM) * 0x9e3779b97f4a7c15u;
    uint32_t *set = s->sizes + (hash >> 32) % (SIZES / WAYS) * WAYS, tag = (uint32_t)(size / VP_QUANTUM);
    for (int i = 0; i < WAYS; i++) {
        if (set[i] == tag)
            return true;
        if (!set[i]) {
            set[i] = tag;
            return false;
        }
    }
    set[(hash >> 56) % WAYS] = tag;
    return false;
}

/* Makes room for the sizes; false: out of memory, or no slack is asked for. */
static bool has_sizes(const struct vp_pool *pool, struct vp_slack *s) {
    return pool->config.slack && (s->sizes || (s->sizes = vp_os_take(SIZES * sizeof *s->sizes)));
}

static bool about(size_t a, size_t b) {
    return (a < b ? b - a : a - b) <= a / ALIKE;
}

static void look_at_size(struct vp_slack *s, size_t size) {
    const bool novel = !seen(s, size), alike = novel && about(s->last_new, size);
    if (novel) {
        s->novel++;
        s->alike += alike;
        s->last_new = size;
    }
    s->recent = s->recent << 1 | (novel && !alike);
    s->count++;
    /* settle() evaluates the first requests. Only a new size adds to `recent`; once, all of the first count. */
    if ((novel && !alike && (s->windows || s->count > FIRST)) || s->count == FIRST + 1)
        s->roams |= __builtin_popcount(s->recent) > ROAMS_RECENT;
}

static bool on(const struct vp_pool *pool) {
    return pool->config.slack && !pool->slack.rest;
}

static unsigned grade(unsigned novel, bool first) {
    unsigned g = GRADES - 1;
    while (g && novel <= (first ? GRADE[g].first : GRADE[g].novel))
        g--;
    return g;
}

/* Until then a small program could be cut into chunks that are large for it. How likely that is shows in the sizes of
 * all but the smallest requests, in windows of their own: at most nine of the first 32 are new in recorded programs,
 * and nearly all in programs that never repeat. */
enum { EARLY_WORTH = 16 << 10, EARLY = 8, EARLY_WINDOW = 32 };

/* A program that asks for so much at once will hardly stay small; it would move small handles for ever. */
enum { EARLY_MOST = 11 << 20 };

static void count_early(struct vp_slack *s, size_t size, bool novel) {
    if (s->windows || s->count >= FIRST || s->early_over)
        return;
    if (size >= EARLY_MOST) {
        s->early_over = true;
        s->early = false;
        return;
    }
    s->early_novel += novel && !about(s->early_size, size);
    s->early_size = size;
    s->early_count++;
    if (s->early_count == EARLY_WINDOW || (s->early_count == EARLY && !s->early))
        s->early = 2 * s->early_novel > s->early_count;
    if (s->early_count == EARLY_WINDOW)
        s->early_count = s->early_novel = 0;
}

/* At the end of a window, or after the first requests: sets what follows from them. */
static void settle(struct vp_slack *s, bool first) {
    s->grade = grade(s->novel, first);
    s->early = false;
    s->roams |= first ? s->grade > 0 : s->novel > ROAMS;
    s->alike_sizes = 2 * s->alike > s->novel;
    const bool still = s->novel <= NOVEL && (first || !s->roams || s->price < CHEAP_NS);
    s->still_windows = still ? s->still_windows + 1 : 0;
}

/* At the end of a window, with `maps` driver maps so far: goes up, to step `last`, or down by one. */
static void step(struct vp_slack *s, uint64_t maps, unsigned last) {
    const uint64_t price = s->price = (maps - s->maps) * MAP_NS / WINDOW;
    s->novel_windows = s->novel > NOVEL ? s->novel_windows + 1 : 0;
    s->cheap_windows = price < CHEAP_NS && (s->step < STEPS || s->novel <= NOVEL) ? s->cheap_windows + 1 : 0;
    const bool novel = s->novel_windows >= NOVEL_WINDOWS || s->grade + 1 == GRADES;
    if (price > (s->step + 1 < STEPS ? DEAR_NS : DEARER_NS) && novel && s->step < last)
        s->step = last, s->steps++;
    if (s->cheap_windows >= CHEAP_WINDOWS && s->step) {
        s->step--, s->steps++;
        s->cheap_windows = 0;
        s->over = true;
    }
    s->maps = maps;
    s->last_novel = s->novel;
    s->windows++;
    s->rest -= s->rest > 0;
}

void vp_slack_note(struct vp_pool *pool, const struct vp_request *req) {
    struct vp_slack *s = &pool->slack;
    if (req->asked < EARLY_WORTH || !has_sizes(pool, s))
        return;
    if (req->asked < WORTH) {
        count_early(s, req->size, !seen(s, req->size));
        return;
    }
    const unsigned novel = s->novel;
    look_at_size(s, req->size);
    count_early(s, req->size, s->novel > novel);
    if (!s->windows && s->count == FIRST)
        settle(s, true);
    if (s->count < WINDOW)
        return;
    step(s, pool->mem.stats.calls.map, s->step + 1 < STEPS ? s->step + 1 : s->step);
    settle(s, false);
    s->count = s->novel = s->alike = 0;
}

void vp_slack_press(const struct vp_pool *pool, struct vp_slack *s) {
    s->rest = pool->config.slack ? REST_WINDOWS : 0;
    s->step = 0;
}

/* ---- blocks over bare segments ---- */

/* After so many windows somebody should look even if no block lacks memory, as what is held may no longer be worth it.
 * And after so many blocks more of that goes back. */
enum { LOOKED_AT = 4, SHRUNK_AT = 16 };

/* With nearly all sizes new, a window ends after so many blocks: such a program paid as much in its first thousand
 * blocks, until all steps were taken, as in the next fourteen thousand. */
enum { SHORT_WINDOW = WINDOW / 4 };

void vp_slack_open_blocks(struct vp_pool *pool) {
    has_sizes(pool, &pool->bare_slack);
}

bool vp_slack_count_block(struct vp_pool *pool, size_t size) {
    struct vp_slack *s = &pool->bare_slack;
    if (!s->sizes)
        return false;
    s->count++;
    s->novel += !seen(s, size);
    return (s->over && s->count % SHRUNK_AT == 0) || (s->step && s->count >= LOOKED_AT * WINDOW);
}

/* Bytes allowed above the peak at step `n`. */
static size_t at_step(const struct vp_pool *pool, unsigned n) {
    return (size_t)((double)pool->mem.stats.peak_live_bytes / 100000 * STEP[n] * pool->config.slack);
}

/* Bytes that the device has left, including those held above the peak. */
static size_t left(const struct vp_pool *pool) {
    const uint64_t peak = pool->mem.stats.peak_live_bytes, held = pool->mem.stats.held_bytes;
    return vp_memory_device_free(&pool->mem) + (held > peak ? held - peak : 0);
}

/* The step after this window: one more, or several if a block costs many times what it may; beyond STEPS only within
 * half of what the device has left. */
static unsigned next_step(const struct vp_pool *pool, uint64_t price) {
    const unsigned now = pool->bare_slack.step;
    unsigned next = now < BLOCK_STEPS - 1 ? now + 1 : now;
    for (unsigned i = 0; i < 2 && price > 4 * DEARER_NS && next < BLOCK_STEPS - 1; i++, price /= 4)
        next++;
    while (next >= STEPS && next > now && at_step(pool, next) > left(pool) / 2)
        next--;
    return pool->bare_slack.rest ? 0 : next;
}

/* While a program makes no driver call, hardly anybody looks; the counts may then be those of several windows. */
void vp_slack_look_at_blocks(struct vp_pool *pool) {
    struct vp_slack *s = &pool->bare_slack;
    const uint64_t maps = pool->mem.stats.calls.map;
    if (s->count < (s->novel * 8 >= s->count * 7 ? SHORT_WINDOW : WINDOW))
        return;
    s->maps = maps - (maps - s->maps) * WINDOW / s->count;
    s->novel = (unsigned)((uint64_t)s->novel * WINDOW / s->count);
    s->grade = grade(s->novel, false);
    if (s->count >= WINDOW)
        s->cheap_windows += s->count / WINDOW - 1;
    step(s, maps, next_step(pool, (maps - s->maps) * MAP_NS / WINDOW));
    s->count = s->novel = 0;
}

size_t vp_slack_of_blocks(const struct vp_pool *pool) {
    const uint64_t room = pool->mem.stats.live_bytes / ROOM_SHARE;
    return pool->bare_slack.step ? at_step(pool, pool->bare_slack.step) + (room < ROOM ? room : ROOM) : 0;
}

/* ---- the pool's own ---- */

static bool several_streams(const struct vp_pool *pool) {
    return atomic_load_explicit(&pool->caches.several, memory_order_relaxed);
}

/* Do several streams use blocks, or chunks, of that size? */
static bool apart(const struct vp_pool *pool, size_t size) {
    return several_streams(pool) && size >= APART_GRANULES * pool->mem.granularity;
}

/* Bytes that may be held with `thousandths` of the slack that the user allows. */
static size_t allowed(const struct vp_pool *pool, const struct vp_request *req, unsigned thousandths) {
    const uint64_t most = several_streams(pool) && !apart(pool, pool->mem.largest) ? SEVERAL_ROOM : ROOM;
    const uint64_t room = vp_lesser((pool->mem.stats.live_bytes + req->size) / ROOM_SHARE, most),
                   alive = vp_pool_peak_with(pool, req->size);
    return alive + alive / 1000 * thousandths * pool->config.slack / 100 + room;
}

static bool within(const struct vp_pool *pool, const struct vp_request *req, size_t held, unsigned thousandths) {
    return (!pool->mem.limit || held <= pool->mem.limit) && held <= allowed(pool, req, thousandths);
}

bool vp_slack_roams(const struct vp_pool *pool) {
    return on(pool) && pool->slack.roams;
}

/* May all slack be used at once? */
static bool needs_all(const struct vp_pool *pool) {
    return vp_slack_roams(pool) && pool->slack.still_windows < STILL_WINDOWS;
}

bool vp_slack_room(const struct vp_pool *pool, const struct vp_request *req, size_t fresh) {
    const struct vp_slack *s = &pool->slack;
    /* Blocks that are alike are better extended than created anew: only the difference is needed. */
    const bool all = needs_all(pool) && (!s->alike_sizes || fresh <= req->size / ALIKE);
    const unsigned step = all ? STEPS - 1 : s->step;
    const unsigned share = apart(pool, pool->mem.largest) && STEP[step] > APART_SLACK ? APART_SLACK : STEP[step];
    return on(pool) && step && !req->pressed && (req->asked >= WORTH || s->roams) &&
           within(pool, req, pool->mem.stats.held_bytes + fresh, share);
}

bool vp_slack_keeps_place(const struct vp_pool *pool, const struct vp_request *req) {
    const struct vp_slack *s = &pool->slack;
    if (!vp_slack_roams(pool))
        return true;
    return req->waits == VP_WAITS_HOST && several_streams(pool) &&
           (s->still_windows >= STILL_WINDOWS ||
            (s->grade + 1 < GRADES && req->size >= pool->mem.stats.peak_live_bytes / OLD_SHARE));
}

bool vp_slack_roams_apart(const struct vp_pool *pool) {
    return vp_slack_roams(pool) && several_streams(pool);
}

bool vp_slack_fine(const struct vp_pool *pool, const struct vp_request *req, size_t fresh) {
    return req->size < APART_GRANULES * pool->mem.granularity && fresh <= FINE_GRANULES * pool->mem.granularity &&
           vp_slack_roams_apart(pool);
}

bool vp_slack_crowded(const struct vp_pool *pool, const struct vp_request *req) {
    return vp_slack_roams_apart(pool) && req->zone == VP_ZONE_LARGE && !req->alone && !req->pressed &&
           !apart(pool, req->size) && !vp_slack_room(pool, req, vp_round_up(req->size, pool->mem.granularity));
}

bool vp_slack_stays(const struct vp_pool *pool, const struct vp_request *req) {
    return req->zone == VP_ZONE_LARGE ? vp_slack_roams(pool) : vp_slack_roams_apart(pool);
}

bool vp_slack_packs(const struct vp_pool *pool, const struct vp_request *req) {
    const struct vp_slack *s = &pool->slack;
    if (vp_slack_roams(pool))
        return !s->alike_sizes && !apart(pool, req->size);
    /* The first requests may be packed, too, as long as hardly a size came again. */
    return on(pool) && !s->windows && s->count >= FIRST / 8 && s->count < FIRST && 4 * s->novel >= 3 * s->count &&
           2 * s->alike <= s->novel;
}

/* Until a program was known to roam its blocks got addresses of their own; what is left of these serves nobody. If most
 * sizes are new little is left so; and what several streams have freed lies everywhere. */
bool vp_slack_gathers(const struct vp_pool *pool, const struct vp_request *req) {
    return req->zone == VP_ZONE_LARGE && vp_slack_roams(pool) && vp_slack_packs(pool, req) &&
           pool->slack.grade + 1 < GRADES && !apart(pool, SIZE_MAX);
}

/* Is so little left that each byte beside a live block counts? */
static bool at_edge(const struct vp_pool *pool, size_t fresh) {
    const struct vp_memory *mem = &pool->mem;
    size_t left, total;
    return (mem->limit && mem->limit < mem->stats.held_bytes + fresh + mem->limit / EDGE_SHARE) ||
           (vp_memory_ask_device(mem, &left, &total) && left < fresh + total / EDGE_SHARE);
}

bool vp_slack_spares(struct vp_pool *pool) {
    struct vp_slack *s = &pool->slack;
    if (s->roams && s->edge_birth != pool->mem.births) {
        s->edge_birth = pool->mem.births;
        s->edge = at_edge(pool, 0);
    }
    return s->rest || (s->roams && s->edge);
}

size_t vp_slack_handle(const struct vp_pool *pool, const struct vp_request *req, size_t fresh) {
    const struct vp_slack *s = &pool->slack;
    if (!on(pool) || !(s->grade || s->roams) || req->pressed || req->asked < WORTH || vp_pool_is_small(pool) ||
        !within(pool, req, pool->mem.stats.held_bytes + fresh, STEP[STEPS - 1]))
        return 0;
    const uint64_t most = (pool->mem.stats.live_bytes + req->size) / ROOM_SHARE;
    const size_t size = vp_lesser(vp_greater(req->size / GRADE[s->grade].share, GRADE[s->grade].least), most);
    return size > GRADE[0].least && at_edge(pool, fresh) ? 0 : size;
}

bool vp_slack_novel(const struct vp_pool *pool) {
    const struct vp_slack *s = &pool->slack;
    return on(pool) && (s->grade || (!s->windows && s->count < FIRST));
}

bool vp_slack_small(const struct vp_pool *pool) {
    const struct vp_slack *s = &pool->slack;
    return vp_pool_is_small(pool) && (s->early || s->grade || s->windows || s->count >= STAYS_SMALL);
}

bool vp_slack_early(const struct vp_pool *pool) {
    return on(pool) && pool->slack.early;
}

size_t vp_slack_excess(const struct vp_pool *pool) {
    const struct vp_request none = {0};
    const size_t held = pool->mem.stats.held_bytes;
    const size_t most = allowed(pool, &none, on(pool) ? STEP[needs_all(pool) ? STEPS - 1 : pool->slack.step] : 0);
    return held > most ? held - most : 0;
}

double vp_slack_percent(const struct vp_pool *pool) {
    const bool all = needs_all(pool) && !pool->slack.alike_sizes;
    const double own = on(pool) ? pool->config.slack * STEP[all ? STEPS - 1 : pool->slack.step] / 1000.0 : 0,
                 blocks = pool->config.slack * STEP[pool->bare_slack.step] / 1000.0;
    return own > blocks ? own : blocks;
}

double vp_slack_novelty(const struct vp_pool *pool) {
    const struct vp_slack *s = pool->bare_slack.windows ? &pool->bare_slack : &pool->slack;
    return s->last_novel / (double)WINDOW;
}

struct vp_slack_state vp_slack_state(const struct vp_pool *pool) {
    return (struct vp_slack_state){vp_slack_percent(pool), vp_slack_novelty(pool),
                                   pool->slack.steps + pool->bare_slack.steps};
}

void vp_slack_finish(struct vp_pool *pool) {
    struct vp_slack *const both[] = {&pool->slack, &pool->bare_slack};
    for (int i = 0; i < 2; i++) {
        if (both[i]->sizes)
            vp_os_give(both[i]->sizes, SIZES * sizeof *both[i]->sizes);
        both[i]->sizes = NULL;
    }
}

size_t vp_slack_metadata(const struct vp_pool *pool) {
    return (!!pool->slack.sizes + !!pool->bare_slack.sizes) * SIZES * sizeof *pool->slack.sizes;
}
