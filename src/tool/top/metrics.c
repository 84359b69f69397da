/* Figures for Prometheus: its text format, and a file of it for node_exporter. serve.c serves it over HTTP. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/out.h"
#include "tool/top/top.h"

#include <sys/stat.h>

/* ---- the text ---- */

/* As the format wants it; what strangers wrote is printable ASCII already. */
static void put_label(FILE *out, const char *name, const char *value) {
    fprintf(out, "%s=\"", name);
    for (; *value; value++)
        fprintf(out, *value == '"' || *value == '\\' ? "\\%c" : "%c", *value);
    fputc('"', out);
}

/* Each series has the same labels; what is not known is empty, which Prometheus takes for none. */
static void put_labels(FILE *out, const struct vp_watched *w) {
    fprintf(out, "{pid=\"%d\",", w->page.pid);
    put_label(out, "user", w->user);
    fputc(',', out);
    put_label(out, "program", w->program);
    fputc(',', out);
    put_label(out, "rank", w->rank);
    fputc(',', out);
    put_label(out, "container", w->page.container);
    fputc(',', out);
    put_label(out, "policy", w->policy);
}

static void put_head(FILE *out, const char *name, const char *type, const char *meaning) {
    fprintf(out, "# HELP vpool_%s %s\n# TYPE vpool_%s %s\n", name, meaning, name, type);
}

enum unit { BYTES, COUNT, SECONDS };

static void put_device(FILE *out, const char *name, const struct vp_sample *s, const struct vp_row *row, uint64_t value,
                       enum unit unit) {
    fprintf(out, "vpool_%s", name);
    put_labels(out, &s->processes[row->process]);
    fprintf(out, ",device=\"%llu\",pci=\"", (unsigned long long)row->device);
    if (row->place)
        fprintf(out, "%04x:%02x:%02x", (unsigned)(row->place >> 32) & 0xffff, (unsigned)(row->place >> 16) & 0xffff,
                (unsigned)row->place & 0xffff);
    if (unit == SECONDS)
        fprintf(out, "\"} %llu.%09llu\n", (unsigned long long)(value / 1000000000),
                (unsigned long long)(value % 1000000000));
    else
        fprintf(out, "\"} %llu\n", (unsigned long long)value);
}

/* By Prometheus's rules: base units, and _total behind what only grows. */
#define METRICS(X)                                                                                                     \
    X(live_bytes, "live_bytes", "gauge", BYTES, "Bytes handed out, as asked for.")                                                                                                                  \
    X(peak_live_bytes, "peak_live_bytes", "gauge", BYTES, "The most bytes that were handed out at once.")                                                                                                                  \
    X(held_bytes, "held_bytes", "gauge", BYTES, "Bytes of the device that the pool holds.")                                                                                                                  \
    X(peak_held_bytes, "peak_held_bytes", "gauge", BYTES, "The most bytes of the device that the pool held.")                                                                                                                  \
    X(allocs, "allocs_total", "counter", COUNT, "Allocations served.")                                                                                                                  \
    X(frees, "frees_total", "counter", COUNT, "Frees served.")                                                                                                                  \
    X(driver_calls, "driver_calls_total", "counter", COUNT, "Calls that the pool made to the driver.")                                                                                                                  \
    X(driver_ns, "driver_seconds_total", "counter", SECONDS, "Time that the host spent in them.")                                                                                                                  \
    X(waits_gpu, "waits_gpu_total", "counter", COUNT, "Times that a stream was made to wait for memory.")                                                                                                                  \
    X(waits_host, "waits_host_total", "counter", COUNT, "Times that the host waited for memory.")                                                                                                                  \
    X(ooms, "ooms_total", "counter", COUNT, "Calls that ended with out of memory.")                                                                                                                  \
    X(stitches, "stitches_total", "counter", COUNT, "Ranges built of chunks that lay apart.")                                                                                                                  \
    X(slack_permille, "slack_permille", "gauge", COUNT, "What more may be held than was alive at most, for fewer calls, in thousandths.")                                                                                                                  \
    X(novelty_permille, "novelty_permille", "gauge", COUNT, "Of the last requests that count for it, those of a size never seen, in thousandths.")                                                                                                                  \
    X(slack_steps, "slack_steps_total", "counter", COUNT, "How often the slack has changed.")                                                                                                                  \
    X(spared_bytes, "spared_bytes_total", "counter", BYTES, "Bytes made anew so that no call takes long.")                                                                                                                  \
    X(returned_bytes, "returned_bytes_total", "counter", BYTES, "Bytes given back for them.")                                                                                                                  \
    X(asleep_bytes, "asleep_bytes", "gauge", BYTES, "Bytes of the pool that sleep: the program has paused the device.")                                                                                                                  \
    X(lent_bytes, "lent_bytes_total", "counter", BYTES, "Idle bytes given back because another process lacked them.")                                                                                                                  \
    X(loans_asked, "loans_asked_total", "counter", COUNT, "Times that the process lacked memory and asked others.")                                                                                                                  \
    X(loans_refused, "loans_refused_total", "counter", COUNT, "Times that it was asked and gave nothing.")                                                                                                                  \
    X(spilled_bytes, "spilled_bytes", "gauge", BYTES, "Bytes of the host's memory, for what the device had no more memory for.")                                                                                                                  \
    X(spills_refused, "spills_refused_total", "counter", COUNT, "Times that the host's memory could not help.")

static void put_processes(FILE *out, const struct vp_sample *s) {
    put_head(out, "passed_on_total", "counter", "Calls that went on to CUDA.");
    for (unsigned p = 0; p < s->process_count; p++) {
        fputs("vpool_passed_on_total", out);
        put_labels(out, &s->processes[p]);
        fprintf(out, "} %llu\n", (unsigned long long)s->processes[p].page.stats->passed_on);
    }
    put_head(out, "start_time_seconds", "gauge", "When the process opened its first pool, in seconds since 1970.");
    for (unsigned p = 0; p < s->process_count; p++) {
        fputs("vpool_start_time_seconds", out);
        put_labels(out, &s->processes[p]);
        fprintf(out, "} %llu\n", (unsigned long long)s->processes[p].page.stats->began);
    }
    put_head(out, "paused", "gauge", "1: vpool pause has put the process to sleep.");
    for (unsigned p = 0; p < s->process_count; p++) {
        fputs("vpool_paused", out);
        put_labels(out, &s->processes[p]);
        fprintf(out, "} %d\n", s->processes[p].page.stats->ties.paused != 0);
    }
    put_head(out, "processes", "gauge", "Processes under the library that are seen.");
    fprintf(out, "vpool_processes %u\n", s->process_count);
}

void vp_metrics_print(FILE *out, const struct vp_sample *s) {
#define METRIC(field, name, type, unit, meaning)                                                                       \
    put_head(out, name, type, meaning);                                                                                \
    for (unsigned i = 0; i < s->row_count; i++)                                                                        \
        put_device(out, name, s, &s->rows[i], s->rows[i].now.field, unit);
    METRICS(METRIC)
#undef METRIC
    put_head(out, "device_memory_bytes", "gauge", "The device's memory, where it is known.");
    for (unsigned i = 0; i < s->row_count; i++)
        if (s->rows[i].total)
            put_device(out, "device_memory_bytes", s, &s->rows[i], s->rows[i].total, BYTES);
    put_processes(out, s);
}

int vp_metrics_write(const char *command, const char *file, const struct vp_sample *s) {
    struct vp_out out;
    if (vp_out_open(&out, command, file) < 0)
        return 1;
    /* node_exporter is another user; a device or a pipe keeps its mode. */
    if (out.other)
        fchmod(fileno(out.file), 0644);
    vp_metrics_print(out.file, s);
    return vp_out_close(&out, true) < 0;
}
