/* The streams of all threads: a table of plain ones, which come and go, the legacy stream of each device, and
 * each thread's own. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "soak.h"

#include <stdlib.h>

struct stream *stream_new(enum stream_kind kind, CUstream handle, int device) {
    struct stream *s = calloc(1, sizeof *s);
    if (!s)
        abort();
    s->kind = kind;
    s->handle = handle;
    s->device = device;
    pthread_rwlock_init(&s->use, NULL);
    atomic_init(&s->refs, 1);
    return s;
}

void stream_get(struct stream *s) {
    atomic_fetch_add(&s->refs, 1);
}

void stream_put(struct stream *s) {
    if (!s || atomic_fetch_sub(&s->refs, 1) != 1)
        return;
    if (s->last)
        cuEventDestroy(s->last);
    pthread_rwlock_destroy(&s->use);
    free(s);
}

static struct stream *plain_new(const struct worker *w, int device, bool blocking) {
    CUstream handle;
    MUST(w, NULL, door_stream_create(&handle, blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    atomic_fetch_add(&soak.streams_made, 1);
    return stream_new(PLAIN, handle, device);
}

void streams_open(void) {
    for (int d = 0; d < soak.devices; d++) {
        cuCtxSetCurrent(soak.context[d]);
        soak.legacy_stream[d] = stream_new(LEGACY, CU_STREAM_LEGACY, d);
        for (int i = d; i < soak.streams; i += soak.devices)
            soak.table[i] = plain_new(NULL, d, i % 3 == 0);
    }
}

bool stream_enter(struct worker *w, struct stream *s) {
    if (s->kind == LEGACY)
        pthread_rwlock_rdlock(&soak.legacy);
    pthread_rwlock_rdlock(&s->use);
    if (s->gone) {
        stream_leave(s);
        return false;
    }
    soak_device(w, s->device);
    return true;
}

void stream_leave(struct stream *s) {
    pthread_rwlock_unlock(&s->use);
    if (s->kind == LEGACY)
        pthread_rwlock_unlock(&soak.legacy);
}

static struct stream *from_table(struct worker *w) {
    pthread_mutex_lock(&soak.table_lock);
    struct stream *s = soak.table[soak_random(w, (uint32_t)soak.streams)];
    stream_get(s);
    pthread_mutex_unlock(&soak.table_lock);
    return s;
}

static struct stream *of_thread(struct worker *w, int device) {
    if (!w->own[device])
        w->own[device] = stream_new(PER_THREAD, CU_STREAM_PER_THREAD, device);
    stream_get(w->own[device]);
    return w->own[device];
}

struct stream *stream_pick(struct worker *w, int device) {
    for (;;) {
        uint32_t dice = soak_random(w, 100);
        int other = soak.peers ? (int)soak_random(w, (uint32_t)soak.devices) : device;
        struct stream *s;
        if (dice < 6 && !w->no_legacy) {
            s = soak.legacy_stream[other];
            stream_get(s);
        } else {
            s = dice < 18 ? of_thread(w, other) : from_table(w);
        }
        bool good = (s->device == device || soak.peers) && stream_enter(w, s);
        /* The table or the thread still holds it while it is locked and not gone. */
        stream_put(s);
        if (good)
            return s;
    }
}

CUevent stream_mark(struct worker *w, const struct stream *s) {
    CUevent event;
    soak_device(w, s->device);
    MUST(w, NULL, cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(w, NULL, cuEventRecord(event, s->handle));
    return event;
}

void stream_renew(struct worker *w) {
    size_t at = soak_random(w, (uint32_t)soak.streams);
    pthread_mutex_lock(&soak.table_lock);
    struct stream *old = soak.table[at];
    /* One that is in use now is spared. */
    if (pthread_rwlock_trywrlock(&old->use) != 0) {
        pthread_mutex_unlock(&soak.table_lock);
        return;
    }
    soak_device(w, old->device);
    old->last = stream_mark(w, old);
    old->gone = true;
    MUST(w, NULL, door_stream_destroy(old->handle));
    soak.table[at] = plain_new(w, old->device, soak_random(w, 3) == 0);
    pthread_mutex_unlock(&soak.table_lock);
    pthread_rwlock_unlock(&old->use);
    stream_put(old);
}

void streams_end_thread(struct worker *w) {
    for (int d = 0; d < soak.devices; d++) {
        struct stream *s = w->own[d];
        if (!s)
            continue;
        s->last = stream_mark(w, s);
        s->gone = true;
        w->own[d] = NULL;
        stream_put(s);
    }
}
