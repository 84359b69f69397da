/* Recording: each allocation and free that is served, as a line of the trace that `vpool replay` reads;
 * and the program's own marks.
 * It has a lock of its own, the last that anybody takes: the fast path comes here without the library's.
 *
 * A program that is killed keeps what it recorded: see watch/journal.h. A forked child has the mapping of its parent's
 * file too, and leaves it at once: what it does itself goes into a file of its own, if the name makes one (%p).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "watch/watch.h"

#include "base/cancel.h"
#include "base/clock.h"
#include "watch/journal.h"
#include "base/output.h"

#include <errno.h>
#include <string.h>

/* Digits that were written before, and often are again: neighbouring events have much in common. */
struct digits {
    uint64_t first, second; /* the numbers that they stand for */
    unsigned length;        /* 0: none yet */
    char text[32];          /* copied whole, which is faster than as much as there is */
};

static struct {
    pthread_mutex_t lock; /* guards the others */
    struct vp_journal file;
    bool tried, on;
    bool parents; /* the file of this name is a parent's */
    struct vp_clock clock;
    uint64_t begin;               /* by that clock */
    struct digits size_stream[2]; /* of allocations, of frees */
    struct digits time;
} trace = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void begin(void) {
    static const char header[VP_JOURNAL_LINE] = "op,id,size,stream,us\n";
    char name[VP_OPTION_TEXT + 16];
    trace.tried = true;
    if (!*vp_options()->trace)
        return;
    if (trace.parents && !strstr(vp_options()->trace, "%p")) {
        vp_log(VP_LOG_WARN,
               "VPOOL_TRACE: a forked child is not recorded (%%p in the name, the process id, gives it a file)");
        return;
    }
    int err = -ENAMETOOLONG;
    if (vp_output_name(name, sizeof name, vp_options()->trace, "p", 0, 0))
        err = vp_journal_open(&trace.file, name);
    if (!err && !(err = vp_journal_append(&trace.file, header, strlen(header)))) {
        trace.on = true;
        trace.begin = vp_clock_often(&trace.clock);
        return;
    }
    const char *why = err == -EBUSY    ? "another process records to it (%p in a name is the process id)"
                      : err == -ENODEV ? "it is no regular file"
                                       : vp_output_error(err);
    vp_log(VP_LOG_WARN, "VPOOL_TRACE: %s: %s; nothing is recorded", name, why);
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
    /* The logarithm by ten from that by two: 1233 / 4096 is about log10(2). */
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

/* What is kept, put at `at`, where there is room for all of the text. */
static inline char *put_digits(char *at, const struct digits *kept) {
    memcpy(at, kept->text, sizeof kept->text);
    return at + kept->length;
}

static inline char *put_size_stream(char *at, struct digits *kept, uint64_t size, uint32_t stream) {
    if (!kept->length || kept->first != size || kept->second != stream) {
        kept->first = size;
        kept->second = stream;
        kept->length = (unsigned)(put_number(put_number(kept->text, size, ','), stream, ',') - kept->text);
    }
    return put_digits(at, kept);
}

static inline char *put_time(char *at, struct digits *kept, uint64_t us) {
    if (!kept->length || kept->first != us) {
        kept->first = us;
        kept->length = (unsigned)(put_number(kept->text, us, '\n') - kept->text);
    }
    return put_digits(at, kept);
}

/* The lock is held. False: nothing is recorded. */
static bool recording(void) {
    if (!trace.tried)
        begin();
    return trace.on;
}

/* Adds the time to a line of which `at` is the end, and appends it. The lock is held. */
static void append(char *text, char *at) {
    at = put_time(at, &trace.time, (vp_clock_often(&trace.clock) - trace.begin) / 1000);
    int err = vp_journal_append(&trace.file, text, (size_t)(at - text));
    if (err) {
        trace.on = false;
        vp_log(VP_LOG_WARN, "VPOOL_TRACE: the file cannot grow: %s; recording stops, what is in it is whole",
               strerror(-err));
    }
}

/* Allocations are numbered in each pool: the device in the upper bits keeps them apart. */
void vp_trace_event(char op, CUdevice device, uint64_t serial, size_t size, uint32_t stream) {
    char text[VP_JOURNAL_LINE], *at = text;
    if (!vp_process_is_marked())
        return;
    vp_cancel_hold();
    pthread_mutex_lock(&trace.lock);
    if (recording()) {
        *at++ = op;
        *at++ = ',';
        at = put_number(at, (uint64_t)device << 48 | serial, ',');
        at = put_size_stream(at, &trace.size_stream[op == 'f'], size, stream);
        append(text, at);
    }
    pthread_mutex_unlock(&trace.lock);
}

/* As much of a name as goes into the file; what separates fields and lines, and what a terminal might obey, becomes a
 * '_'. */
enum { MARK_NAME = 128 };

bool vp_trace_mark(const char *name) {
    char text[VP_JOURNAL_LINE], *at = text;
    int cancel;
    if (!vp_state.recording || !vp_process_is_marked())
        return false;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    pthread_mutex_lock(&trace.lock);
    bool on = recording();
    if (on) {
        *at++ = 'm';
        *at++ = ',';
        for (size_t i = 0; i < MARK_NAME && name[i]; i++) {
            unsigned char c = (unsigned char)name[i];
            *at++ = c < ' ' || c == 127 || c == ',' || c == '"' ? '_' : (char)c;
        }
        memcpy(at, ",0,0,", 5);
        append(text, at + 5);
        on = trace.on;
    }
    pthread_mutex_unlock(&trace.lock);
    pthread_setcancelstate(cancel, NULL);
    return on;
}

/* Other threads may still be at work, or be stopped under the lock. Without it the file stays as a killed
 * process would leave it. */
void vp_trace_end(void) {
    if (!vp_state.recording || !vp_lock_for_a_while(&trace.lock))
        return;
    if (trace.on) {
        trace.on = false;
        int err = vp_journal_close(&trace.file);
        if (err)
            vp_log(VP_LOG_WARN, "VPOOL_TRACE: the file cannot be closed: %s", strerror(-err));
    }
    pthread_mutex_unlock(&trace.lock);
}

/* ---- forks ---- */

void vp_trace_fork_prepare(void) {
    pthread_mutex_lock(&trace.lock);
}

void vp_trace_fork_parent(void) {
    pthread_mutex_unlock(&trace.lock);
}

void vp_trace_fork_child(void) {
    pthread_mutex_init(&trace.lock, NULL);
    if (trace.on)
        vp_journal_leave(&trace.file);
    trace.parents |= trace.begin != 0;
    trace.tried = trace.on = false;
}
