/* vpool exporter: exports the figures of all processes to Prometheus, for as long as the node is up. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/tool.h"
#include "tool/top/top.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_ADDRESS "127.0.0.1:9478"
static const double DEFAULT_SECONDS = 15;

static void help(void) {
    puts("usage: vpool exporter [--listen=ADDRESS:PORT]\n"
         "       vpool exporter --file=FILE [-d SECONDS | --once]\n\n"
         "Exports the figures of every process under libvpool.so to Prometheus: of your\n"
         "processes or, for root, of all users and in all containers. The labels are user,\n"
         "pid, program, rank, container, policy, device and pci; an unknown one is empty.\n\n"
         "  --listen=ADDRESS:PORT  answer GET /metrics there (default " DEFAULT_ADDRESS "),\n"
         "                         without a password: leave it on localhost\n"
         "  --file=FILE            write FILE in one step, repeatedly, such as vpool.prom\n"
         "                         in the folder of node_exporter's textfile collector\n"
         "  -d SECONDS             time between two writes (default 15)\n"
         "  --once                 write it once\n"
         "  -h, --help");
}

/* Processes count exactly what they did once they have been asked: that is told the next time. */
static int write_file(const char *file, double seconds, bool once) {
    for (;;) {
        struct vp_sample s;
        int err = vp_sample_take(&s, NULL, NULL, 0);
        if (err) {
            fprintf(stderr, "vpool exporter: " VP_SHARED_STATS_FOLDER ": %s\n", strerror(-err));
            return 1;
        }
        int status = vp_metrics_write("exporter", file, &s);
        vp_sample_drop(&s);
        if (status || once)
            return status;
        nanosleep(&(struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)}, NULL);
    }
}

int vp_tool_exporter(int argc, char **argv) {
    static const struct option long_options[] = {
        {"listen", required_argument, NULL, 'l'},
        {"file", required_argument, NULL, 'f'},
        {"once", no_argument, NULL, 'o'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    const char *file = NULL, *address = NULL;
    double seconds = 0;
    bool once = false;
    opterr = 0;
    optind = 0;
    for (int chosen; (chosen = getopt_long(argc, argv, "hd:", long_options, NULL)) >= 0;) {
        switch (chosen) {
        case 'l': address = optarg; break;
        case 'f': file = optarg; break;
        case 'o': once = true; break;
        case 'h': help(); return 0;
        case 'd':
            if (vp_tool_seconds("exporter", optarg, 0.05, &seconds))
                return 2;
            break;
        default: return vp_tool_unknown("exporter", long_options, argv);
        }
    }
    if (optind < argc)
        return vp_tool_usage("exporter", "unknown argument '%s'", argv[optind]);
    if (file && address)
        return vp_tool_usage("exporter", "use either --file or --listen");
    if (!file && (once || seconds > 0))
        return vp_tool_usage("exporter", "%s needs --file", once ? "--once" : "-d");
    return file ? write_file(file, seconds > 0 ? seconds : DEFAULT_SECONDS, once)
                : vp_metrics_serve(address ? address : DEFAULT_ADDRESS);
}
