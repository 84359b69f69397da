/* The modelled GPU of a replay: how far it lags, and what waits cost. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/replay/model.h"

#include "base/clock.h"

#include <dlfcn.h>
#include <errno.h>

/* How many times longer kernels run than it takes to queue them: in training steps some five to twenty times. */
enum { HOST_SHARE = 8 };

/* The longest time between two events that counts as work and not as a pause; and the work of each event in a trace
 * without times. */
static const uint64_t WORK_MOST = 1000000000;
enum { WORK_UNKNOWN = 10000 };

int vp_model_open(struct vp_model *m, void *driver) {
#define SYMBOL(field, name)                                                                                            \
    if (!(*(void **)&m->field = dlsym(driver, name)))                                                                  \
    return -ENOSYS
    SYMBOL(start, "vp_sim_time_start");
    SYMBOL(now, "vp_sim_now");
    SYMBOL(advance, "vp_sim_advance");
    SYMBOL(kernel, "vp_sim_kernel");
    SYMBOL(follow, "vp_sim_follow");
    SYMBOL(next_completion, "vp_sim_next_completion");
    SYMBOL(idle_at, "vp_sim_idle_at");
    SYMBOL(cost, "vp_sim_cost_ns");
#undef SYMBOL
    return 0;
}

/* ---- the program ---- */

/* Returns how long the program worked between event `i` and the next, in nanoseconds. */
static uint64_t work_ns(const struct vp_model *m, size_t i) {
    const struct vp_trace *t = m->trace;
    if (m->each)
        return m->each;
    uint64_t us = i + 1 < t->count ? t->events[i + 1].us - t->events[i].us : 0;
    return us > WORK_MOST / 1000 ? WORK_MOST : us * 1000;
}

/* Has the trace no times? Made-up traces number their lines, and logs without a clock say 0 everywhere. */
static bool without_times(const struct vp_trace *t) {
    bool zero = true, numbered = true;
    for (size_t i = 0; i < t->count; i++) {
        zero &= t->events[i].us == 0;
        numbered &= t->events[i].us == i;
    }
    return zero || numbered;
}

void vp_model_begin(struct vp_model *m, const struct vp_trace *trace, const CUstream *streams, uint64_t lag_ns,
                    uint64_t each_ns) {
    m->trace = trace;
    m->streams = streams;
    m->lag = lag_ns;
    m->each = each_ns ? each_ns : without_times(trace) ? WORK_UNKNOWN : 0;
    m->no_waits = m->free_calls = (struct vp_shadow){0};
    m->on = true;
    m->pausing = false;
    m->start();
    m->cost_seen = m->cost();
    vp_clock_modelled = m->now;
}

void vp_model_finish(struct vp_model *m) {
    vp_clock_modelled = NULL;
    m->on = false;
}

/* ---- events ---- */

/* How long the host must wait until the work before it takes no longer than the lag. */
static uint64_t too_far(uint64_t now, uint64_t idle, uint64_t lag) {
    return idle > now + lag ? idle - lag - now : 0;
}

static void shadow_before(struct vp_shadow *s, uint64_t host, uint64_t lag) {
    s->now += host;
    s->now += too_far(s->now, s->idle, lag);
}

/* Replays the program's own waits between the last event and this one. */
static void follow(struct vp_model *m, size_t i) {
    const struct vp_trace_order *all = m->trace->orders.items;
    if (!i)
        m->order = 0;
    for (; m->order < m->trace->orders.count && all[m->order].at <= i; m->order++)
        m->follow(m->streams[all[m->order].stream], m->streams[all[m->order].other]);
}

void vp_model_before(struct vp_model *m, size_t i) {
    if (!m->on)
        return;
    follow(m, i);
    uint64_t host = work_ns(m, i) / HOST_SHARE;
    m->advance(host);
    m->advance(too_far(m->now(), m->idle_at(), m->lag));
    shadow_before(&m->no_waits, host, m->lag);
    shadow_before(&m->free_calls, host, m->lag);
}

static void shadow_kernel(struct vp_shadow *s, uint64_t ns) {
    s->idle = (s->idle > s->now ? s->idle : s->now) + ns;
}

/* Counts driver calls as time that passes with or without waits, except those that a wait consists of, between two
 * pauses. */
static void shadow_calls(struct vp_model *m) {
    uint64_t cost = m->cost();
    if (!m->pausing)
        m->no_waits.now += cost - m->cost_seen;
    m->cost_seen = cost;
}

void vp_model_after(struct vp_model *m, size_t i, CUstream stream) {
    if (!m->on)
        return;
    uint64_t ns = work_ns(m, i);
    m->pausing = false;
    shadow_calls(m);
    if (!ns)
        return;
    m->kernel(stream, ns);
    shadow_kernel(&m->no_waits, ns);
    shadow_kernel(&m->free_calls, ns);
}

void vp_model_end(struct vp_model *m) {
    if (!m->on)
        return;
    shadow_calls(m);
    m->advance(too_far(m->now(), m->idle_at(), 0));
    shadow_before(&m->no_waits, 0, 0);
    shadow_before(&m->free_calls, 0, 0);
}

/* ---- waits of the pool's ---- */

/* How often a waiting host looks. */
enum { LOOK_NS = 50000 };

void vp_model_pause(struct vp_model *m) {
    shadow_calls(m);
    m->pausing = true;
    uint64_t next = m->next_completion(), now = m->now();
    m->advance(next > now && next - now < LOOK_NS ? next - now : LOOK_NS);
}

uint64_t vp_model_lost(const struct vp_model *m) {
    uint64_t now = m->now();
    return now > m->no_waits.now ? now - m->no_waits.now : 0;
}

uint64_t vp_model_lost_in_calls(const struct vp_model *m) {
    return m->no_waits.now - m->free_calls.now;
}
