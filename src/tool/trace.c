#include "tool/trace.h"

#include "base/map.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct reader {
    struct vp_trace *trace;
    const char *path;
    size_t line, room;
    bool rmm;
    struct vp_map live;         /* id + 1 -> number of the block + 1 */
    struct vp_map streams;      /* stream + 1 -> number + 1 */
    char *message;
    size_t message_room;
};

static int fault(struct reader *r, const char *format, ...) {
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
    pid_t gzip;                 /* 0: plain */
};

static int source_open(struct source *s, const char *path) {
    unsigned char magic[2];
    int fd = open(path, O_RDONLY | O_CLOEXEC), ends[2];
    if (fd < 0)
        return -errno;
    bool packed = pread(fd, magic, 2, 0) == 2 && magic[0] == 0x1f && magic[1] == 0x8b;
    s->gzip = 0;
    if (packed) {
        if (pipe2(ends, O_CLOEXEC) < 0 || (s->gzip = fork()) < 0) {
            int err = -errno;
            close(fd);
            return err;
        }
        if (!s->gzip) {
            dup2(fd, 0);
            dup2(ends[1], 1);
            execlp("gzip", "gzip", "-dcq", (char *)NULL);
            _exit(127);
        }
        close(ends[1]);
        close(fd);
        fd = ends[0];
    }
    s->file = fdopen(fd, "r");
    return s->file ? 0 : -ENOMEM;
}

/* 0, or -EIO if reading failed or the archive was cut off or damaged. */
static int source_close(struct source *s, bool whole) {
    int status = 0, err = ferror(s->file) ? -EIO : 0;
    fclose(s->file);
    if (s->gzip && (waitpid(s->gzip, &status, 0) < 0 || (whole && (!WIFEXITED(status) || WEXITSTATUS(status)))))
        err = -EIO;
    return err;
}

/* ---- fields ---- */

static bool number(const char *text, int base, uint64_t *out) {
    char *end;
    errno = 0;
    *out = strtoull(text, &end, base);
    return *text && *text != '-' && *text != ' ' && !*end && !errno;
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

static int number_of(struct vp_map *map, uint64_t key, uint32_t *count, uint32_t *out) {
    uintptr_t n = (uintptr_t)vp_map_get(map, key + 1);
    if (!n) {
        if (vp_map_reserve(map) < 0)
            return -ENOMEM;
        n = ++*count;
        vp_map_set(map, key + 1, (void *)n);
    }
    *out = (uint32_t)(n - 1);
    return 0;
}

static int add(struct reader *r, bool alloc, uint64_t id, uint64_t size, uint64_t stream) {
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
    if (alloc && vp_map_get(&r->live, id + 1))
        return fault(r, "allocation %" PRIu64 " is live already", id);
    if (!alloc && !vp_map_get(&r->live, id + 1))
        return fault(r, "free of %" PRIu64 ", which is not live", id);
    if (number_of(&r->live, id, &t->blocks, &block) < 0 || number_of(&r->streams, stream, &t->streams, &s) < 0)
        return -ENOMEM;
    if (!alloc)
        vp_map_take(&r->live, id + 1);
    t->events[t->count++] = (struct vp_trace_event){ .alloc = alloc, .block = block, .stream = s, .size = size };
    return 0;
}

static int our_line(struct reader *r, char *line) {
    char *f[5];
    uint64_t id, size, stream, us;
    if (split(line, f, 5) != 5)
        return fault(r, "expected op,id,size,stream,us");
    bool alloc = !strcmp(f[0], "a");
    if (!alloc && strcmp(f[0], "f"))
        return fault(r, "unknown operation '%.20s': a or f", f[0]);
    if (!number(f[1], 10, &id) || id == UINT64_MAX)
        return fault(r, "'%.40s' is no id", f[1]);
    if (!number(f[2], 10, &size) || (alloc && !size))
        return fault(r, "'%.40s' is no size", f[2]);
    if (!number(f[3], 10, &stream))
        return fault(r, "'%.40s' is no stream", f[3]);
    if (!number(f[4], 10, &us))
        return fault(r, "'%.40s' is no time", f[4]);
    return add(r, alloc, id, size, stream);
}

static int rmm_line(struct reader *r, char *line) {
    char *f[6];
    uint64_t pointer, size, stream;
    if (split(line, f, 6) != 6)
        return fault(r, "expected Thread,Time,Action,Pointer,Size,Stream");
    bool alloc = !strcmp(f[2], "allocate");
    if (!strcmp(f[2], "allocate failure"))
        return 0;
    if (!alloc && strcmp(f[2], "free"))
        return fault(r, "unknown action '%.20s': allocate or free", f[2]);
    if (!number(f[3], 16, &pointer))
        return fault(r, "'%.40s' is no pointer", f[3]);
    if (!number(f[4], 10, &size))
        return fault(r, "'%.40s' is no size", f[4]);
    if (!number(f[5], 16, &stream))
        return fault(r, "'%.40s' is no stream", f[5]);
    return alloc && !size ? 0 : add(r, alloc, pointer, size, stream);
}

static bool is_zero(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (text[i])
            return false;
    return true;
}

static int read_lines(struct reader *r, FILE *file) {
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    int err = 0;
    while (!err && (n = getline(&line, &room, file)) >= 0) {
        /* The recorder of a process that was killed leaves zero bytes behind its last line. */
        if (n && is_zero(line, (size_t)n))
            break;
        bool ended = n && line[n - 1] == '\n';
        r->line++;
        while (n && (line[n - 1] == '\n' || line[n - 1] == '\r'))
            line[--n] = 0;
        if (r->line == 1) {
            r->rmm = !strcmp(line, "Thread,Time,Action,Pointer,Size,Stream");
            if (!r->rmm && strcmp(line, "op,id,size,stream,us"))
                err = fault(r, "no header of a trace: op,id,size,stream,us or Thread,Time,Action,Pointer,Size,Stream");
        } else if (!ended) {
            err = fault(r, "the last line is cut off");
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
    struct reader r = { .trace = trace, .path = path, .message = message, .message_room = room };
    struct source s = { 0 };
    *trace = (struct vp_trace){ 0 };
    int err = source_open(&s, path);
    if (err) {
        snprintf(message, room, "%s: %s", path, strerror(-err));
        return -EIO;
    }
    err = read_lines(&r, s.file);
    int end = source_close(&s, !err);
    /* A damaged archive shows as a cut-off line first; the archive is what is to be named. */
    if (s.gzip && !err && end) {
        err = end;
        snprintf(message, room, "%s:%zu: the archive is damaged or cut off", path, r.line);
    } else if (!err && end) {
        err = end;
        snprintf(message, room, "%s: cannot be read", path);
    } else if (err == -ENOMEM) {
        snprintf(message, room, "%s: out of memory", path);
    }
    vp_map_finish(&r.live);
    vp_map_finish(&r.streams);
    if (err)
        vp_trace_finish(trace);
    return err;
}

void vp_trace_finish(struct vp_trace *trace) {
    free(trace->events);
    *trace = (struct vp_trace){ 0 };
}
