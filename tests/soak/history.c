/* What the threads did, in rings of their own; read only when something went wrong. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "soak.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *const deeds[DEEDS] = {
    "alloc", "alloc async", "fill", "inspect", "free", "free async", "move", "hand over", "lost", "use", "unuse",
};

void history_add(struct worker *w, enum deed deed, const struct block *b, CUstream stream) {
    struct record *r = &w->history[w->recorded++ % HISTORY];
    unsigned long long id = 0;
    if (deed == ALLOC || deed == FREE || cuStreamGetId(stream, &id))
        id = 0;
    *r = (struct record){.time = atomic_fetch_add(&soak.clock, 1), .deed = deed, .block = *b, .stream = id};
}

static int by_time(const void *a, const void *b) {
    const struct record *const *x = a, *const *y = b;
    return (*x)->time<(*y)->time ? -1 : (*x)->time>(*y)->time;
}

static void print_record(const struct record *r) {
    long worker = -1;
    for (int i = 0; i < soak.threads; i++)
        if (r >= soak.workers[i].history && r < soak.workers[i].history + HISTORY)
            worker = i;
    fprintf(stderr, "  %8llu thread %ld: %-11s [%#llx, %#llx) word %08x on stream %llu\n", (unsigned long long)r->time,
            worker, deeds[r->deed], (unsigned long long)r->block.ptr,
            (unsigned long long)(r->block.ptr + r->block.size), r->block.word, r->stream);
}

void history_print(const struct block *b, uint32_t word) {
    enum { SHOWN = 60 };
    size_t found = 0, room = (size_t)soak.threads * HISTORY;
    const struct record **list = malloc(room * sizeof *list);
    for (int i = 0; list && i < soak.threads; i++)
        for (size_t k = 0; k < HISTORY && k < soak.workers[i].recorded; k++) {
            const struct record *r = &soak.workers[i].history[k];
            if ((r->block.ptr < b->ptr + b->size && r->block.ptr + r->block.size > b->ptr) ||
                (word && r->block.word == word))
                list[found++] = r;
        }
    if (!list)
        return;
    qsort(list, found, sizeof *list, by_time);
    fprintf(stderr, "what happened at these addresses, and to word %08x%s:\n", word, found > SHOWN ? ", at last" : "");
    for (size_t i = found > SHOWN ? found - SHOWN : 0; i < found; i++)
        print_record(list[i]);
}

void soak_must(const struct worker *w, const struct block *b, CUresult res, const char *call) {
    if (res)
        soak_fail(w, b, "%s returned %d", call, (int)res);
}

void soak_fail(const struct worker *w, const struct block *b, const char *format, ...) {
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    va_list args;
    pthread_mutex_lock(&once);
    fprintf(stderr, "soak: FAILED (seed %llu", (unsigned long long)soak.seed);
    if (w)
        fprintf(stderr, ", thread %d, its operation %llu", w->index, (unsigned long long)w->ops);
    fprintf(stderr, "): ");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    if (b) {
        fprintf(stderr, "the block: %zu bytes at %#llx of device %d, word %08x\n", b->size, (unsigned long long)b->ptr,
                b->device, b->word);
        history_print(b, 0);
    }
    if (getenv("SOAK_ABORT"))
        abort();
    _exit(1);
}
