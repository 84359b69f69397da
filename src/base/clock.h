/* The clock: nanoseconds that never go back, and cheap looks at it. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>
#include <time.h>

/* Where the time is asked for: libc's clock_gettime(), for the library as it is loaded libc's own. One that stands
 * before it, as libfaketime's, may stand still, and what is bounded by time would last for ever. */
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

/* The same to some milliseconds, as of the system's last tick: it costs no look at a counter. */
static inline uint64_t vp_clock_coarse_ns(void) {
    return vp_clock_by(CLOCK_MONOTONIC_COARSE);
}

/* Seconds since 1970, as files have them. */
static inline time_t vp_clock_date(void) {
    return (time_t)(vp_clock_by(CLOCK_REALTIME) / 1000000000u);
}

/* The time by which waits of the host are bounded: the same, unless somebody models it (vpool replay --lag). For those
 * waits alone, never for a path that is to be quick. Set while nobody else runs. */
extern uint64_t (*vp_clock_modelled)(void);

static inline uint64_t vp_clock_wait_ns(void) {
    return vp_clock_modelled ? vp_clock_modelled() : vp_clock_ns();
}

/* The same time for who looks often: about 10 ns a call where programs may read the processor's counter of ticks, else
 * no less. That counter is trusted for less than a millisecond after a look at the clock itself, which also tells how
 * long a tick is: one that jumps, changes its pace or differs from core to core makes it wrong by some milliseconds at
 * most. It never runs backwards. All zero at first. Not thread-safe; the owner locks. */
struct vp_clock {
    uint64_t ticks, ns; /* when the clock itself was looked at; ns 0: never, or it cannot be told when */
    uint64_t pace;      /* nanoseconds a tick, times 2^32 */
    uint64_t window;    /* for so many ticks from then on it will do */
    uint64_t last;      /* what was last returned */
};

/* Lets other threads run, those of lower priority too. No point of cancellation: the caller may be holding something
 * up. */
void vp_clock_nap(void);

/* Sleeps for so long, less than a second: a point of cancellation. */
static inline void vp_clock_sleep(uint64_t ns) {
    nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
}

/* Looks at the clock itself; where there is such a counter. */
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
