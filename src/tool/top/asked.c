/* Asks a process which stacks hold its memory: by a word of its page; the process answers with a file. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/top/asked.h"

#include "base/clock.h"
#include "base/json.h"
#include "tool/read/json_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

/* An answer takes a millisecond; who has none after so long hangs, or is stopped. */
static const uint64_t ANSWER_NS = 1000000000;

/* More is no answer: 32 holders, of stacks of 4,096 frames at most, of which none is that long. */
enum { HOLDERS = 32, FRAMES = 4096, ANSWER_BYTES = 16 << 20 };

/* ---- its file ---- */

static struct vp_asked_holder *holder_of(struct vp_asked *asked, unsigned n) {
    if (n < asked->holders.count)
        return (struct vp_asked_holder *)asked->holders.items + n;
    if (n != asked->holders.count || n >= HOLDERS)
        return NULL;
    struct vp_asked_holder *new = vp_array_add(&asked->holders, sizeof *new);
    if (new)
        *new = (struct vp_asked_holder){0};
    return new;
}

static struct vp_asked_frame *frame_of(struct vp_asked_holder *holder, unsigned n) {
    if (n < holder->stack.count)
        return (struct vp_asked_frame *)holder->stack.items + n;
    if (n != holder->stack.count || n >= FRAMES)
        return NULL;
    struct vp_asked_frame *new = vp_array_add(&holder->stack, sizeof *new);
    if (new)
        *new = (struct vp_asked_frame){0};
    return new;
}

static void set_frame(struct vp_asked_frame *f, const char *field, const char *value) {
    const struct {
        const char *name;
        char **to;
    } texts[] = {{"function", &f->function}, {"file", &f->file},       {"module", &f->module},
                 {"build_id", &f->build_id}, {"address", &f->address}, {"text", &f->text}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!strcmp(field, texts[i].name) && !*texts[i].to)
            *texts[i].to = strdup(value);
    if (!strcmp(field, "line"))
        f->line = strtoull(value, NULL, 10);
}

static void value_told(void *context, const char *path, const char *value) {
    struct vp_asked *asked = context;
    struct vp_asked_holder *holder;
    struct vp_asked_frame *frame;
    unsigned number, level;
    int at = 0, further = 0;
    if (!strcmp(path, "device"))
        asked->device = strtoull(value, NULL, 10);
    if (!strcmp(path, "recorded"))
        asked->recorded = !strcmp(value, "true");
    if (sscanf(path, "holders.%u.%n", &number, &at) < 1 || !at || !(holder = holder_of(asked, number)))
        return;
    path += at;
    if (sscanf(path, "stack.%u.%n", &level, &further) >= 1 && further) {
        if ((frame = frame_of(holder, level)))
            set_frame(frame, path + further, value);
        return;
    }
    uint64_t *to = !strcmp(path, "bytes")     ? &holder->bytes
                   : !strcmp(path, "blocks")  ? &holder->blocks
                   : !strcmp(path, "sampled") ? &holder->sampled
                                              : NULL;
    if (to)
        *to = strtoull(value, NULL, 10);
}

/* The whole file, with a NUL; the caller frees it. NULL: it is too long, or there is no memory. */
static char *read_all(int fd) {
    size_t room = 1 << 16, used = 0;
    char *text = malloc(room);
    for (ssize_t n; text && (n = read(fd, text + used, room - used - 1)) > 0;) {
        used += (size_t)n;
        if (used + 1 < room)
            continue;
        char *more = room < ANSWER_BYTES ? realloc(text, room *= 2) : NULL;
        if (!more)
            free(text);
        text = more;
    }
    if (text)
        text[used] = 0;
    return text;
}

/* False: there is none yet, or it is another's. */
static bool take_answer(struct vp_asked *asked, const struct vp_page *page, uint64_t device) {
    int fd = vp_page_take_answer(page, VP_SHARED_STATS_HOLDERS);
    char *text = fd < 0 ? NULL : read_all(fd);
    if (fd >= 0)
        close(fd);
    bool good = text && vp_json_read(text, value_told, asked) && asked->device == device;
    free(text);
    if (!good)
        vp_asked_drop(asked);
    return good;
}

/* ---- to ask ---- */

#define WISH(field)                                                                                                    \
    (off_t)(offsetof(struct vp_shared_stats, loans) + offsetof(struct vp_loans, holders) +                             \
            offsetof(struct vp_holders_wish, field))

static bool load(int fd, off_t offset, uint8_t *value) {
    return pread(fd, value, 1, offset) == 1;
}

static bool ask(int fd, uint64_t device) {
    const uint8_t ordinal = (uint8_t)device;
    uint8_t number;
    if (!load(fd, WISH(asked), &number))
        return false;
    number++;
    return pwrite(fd, &ordinal, 1, WISH(device)) == 1 && pwrite(fd, &number, 1, WISH(asked)) == 1;
}

/* Its thread may be about to sleep, and is woken again. What another reader has asked for meanwhile, or has taken, is
 * asked for again. */
static const char *await(struct vp_asked *asked, const struct vp_page *page, int fd, uint64_t device) {
    const uint64_t until = vp_clock_ns() + ANSWER_NS;
    const char *fault = "has not answered within a second";
    uint8_t now, answered;
    if (!ask(fd, device))
        return "is gone";
    while (vp_clock_ns() < until) {
        vp_page_wake(fd, offsetof(struct vp_shared_stats, loans) + offsetof(struct vp_loans, asked));
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        if (!load(fd, WISH(asked), &now) || !load(fd, WISH(answered), &answered))
            return "is gone";
        if (answered != now)
            continue;
        if (take_answer(asked, page, device))
            return asked->recorded ? NULL : "records no stacks: start it with VPOOL_STACKS=1M (vpool run --stacks)";
        fault = "could not write its answer into " VP_SHARED_STATS_FOLDER;
        if (!ask(fd, device))
            return "is gone";
    }
    return fault;
}

const char *vp_asked_take(struct vp_asked *asked, const struct vp_page *page, uint64_t device) {
    *asked = (struct vp_asked){0};
    int fd = vp_page_open(page), old;
    if (fd < 0)
        return "is gone";
    /* What nobody has fetched is of some time ago. */
    if ((old = vp_page_take_answer(page, VP_SHARED_STATS_HOLDERS)) >= 0)
        close(old);
    const char *fault = await(asked, page, fd, device);
    close(fd);
    /* At its end a process takes with it what it has written. */
    if (fault && (fd = vp_page_open(page)) < 0)
        return "is gone";
    if (fault)
        close(fd);
    return fault;
}

void vp_asked_drop(struct vp_asked *asked) {
    struct vp_asked_holder *h = asked->holders.items;
    for (size_t i = 0; i < asked->holders.count; i++) {
        struct vp_asked_frame *f = h[i].stack.items;
        for (size_t k = 0; k < h[i].stack.count; k++) {
            free(f[k].function);
            free(f[k].file);
            free(f[k].module);
            free(f[k].build_id);
            free(f[k].address);
            free(f[k].text);
        }
        free(f);
    }
    free(h);
    *asked = (struct vp_asked){0};
}

/* ---- told ---- */

int vp_asked_line(const struct vp_asked_holder *holder) {
    const struct vp_asked_frame *f = holder->stack.items;
    int python = -1;
    for (size_t i = 0; i < holder->stack.count; i++) {
        if (!f[i].file)
            continue;
        python = python < 0 ? (int)i : python;
        if (*f[i].file == '<' ? !strncmp(f[i].file, "<stdin>", 7) || !strncmp(f[i].file, "<string>", 8) ||
                                    !strncmp(f[i].file, "<ipython-input", 14)
                              : !strstr(f[i].file, "-packages/") && !strstr(f[i].file, "/lib/python3"))
            return (int)i;
    }
    return python >= 0 ? python : holder->stack.count ? 0 : -1;
}

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Keeps what the locale can show in a column or two. What has no width could move or hide what stands beside it. */
static void make_showable(char *text) {
    char *out = text;
    for (const char *at = text; *at;) {
        const size_t length = vp_utf8_length((const unsigned char *)at), n = length ? length : 1;
        wchar_t wide;
        mbstate_t state = {0};
        const bool kept = n == 1 ? *at >= ' ' && *at < 127 : mbrtowc(&wide, at, n, &state) == n && wcwidth(wide) > 0;
        if (kept)
            memmove(out, at, n);
        else
            *out = '?';
        out += kept ? n : 1;
        at += n;
    }
    *out = 0;
}

void vp_asked_frame_text(const struct vp_asked_frame *f, char *out, size_t room) {
    if (f->file)
        snprintf(out, room, "%s (%s:%lu)", f->function ? f->function : "?", f->file, (unsigned long)f->line);
    else if (f->module && f->function)
        snprintf(out, room, "%s (%s)", f->function, last_part(f->module));
    else if (f->module)
        snprintf(out, room, "%s+%s", last_part(f->module), f->address ? f->address : "?");
    else
        snprintf(out, room, "%s", f->text ? f->text : "?");
    make_showable(out);
}

static void json_frame(struct vp_json *j, const struct vp_asked_frame *f) {
    vp_json_begin_row(j, NULL);
    if (f->function)
        vp_json_string(j, "function", f->function);
    if (f->file) {
        vp_json_string(j, "file", f->file);
        vp_json_u64(j, "line", f->line);
    }
    if (f->module) {
        vp_json_string(j, "module", f->module);
        vp_json_string(j, "build_id", f->build_id ? f->build_id : "");
        vp_json_string(j, "address", f->address ? f->address : "");
    }
    if (f->text)
        vp_json_string(j, "text", f->text);
    vp_json_end_object(j);
}

void vp_asked_json(struct vp_json *j, const struct vp_asked *asked) {
    const struct vp_asked_holder *h = asked->holders.items;
    vp_json_begin_array(j, "holders");
    for (size_t i = 0; i < asked->holders.count; i++) {
        const struct vp_asked_frame *f = h[i].stack.items;
        vp_json_begin_object(j, NULL);
        vp_json_u64(j, "bytes", h[i].bytes);
        vp_json_u64(j, "blocks", h[i].blocks);
        vp_json_u64(j, "sampled", h[i].sampled);
        vp_json_begin_array(j, "stack");
        for (size_t k = 0; k < h[i].stack.count; k++)
            json_frame(j, &f[k]);
        vp_json_end_array(j);
        vp_json_end_object(j);
    }
    vp_json_end_array(j);
}
