/* A dump as JSON, which docs/dump.schema.json describes, and as text. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/dump.h"

#include "watch/holders.h"
#include "watch/stacks.h"
#include "watch/watch.h"
#include "base/os_memory.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { FORMAT_VERSION = 1 };

/* The frames of each holder in a text dump, which people read. The JSON has all. */
enum { HOLDER_FRAMES = 16 };

const char *const vp_dump_reasons[] = {[VP_DUMP_EXIT] = "exit",
                                       [VP_DUMP_OOM] = "oom",
                                       [VP_DUMP_SIGNAL] = "signal",
                                       [VP_DUMP_EVERY] = "every",
                                       [VP_DUMP_REQUEST] = "request"};
static const char *const states[] = {
    [VP_HOLE] = "hole", [VP_FREE] = "free",     [VP_ZOMBIE] = "zombie",    [VP_RETIRED] = "retired",
    [VP_LIVE] = "live", [VP_BACKED] = "backed", [VP_BUILDING] = "building"};

/* No stream has used it, so it has neither a stream nor an age. */
static bool is_blank(const struct vp_snap_region *r) {
    return r->state == VP_HOLE || r->state == VP_BUILDING;
}
static const char *const zones[] = {[VP_ZONE_SMALL] = "small", [VP_ZONE_LARGE] = "large", [VP_ZONE_BARE] = "bare"};
static const char *const zone_uses[] = {[VP_ZONE_SMALL] = "requests below 1 MiB",
                                        [VP_ZONE_LARGE] = "requests from 1 MiB on",
                                        [VP_ZONE_BARE] = "segments of the program's own cache"};

struct when {
    char text[128];
};

/* The time in ISO 8601, in UTC. gmtime_r() would look at the time zone, under a lock of libc's. For the date, days are
 * counted from the first of March of year 0, so that a leap day is the last day of its year. */
static struct when now(void) {
    struct timespec t;
    struct when out;
    clock_gettime(CLOCK_REALTIME, &t);
    unsigned long seconds = (unsigned long)t.tv_sec % 86400, days = (unsigned long)t.tv_sec / 86400 + 719468;
    unsigned long era = days / 146097, day = days % 146097;
    unsigned long year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
    unsigned long of_year = day - (365 * year + year / 4 - year / 100), month = (5 * of_year + 2) / 153;
    snprintf(out.text, sizeof out.text, "%04lu-%02lu-%02luT%02lu:%02lu:%02luZ", era * 400 + year + (month >= 10),
             month < 10 ? month + 3 : month - 9, of_year - (153 * month + 2) / 5 + 1, seconds / 3600, seconds / 60 % 60,
             seconds % 60);
    return out;
}

size_t vp_dump_fresh(const struct vp_dump_device *d) {
    size_t held = d->snap.stats.held_bytes, fresh = d->total ? d->free : 0,
           allowed = d->limit > held ? d->limit - held : 0;
    if (d->limit && fresh > allowed)
        fresh = allowed;
    return fresh / d->snap.granularity * d->snap.granularity;
}

size_t vp_dump_largest(const struct vp_dump_device *d) {
    size_t fresh = vp_dump_fresh(d);
    size_t built = d->stitches ? fresh + d->digest.idle : fresh;
    return d->digest.largest_block > built ? d->digest.largest_block : built;
}

/* All bytes that are not live: obstacles are listed for a request of this size. */
static uint64_t not_live(const struct vp_dump_device *d) {
    return d->digest.free_bytes + vp_dump_fresh(d);
}

static bool shown(const struct vp_dump_device *d, int device) {
    return device < 0 || d->snap.device == device;
}

/* ---- JSON ---- */

static void json_address(struct vp_json *j, const char *key, CUdeviceptr addr) {
    char text[24];
    snprintf(text, sizeof text, "0x%llx", addr);
    vp_json_string(j, key, text);
}

static void json_totals(struct vp_json *j, const struct vp_dump_device *d) {
    vp_json_u64(j, "granularity", d->snap.granularity);
    vp_stats_json_blocks(j, &d->snap.stats);
    if (d->snap.asleep)
        vp_json_u64(j, "asleep_bytes", d->snap.asleep);
    if (d->snap.peak_addressed)
        vp_json_numbers(j, {"addressed_bytes", d->snap.addressed}, {"peak_addressed_bytes", d->snap.peak_addressed});
    vp_stats_json_waits(j, &d->snap.stats, &d->snap.timelines, &d->snap.slack);
    vp_plans_json(j, &d->plan);
    vp_json_numbers(j, {"free_bytes", d->digest.free_bytes}, {"largest_free", d->digest.largest_free},
                    {"largest_request", vp_dump_largest(d)});
    if (d->total)
        vp_json_numbers(j, {"device_free", d->free}, {"device_total", d->total});
    vp_json_begin_row(j, "waste");
    vp_json_numbers(j, {"internal", d->digest.internal}, {"pinned", d->digest.pinned}, {"pending", d->digest.pending},
                    {"idle", d->digest.idle});
    if (d->snap.peak_addressed)
        vp_json_u64(j, "cached", d->digest.cached);
    vp_json_end_object(j);
}

static void json_obstacles(struct vp_json *j, const struct vp_dump_device *d) {
    const struct vp_digest *g = &d->digest;
    vp_json_begin_object(j, "obstacles");
    vp_json_u64(j, "asked", not_live(d));
    vp_json_begin_array(j, "pinned");
    for (int i = 0; i < VP_SNAP_WORST && g->worst[i].free; i++) {
        vp_json_begin_row(j, NULL);
        json_address(j, "chunk", g->worst[i].addr);
        vp_json_numbers(j, {"size", g->worst[i].size}, {"free_bytes", g->worst[i].free},
                        {"blocks", g->worst[i].blocks});
        vp_json_end_object(j);
    }
    vp_json_end_array(j);
    vp_json_begin_array(j, "waits_for");
    for (int i = 0; i < VP_SNAP_WORST && g->waited[i].bytes; i++)
        vp_json_row(j, NULL, {"stream", g->waited[i].stream}, {"bytes", g->waited[i].bytes});
    vp_json_end_array(j);
    vp_json_end_object(j);
}

static void json_region(struct vp_json *j, const struct vp_snapshot *snap, const struct vp_snap_region *r) {
    const uint64_t *waits = snap->waits.items;
    vp_json_begin_row(j, NULL);
    json_address(j, "addr", r->addr);
    vp_json_u64(j, "size", r->size);
    vp_json_string(j, "state", states[r->state]);
    if (r->state == VP_LIVE)
        vp_json_u64(j, "asked", r->asked);
    if (r->spilled)
        vp_json_bool(j, "spilled", true);
    if (r->stack)
        vp_json_u64(j, "stack", r->stack);
    if (!is_blank(r) && r->state != VP_BACKED && !r->fresh)
        vp_json_u64(j, "stream", r->stream);
    if (r->state < VP_LIVE && r->state != VP_HOLE)
        vp_json_u64(j, "age", r->age);
    if (r->waits) {
        vp_json_begin_array(j, "waits_for");
        for (uint32_t i = 0; i < r->waits; i++)
            vp_json_u64(j, NULL, waits[r->wait + i]);
        vp_json_end_array(j);
    }
    vp_json_end_object(j);
}

static void json_layout(struct vp_json *j, const struct vp_snapshot *snap) {
    const struct vp_snap_space *s = snap->spaces.items;
    const struct vp_snap_region *r = snap->regions.items;
    vp_json_begin_array(j, "spaces");
    for (size_t i = 0; i < snap->spaces.count; i++) {
        vp_json_begin_row(j, NULL);
        json_address(j, "base", s[i].base);
        vp_json_u64(j, "size", s[i].size);
        vp_json_string(j, "zone", zones[s[i].zone]);
        vp_json_end_object(j);
    }
    vp_json_end_array(j);
    vp_json_begin_array(j, "regions");
    for (size_t i = 0; i < snap->regions.count; i++)
        json_region(j, snap, &r[i]);
    vp_json_end_array(j);
}

static void json_counts(struct vp_json *j, const struct vp_dump_device *d) {
    struct vp_snap_kind kind;
    vp_json_begin_array(j, "chunks");
    for (size_t at = 0; vp_snapshot_kind(&d->snap, &at, &kind);)
        vp_json_row(j, NULL, {"size", kind.size}, {"count", kind.count}, {"wholly_free", kind.wholly_free});
    vp_json_end_array(j);
    vp_json_begin_array(j, "sizes");
    for (int i = 0; i < 63; i++) {
        const struct vp_snap_sizes *s = &d->digest.sizes[i];
        if (!s->live && !s->free)
            continue;
        vp_json_row(j, NULL, {"from", UINT64_C(1) << i}, {"to", UINT64_C(2) << i}, {"live", s->live},
                    {"live_bytes", s->live_bytes}, {"free", s->free}, {"free_bytes", s->free_bytes});
    }
    vp_json_end_array(j);
}

static void json_device(struct vp_json *j, const struct vp_dump_device *d) {
    vp_json_begin_object(j, NULL);
    vp_json_u64(j, "device", (uint64_t)d->snap.device);
    json_totals(j, d);
    json_obstacles(j, d);
    json_counts(j, d);
    json_layout(j, &d->snap);
    vp_holders_json(j, d->snap.device, false);
    vp_json_end_object(j);
}

/* Writes the stacks that regions name. */
static void json_stacks(struct vp_json *j, const struct vp_dump *dump, int device) {
    const uint32_t count = vp_stack_count() + 1;
    uint8_t *named = vp_stacks_wanted() ? vp_os_take(count) : NULL;
    if (!named)
        return;
    for (int i = 0; i < dump->count; i++) {
        const struct vp_snapshot *snap = &dump->device[i].snap;
        const struct vp_snap_region *r = snap->regions.items;
        for (size_t k = 0; k < snap->regions.count && shown(&dump->device[i], device); k++)
            named[r[k].stack < count ? r[k].stack : 0] = true;
    }
    vp_holders_stacks_json(j, named, count);
    vp_os_give(named, count);
}

int vp_dump_json(const struct vp_dump *dump, int device, int fd) {
    enum { BUFFER = 8192 }; /* not on the stack, which may be some KiB in all */
    struct vp_json j;
    char *buffer = vp_os_take(BUFFER);
    if (!buffer)
        return -ENOMEM;
    vp_json_init(&j, fd, buffer, BUFFER);
    vp_json_begin_object(&j, NULL);
    vp_json_string(&j, "format", "vpool-dump");
    vp_json_u64(&j, "version", FORMAT_VERSION);
    vp_json_string(&j, "vpool", VP_VERSION);
    vp_json_u64(&j, "pid", (uint64_t)getpid());
    vp_json_string(&j, "program", program_invocation_short_name);
    vp_json_string(&j, "time", now().text);
    vp_json_string(&j, "reason", vp_dump_reasons[dump->reason]);
    vp_json_u64(&j, "number", dump->number);
    vp_json_string(&j, "policy", vp_policy_name());
    if (dump->reason == VP_DUMP_OOM) {
        vp_json_begin_object(&j, "request");
        vp_json_numbers(&j, {"asked", dump->request.asked}, {"device", (uint64_t)dump->request.device},
                        {"stream", dump->request.stream});
        vp_json_end_object(&j);
    }
    vp_stats_json_passed(&j);
    vp_json_begin_array(&j, "devices");
    for (int i = 0; i < dump->count; i++)
        if (shown(&dump->device[i], device))
            json_device(&j, &dump->device[i]);
    vp_json_end_array(&j);
    json_stacks(&j, dump, device);
    vp_ranges_json(&j);
    vp_ranges_open_json(&j);
    vp_json_end_object(&j);
    const int err = vp_json_finish(&j);
    vp_os_give(buffer, BUFFER);
    return err;
}

/* ---- text ---- */

static void text_totals(struct vp_text *t, const struct vp_dump_device *d) {
    const struct vp_memory_stats *s = &d->snap.stats;
    const struct vp_digest *g = &d->digest;
    vp_say(t, "  live       %12s in %lu block%s; at most %s\n", VP_SIZE(s->live_bytes), g->live_blocks,
           g->live_blocks == 1 ? "" : "s", VP_SIZE(s->peak_live_bytes));
    vp_say(t, "  held       %12s in %zu chunk%s; at most %s\n", VP_SIZE(s->held_bytes), d->snap.chunks.count,
           d->snap.chunks.count == 1 ? "" : "s", VP_SIZE(s->peak_held_bytes));
    if (s->spills || s->spills_refused)
        vp_say(t, "  spilled    %12s in the host's memory; at most %s, %lu block%s so far; %lu refused\n",
               VP_SIZE(s->spilled_bytes), VP_SIZE(s->peak_spilled_bytes), s->spills, s->spills == 1 ? "" : "s",
               s->spills_refused);
    if (d->snap.asleep)
        vp_say(t, "  asleep     %12s  is not held until a pause is over\n", VP_SIZE(d->snap.asleep));
    vp_say(t, "  internal   %12s  lost to rounding inside live blocks\n", VP_SIZE(g->internal));
    vp_say(t, "  pinned     %12s  free, in %lu chunk%s that also hold%s live blocks\n", VP_SIZE(g->pinned),
           g->pinned_chunks, g->pinned_chunks == 1 ? "" : "s", g->pinned_chunks == 1 ? "s" : "");
    vp_say(t, "  pending    %12s  free in whole chunks, which queued work may still use\n", VP_SIZE(g->pending));
    vp_say(t, "  idle       %12s  free in whole chunks, ready for the next request\n", VP_SIZE(g->idle));
    if (d->snap.peak_addressed) {
        vp_say(t, "  cached     %12s  in bare segments, and in no block of the cache that has them\n",
               VP_SIZE(g->cached));
        vp_say(t, "  addressed  %12s  by bare segments, with memory or without; at most %s\n",
               VP_SIZE(d->snap.addressed), VP_SIZE(d->snap.peak_addressed));
    }
    vp_say(t, "  largest    %12s  is the longest free stretch that is ready; one request could get %s%s\n",
           VP_SIZE(g->largest_free), VP_SIZE(vp_dump_largest(d)), d->total ? "" : " without new memory");
    if (d->total)
        vp_say(t, "  device     %12s  free of %s\n", VP_SIZE(d->free), VP_SIZE(d->total));
    vp_say(t, "  calls      allocations: %lu; frees: %lu; out of memory: %lu\n", s->allocs, s->frees, s->ooms);
    vp_say(t, "  waits      %lu on the GPU; %lu on the host (%.1f ms, %lu in vain)\n", s->waits_gpu, s->waits_host,
           (double)s->host_wait_ns / 1e6, s->waits_fruitless);
    vp_say(t, "  driver     %.1f ms in the driver's calls\n", (double)(s->driver_ns + d->snap.timelines.ns) / 1e6);
    vp_say(t, "  slack      %.1f %% above the peak of live may be held to save calls; changed %lu times\n",
           d->snap.slack.percent, d->snap.slack.steps);
    vp_say(t, "  novelty    %.0f %% of the last large requests had a new size\n", 100 * d->snap.slack.novelty);
    if (d->plan.used)
        vp_say(t, "  plan       %lu of %lu large requests had their places; %s made ahead, %s of it used\n",
               d->plan.placed, d->plan.requests, VP_SIZE(d->plan.made_bytes), VP_SIZE(d->plan.used_bytes));
    if (s->spared_bytes)
        vp_say(t, "  anew       %12s made anew so that no call took long; %s given back since\n",
               VP_SIZE(s->spared_bytes), VP_SIZE(s->returned_bytes));
}

static void text_obstacles(struct vp_text *t, const struct vp_dump_device *d) {
    const struct vp_digest *g = &d->digest;
    uint64_t asked = not_live(d), most = vp_dump_largest(d);
    if (asked <= most) {
        if (asked)
            vp_say(t, "\n  One request could get all that is not live: %s.\n", VP_SIZE(asked));
        else
            vp_say(t, "\n  Nothing is free.\n");
        return;
    }
    vp_say(t, "\n  What keeps one request from all that is not live, %s:\n", VP_SIZE(asked));
    for (int i = 0; i < VP_SNAP_WORST && g->worst[i].free; i++)
        vp_say(t, "    %12s are pinned in the chunk at 0x%llx, of %s, by %u live block%s\n", VP_SIZE(g->worst[i].free),
               g->worst[i].addr, VP_SIZE(g->worst[i].size), g->worst[i].blocks, g->worst[i].blocks == 1 ? "" : "s");
    for (int i = 0; i < VP_SNAP_WORST && g->waited[i].bytes; i++) {
        if (g->waited[i].stream)
            vp_say(t, "    %12s wait for stream %lu\n", VP_SIZE(g->waited[i].bytes), g->waited[i].stream);
        else
            vp_say(t, "    %12s wait for the end of a cudaFree\n", VP_SIZE(g->waited[i].bytes));
    }
}

static void text_counts(struct vp_text *t, const struct vp_dump_device *d) {
    struct vp_snap_kind kind;
    vp_say(t, "\n  chunks of       count   wholly free\n");
    for (size_t at = 0; vp_snapshot_kind(&d->snap, &at, &kind);)
        vp_say(t, "  %12s %8lu %13lu\n", VP_SIZE(kind.size), kind.count, kind.wholly_free);
    vp_say(t, "\n  sizes from live blocks        bytes free parts        bytes\n");
    for (int i = 0; i < 63; i++) {
        const struct vp_snap_sizes *s = &d->digest.sizes[i];
        if (s->live || s->free)
            vp_say(t, "  %12s %9lu %12s %10lu %12s\n", VP_SIZE(UINT64_C(1) << i), s->live, VP_SIZE(s->live_bytes),
                   s->free, VP_SIZE(s->free_bytes));
    }
}

static void text_region(struct vp_text *t, const struct vp_snapshot *snap, const struct vp_snap_region *r) {
    const uint64_t *waits = snap->waits.items;
    vp_say(t, "  0x%-16llx %12s  %-*s", r->addr, VP_SIZE(r->size), is_blank(r) ? 0 : 6, states[r->state]);
    if (r->state == VP_LIVE)
        vp_say(t, "  %zu bytes", r->asked);
    if (r->state == VP_BACKED)
        vp_say(t, "  for a cache");
    else if (!is_blank(r) && r->fresh)
        vp_say(t, "  fresh");
    else if (!is_blank(r) && r->stream)
        vp_say(t, "  stream %lu", r->stream);
    else if (!is_blank(r))
        vp_say(t, "  no stream");
    if (r->state < VP_LIVE && r->state != VP_HOLE)
        vp_say(t, ", %lu free%s since", r->age, r->age == 1 ? "" : "s");
    if (r->spilled)
        vp_say(t, ", spilled");
    for (uint32_t i = 0; i < r->waits; i++)
        if (waits[r->wait + i])
            vp_say(t, "%s stream %lu", i ? "," : "; waits for", waits[r->wait + i]);
        else
            vp_say(t, "%s a cudaFree", i ? "," : "; waits for");
    vp_say(t, "\n");
}

static void text_device(struct vp_text *t, const struct vp_dump_device *d) {
    const struct vp_snap_region *r = d->snap.regions.items;
    const struct vp_snap_space *s = d->snap.spaces.items, *last = s + d->snap.spaces.count;
    vp_say(t, "\ndevice %d\n", (int)d->snap.device);
    text_totals(t, d);
    text_obstacles(t, d);
    text_counts(t, d);
    vp_say(t, vp_stacks_wanted() ? "\n  held by\n" : "");
    vp_holders_say(t, d->snap.device, VP_HOLDERS_TOLD, HOLDER_FRAMES, "");
    for (size_t i = 0; i < d->snap.regions.count; i++) {
        if (s < last && r[i].addr == s->base) {
            vp_say(t, "\n  %s zone, for %s\n", zones[s->zone], zone_uses[s->zone]);
            s++;
        }
        text_region(t, &d->snap, &r[i]);
    }
}

int vp_dump_text(const struct vp_dump *dump, int device, int fd) {
    struct vp_text *t = vp_os_take(sizeof *t); /* the stack may be some KiB in all */
    if (!t)
        return -ENOMEM;
    t->fd = fd;
    vp_say_line(t, "vpool %s, dump %u of process %d (%.*s), %s, reason: %s, policy %s", VP_VERSION, dump->number,
                (int)getpid(), vp_utf8_fit(program_invocation_short_name, 64), program_invocation_short_name,
                now().text, vp_dump_reasons[dump->reason], vp_policy_name());
    if (dump->reason == VP_DUMP_OOM)
        vp_say(t, "out of memory: %zu bytes on device %d, stream %lu\n", dump->request.asked, (int)dump->request.device,
               dump->request.stream);
    for (int i = 0; i < VP_PASSED_COUNT; i++)
        if (atomic_load(&vp_state.passed[i]))
            vp_say(t, "passed on to CUDA: %s, %lu times\n", vp_passed_names[i], atomic_load(&vp_state.passed[i]));
    for (int i = 0; i < dump->count; i++)
        if (shown(&dump->device[i], device))
            text_device(t, &dump->device[i]);
    vp_ranges_say(t);
    vp_say_flush(t);
    const int err = t->error;
    vp_os_give(t, sizeof *t);
    return err;
}
