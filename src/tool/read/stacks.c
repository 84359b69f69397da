/* Names the frames of stacks, and finds the line that a stack stands for. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/read/stacks.h"

#include "tool/read/names.h"
#include "tool/plan/numbers.h"
#include "tool/read/utf8.h"

#include <errno.h>
#include <string.h>

void vp_stacks_finish(struct vp_stacks *s) {
    struct vp_frame *frames = s->frames.items;
    struct vp_module *modules = s->modules.items;
    for (size_t i = 0; i < s->frames.count; i++) {
        free(frames[i].name);
        free(frames[i].file);
    }
    for (size_t i = 0; i < s->modules.count; i++) {
        free(modules[i].path);
        free(modules[i].build_id);
    }
    free(s->frames.items);
    free(s->modules.items);
    free(s->stacks.items);
    free(s->complaint);
    *s = (struct vp_stacks){0};
}

/* ---- as text ---- */

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

const char *vp_frame_file(const struct vp_stacks *s, const struct vp_frame *f) {
    if (f->file)
        return f->file;
    return f->kind == VP_FRAME_NATIVE ? vp_stacks_module(s, f)->path : "";
}

const char *vp_frame_text(const struct vp_stacks *s, const struct vp_frame *f, char *text, size_t room) {
    const char *file = last_part(vp_frame_file(s, f));
    if (f->kind == VP_FRAME_NATIVE && !f->name)
        snprintf(text, room, "%s+0x%llx", *file ? file : "?", (unsigned long long)f->offset);
    else if (f->line)
        snprintf(text, room, "%s:%u %s", file, f->line, f->name);
    else
        snprintf(text, room, "%s%s%s", f->name, *file ? " in " : "", file);
    vp_utf8_repair(text); /* the text may end within a character */
    return text;
}

/* ---- what reads the same is one ---- */

static uint64_t hash_text(uint64_t h, const char *text) {
    for (; text && *text; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return (h ^ 0xff) * UINT64_C(0x100000001b3);
}

static uint64_t hash_frame(const struct vp_frame *f) {
    uint64_t h = hash_text(hash_text(UINT64_C(0xcbf29ce484222325), f->name), f->file);
    h = (h ^ f->line) * UINT64_C(0x9e3779b97f4a7c15);
    /* If lines are not known, all places in a function are one frame. */
    if (f->kind == VP_FRAME_NATIVE)
        h = (h ^ f->module ^ (f->name ? 0 : f->offset << 20)) * UINT64_C(0x9e3779b97f4a7c15);
    return (h ^ h >> 29) | 1;
}

static bool same_text(const char *a, const char *b) {
    return a == b || (a && b && !strcmp(a, b));
}

static bool same_frame(const struct vp_frame *a, const struct vp_frame *b) {
    return a->kind == b->kind && a->line == b->line && same_text(a->name, b->name) && same_text(a->file, b->file) &&
           (a->kind != VP_FRAME_NATIVE || (a->module == b->module && (a->name || a->offset == b->offset)));
}

/* Finds, for each frame, the first frame with the same text. Two different frames with the same hash stay two: the
 * later one finds itself. */
static int first_of_frames(const struct vp_stacks *s, uint32_t *first) {
    const struct vp_frame *frames = s->frames.items;
    struct vp_numbers seen = {0};
    int err = 0;
    for (size_t i = 0; i < s->frames.count && !err; i++) {
        uint64_t h = hash_frame(&frames[i]), n = vp_numbers_get(&seen, h);
        first[i] = n && same_frame(&frames[n - 1], &frames[i]) ? (uint32_t)n - 1 : (uint32_t)i;
        if (!n)
            err = vp_numbers_set(&seen, h, i + 1);
    }
    vp_numbers_finish(&seen);
    return err;
}

static int unite(struct vp_stacks *s, const uint32_t *first, uint32_t *map) {
    struct vp_stack *stacks = s->stacks.items;
    struct vp_numbers seen = {0};
    size_t kept = s->stacks.count ? 1 : 0;
    int err = 0;
    map[0] = 0;
    for (size_t i = 1; i < s->stacks.count && !err; i++) {
        const struct vp_stack stack = {map[stacks[i].parent], first[stacks[i].frame], stacks[i].depth};
        uint64_t key = vp_numbers_pair(stack.parent, stack.frame), n = vp_numbers_get(&seen, key);
        map[i] = n ? (uint32_t)n : (uint32_t)kept;
        if (n)
            continue;
        err = vp_numbers_set(&seen, key, kept);
        stacks[kept++] = stack;
    }
    vp_numbers_finish(&seen);
    s->stacks.count = kept;
    return err;
}

int vp_stacks_name(struct vp_stacks *s, uint32_t **map) {
    *map = NULL;
    if (s->named)
        return 0;
    uint32_t *first = calloc(s->frames.count + 1, sizeof *first);
    *map = calloc(s->stacks.count + 1, sizeof **map);
    int err = first && *map ? vp_names_look_up(s) : -ENOMEM;
    if (!err)
        err = first_of_frames(s, first);
    if (!err)
        err = unite(s, first, *map);
    free(first);
    s->named = !err;
    if (err) {
        free(*map);
        *map = NULL;
    }
    return err;
}

/* ---- which line is meant ---- */

/* Is the file of an installed package, or of Python itself? Typed code has its name in angle brackets, too. */
static bool is_installed(const char *file) {
    if (file && *file == '<')
        return strncmp(file, "<stdin>", 7) != 0 && strncmp(file, "<string>", 8) != 0 &&
               strncmp(file, "<ipython-input", 14) != 0;
    return !file || strstr(file, "/site-packages/") || strstr(file, "/dist-packages/") || strstr(file, "/lib/python3");
}

static bool is_cuda(const char *path) {
    const char *name = last_part(path);
    return !strncmp(name, "libcu", 5) || !strncmp(name, "libvpool", 8) || !strncmp(name, "libnv", 5);
}

uint32_t vp_stacks_line(const struct vp_stacks *s, uint32_t stack) {
    uint32_t best = stack;
    int rank = 0;
    for (; stack && rank < 3; stack = vp_stacks_at(s, stack)->parent) {
        const struct vp_frame *f = vp_stacks_frame(s, stack);
        int now = f->kind == VP_FRAME_PYTHON   ? (is_installed(f->file) ? 2 : 3)
                  : f->kind == VP_FRAME_NATIVE ? !is_cuda(vp_stacks_module(s, f)->path)
                                               : 0;
        if (now > rank) {
            rank = now;
            best = stack;
        }
    }
    return best;
}
