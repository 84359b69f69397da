/* What the race tests share: checks, and threads that set off together. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "race.h"

#include "process/state.h"

#include <stdio.h>
#include <stdlib.h>

static CUcontext context;

void race_check(bool condition, const char *text, const char *file, int line) {
    if (condition)
        return;
    fprintf(stderr, "%s:%d: %s: does not hold\n", file, line, text);
    abort();
}

void race_check_result(CUresult res, const char *text, const char *file, int line) {
    if (!res)
        return;
    fprintf(stderr, "%s:%d: %s: returned %d\n", file, line, text, (int)res);
    abort();
}

CUcontext race_context(void) {
    return context;
}

void race_open(const char *sim) {
    CHECK(!vp_sim_configure(sim));
    CHECK(!doors_open());
    CU(cuInit(0));
    CU(door_primary(&context, 0));
    CU(cuCtxSetCurrent(context));
}

struct racer {
    void (*run)(int index);
    int index;
    pthread_barrier_t *start;
};

static void *run(void *arg) {
    const struct racer *r = arg;
    if (context)
        CU(cuCtxSetCurrent(context));
    pthread_barrier_wait(r->start);
    r->run(r->index);
    return NULL;
}

void race_run(void (*racer)(int index)) {
    pthread_barrier_t start;
    pthread_t threads[RACERS];
    struct racer racers[RACERS];
    pthread_barrier_init(&start, NULL, RACERS);
    for (int i = 0; i < RACERS; i++) {
        racers[i] = (struct racer){racer, i, &start};
        CHECK(!pthread_create(&threads[i], NULL, run, &racers[i]));
    }
    for (int i = 0; i < RACERS; i++)
        CHECK(!pthread_join(threads[i], NULL));
    pthread_barrier_destroy(&start);
}

void race_close(void) {
    CHECK(vp_enter());
    for (int d = 0; d < VP_DEVICES; d++)
        CHECK(!vp_state.pools[d] || vp_pool_check(vp_state.pools[d], stderr));
    vp_leave();
    CHECK(!vp_sim_violations());
}
