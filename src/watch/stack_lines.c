/* Which line held most at the peak: stacks of one line count together, as in pages. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/stack_lines.h"

#include "watch/stack_peak.h"
#include "watch/stack_table.h"
#include "base/os_memory.h"

#include <stdlib.h>
#include <string.h>

/* The rule of the tool's vp_stacks_line(): the innermost frame of the highest rank. */
enum { ANY, NATIVE, PYTHON, OWN };

/* Of the file's name, behind LINE:FUNCTION: . What was typed has a name in angle brackets, too. */
static bool is_own(const char *text) {
    const char *file = strchr(text, ':');
    file = file ? strchr(file + 1, ':') : NULL;
    if (file && *++file == '<')
        return !strncmp(file, "<stdin>", 7) || !strncmp(file, "<string>", 8) || !strncmp(file, "<ipython-input", 14);
    return file && !strstr(file, "/site-packages/") && !strstr(file, "/dist-packages/") &&
           !strstr(file, "/lib/python3");
}

static bool is_cuda(const char *path) {
    const char *name = basename(path);
    return !strncmp(name, "libcu", 5) || !strncmp(name, "libvpool", 8) || !strncmp(name, "libnv", 5);
}

static int rank_of(uint32_t frame) {
    const char *text = vp_frame_label(frame);
    if (vp_frame_kind(frame) == VP_FRAME_PYTHON)
        return is_own(text) ? OWN : PYTHON;
    if (vp_frame_kind(frame) == VP_FRAME_NATIVE)
        return is_cuda(vp_module_path((uint32_t)strtoul(text, NULL, 10))) ? ANY : NATIVE;
    return ANY;
}

/* Of each frame its rank and what it held; of each stack the frame that is its line. */
struct lines {
    uint32_t frames, stacks;
    uint64_t *held;
    uint32_t *line;
    uint8_t *rank; /* one more than it is */
};

static size_t room(const struct lines *l) {
    return l->frames * (sizeof *l->held + sizeof *l->rank) + l->stacks * sizeof *l->line;
}

static int rank(const struct lines *l, uint32_t frame) {
    if (!l->rank[frame])
        l->rank[frame] = (uint8_t)(rank_of(frame) + 1);
    return l->rank[frame];
}

/* A stack's own frame is inside its parent's, whose number is lower. */
static void find_lines(const struct lines *l) {
    for (uint32_t i = 1; i < l->stacks; i++) {
        const uint32_t own = vp_stack_frame(i), parent = vp_stack_parent(i), outer = parent ? l->line[parent] : 0;
        l->line[i] = outer && rank(l, outer) > rank(l, own) ? outer : own;
    }
}

static void add(void *to, uint32_t stack, uint64_t bytes) {
    const struct lines *l = to;
    if (stack < l->stacks)
        l->held[l->line[stack]] += bytes;
}

bool vp_line_peak(struct vp_line_peak *out) {
    struct vp_stack_peak peak;
    /* Stacks first: their frames are there already. */
    struct lines l = {.stacks = vp_stack_count() + 1};
    l.frames = vp_frame_count() + 1;
    char *mem = vp_os_take(room(&l));
    if (!mem)
        return false;
    l.held = (uint64_t *)(void *)mem;
    l.line = (uint32_t *)(void *)(l.held + l.frames);
    l.rank = (uint8_t *)(l.line + l.stacks);
    find_lines(&l);
    *out = (struct vp_line_peak){0};
    const bool some = vp_stack_peak(&peak, add, &l);
    for (uint32_t i = 1; some && i < l.frames; i++)
        if (l.held[i] > out->bytes)
            *out = (struct vp_line_peak){.frame = i, .bytes = l.held[i], .of = peak.bytes, .ns = peak.ns};
    vp_os_give(mem, room(&l));
    return out->frame;
}
