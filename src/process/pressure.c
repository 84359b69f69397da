/* What the pool leaves to others: a limit to what it holds, and idle memory given back by time. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "process/state.h"

#include <signal.h>
#include <time.h>

size_t vp_pressure_limit(CUdevice dev) {
    uint64_t limit = vp_options()->limit;
    size_t total = 0;
    if (!limit || limit > 100)
        return limit;
    if (!vp_state.drv.cuDeviceTotalMem_v2 || vp_state.drv.cuDeviceTotalMem_v2(&total, dev)) {
        vp_log(VP_LOG_WARN, "VPOOL_LIMIT: the size of device %d is not to be had: no limit", (int)dev);
        return 0;
    }
    return total / 100 * limit;
}

/*
 * Of what is held, as much was needed in a period as was live at once in it. The rest lay idle from its beginning to
 * its end.
 */
void vp_pressure_tick(void) {
    if (atomic_load(&vp_state.timelines.captures))
        return;
    for (int dev = 0; dev < VP_DEVICES; dev++) {
        struct vp_pool *pool = vp_state.pools[dev];
        if (!pool)
            continue;
        vp_pool_trim(pool, pool->recent_peak);
        pool->recent_peak = vp_pool_stats(pool).live_bytes;
    }
}

static atomic_bool stopped;

void vp_pressure_stop(void) {
    atomic_store(&stopped, true);
}

static void *watch(void *unused) {
    (void)unused;
    for (;;) {
        nanosleep(&(struct timespec){.tv_sec = (time_t)vp_options()->idle_trim}, NULL);
        if (!vp_enter())
            return NULL;
        /* CUDA may be gone by the time that this is set. */
        if (!atomic_load(&stopped))
            vp_pressure_tick();
        vp_leave();
    }
}

/* The thread is the only one of this library. It takes no signal of the program's, and ends with the process. */
void vp_pressure_start(void) {
    static bool started;
    sigset_t all, before;
    pthread_t thread;
    if (!vp_options()->idle_trim || started)
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    started = pthread_create(&thread, NULL, watch, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started)
        pthread_detach(thread);
    else
        vp_log(VP_LOG_WARN, "VPOOL_IDLE_TRIM: no thread is to be had: idle memory stays");
}
