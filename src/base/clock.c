/* The clock: monotonic nanoseconds, and cheaper ways to read them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <pthread.h>
#include <stdbool.h>

int (*vp_clock_ask)(clockid_t, struct timespec *) = clock_gettime;
uint64_t (*vp_clock_modelled)(void);
/* The shortest nap takes the kernel about as long anyway. */
enum { NAP_NS = 50000 };

void vp_clock_nap(void) {
    int cancel;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    vp_clock_sleep(NAP_NS);
    pthread_setcancelstate(cancel, NULL);
}

#if defined(__x86_64__)

/* In ticks: the longest window; and how long reading both clocks may take, or it was interrupted. */
enum { WINDOW = 1 << 20, AT_ONCE = 4096 };

/* Looks further apart than this do not measure the pace, which would not fit. No counter ticks as seldom as TICK_NS. */
static const uint64_t LONG_NS = UINT32_MAX;
enum { TICK_NS = 4 };

uint64_t vp_clock_look(struct vp_clock *c) {
    uint64_t ticks = __builtin_ia32_rdtsc(), ns = vp_clock_ns();
    uint64_t passed = ticks - c->ticks, ns_passed = ns - c->ns;
    bool at_once = __builtin_ia32_rdtsc() - ticks < AT_ONCE;
    /* Two looks measure the pace well enough for twice the time between them. */
    bool known = at_once && c->ns && ns_passed < LONG_NS && ns_passed / TICK_NS < passed;
    c->window = !known ? 0 : passed < WINDOW / 2 ? 2 * passed : WINDOW;
    c->pace = known ? (ns_passed << 32) / passed : 0;
    c->ticks = ticks;
    c->ns = at_once ? ns : 0;
    return ns;
}

#endif
