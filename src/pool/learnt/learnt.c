/* The text form of what a run has learnt, written and read: see learnt.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/learnt/learnt.h"

#include "memory/memory.h"
#include "base/os_memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const zones[VP_ZONES] = {"small", "large", "bare"};

uint64_t vp_learnt_hash(uint64_t from, const char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        from = (from ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
    return from;
}

/* ---- reading ---- */

struct reader {
    struct vp_learnt *out;
    struct vp_learnt_device *device; /* whose part is being read; NULL: none yet */
    const char *at, *end;            /* the rest of the line, without its newline */
    const char *why;                 /* what is wrong; NULL: nothing so far */
    uint64_t mapped_again;
    size_t slots_left, runs_left, agains_left; /* room behind the device's last ones */
};

static void wrong(struct reader *r, const char *why) {
    if (!r->why)
        r->why = why;
}

/* Skips `word` if the line goes on with it. */
static bool skip(struct reader *r, const char *word) {
    size_t n = strlen(word);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0)
        return false;
    r->at += n;
    return true;
}

static uint64_t number(struct reader *r, uint64_t most) {
    const char *from = r->at;
    uint64_t n = 0;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, (uint64_t)(*r->at - '0'), &n))
            n = UINT64_MAX;
    if (r->at == from)
        wrong(r, "a number is missing");
    else if (n > most)
        wrong(r, "a number is too large");
    return r->why ? 0 : n;
}

/* Reads the next number of a line, behind a comma. */
static uint64_t next(struct reader *r, uint64_t most) {
    if (!skip(r, ","))
        wrong(r, "a field is missing");
    return r->why ? 0 : number(r, most);
}

static int digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void text(struct reader *r, char to[VP_LEARNT_TEXT]) {
    size_t n = 0;
    if (!skip(r, ","))
        wrong(r, "a field is missing");
    while (!r->why && r->at < r->end && *r->at != ',') {
        int c = (unsigned char)*r->at++;
        if (c == '%') {
            int high = r->end - r->at >= 2 ? digit(r->at[0]) : -1, low = high < 0 ? -1 : digit(r->at[1]);
            c = low < 0 ? 0 : high * 16 + low;
            r->at += low < 0 ? 0 : 2;
        }
        if (!c || n + 1 == VP_LEARNT_TEXT)
            wrong(r, c ? "a name is too long" : "a name is not text");
        else
            to[n++] = (char)c;
    }
    to[n] = 0;
}

static uint64_t hexadecimal(struct reader *r) {
    uint64_t n = 0;
    if (r->end - r->at != 16)
        wrong(r, "16 hexadecimal digits are wanted");
    for (; !r->why && r->at < r->end; r->at++) {
        int d = digit(*r->at);
        if (d < 0)
            wrong(r, "16 hexadecimal digits are wanted");
        n = n << 4 | (unsigned)d;
    }
    return n;
}

/* Begins a device. Its arrays grow behind those of the one before. */
static void read_device(struct reader *r) {
    struct vp_learnt *out = r->out;
    if (out->device_count == VP_LEARNT_DEVICES) {
        wrong(r, "too many devices");
        return;
    }
    struct vp_learnt_device *d = &out->device[out->device_count], *before = r->device;
    d->runs = before ? before->runs + before->run_count : out->device[0].runs;
    d->slots = before ? before->slots + before->slot_count : out->device[0].slots;
    d->requests = before ? before->requests + before->request_count : out->device[0].requests;
    d->agains = before ? before->agains + before->again_count : out->device[0].agains;
    d->windows = before ? before->windows + before->window_count : out->device[0].windows;
    d->device = (unsigned)next(r, 63);
    text(r, d->name);
    d->memory = next(r, VP_LEARNT_MOST);
    d->driver = (unsigned)next(r, 1000000);
    d->granularity = next(r, UINT64_C(1) << 40);
    if (!r->why && (d->granularity < VP_QUANTUM || d->granularity & (d->granularity - 1)))
        wrong(r, "the granularity is no power of two");
    for (unsigned i = 0; i < out->device_count && !r->why; i++)
        if (out->device[i].device == d->device)
            wrong(r, "a device comes twice");
    out->device_count++;
    r->device = d;
    r->mapped_again = 0;
}

static void read_peak(struct reader *r) {
    r->device->peak_live = next(r, VP_LEARNT_MOST);
    r->device->peak_held = next(r, VP_LEARNT_MOST);
    r->device->total_requests = next(r, UINT64_MAX);
}

static void read_left(struct reader *r) {
    r->device->left = true;
}

/* Checks handles side by side, at their offset and at `other`. `many`: there are more than may be listed. `before`:
 * when those of the line before are needed. */
static void check_handles(struct reader *r, const struct vp_learnt_run *run, uint64_t other, bool many,
                          uint32_t before) {
    const uint64_t g = r->device->granularity, far = vp_greater(run->offset, other);
    if (r->why)
        return;
    if (!run->count || !run->size || run->size % g || run->offset % g || other % g)
        wrong(r, "handles are whole granules");
    else if (run->size > VP_LEARNT_MOST / run->count || far > VP_LEARNT_MOST - run->size * run->count)
        wrong(r, "handles lie too far out");
    else if (many)
        wrong(r, "too many handles");
    else if (before > run->need)
        wrong(r, "handles are in no order");
}

static void read_run(struct reader *r) {
    struct vp_learnt_device *d = r->device;
    struct vp_learnt_run run = {.zone = VP_ZONES};
    if (!skip(r, ","))
        wrong(r, "a field is missing");
    for (uint8_t z = 0; z < VP_ZONES && run.zone == VP_ZONES; z++)
        if (skip(r, zones[z]))
            run.zone = z;
    if (run.zone == VP_ZONES)
        wrong(r, "there is no such zone");
    run.offset = next(r, VP_LEARNT_MOST);
    run.size = next(r, VP_LEARNT_MOST);
    run.count = (uint32_t)next(r, VP_LEARNT_HANDLES);
    run.need = (uint32_t)next(r, UINT32_MAX);
    d->handle_count += run.count;
    check_handles(r, &run, run.offset,
                  d->handle_count > VP_LEARNT_HANDLES || d->run_count == VP_LEARNT_RUNS || !r->runs_left,
                  d->run_count ? d->runs[d->run_count - 1].need : 0);
    if (r->why)
        return;
    d->runs[d->run_count++] = run;
    r->runs_left--;
}

static void read_again(struct reader *r) {
    struct vp_learnt_device *d = r->device;
    const struct vp_learnt_again again = {.from = next(r, VP_LEARNT_MOST),
                                          .to = next(r, VP_LEARNT_MOST),
                                          .size = next(r, VP_LEARNT_MOST),
                                          .count = (uint32_t)next(r, VP_LEARNT_HANDLES),
                                          .need = (uint32_t)next(r, UINT32_MAX)};
    const struct vp_learnt_run made = {again.from, again.size, again.count, again.need, VP_ZONE_BARE};
    r->mapped_again += again.count;
    check_handles(r, &made, again.to,
                  r->mapped_again > VP_LEARNT_HANDLES || d->again_count == VP_LEARNT_AGAINS || !r->agains_left,
                  d->again_count ? d->agains[d->again_count - 1].need : 0);
    if (r->why)
        return;
    d->agains[d->again_count++] = again;
    r->agains_left--;
}

static void read_windows(struct reader *r) {
    struct vp_learnt_device *d = r->device;
    do {
        const uint32_t window = (uint32_t)next(r, UINT32_MAX);
        if (!r->why && d->window_count == VP_LEARNT_WINDOWS)
            wrong(r, "too many windows");
        if (!r->why)
            d->windows[d->window_count++] = window;
    } while (!r->why && r->at < r->end);
}

static void read_slot(struct reader *r) {
    struct vp_learnt_device *d = r->device;
    const struct vp_learnt_slot slot = {
        .size = next(r, VP_LEARNT_MOST), .offset = next(r, VP_LEARNT_MOST), .alone = next(r, 1)};
    if (r->why)
        return;
    if (!slot.size || slot.size % VP_QUANTUM || slot.offset % VP_QUANTUM ||
        (slot.alone && (slot.size % d->granularity || slot.offset % d->granularity)))
        wrong(r, "a place is whole 512 bytes");
    else if (slot.offset > VP_LEARNT_MOST - slot.size)
        wrong(r, "a place lies too far out");
    else if (d->slot_count == VP_LEARNT_SLOTS || !r->slots_left)
        wrong(r, "too many places");
    if (r->why)
        return;
    d->slots[d->slot_count++] = slot;
    r->slots_left--;
}

static void read_requests(struct reader *r) {
    struct vp_learnt_device *d = r->device;
    do {
        const uint64_t first = next(r, UINT32_MAX), last = skip(r, "-") ? number(r, UINT32_MAX) : first;
        if (r->why)
            return;
        if (last < first || last >= d->slot_count)
            wrong(r, "there is no such place");
        else if (last - first >= VP_LEARNT_REQUESTS - d->request_count)
            wrong(r, "too many requests");
        for (uint64_t slot = first; slot <= last && !r->why; slot++)
            d->requests[d->request_count++] = (uint32_t)slot;
    } while (!r->why && r->at < r->end);
}

/* Reads a line of a kind that may stand anywhere between the first and the last. */
static void read_line(struct reader *r) {
    static const struct {
        const char *word;
        void (*read)(struct reader *r);
    } lines[] = {{"peak", read_peak},  {"left", read_left}, {"h", read_run},    {"s", read_slot},
                 {"q", read_requests}, {"a", read_again},   {"w", read_windows}};
    const size_t count = sizeof lines / sizeof *lines;
    if (memchr(r->at, 0, (size_t)(r->end - r->at))) {
        wrong(r, "a zero byte");
    } else if (skip(r, "made")) {
        text(r, r->out->made);
        text(r, r->out->program);
    } else if (skip(r, "key,")) {
        r->out->key = hexadecimal(r);
    } else if (skip(r, "device")) {
        read_device(r);
    } else {
        size_t i = 0;
        while (i < count && !skip(r, lines[i].word))
            i++;
        if (i == count || !r->device)
            wrong(r, i == count ? "an unknown line" : "a device is missing");
        else
            lines[i].read(r);
    }
    if (r->at < r->end)
        wrong(r, "something stands behind the last field");
}

/* Each line takes some bytes, which bounds the number of each kind. */
enum { RUN_LINE = 14, SLOT_LINE = 8, AGAIN_LINE = 12 };

static int make_room(struct vp_learnt *out, size_t length, struct reader *r) {
    r->runs_left = length / RUN_LINE + 1;
    r->slots_left = length / SLOT_LINE + 1;
    r->agains_left = length / AGAIN_LINE + 1;
    const size_t runs = r->runs_left * sizeof(struct vp_learnt_run),
                 slots = r->slots_left * sizeof(struct vp_learnt_slot),
                 agains = r->agains_left * sizeof(struct vp_learnt_again),
                 requests = (size_t)VP_LEARNT_DEVICES * VP_LEARNT_REQUESTS * sizeof(uint32_t),
                 windows = (size_t)VP_LEARNT_DEVICES * VP_LEARNT_WINDOWS * sizeof(uint32_t);
    out->mem_bytes = runs + slots + agains + requests + windows;
    char *mem = vp_os_take_sparse(out->mem_bytes);
    if (!mem)
        return -ENOMEM;
    out->mem = mem;
    out->device[0].runs = (void *)mem;
    out->device[0].slots = (void *)(mem + runs);
    out->device[0].agains = (void *)(mem + runs + slots);
    out->device[0].requests = (void *)(mem + runs + slots + agains);
    out->device[0].windows = (void *)(mem + runs + slots + agains + requests);
    return 0;
}

static int first_line(struct reader *r) {
    if (!skip(r, VP_LEARNT_MAGIC)) {
        wrong(r, "this is no plan that a run has learnt");
        return -EINVAL;
    }
    const uint64_t version = number(r, UINT32_MAX);
    if (!r->why && version > VP_LEARNT_VERSION) {
        wrong(r, "it is of a newer version of vpool");
        return -EPROTO;
    }
    if (!version || r->at < r->end)
        wrong(r, "the version is damaged");
    return r->why ? -EINVAL : 0;
}

static void last_line(struct reader *r, const char *begin, const char *line, const char *behind) {
    const uint64_t hash = hexadecimal(r);
    if (!r->why && hash != vp_learnt_hash(VP_LEARNT_HASH, begin, (size_t)(line - begin)))
        wrong(r, "it is damaged: its hash is another");
    if (behind != r->end + 1)
        wrong(r, "something stands behind its end");
}

int vp_learnt_parse(const char *begin, size_t length, struct vp_learnt *out, const char **why, unsigned *line) {
    struct reader r = {.out = out};
    const char *const stop = begin + length;
    bool ended = false;
    int err = 0;
    *out = (struct vp_learnt){0};
    *line = 0;
    if (length <= VP_LEARNT_BYTES && (err = make_room(out, length, &r)))
        return err;
    if (length > VP_LEARNT_BYTES)
        wrong(&r, "it is too long");
    for (const char *at = begin; at < stop && !ended && !r.why; at = r.end + 1) {
        r.at = at;
        r.end = memchr(at, '\n', (size_t)(stop - at));
        ++*line;
        if (!r.end) {
            wrong(&r, "it is cut off");
            break;
        }
        if (*line == 1)
            err = first_line(&r);
        else if ((ended = skip(&r, "end,")))
            last_line(&r, begin, at, stop);
        else
            read_line(&r);
    }
    if (!ended)
        wrong(&r, "it is cut off");
    *why = r.why;
    if (r.why)
        vp_learnt_finish(out);
    return err == -EPROTO ? err : r.why ? -EINVAL : 0;
}

void vp_learnt_finish(struct vp_learnt *learnt) {
    if (learnt->mem)
        vp_os_give(learnt->mem, learnt->mem_bytes);
    *learnt = (struct vp_learnt){0};
}

void vp_learnt_add_run(struct vp_learnt_device *device, uint8_t zone, uint64_t offset, uint64_t size, uint32_t need) {
    struct vp_learnt_run *last = device->run_count ? &device->runs[device->run_count - 1] : NULL;
    if (device->handle_count++ >= VP_LEARNT_HANDLES)
        return;
    if (last && last->zone == zone && last->size == size && last->offset + last->size * last->count == offset &&
        last->need == need)
        last->count++;
    else if (device->run_count < VP_LEARNT_RUNS)
        device->runs[device->run_count++] = (struct vp_learnt_run){offset, size, 1, need, zone};
}

/* ---- writing ---- */

struct writer {
    char *text;
    size_t used;
    bool full;
};

static void put(struct writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct writer *w, const char *format, ...) {
    const size_t room = VP_LEARNT_BYTES - w->used;
    va_list args;
    va_start(args, format);
    const int n = w->full ? -1 : vsnprintf(w->text + w->used, room, format, args);
    va_end(args);
    w->full |= n < 0 || (size_t)n >= room;
    w->used += w->full ? 0 : (size_t)n;
}

static void put_text(struct writer *w, const char *name) {
    put(w, ",");
    for (; *name; name++)
        if ((unsigned char)*name <= ' ' || (unsigned char)*name >= 127 || *name == '%' || *name == ',')
            put(w, "%%%02x", (unsigned char)*name);
        else
            put(w, "%c", *name);
}

/* Requests on one line. */
enum { IN_LINE = 32 };

static void put_requests(struct writer *w, const struct vp_learnt_device *d) {
    unsigned in_line = 0;
    for (size_t i = 0, last; i < d->request_count; i = last + 1) {
        for (last = i; last + 1 < d->request_count && d->requests[last + 1] == d->requests[last] + 1; last++)
            continue;
        put(w, "%s,%" PRIu32, in_line ? "" : "q", d->requests[i]);
        if (last > i)
            put(w, "-%" PRIu32, d->requests[last]);
        in_line = (in_line + 1) % IN_LINE;
        if (!in_line)
            put(w, "\n");
    }
    if (in_line)
        put(w, "\n");
}

static void put_device(struct writer *w, const struct vp_learnt_device *d) {
    put(w, "device,%u", d->device);
    put_text(w, d->name);
    put(w, ",%" PRIu64 ",%u,%" PRIu64 "\n", d->memory, d->driver, d->granularity);
    put(w, "peak,%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n", d->peak_live, d->peak_held, d->total_requests);
    if (d->left)
        put(w, "left\n");
    for (size_t i = 0; i < d->run_count; i++)
        put(w, "h,%s,%" PRIu64 ",%" PRIu64 ",%" PRIu32 ",%" PRIu32 "\n", zones[d->runs[i].zone], d->runs[i].offset,
            d->runs[i].size, d->runs[i].count, d->runs[i].need);
    for (size_t i = 0; i < d->again_count; i++)
        put(w, "a,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu32 ",%" PRIu32 "\n", d->agains[i].from, d->agains[i].to,
            d->agains[i].size, d->agains[i].count, d->agains[i].need);
    for (size_t i = 0; i < d->window_count; i++)
        put(w, "%s,%" PRIu32 "%s", i % IN_LINE ? "" : "w", d->windows[i],
            i % IN_LINE == IN_LINE - 1 || i + 1 == d->window_count ? "\n" : "");
    for (size_t i = 0; i < d->slot_count; i++)
        put(w, "s,%" PRIu64 ",%" PRIu64 ",%d\n", d->slots[i].size, d->slots[i].offset, d->slots[i].alone);
    put_requests(w, d);
}

size_t vp_learnt_print(const struct vp_learnt *learnt, char *to) {
    struct writer w = {.text = to};
    put(&w, VP_LEARNT_MAGIC "%d\nmade", VP_LEARNT_VERSION);
    put_text(&w, learnt->made);
    put_text(&w, learnt->program);
    put(&w, "\nkey,%016" PRIx64 "\n", learnt->key);
    for (unsigned i = 0; i < learnt->device_count; i++)
        put_device(&w, &learnt->device[i]);
    put(&w, "end,%016" PRIx64 "\n", vp_learnt_hash(VP_LEARNT_HASH, to, w.used));
    return w.full ? 0 : w.used;
}
