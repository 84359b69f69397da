/* A few threads that share one piece of work after another, for as long as one call of the library lasts. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum { VP_CREW_MOST = 16 };

/* Does the part [begin, end) of the work. */
typedef void vp_crew_share(void *arg, size_t begin, size_t end);

struct vp_crew {
    unsigned count; /* threads, the caller included */
    pthread_t thread[VP_CREW_MOST];
    sem_t begin, done;
    vp_crew_share *share; /* NULL: the threads shall end */
    void *arg;
    size_t bytes;
    atomic_uint next; /* the next part to be taken */
};

/* Starts as many threads as the process has processors, at most `most` with the caller. Works with the caller alone,
 * too. */
void vp_crew_start(struct vp_crew *crew, unsigned most);
/* Splits `bytes` among the threads; returns when all parts are done. */
void vp_crew_each(struct vp_crew *crew, size_t bytes, vp_crew_share *share, void *arg);
/* Copies, with all threads. `past_caches`: the copy will not be read soon. */
void vp_crew_copy(struct vp_crew *crew, void *to, const void *from, size_t bytes, bool past_caches);
void vp_crew_stop(struct vp_crew *crew);
