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
/* clang-format off */
#define METRICS(X) \
    X(live_bytes, "live_bytes", "gauge", BYTES, "Bytes that the program has allocated and not freed, as it asked for them.") \
    X(peak_live_bytes, "peak_live_bytes", "gauge", BYTES, "The most that vpool_live_bytes has been.") \
    X(held_bytes, "held_bytes", "gauge", BYTES, "Bytes of device memory that the pool holds for the program.") \
    X(peak_held_bytes, "peak_held_bytes", "gauge", BYTES, "The most that vpool_held_bytes has been.") \
    X(allocs, "allocs_total", "counter", COUNT, "Allocations that the pool has served.") \
    X(frees, "frees_total", "counter", COUNT, "Frees that the pool has served.") \
    X(driver_calls, "driver_calls_total", "counter", COUNT, "Calls of the pool to the driver, for memory, addresses and events.") \
    X(driver_ns, "driver_seconds_total", "counter", SECONDS, "Host time in the pool's calls to the driver, in seconds.") \
    X(waits_gpu, "waits_gpu_total", "counter", COUNT, "Waits of a stream, on the GPU, for memory that another stream had freed.") \
    X(waits_host, "waits_host_total", "counter", COUNT, "Waits of a thread, on the host, for memory that a stream had freed.") \
    X(ooms, "ooms_total", "counter", COUNT, "Allocations that failed for want of memory.") \
    X(stitches, "stitches_total", "counter", COUNT, "Ranges of addresses that the pool has mapped.") \
    X(slack_permille, "slack_permille", "gauge", COUNT, "Memory that may be held above the peak of live memory to save driver calls, in thousandths of that peak.") \
    X(novelty_permille, "novelty_permille", "gauge", COUNT, "Share of the last large requests whose size was new, in thousandths.") \
    X(slack_steps, "slack_steps_total", "counter", COUNT, "Changes of vpool_slack_permille.") \
    X(spared_bytes, "spared_bytes_total", "counter", BYTES, "Bytes of device memory made, though other memory was idle, so that no call took long.") \
    X(returned_bytes, "returned_bytes_total", "counter", BYTES, "Bytes of vpool_spared_bytes_total that have gone back to the device.") \
    X(asleep_bytes, "asleep_bytes", "gauge", BYTES, "Bytes of the pool that the program has put to sleep with vpool_pause(); they are not held.") \
    X(lent_bytes, "lent_bytes_total", "counter", BYTES, "Idle bytes given back to the device because another process lacked them.") \
    X(loans_asked, "loans_asked_total", "counter", COUNT, "Times that this process lacked memory and asked other processes.") \
    X(loans_refused, "loans_refused_total", "counter", COUNT, "Times that another process asked and this one gave nothing.") \
    X(spilled_bytes, "spilled_bytes", "gauge", BYTES, "Bytes of host memory that serve allocations for which the device had no room.") \
    X(spills_refused, "spills_refused_total", "counter", COUNT, "Allocations that host memory could not serve either.")
/* clang-format on */

static void put_processes(FILE *out, const struct vp_sample *s) {
    put_head(out, "passed_on_total", "counter", "Calls of the program that went on to CUDA unserved.");
    for (unsigned p = 0; p < s->process_count; p++) {
        fputs("vpool_passed_on_total", out);
        put_labels(out, &s->processes[p]);
        fprintf(out, "} %llu\n", (unsigned long long)s->processes[p].page.stats->passed_on);
    }
    put_head(out, "start_time_seconds", "gauge",
             "Time at which the process opened its first pool, in seconds since 1970.");
    for (unsigned p = 0; p < s->process_count; p++) {
        fputs("vpool_start_time_seconds", out);
        put_labels(out, &s->processes[p]);
        fprintf(out, "} %llu\n", (unsigned long long)s->processes[p].page.stats->began);
    }
    put_head(out, "paused", "gauge", "1 while vpool pause has put the process to sleep, else 0.");
    for (unsigned p = 0; p < s->process_count; p++) {
        fputs("vpool_paused", out);
        put_labels(out, &s->processes[p]);
        fprintf(out, "} %d\n", s->processes[p].page.stats->ties.paused != 0);
    }
    put_head(out, "processes", "gauge", "Processes under libvpool.so that this command sees.");
    fprintf(out, "vpool_processes %u\n", s->process_count);
}

void vp_metrics_print(FILE *out, const struct vp_sample *s) {
#define METRIC(field, name, type, unit, meaning)                                                                       \
    put_head(out, name, type, meaning);                                                                                \
    for (unsigned i = 0; i < s->row_count; i++)                                                                        \
        put_device(out, name, s, &s->rows[i], s->rows[i].now.field, unit);
    METRICS(METRIC)
#undef METRIC
    put_head(out, "device_memory_bytes", "gauge", "Total memory of the device in bytes, where it is known.");
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
