/* The made-up program: its steps, one after the other, each on one of a few threads.
 *
 * usage: doors SEED STEPS MOST [KEPT]
 * It has at most MOST MiB of the devices' memory. KEPT names the steps that are made, as 3,7-12. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "doors.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct world world;

static uint64_t state;

uint64_t any(void) {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

unsigned below(unsigned n) {
    return (unsigned)(any() >> 11) % n;
}

bool one_in(unsigned n) {
    return below(n) == 0;
}

/* ---- what is said ---- */

static char line[1 << 16];
static size_t length;
static bool loose;

void say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line + length, sizeof(line) - length, format, args);
    va_end(args);
    if (n > 0)
        length += (size_t)n < sizeof(line) - length ? (size_t)n : sizeof(line) - length - 1;
}

void say_loose(void) {
    loose = true;
}

int said(const char *name, int result) {
    say(" %s=%d", name, result);
    return result;
}

int said_soon(const char *name, int result) {
    say(" %s=%d", name, result == CUDA_ERROR_NOT_READY ? 0 : result);
    return result;
}

/* ---- threads: a step is made by one, while the others wait ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static const struct step *turn_step[THREADS];
static bool ending;

static void *work(void *arg) {
    const int me = (int)(intptr_t)arg;
    pthread_mutex_lock(&lock);
    while (!ending) {
        if (turn_step[me]) {
            turn_step[me]->run();
            turn_step[me] = NULL;
            pthread_cond_broadcast(&turned);
        } else {
            pthread_cond_wait(&turned, &lock);
        }
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void on_thread(int thread, const struct step *step) {
    pthread_mutex_lock(&lock);
    turn_step[thread] = step;
    pthread_cond_broadcast(&turned);
    while (turn_step[thread])
        pthread_cond_wait(&turned, &lock);
    pthread_mutex_unlock(&lock);
}

/* ---- steps ---- */

static const struct step *const lists[] = {memory_steps,  copy_steps,  query_steps,  stream_steps,
                                           context_steps, graph_steps, node_steps,   child_steps,
                                           left_steps,    apart_steps, runtime_steps};

/* Every fourth program is about graphs. */
static unsigned weight(const struct step *s, size_t list, uint64_t seed) {
    const bool graphs = lists[list] == graph_steps || lists[list] == node_steps || lists[list] == child_steps ||
                        lists[list] == left_steps;
    return s->weight * (graphs && seed % 4 == 0 ? 6 : 1);
}

static const struct step *choose(uint64_t seed) {
    unsigned sum = 0;
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        for (const struct step *s = lists[i]; s->run; s++)
            sum += weight(s, i, seed);
    unsigned at = below(sum);
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        for (const struct step *s = lists[i]; s->run; s++) {
            if (at < weight(s, i, seed))
                return s;
            at -= weight(s, i, seed);
        }
    abort();
}

static bool kept(const char *list, unsigned long step) {
    while (list && *list) {
        char *end;
        unsigned long from = strtoul(list, &end, 10), to = *end == '-' ? strtoul(end + 1, &end, 10) : from;
        if (step >= from && step <= to)
            return true;
        list = *end ? end + 1 : end;
    }
    return !list;
}

static void make(uint64_t seed, unsigned long i) {
    state = seed * 0x2545f4914f6cdd1du + i * 0x9e3779b97f4a7c15u;
    any();
    const struct step *step = choose(seed);
    world.thread = one_in(3) ? (int)below(THREADS) : 0;
    world.ptsz = one_in(5);
    length = 0;
    loose = false;
    say("%lu t%d %s:", i, world.thread, step->name);
    on_thread(world.thread, step);
    printf("%s%s\n", line, loose ? " ~" : "");
}

static void finish_run(void) {
    verify();
    unsigned long (*violations)(void) = (unsigned long (*)(void))dlsym(RTLD_DEFAULT, "vp_sim_violations");
    if (violations)
        say(" violations=%lu", violations());
}

static const struct step start_step = {"start", 0, world_start}, finish_step = {"finish", 0, finish_run};

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    if (argc < 4) {
        fprintf(stderr, "usage: %s SEED STEPS MOST [KEPT]\n", argv[0]);
        return 2;
    }
    uint64_t seed = strtoull(argv[1], NULL, 10);
    unsigned long steps = strtoul(argv[2], NULL, 10);
    world.most = strtoul(argv[3], NULL, 10) << 20;
    setvbuf(stdout, NULL, _IOLBF, 1 << 16);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i))
            return 2;
    for (int i = 0; i < THREADS; i++) {
        world.thread = i;
        on_thread(i, &start_step);
    }
    for (unsigned long i = 0; i < steps; i++)
        if (kept(argc > 4 ? argv[4] : NULL, i))
            make(seed, i);
    state = seed;
    length = 0;
    world.thread = 0;
    say("end:");
    on_thread(0, &finish_step);
    printf("%s\n", line);
    pthread_mutex_lock(&lock);
    ending = true;
    pthread_cond_broadcast(&turned);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
