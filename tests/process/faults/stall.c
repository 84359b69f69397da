/* Replays a trace (CSV on stdin) by stream-ordered calls, with a memset of each block, and prints what a
 * thousand events cost. argv: events between two synchronises, events at most, and the first and the number
 * of events behind which all streams are held. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>

#include "fault.h"

struct ev {
    char op;
    unsigned id;
    size_t size;
    unsigned stream;
};

/* Reads at most `cap` events; their number, and the highest id and the number of streams in them. */
static size_t events_read(struct ev *e, size_t cap, unsigned *maxid, unsigned *streams) {
    char line[256];
    size_t n = 0;
    while (n < cap && fgets(line, sizeof line, stdin))
        if (sscanf(line, "%c,%u,%zu,%u", &e[n].op, &e[n].id, &e[n].size, &e[n].stream) == 4) {
            if (e[n].id > *maxid)
                *maxid = e[n].id;
            if (e[n].stream >= *streams)
                *streams = e[n].stream + 1;
            n++;
        }
    return n;
}

int main(int argc, char **argv) {
    size_t every = argc > 1 ? strtoull(argv[1], 0, 0) : 1000, cap = argc > 2 ? strtoull(argv[2], 0, 0) : 1 << 21;
    struct ev *e = malloc(cap * sizeof *e);
    unsigned maxid = 0, streams = 0;
    size_t n = events_read(e, cap, &maxid, &streams);
    CUdeviceptr *p = calloc(maxid + 1, sizeof *p);
    CUstream *s = calloc(streams, sizeof *s);
    start();
    for (unsigned i = 0; i < streams; i++)
        NEED(cuStreamCreate(&s[i], CU_STREAM_NON_BLOCKING));
    uint64_t (*cost)(void) = sym("vp_sim_cost_ns"), c0 = cost();
    unsigned long (*calls)(const char *) = sym("vp_sim_calls");
    double t0 = now();
    size_t last = 0;
    size_t hat = argc > 3 ? strtoull(argv[3], 0, 0) : 0, hlen = argc > 4 ? strtoull(argv[4], 0, 0) : 0;
    void (*hold)(CUstream) = sym("vp_sim_hold"), (*rel)(CUstream) = sym("vp_sim_release");
    for (size_t i = 0; i < n; i++) {
        CUstream st = s[e[i].stream];
        if (hlen && i == hat)
            for (unsigned k = 0; k < streams; k++)
                hold(s[k]);
        if (hlen && i == hat + hlen)
            for (unsigned k = 0; k < streams; k++)
                rel(s[k]);
        bool held = hlen && i >= hat && i < hat + hlen;
        if (e[i].op == 'a') {
            NEED(cuMemAllocAsync(&p[e[i].id], e[i].size, st));
            NEED(cuMemsetD8Async(p[e[i].id], 1, e[i].size, st));
        } else
            NEED(cuMemFreeAsync(p[e[i].id], st));
        if (every && !held && i % every == every - 1)
            for (unsigned k = 0; k < streams; k++)
                NEED(cuStreamSynchronize(s[k]));
        if ((i + 1) % (n / 10) == 0) {
            struct vpool_stats v = stats(0);
            printf("%6zu: live %llu held %llu MiB, mappings %lu, modelled driver %.1f ms and host %.2f ms "
                   "per 1000 events\n",
                   i + 1, (unsigned long long)v.live_bytes >> 20, (unsigned long long)v.held_bytes >> 20,
                   calls("cuMemMap") - calls("cuMemUnmap"), (cost() - c0) / 1e6 / (i + 1 - last) * 1000,
                   (now() - t0) * 1e3 / (i + 1 - last) * 1000);
            c0 = cost();
            t0 = now();
            last = i + 1;
            fflush(stdout);
        }
    }
}
