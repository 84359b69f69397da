/* The clock: monotonic nanoseconds, and cheaper ways to read them. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>
#include <time.h>

/* The function that reads the time: clock_gettime(), which in the loaded library is libc's own. One interposed before
 * it, like libfaketime's, may stand still, and whatever is bounded by time would then last for ever. */
extern int (*vp_clock_ask)(clockid_t, struct timespec *);

/* In nanoseconds. */
static inline uint64_t vp_clock_by(clockid_t clock) {
    struct timespec t;
    vp_clock_ask(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Monotonic time in nanoseconds; about 25 ns a call. */
static inline uint64_t vp_clock_ns(void) {
    return vp_clock_by(CLOCK_MONOTONIC);
}

/* The same, a few milliseconds behind: as of the system's last tick, without reading a counter. */
static inline uint64_t vp_clock_coarse_ns(void) {
    return vp_clock_by(CLOCK_MONOTONIC_COARSE);
}

/* Seconds since 1970, as files have them. */
static inline time_t vp_clock_date(void) {
    return (time_t)(vp_clock_by(CLOCK_REALTIME) / 1000000000u);
}

/* The time that bounds waits of the host: real time, unless a replay models it (vpool replay --lag). Only for those
 * waits, never on a fast path. Set while no other thread runs. */
extern uint64_t (*vp_clock_modelled)(void);

static inline uint64_t vp_clock_wait_ns(void) {
    return vp_clock_modelled ? vp_clock_modelled() : vp_clock_ns();
}

/* The same time for callers that read it often: about 10 ns a call where programs may read the processor's tick
 * counter. The counter is trusted for less than a millisecond after each look at the real clock, which also measures
 * the tick: a counter that jumps, changes its pace or differs between cores is wrong by a few milliseconds at most.
 * Never runs backwards. All zero at first. Not thread-safe; the owner locks. */
struct vp_clock {
    uint64_t ticks, ns; /* when the real clock was last read; ns 0: never, or the reading was interrupted */
    uint64_t pace;      /* nanoseconds a tick, times 2^32 */
    uint64_t window;    /* ticks from then on for which this will do */
    uint64_t last;      /* the last result */
};

/* Lets other threads run, even those of lower priority. No cancellation point: the caller may hold a lock. */
void vp_clock_nap(void);

/* Sleeps for `ns` nanoseconds, less than a second. A cancellation point. */
static inline void vp_clock_sleep(uint64_t ns) {
    nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
}

/* Reads the real clock, where there is a tick counter. */
uint64_t vp_clock_look(struct vp_clock *c);

static inline uint64_t vp_clock_often(struct vp_clock *c) {
#if defined(__x86_64__)
    uint64_t passed = __builtin_ia32_rdtsc() - c->ticks;
    uint64_t ns = passed < c->window ? c->ns + (passed * c->pace >> 32) : vp_clock_look(c);
#else
    uint64_t ns = vp_clock_ns();
#endif
    if (ns > c->last)
        c->last = ns;
    return c->last;
}
