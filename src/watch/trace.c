/* Records the trace that `vpool replay` reads: a line for each allocation and free that is served, and lines for what
 * the pools hold, failures, stacks, marks and ranges. It has its own lock, the last in the order of locks: the fast
 * path calls it without the library's.
 *
 * A killed program keeps what it has recorded: see watch/journal.h. A forked child also has the mapping of its parent's
 * file, and drops it at once: it records to a file of its own, if the name differs (%p). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/trace.h"

#include "base/cancel.h"
#include "base/clock.h"
#include "base/output.h"
#include "pool/bare/bare.h"
#include "watch/journal.h"
#include "watch/stack_table.h"
#include "watch/watch.h"

#include <errno.h>
#include <string.h>

/* Digits that were written before and are often written again: neighbouring events have much in common. */
struct digits {
    uint64_t first, second; /* the numbers that they stand for */
    unsigned length;        /* 0: none yet */
    char text[32];          /* always copied whole, which is faster */
};

struct vp_lock vp_trace_guard;
static struct {
    struct vp_journal file;
    char name[VP_OPTION_TEXT + 16];
    bool tried, on;
    bool parents; /* the file of this name is a parent's */
    struct vp_clock clock;
    uint64_t begin;               /* by that clock: the time of the first record; 0: none yet */
    uint64_t now;                 /* if not 0: the time of what is being recorded, some time ago */
    struct digits size_stream[2]; /* of allocations, of frees */
    struct digits time;
    uint32_t modules, frames, stacks; /* how many of each table the file has */
} trace VP_GUARDED_BY(vp_trace_guard);

/* The last figures of each device in the trace. */
static struct {
    uint64_t held, calls, addressed;
} told[VP_DEVICES] VP_GUARDED;

static VP_REQUIRES(vp_trace_guard) void begin(void) {
    static const char header[VP_JOURNAL_LINE] = "op,id,size,stream,us\n";
    trace.tried = true;
    vp_cancel_hold(); /* files are opened, and lines written */
    if (!*vp_options()->trace)
        return;
    if (trace.parents && !strstr(vp_options()->trace, "%p")) {
        vp_log(VP_LOG_WARN,
               "VPOOL_TRACE: a forked child is not recorded (%%p, the process id, in the name gives it a file)");
        return;
    }
    int err = -ENAMETOOLONG;
    if (vp_output_name(trace.name, sizeof trace.name, vp_options()->trace, "phr%", 0, 0))
        err = vp_journal_open(&trace.file, trace.name);
    if (!err && !(err = vp_journal_append(&trace.file, header, strlen(header)))) {
        trace.on = true;
        trace.begin = 0;
        return;
    }
    const char *why = err == -EBUSY    ? "another process is recording to it (%p in a name is the process id)"
                      : err == -ENODEV ? "it is not a regular file"
                                       : vp_output_error(err);
    vp_log(VP_LOG_WARN, "VPOOL_TRACE: %s: %s; nothing is recorded", trace.name, why);
}

static inline unsigned count_digits(uint64_t n) {
    static const uint64_t powers[] = {1,
                                      10,
                                      100,
                                      1000,
                                      10000,
                                      100000,
                                      1000000,
                                      10000000,
                                      100000000,
                                      1000000000,
                                      10000000000,
                                      100000000000,
                                      1000000000000,
                                      10000000000000,
                                      100000000000000,
                                      1000000000000000,
                                      10000000000000000,
                                      100000000000000000,
                                      1000000000000000000,
                                      10000000000000000000u};
    /* The decimal logarithm from the binary one: 1233 / 4096 is about log10(2). */
    unsigned guess = (unsigned)(64 - __builtin_clzll(n | 1)) * 1233 >> 12;
    return guess + 1 - (n < powers[guess]) + !n;
}

static inline char *put_number(char *at, uint64_t n, char behind) {
    static const char pairs[] = "00010203040506070809101112131415161718192021222324"
                                "25262728293031323334353637383940414243444546474849"
                                "50515253545556575859606162636465666768697071727374"
                                "75767778798081828384858687888990919293949596979899";
    char *end = at + count_digits(n), *digit = end;
    for (; n >= 100; n /= 100)
        memcpy(digit -= 2, pairs + n % 100 * 2, 2);
    if (n >= 10)
        memcpy(digit - 2, pairs + n * 2, 2);
    else
        digit[-1] = (char)('0' + n);
    *end = behind;
    return end + 1;
}

/* Writes one or two numbers, then `behind`, and reuses the kept digits. `at` needs room for all of `text`. */
static inline __attribute__((always_inline)) char *put_kept(char *at, struct digits *kept, uint64_t first,
                                                            const uint32_t *second, char behind) {
    if (!kept->length || kept->first != first || (second && kept->second != *second)) {
        char *end = put_number(kept->text, kept->first = first, second ? ',' : behind);
        if (second)
            end = put_number(end, kept->second = *second, behind);
        kept->length = (unsigned)(end - kept->text);
    }
    memcpy(at, kept->text, sizeof kept->text);
    return at + kept->length;
}

static VP_REQUIRES(vp_trace_guard) uint64_t time_now(void) {
    uint64_t now = trace.now ? trace.now : vp_clock_often(&trace.clock);
    if (!trace.begin)
        trace.begin = now;
    return now > trace.begin ? (now - trace.begin) / 1000 : 0;
}

static VP_REQUIRES(vp_trace_guard) void append(const char *text, const char *end) {
    int err = vp_journal_append(&trace.file, text, (size_t)(end - text));
    if (err) {
        trace.on = false;
        vp_log(VP_LOG_WARN, "VPOOL_TRACE: the file cannot grow: %s; recording stops, the file is valid so far",
               err == -EBADF ? "the program has closed it" : strerror(-err));
    }
}

VP_NOT_ANALYSED /* who has the lock records */ const char *vp_trace_file(void) {
    const bool locked = vp_lock_for_a_while(&vp_trace_guard);
    const char *file = trace.on || !locked ? trace.name : NULL;
    if (locked)
        vp_lock_release(&vp_trace_guard);
    return file;
}

VP_NOT_ANALYSED /* it returns both ways */ bool vp_trace_lock(void) {
    if (!vp_state.recording || !*vp_options()->trace || !vp_process_is_marked())
        return false;
    vp_lock_take(&vp_trace_guard);
    if (!trace.tried)
        begin();
    if (trace.on)
        return true;
    vp_lock_release(&vp_trace_guard);
    return false;
}

void vp_trace_at(uint64_t ns) {
    trace.now = ns;
}

void vp_trace_unlock(void) {
    trace.now = 0;
    vp_lock_release(&vp_trace_guard);
}

/* ---- records ---- */

/* How many bytes of a line are reserved for the time. */
enum { TIME = 24 };

/* Writes as much of the text as there is room for, without cutting a character of UTF-8. Returns the rest. */
static const char *put_text(char **at, const char *end, const char *text) {
    static const char hex[] = "0123456789ABCDEF";
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (end - *at <= (c >= 0xc0 ? 6 : 3))
            break;
        if (c >= ' ' && c != 127 && !strchr(",\"%", c)) {
            *(*at)++ = *text;
            continue;
        }
        *(*at)++ = '%';
        *(*at)++ = hex[c >> 4];
        *(*at)++ = hex[c & 15];
    }
    return text;
}

void vp_trace_put(char op, struct vp_trace_field a, struct vp_trace_field b, struct vp_trace_field c) {
    struct vp_trace_field fields[] = {a, b, c};
    const uint64_t us = time_now();
    bool more = true;
    while (more && trace.on) {
        char text[VP_JOURNAL_LINE], *at = text;
        const char *rest = "";
        *at++ = op;
        *at++ = ',';
        for (int i = 0; i < 3; i++) {
            /* A number after the text takes at most as many bytes as the time. */
            const char *end = text + sizeof text - (4 - i) * TIME;
            if (!fields[i].text) {
                at = put_number(at, fields[i].number, ',');
                continue;
            }
            const char *left = put_text(&at, end, fields[i].text);
            *at++ = ',';
            if (*left)
                rest = left;
        }
        append(text, put_number(at, us, '\n'));
        more = *rest;
        op = '+';
        fields[0].text = fields[1].text = "";
        fields[2].text = rest;
    }
}

/* Writes what the tables have and the file has not, up to that stack: its parents and frames are older than it. */
static VP_REQUIRES(vp_trace_guard) void tell_stacks(uint32_t stack) {
    const uint32_t modules = vp_module_count(), frames = vp_frame_count();
    while (trace.modules < modules) {
        const uint32_t n = ++trace.modules;
        vp_trace_put('l', VP_TRACE_NUMBER(n), VP_TRACE_TEXT(vp_module(n)->build_id), VP_TRACE_TEXT(vp_module(n)->path));
    }
    while (trace.frames < frames) {
        const uint32_t n = ++trace.frames;
        const char kind[] = {(char)vp_frame(n)->kind, 0};
        vp_trace_put('n', VP_TRACE_NUMBER(n), VP_TRACE_TEXT(kind), VP_TRACE_TEXT(vp_frame(n)->label));
    }
    while (trace.stacks < stack) {
        const uint32_t n = ++trace.stacks;
        vp_trace_put('s', VP_TRACE_NUMBER(n), VP_TRACE_NUMBER(vp_stack_parent(n)), VP_TRACE_NUMBER(vp_stack_frame(n)));
    }
}

/* Allocations are numbered in each pool, so the upper bits hold the device. */
void vp_trace_event(char op, CUdevice device, uint64_t serial, size_t size, uint32_t stream, const uint32_t *stack) {
    char text[VP_JOURNAL_LINE], *at = text;
    if (!vp_trace_lock())
        return;
    if (stack && *stack > trace.stacks)
        tell_stacks(*stack);
    *at++ = op;
    *at++ = ',';
    at = put_number(at, (uint64_t)device << 48 | serial, ',');
    at = put_kept(at, &trace.size_stream[op == 'f'], op == 'f' ? 0 : size, &stream, ',');
    at = put_kept(at, &trace.time, time_now(), NULL, '\n');
    if (stack) {
        at[-1] = ',';
        at = put_number(at, *stack, '\n');
    }
    if (trace.on)
        append(text, at);
    vp_trace_unlock();
}

/* Writes a line of three numbers. False: nothing is recorded. */
static bool put_alone(char op, uint64_t a, uint64_t b, uint64_t c) {
    if (!vp_trace_lock())
        return false;
    vp_trace_put(op, VP_TRACE_NUMBER(a), VP_TRACE_NUMBER(b), VP_TRACE_NUMBER(c));
    vp_trace_unlock();
    return true;
}

/* The addresses of bare segments change when segments come and go. */
void vp_trace_held(void) {
    vp_pools_each(pool) {
        const CUdevice device = pool->mem.device;
        const struct vp_timeline_stats timelines = vp_state.timelines.stats[device];
        const uint64_t held = pool->mem.stats.held_bytes, calls = vp_stats_calls(&pool->mem.stats, &timelines);
        const uint64_t addressed = pool->bare ? pool->bare->addressed : 0;
        if (addressed != told[device].addressed &&
            put_alone('v', (uint64_t)device, addressed, (uint64_t)pool->mem.bare_segments))
            told[device].addressed = addressed;
        if ((held != told[device].held || calls != told[device].calls) &&
            put_alone('h', (uint64_t)device, held, calls)) {
            told[device].held = held;
            told[device].calls = calls;
        }
    }
}

void vp_trace_failure(CUdevice device, size_t size, uint32_t stream) {
    put_alone('x', (uint64_t)device, size, stream);
}

/* Other threads may still be running, or be stopped while they hold the lock. Then the file stays as a killed process
 * would leave it. */
void vp_trace_end(void) {
    if (!vp_state.recording || !vp_lock_for_a_while(&vp_trace_guard))
        return;
    if (trace.on) {
        trace.on = false;
        int err = vp_journal_close(&trace.file);
        /* A file that the program has closed is as intact as that of a program that was killed. */
        if (err && err != -EBADF)
            vp_log(VP_LOG_WARN, "VPOOL_TRACE: the file cannot be closed: %s", strerror(-err));
    }
    vp_lock_release(&vp_trace_guard);
}

/* ---- forks ---- */

VP_NOT_ANALYSED /* there is one thread */ void vp_trace_fork_child(void) {
    if (trace.on)
        (void)vp_journal_leave(&trace.file);
    trace.parents |= trace.on;
    trace.tried = trace.on = false;
}
