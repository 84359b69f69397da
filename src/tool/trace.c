/* Reading traces, as VPOOL_TRACE records them or as text. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/trace.h"

#include "tool/numbers.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct reader {
    struct vp_trace *trace;
    const char *path;
    size_t line, room;
    bool rmm;
    struct vp_numbers live;    /* id + 1 -> number of the block + 1 */
    struct vp_numbers streams; /* stream + 1 -> number + 1 */
    uint64_t first_us, last_us;
    char *message;
    size_t message_room;
};

static int __attribute__((format(printf, 2, 3))) fault(struct reader *r, const char *format, ...) {
    va_list args;
    int n = snprintf(r->message, r->message_room, "%s:%zu: ", r->path, r->line);
    va_start(args, format);
    if (n >= 0 && (size_t)n < r->message_room)
        vsnprintf(r->message + n, r->message_room - (size_t)n, format, args);
    va_end(args);
    return -EINVAL;
}

/* ---- the file, through gzip if it is compressed ---- */

struct source {
    FILE *file;
    pid_t gzip; /* 0: plain */
};

static void exec_gzip(int from, int to) {
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(from, 0);
    dup2(to, 1);
    dup2(null, 2);
    /* Whoever started us may have ignored it; gzip must end when nobody reads any more. */
    signal(SIGPIPE, SIG_DFL);
    execlp("gzip", "gzip", "-dc", (char *)NULL);
    _exit(127);
}

static int source_open(struct source *s, const char *path) {
    unsigned char magic[2];
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC), ends[2], err = 0;
    if (fd < 0)
        return -errno;
    if (fstat(fd, &about) < 0 || S_ISDIR(about.st_mode))
        err = -EISDIR;
    s->gzip = 0;
    if (!err && pread(fd, magic, 2, 0) == 2 && magic[0] == 0x1f && magic[1] == 0x8b) {
        if (pipe2(ends, O_CLOEXEC) < 0) {
            err = -errno;
        } else if ((s->gzip = fork()) < 0) {
            err = -errno;
            close(ends[0]);
            close(ends[1]);
        } else {
            if (!s->gzip)
                exec_gzip(fd, ends[1]);
            close(ends[1]);
            close(fd);
            fd = ends[0];
        }
    }
    s->file = err ? NULL : fdopen(fd, "r");
    if (!s->file)
        close(fd);
    return s->file ? 0 : err ? err : -ENOMEM;
}

/* What was wrong with the file as such, or NULL. */
static const char *source_close(struct source *s) {
    int status = 0;
    const char *fault = ferror(s->file) ? "cannot be read" : NULL;
    fclose(s->file);
    if (!s->gzip || fault)
        return fault;
    if (waitpid(s->gzip, &status, 0) < 0)
        return "cannot be read";
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return "is compressed, and there is no gzip program to read it with";
    /* By a signal it ends if the reader has seen enough. */
    return WIFEXITED(status) && WEXITSTATUS(status) ? "the gzip archive is damaged or cut off" : NULL;
}

/* ---- fields ---- */

static bool number(const char *text, int base, uint64_t *out) {
    char *end;
    errno = 0;
    *out = strtoull(text, &end, base);
    return isxdigit((unsigned char)*text) && !*end && !errno;
}

/* As the versions of RMM print them: 0x7f00, 7f00, and what printf makes of NULL. */
static bool pointer(const char *text, uint64_t *out) {
    *out = 0;
    return !strcmp(text, "(nil)") || number(text, 16, out);
}

/* Splits at commas in place; the number of fields, at most `most`. */
static size_t split(char *line, char **fields, size_t most) {
    size_t n = 0;
    for (char *next = line; next && n < most; n++) {
        fields[n] = strsep(&next, ",");
        if (n + 1 == most && next)
            return most + 1;
    }
    return n;
}

static int number_of(struct vp_numbers *numbers, uint64_t key, uint32_t *count, uint32_t *out) {
    uint64_t n = vp_numbers_get(numbers, key + 1);
    if (!n && vp_numbers_set(numbers, key + 1, n = ++*count) < 0)
        return -ENOMEM;
    *out = (uint32_t)(n - 1);
    return 0;
}

/* Threads write their events a little out of order, and RMM's clock begins anew at midnight. */
static uint64_t time_of(struct reader *r, uint64_t us) {
    static const uint64_t DAY = UINT64_C(86400000000);
    if (!r->trace->count)
        r->first_us = us;
    us -= r->first_us;
    if (r->rmm)
        us = (us + DAY) % DAY + r->last_us / DAY * DAY;
    if (r->rmm && us + DAY / 2 < r->last_us)
        us += DAY;
    return r->last_us = us > r->last_us && us < UINT64_MAX / 2 ? us : r->last_us;
}

static int add(struct reader *r, bool alloc, uint64_t id, uint64_t size, uint64_t stream, uint64_t us) {
    struct vp_trace *t = r->trace;
    uint32_t block, s;
    if (t->count == r->room) {
        size_t room = r->room ? r->room * 2 : 65536;
        void *events = realloc(t->events, room * sizeof *t->events);
        if (events)
            t->events = events;
        if (!events)
            return -ENOMEM;
        r->room = room;
    }
    if (alloc && vp_numbers_get(&r->live, id + 1))
        return fault(r, "allocation %" PRIu64 " is live already", id);
    if (!alloc && !vp_numbers_get(&r->live, id + 1))
        return fault(r, "free of %" PRIu64 ", which is not live", id);
    if (number_of(&r->live, id, &t->blocks, &block) < 0 || number_of(&r->streams, stream, &t->streams, &s) < 0)
        return -ENOMEM;
    if (!alloc)
        vp_numbers_drop(&r->live, id + 1);
    us = time_of(r, us);
    t->events[t->count++] = (struct vp_trace_event){
        .alloc = alloc,
        .block = block,
        .stream = s,
        .size = alloc ? size : 0,
        .us = us,
    };
    return 0;
}

static int our_line(struct reader *r, char *line) {
    char *f[5];
    uint64_t id, size, stream, us;
    if (split(line, f, 5) != 5)
        return fault(r, "expected op,id,size,stream,us");
    /* A mark of the program's: a name in place of the id. */
    if (!strcmp(f[0], "m"))
        return number(f[4], 10, &us) ? 0 : fault(r, "'%.40s' is no time", f[4]);
    bool alloc = !strcmp(f[0], "a");
    if (!alloc && strcmp(f[0], "f"))
        return fault(r, "unknown operation '%.20s': a, f or m", f[0]);
    if (!number(f[1], 10, &id) || id == UINT64_MAX)
        return fault(r, "'%.40s' is no id", f[1]);
    if (!number(f[2], 10, &size) || (alloc && !size))
        return fault(r, "'%.40s' is no size", f[2]);
    if (!number(f[3], 10, &stream) || stream == UINT64_MAX)
        return fault(r, "'%.40s' is no stream", f[3]);
    if (!number(f[4], 10, &us))
        return fault(r, "'%.40s' is no time", f[4]);
    return add(r, alloc, id, size, stream, us);
}

/* HH:MM:SS.micros, or with a colon for the point, in microseconds; 0 of anything else: RMM has had others, and no
 * reader needs it. */
static uint64_t clock_time(const char *text) {
    unsigned h, m, s, us;
    return sscanf(text, "%2u:%2u:%2u%*1[.:]%6u", &h, &m, &s, &us) == 4
               ? (h * 3600 + m * 60 + s) * UINT64_C(1000000) + us
               : 0;
}

static int rmm_line(struct reader *r, char *line) {
    char *f[6];
    uint64_t address, size, stream;
    if (split(line, f, 6) != 6)
        return fault(r, "expected Thread,Time,Action,Pointer,Size,Stream");
    bool alloc = !strcmp(f[2], "allocate"), failed = !strcmp(f[2], "allocate failure");
    if (!alloc && !failed && strcmp(f[2], "free") && strcmp(f[2], "deallocate"))
        return fault(r, "unknown action '%.20s': allocate, free or allocate failure", f[2]);
    if (!pointer(f[3], &address) || address == UINT64_MAX)
        return fault(r, "'%.40s' is no pointer", f[3]);
    if (!number(f[4], 10, &size))
        return fault(r, "'%.40s' is no size", f[4]);
    if (!pointer(f[5], &stream) || stream == UINT64_MAX)
        return fault(r, "'%.40s' is no stream", f[5]);
    return failed || !size ? 0 : add(r, alloc, address, size, stream, clock_time(f[1]));
}

static bool is_zero(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (text[i])
            return false;
    return true;
}

/* The recorder of a process that was killed leaves zero bytes behind its last line, at most one line of which
 * has lost but its first byte. */
static int read_padding(struct reader *r, FILE *file, char **line, size_t *room, ssize_t n) {
    if (!is_zero(*line, (size_t)n) && (n = getline(line, room, file)) >= 0 && !is_zero(*line, (size_t)n))
        return fault(r, "more text behind zero bytes");
    return 0;
}

static int read_lines(struct reader *r, FILE *file) {
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    int err = 0;
    while (!err && (n = getline(&line, &room, file)) >= 0) {
        r->line++;
        if (!*line) {
            r->line--;
            err = read_padding(r, file, &line, &room, n);
            break;
        }
        bool ended = n && line[n - 1] == '\n';
        while (n && (line[n - 1] == '\n' || line[n - 1] == '\r'))
            line[--n] = 0;
        if (r->line == 1) {
            r->rmm = !strcmp(line, "Thread,Time,Action,Pointer,Size,Stream");
            if (!r->rmm && strcmp(line, "op,id,size,stream,us"))
                err = fault(r, "no header of a trace: op,id,size,stream,us or Thread,Time,Action,Pointer,Size,Stream");
        } else if (!ended) {
            err = fault(r, "the last line is cut off");
        } else if (strlen(line) != (size_t)n) {
            err = fault(r, "a zero byte");
        } else if (n) {
            err = r->rmm ? rmm_line(r, line) : our_line(r, line);
        }
    }
    free(line);
    if (!err && !r->line)
        err = fault(r, "the file is empty");
    return err;
}

int vp_trace_read(struct vp_trace *trace, const char *path, char *message, size_t room) {
    struct reader r = {.trace = trace, .path = path, .message = message, .message_room = room};
    struct source s = {0};
    *trace = (struct vp_trace){0};
    int err = source_open(&s, path);
    if (err) {
        snprintf(message, room, "%s: %s", path, strerror(-err));
        return -EIO;
    }
    err = read_lines(&r, s.file);
    /* A damaged archive, or a missing gzip, may show as a bad line first: the cause is what is to be named.
     * */
    const char *cause = source_close(&s);
    if (cause) {
        err = -EIO;
        snprintf(message, room, "%s:%zu: %s", path, r.line, cause);
    } else if (err == -ENOMEM) {
        snprintf(message, room, "%s: out of memory", path);
    }
    vp_numbers_finish(&r.live);
    vp_numbers_finish(&r.streams);
    if (err)
        vp_trace_finish(trace);
    return err;
}

void vp_trace_finish(struct vp_trace *trace) {
    free(trace->events);
    *trace = (struct vp_trace){0};
}
