/* A few threads that do one thing together, again and again: for as long as one call of the library lasts. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum { VP_CREW_MOST = 16 };

/* One thread's part, of a whole of which it begins and ends there. */
typedef void vp_crew_share(void *arg, size_t begin, size_t end);

struct vp_crew {
    unsigned count; /* of threads, the caller's included */
    pthread_t thread[VP_CREW_MOST];
    sem_t begin, done;
    vp_crew_share *share; /* NULL: the threads are to end */
    void *arg;
    size_t bytes;
    atomic_uint next; /* the share that nobody has yet */
};

/* As many as the machine has processors for, at most `most`: with none but the caller it works as well. */
void vp_crew_start(struct vp_crew *crew, unsigned most);
/* Each does its part of `bytes`; back when all have. */
void vp_crew_each(struct vp_crew *crew, size_t bytes, vp_crew_share *share, void *arg);
/* Copies, together; `past_caches`: what will not be looked at soon. */
void vp_crew_copy(struct vp_crew *crew, void *to, const void *from, size_t bytes, bool past_caches);
void vp_crew_stop(struct vp_crew *crew);
