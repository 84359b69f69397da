/* Serves the figures over HTTP, for Prometheus.
 *
 * The server answers only `GET /metrics`. It is meant for localhost, behind Prometheus's agent or a proxy that checks a
 * password. Requests are served concurrently: a slow client delays nobody and is cut off, and so is the oldest one when
 * there are too many. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "tool/top/top.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Who asks must have asked within so many seconds and bytes, and take the answer in so many seconds. */
enum { ASKING_S = 2, REQUEST_BYTES = 8192, ANSWERING_S = 10, CLIENTS = 64 };

struct client {
    int fd;         /* -1: nobody */
    uint64_t until; /* by vp_clock_ns() */
    char *text;     /* what is asked, then what is answered */
    size_t length, sent;
    bool answered;
};

/* ---- addresses ---- */

/* "PORT", "ADDRESS:PORT" or "[ADDRESS]:PORT"; numbers, and of names that of this machine. */
static bool read_address(const char *text, struct sockaddr_storage *out, socklen_t *length) {
    char host[64] = "127.0.0.1", *end;
    const char *colon = strrchr(text, ':'), *port = colon ? colon + 1 : text;
    size_t n = colon ? (size_t)(colon - text) : 0;
    bool six = n > 2 && *text == '[' && text[n - 1] == ']';
    if (n - (six ? 2 : 0) >= sizeof host)
        return false;
    if (n && (n != strlen("localhost") || strncmp(text, "localhost", n) != 0))
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

/* ---- a client ---- */

static void drop(struct client *c) {
    close(c->fd);
    free(c->text);
    *c = (struct client){.fd = -1};
}

static uint64_t seconds_from_now(uint64_t seconds) {
    return vp_clock_ns() + seconds * UINT64_C(1000000000);
}

/* Takes the body's place in what the client is sent. False: there is no memory. */
static bool answer(struct client *c, const char *status, const char *type, const char *body, bool head_alone) {
    char *text;
    int n = asprintf(&text,
                     "HTTP/1.1 %s\r\nContent-Type: %s; charset=utf-8\r\nContent-Length: %zu\r\n"
                     "Connection: close\r\n\r\n%s",
                     status, type, strlen(body), head_alone ? "" : body);
    if (n < 0)
        return false;
    free(c->text);
    c->text = text;
    c->length = (size_t)n;
    c->answered = true;
    c->until = seconds_from_now(ANSWERING_S);
    return true;
}

static bool answer_metrics(struct client *c, bool head_alone) {
    struct vp_sample s;
    char *body = NULL;
    size_t length = 0;
    int err = vp_sample_take(&s, NULL, NULL, 0);
    FILE *out = err ? NULL : open_memstream(&body, &length);
    if (out)
        vp_metrics_print(out, &s);
    bool good = out && !fclose(out) && body;
    if (!err)
        vp_sample_drop(&s);
    good = good ? answer(c, "200 OK", "text/plain; version=0.0.4", body, head_alone)
                : answer(c, "503 Service Unavailable", "text/plain", "no figures\n", head_alone);
    free(body);
    return good;
}

/* What stands in c->text is a whole head. */
static bool answer_request(struct client *c) {
    static const char page[] = "<!doctype html><title>vpool</title><a href=\"/metrics\">metrics</a>\n";
    bool head = !strncmp(c->text, "HEAD ", 5);
    if (!head && strncmp(c->text, "GET ", 4))
        return answer(c, "405 Method Not Allowed", "text/plain", "GET alone\n", false);
    const char *path = strchr(c->text, ' ') + 1;
    size_t n = strcspn(path, " ?\r\n");
    if (n == strlen("/metrics") && !strncmp(path, "/metrics", n))
        return answer_metrics(c, head);
    if (n == 1 && *path == '/')
        return answer(c, "200 OK", "text/html", page, head);
    return answer(c, "404 Not Found", "text/plain", "not found\n", head);
}

/* False: nothing more is to be had. */
static bool hear(struct client *c) {
    ssize_t n = recv(c->fd, c->text + c->length, REQUEST_BYTES - c->length, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n <= 0)
        return false;
    c->length += (size_t)n;
    c->text[c->length] = 0;
    if (strstr(c->text, "\r\n\r\n") || strstr(c->text, "\n\n"))
        return answer_request(c);
    if (c->length == REQUEST_BYTES)
        return answer(c, "431 Request Header Fields Too Large", "text/plain", "too long\n", false);
    return true;
}

/* Whoever has all of the answer closes; what he says meanwhile is heard, since to close before that would take the
 * answer back. */
static bool say(struct client *c) {
    char more[REQUEST_BYTES];
    ssize_t n = 0;
    if (c->sent < c->length) {
        n = send(c->fd, c->text + c->sent, c->length - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        c->sent += n > 0 ? (size_t)n : 0;
        if (c->sent == c->length)
            shutdown(c->fd, SHUT_WR);
        return n >= 0 || errno == EAGAIN || errno == EINTR;
    }
    n = recv(c->fd, more, sizeof more, MSG_DONTWAIT);
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

/* ---- all of them ---- */

/* In an empty place, else in that of the client whose time ends first. */
static void admit(int listener, struct client *clients) {
    struct client *c = clients;
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        /* Of a connection that broke, or for want of files or memory, which a moment may bring. */
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            poll(NULL, 0, 100);
        return;
    }
    for (int i = 0; i < CLIENTS && c->fd >= 0; i++)
        if (clients[i].fd < 0 || clients[i].until < c->until)
            c = &clients[i];
    if (c->fd >= 0)
        drop(c);
    *c = (struct client){.fd = fd, .text = malloc(REQUEST_BYTES + 1), .until = seconds_from_now(ASKING_S)};
    if (!c->text)
        drop(c);
}

/* In milliseconds, up to the first client's end; -1: there is none. */
static int time_left(const struct client *clients) {
    uint64_t now = vp_clock_ns(), first = UINT64_MAX;
    for (int i = 0; i < CLIENTS; i++)
        if (clients[i].fd >= 0 && clients[i].until < first)
            first = clients[i].until;
    return first == UINT64_MAX ? -1 : first > now ? (int)((first - now) / 1000000 + 1) : 0;
}

static void serve(int listener) {
    struct client clients[CLIENTS];
    struct pollfd files[CLIENTS + 1];
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = (struct client){.fd = -1};
    for (;;) {
        files[CLIENTS] = (struct pollfd){.fd = listener, .events = POLLIN};
        for (int i = 0; i < CLIENTS; i++) {
            struct client *c = &clients[i];
            files[i] = (struct pollfd){.fd = c->fd, .events = c->answered && c->sent < c->length ? POLLOUT : POLLIN};
        }
        poll(files, CLIENTS + 1, time_left(clients));
        for (int i = 0; i < CLIENTS; i++) {
            struct client *c = &clients[i];
            if (c->fd >= 0 && files[i].revents && !(c->answered ? say(c) : hear(c)))
                drop(c);
            else if (c->fd >= 0 && vp_clock_ns() > c->until)
                drop(c);
        }
        if (files[CLIENTS].revents)
            admit(listener, clients);
    }
}

int vp_metrics_serve(const char *address) {
    struct sockaddr_storage where;
    socklen_t length;
    char host[64] = "";
    if (!read_address(address, &where, &length)) {
        fprintf(
            stderr,
            "vpool exporter: '%s' is not an address: PORT, ADDRESS:PORT or [ADDRESS]:PORT, in numbers or localhost\n",
            address);
        return 2;
    }
    int fd = socket(where.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, (struct sockaddr *)&where, length) || listen(fd, CLIENTS) ||
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
    serve(fd);
    return 0;
}
