/* Copies by several threads: one alone does not keep up with a GPU's copy engine. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/crew.h"

#include <sched.h>
#include <signal.h>
#include <string.h>

/* Shares begin at multiples of this: two threads then never write one page. */
enum { PAGE = 4096 };

/* Less than this is not worth waking anybody. */
enum { ALONE = 1 << 20 };

static void copy_share(const struct vp_crew *crew, unsigned number) {
    size_t share = (crew->bytes / crew->count + PAGE - 1) / PAGE * PAGE, begin = share * number;
    size_t end = number + 1 == crew->count || begin + share > crew->bytes ? crew->bytes : begin + share;
    if (begin < end)
        memcpy(crew->to + begin, crew->from + begin, end - begin);
}

static void wait_for(sem_t *s) {
    while (sem_wait(s) < 0)
        continue;
}

static void *work(void *arg) {
    const struct vp_crew_place *place = arg;
    struct vp_crew *crew = place->crew;
    for (;;) {
        wait_for(&crew->begin[place->number]);
        if (!crew->from)
            return NULL;
        copy_share(crew, place->number);
        sem_post(&crew->done);
    }
}

static unsigned processors(void) {
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    return n > 0 ? (unsigned)n : 1;
}

void vp_crew_start(struct vp_crew *crew, unsigned most) {
    sigset_t all, before;
    unsigned want = processors();
    if (most > VP_CREW_MOST)
        most = VP_CREW_MOST;
    *crew = (struct vp_crew){.count = 1};
    sem_init(&crew->done, 0, 0);
    /* They take no signal of the program's. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (; crew->count < (want < most ? want : most); crew->count++) {
        unsigned i = crew->count;
        crew->place[i] = (struct vp_crew_place){crew, i};
        sem_init(&crew->begin[i], 0, 0);
        if (pthread_create(&crew->thread[i], NULL, work, &crew->place[i]))
            break;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void wake_all(struct vp_crew *crew) {
    for (unsigned i = 1; i < crew->count; i++)
        sem_post(&crew->begin[i]);
}

void vp_crew_copy(struct vp_crew *crew, void *to, const void *from, size_t bytes) {
    if (crew->count == 1 || bytes < ALONE) {
        memcpy(to, from, bytes);
        return;
    }
    crew->to = to;
    crew->from = from;
    crew->bytes = bytes;
    wake_all(crew);
    copy_share(crew, 0);
    for (unsigned i = 1; i < crew->count; i++)
        wait_for(&crew->done);
}

void vp_crew_stop(struct vp_crew *crew) {
    crew->from = NULL;
    wake_all(crew);
    for (unsigned i = 1; i < crew->count; i++)
        pthread_join(crew->thread[i], NULL);
    crew->count = 1;
}
