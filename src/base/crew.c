/* Work split among threads: a single one does not keep up with a GPU's copy engine. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/crew.h"

#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { LINE = 64 };

/* Parts begin at multiples of SHARE, so that two threads never work in the same huge page. */
enum { SHARE = 2 << 20, PAGE = 4096 };

/* Less is not worth waking another thread. */
enum { ALONE = 1 << 20 };

static void do_share(struct vp_crew *crew) {
    const unsigned number = atomic_fetch_add(&crew->next, 1);
    const size_t whole = crew->bytes / crew->count, unit = whole >= SHARE ? SHARE : PAGE;
    const size_t share = (whole + unit - 1) / unit * unit, begin = share * number;
    const size_t end = number + 1 == crew->count || begin + share > crew->bytes ? crew->bytes : begin + share;
    if (begin < end)
        crew->share(crew->arg, begin, end);
}

static void wait_for(sem_t *s) {
    while (sem_wait(s) < 0)
        continue;
}

static void *work(void *arg) {
    struct vp_crew *crew = arg;
    for (;;) {
        wait_for(&crew->begin);
        if (!crew->share)
            return NULL;
        do_share(crew);
        sem_post(&crew->done);
    }
}

void vp_crew_start(struct vp_crew *crew, unsigned most) {
    sigset_t all, before;
    cpu_set_t set;
    const int processors = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    if (most > VP_CREW_MOST)
        most = VP_CREW_MOST;
    *crew = (struct vp_crew){.count = 1};
    sem_init(&crew->begin, 0, 0);
    sem_init(&crew->done, 0, 0);
    /* The new threads take no signals of the program's. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (crew->count < most && (int)crew->count < processors &&
           !pthread_create(&crew->thread[crew->count], NULL, work, crew))
        crew->count++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void wake_all(struct vp_crew *crew) {
    for (unsigned i = 1; i < crew->count; i++)
        sem_post(&crew->begin);
}

void vp_crew_each(struct vp_crew *crew, size_t bytes, vp_crew_share *share, void *arg) {
    if (crew->count == 1 || bytes < ALONE) {
        share(arg, 0, bytes);
        return;
    }
    crew->share = share;
    crew->arg = arg;
    crew->bytes = bytes;
    atomic_store(&crew->next, 0);
    wake_all(crew);
    do_share(crew);
    for (unsigned i = 1; i < crew->count; i++)
        wait_for(&crew->done);
}

struct copy {
    char *to;
    const char *from;
};

static void copy_plainly(void *arg, size_t begin, size_t end) {
    const struct copy *copy = arg;
    memcpy(copy->to + begin, copy->from + begin, end - begin);
}

#if defined(__SSE2__)
/* Writes past the caches: the copy would push out what the device has just brought there, and its old contents would
 * first have to be read from memory. */
static void copy_past_caches(void *arg, size_t begin, size_t end) {
    const struct copy *copy = arg;
    char *to = copy->to + begin;
    const char *from = copy->from + begin;
    size_t n = (uintptr_t)to % sizeof(__m128i) ? 0 : (end - begin) / LINE * LINE;
    for (size_t at = 0; at < n; at += LINE) {
        const __m128i *in = (const __m128i *)(const void *)(from + at);
        __m128i *out = (__m128i *)(void *)(to + at);
        __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1), c = _mm_loadu_si128(in + 2),
                d = _mm_loadu_si128(in + 3);
        _mm_stream_si128(out, a);
        _mm_stream_si128(out + 1, b);
        _mm_stream_si128(out + 2, c);
        _mm_stream_si128(out + 3, d);
    }
    _mm_sfence();
    memcpy(to + n, from + n, end - begin - n);
}
#else
static void copy_past_caches(void *arg, size_t begin, size_t end) {
    copy_plainly(arg, begin, end);
}
#endif

void vp_crew_copy(struct vp_crew *crew, void *to, const void *from, size_t bytes, bool past_caches) {
    vp_crew_each(crew, bytes, past_caches ? copy_past_caches : copy_plainly, &(struct copy){to, from});
}

void vp_crew_stop(struct vp_crew *crew) {
    crew->share = NULL;
    wake_all(crew);
    for (unsigned i = 1; i < crew->count; i++)
        pthread_join(crew->thread[i], NULL);
    crew->count = 1;
}
