/* Figures for Prometheus: its text format, into a file for node_exporter, or over HTTP.
 *
 * The server answers one after the other and knows one thing: `GET /metrics`. It is for localhost, where Prometheus's
 * agent or a proxy with a name and a password asks it; who is slow or talks much is cut off.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tool/top.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

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
    X(returned_bytes, "returned_bytes_total", "counter", BYTES, "Bytes given back for them.")

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
    char *name = NULL;
    int fd = asprintf(&name, "%s.XXXXXX", file) < 0 ? -1 : mkstemp(name);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
    if (out) {
        vp_metrics_print(out, s);
        fchmod(fd, 0644);
    }
    bool good = out && !ferror(out) && !fclose(out) && !rename(name, file);
    if (!good) {
        fprintf(stderr, "vpool %s: %s: %s\n", command, file, strerror(errno));
        if (fd >= 0)
            unlink(name);
    }
    free(name);
    return good ? 0 : 1;
}

/* ---- HTTP ---- */

/* "PORT", "ADDRESS:PORT" or "[ADDRESS]:PORT"; numbers, no names. */
static bool read_address(const char *text, struct sockaddr_storage *out, socklen_t *length) {
    char host[64] = "127.0.0.1", *end;
    const char *colon = strrchr(text, ':'), *port = colon ? colon + 1 : text;
    size_t n = colon ? (size_t)(colon - text) : 0;
    bool six = n > 2 && *text == '[' && text[n - 1] == ']';
    if (n - (six ? 2 : 0) >= sizeof host)
        return false;
    if (n)
        snprintf(host, sizeof host, "%.*s", (int)(six ? n - 2 : n), text + six);
    unsigned long number = strtoul(port, &end, 10);
    if (!*port || *end || number > 65535 || strchr("+- ", *port))
        return false;
    struct sockaddr_in *in = (struct sockaddr_in *)out;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;
    *out = (struct sockaddr_storage){.ss_family = six ? AF_INET6 : AF_INET};
    *length = six ? sizeof *in6 : sizeof *in;
    *(six ? &in6->sin6_port : &in->sin_port) = htons((uint16_t)number);
    return inet_pton(out->ss_family, host, six ? (void *)&in6->sin6_addr : (void *)&in->sin_addr) == 1;
}

static void send_all(int fd, const char *text, size_t length) {
    while (length) {
        ssize_t n = send(fd, text, length, MSG_NOSIGNAL);
        if (n <= 0)
            return;
        text += n;
        length -= (size_t)n;
    }
}

static void answer(int fd, const char *status, const char *type, const char *body, size_t length, bool head_alone) {
    char head[256];
    int n = snprintf(
        head, sizeof head,
        "HTTP/1.1 %s\r\nContent-Type: %s; charset=utf-8\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n", status,
        type, length);
    send_all(fd, head, (size_t)n);
    if (!head_alone)
        send_all(fd, body, length);
}

static void answer_metrics(int fd, bool head_alone) {
    struct vp_sample s;
    char *body = NULL;
    size_t length = 0;
    int err = vp_sample_take(&s, NULL, NULL, 0);
    FILE *out = err ? NULL : open_memstream(&body, &length);
    if (out) {
        vp_metrics_print(out, &s);
        fclose(out);
    }
    if (!err)
        vp_sample_drop(&s);
    if (body)
        answer(fd, "200 OK", "text/plain; version=0.0.4", body, length, head_alone);
    else
        answer(fd, "503 Service Unavailable", "text/plain", "no figures\n", strlen("no figures\n"), head_alone);
    free(body);
}

/* A request's head must come within so many seconds and bytes. */
enum { PATIENCE_S = 2, REQUEST_BYTES = 8192 };

static bool read_request(int fd, char text[REQUEST_BYTES + 1]) {
    size_t used = 0;
    time_t until = time(NULL) + PATIENCE_S;
    while (used < REQUEST_BYTES && time(NULL) <= until) {
        ssize_t n = recv(fd, text + used, REQUEST_BYTES - used, 0);
        if (n <= 0)
            return false;
        used += (size_t)n;
        text[used] = 0;
        if (strstr(text, "\r\n\r\n") || strstr(text, "\n\n"))
            return true;
    }
    return false;
}

static void serve_one(int fd) {
    static const char page[] = "<!doctype html><title>vpool</title><a href=\"/metrics\">metrics</a>\n";
    static const char none[] = "not found\n", wrong[] = "GET alone\n";
    struct timeval patience = {.tv_sec = PATIENCE_S};
    static char text[REQUEST_BYTES + 1];
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (!read_request(fd, text))
        return;
    bool head = !strncmp(text, "HEAD ", 5);
    if (!head && strncmp(text, "GET ", 4)) {
        answer(fd, "405 Method Not Allowed", "text/plain", wrong, sizeof wrong - 1, false);
        return;
    }
    const char *path = strchr(text, ' ') + 1;
    size_t n = strcspn(path, " ?\r\n");
    if (n == strlen("/metrics") && !strncmp(path, "/metrics", n))
        answer_metrics(fd, head);
    else if (n == 1 && *path == '/')
        answer(fd, "200 OK", "text/html", page, sizeof page - 1, head);
    else
        answer(fd, "404 Not Found", "text/plain", none, sizeof none - 1, head);
}

int vp_metrics_serve(const char *address) {
    struct sockaddr_storage where;
    socklen_t length;
    char host[64] = "";
    if (!read_address(address, &where, &length)) {
        fprintf(stderr, "vpool exporter: '%s' is no address: PORT, ADDRESS:PORT or [ADDRESS]:PORT, in numbers\n",
                address);
        return 2;
    }
    int fd = socket(where.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, (struct sockaddr *)&where, length) || listen(fd, 16) ||
        getsockname(fd, (struct sockaddr *)&where, &length)) {
        fprintf(stderr, "vpool exporter: %s: %s\n", address, strerror(errno));
        return 1;
    }
    bool six = where.ss_family == AF_INET6;
    inet_ntop(where.ss_family,
              six ? (void *)&((struct sockaddr_in6 *)&where)->sin6_addr
                  : (void *)&((struct sockaddr_in *)&where)->sin_addr,
              host, sizeof host);
    printf("http://%s%s%s:%d/metrics\n", six ? "[" : "", host, six ? "]" : "",
           ntohs(six ? ((struct sockaddr_in6 *)&where)->sin6_port : ((struct sockaddr_in *)&where)->sin_port));
    fflush(stdout);
    for (;;) {
        int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (client < 0 && errno != EINTR && errno != ECONNABORTED && errno != EMFILE) {
            fprintf(stderr, "vpool exporter: %s: %s\n", address, strerror(errno));
            return 1;
        }
        if (client >= 0) {
            serve_one(client);
            shutdown(client, SHUT_WR);
            close(client);
        }
    }
}
