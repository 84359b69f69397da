/* Replays a trace (CSV on stdin) by cuMemAlloc and cuMemFree. argv: a size that all are rounded up to, and 1
 * for a memset of each block. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

int main(int argc, char **argv) {
    size_t mult = argc > 1 ? strtoull(argv[1], 0, 0) : 1, cap = 1 << 21, n = 0;
    int work = argc > 2 ? atoi(argv[2]) : 0;
    struct ev {
        char op;
        unsigned id;
        size_t size;
    } *e = malloc(cap * sizeof *e);
    char line[256];
    unsigned maxid = 0;
    while (fgets(line, sizeof line, stdin)) {
        if ((line[0] == 'a' || line[0] == 'f') && n < cap &&
            sscanf(line, "%c,%u,%zu", &e[n].op, &e[n].id, &e[n].size) == 3) {
            if (e[n].id > maxid)
                maxid = e[n].id;
            n++;
        }
    }
    CUdeviceptr *p = calloc(maxid + 1, sizeof *p);
    start();
    CUstream s;
    NEED(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    uint64_t (*cost)(void) = sym("vp_sim_cost_ns"), c0 = cost(), cq = 0, worst = 0;
    double wq = 0, worstw = 0;
    size_t q = n * 3 / 4;
    for (size_t i = 0; i < n; i++) {
        if (i == q) {
            cq = cost();
            wq = now();
        }
        uint64_t c = cost();
        double w = now();
        if (e[i].op == 'a') {
            size_t z = (e[i].size + mult - 1) / mult * mult;
            NEED(cuMemAlloc(&p[e[i].id], z));
            if (work)
                NEED(cuMemsetD8Async(p[e[i].id], 1, z, s));
        } else
            NEED(cuMemFree(p[e[i].id]));
        c = cost() - c;
        w = now() - w;
        if (c > worst)
            worst = c;
        if (w > worstw)
            worstw = w;
    }
    struct vpool_stats st = stats(0);
    printf("peak live %.0f MiB held %.0f MiB ratio %.3f  driver ms %.1f, late per 1000 ops %.2f ms, host "
           "us/op late %.1f, worst call %.2f ms modelled, %.2f ms host, host waits %llu\n",
           st.peak_live_bytes / 1048576.0, st.peak_held_bytes / 1048576.0,
           st.peak_held_bytes / (double)(st.peak_live_bytes ? st.peak_live_bytes : 1), (cost() - c0) / 1e6,
           (cost() - cq) / 1e6 / (n - q) * 1000, (now() - wq) / (n - q) * 1e6, worst / 1e6, worstw * 1e3,
           (unsigned long long)st.waits_host);
}
