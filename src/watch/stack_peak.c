/* What each stack held at the peak, and which line held most: see stack_peak.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/stack_peak.h"

#include "watch/stack_table.h"
#include "base/clock.h"
#include "base/os_memory.h"

#include <stdlib.h>
#include <string.h>

/* ---- what each stack held ---- */

struct held {
    int64_t bytes, before; /* now; and before the first change since the peak numbered `since` */
    uint64_t since;
};

struct vp_lock vp_stack_peak_guard; /* comes last */
static struct {
    struct held *stacks; /* by the stack's number; NULL: there was no block yet, or no memory */
    int64_t alive, most;
    uint64_t peaks;     /* so far */
    uint64_t first, at; /* the times of the first block and of the last peak, by vp_clock_ns() */
} peak VP_GUARDED_BY(vp_stack_peak_guard);

void vp_stack_peak_add(uint32_t stack, int64_t bytes) {
    vp_lock_take(&vp_stack_peak_guard);
    if (!peak.stacks) {
        peak.stacks = vp_os_take_sparse(VP_STACKS_MOST * sizeof(struct held));
        peak.first = vp_clock_ns();
    }
    if (peak.stacks) {
        struct held *h = &peak.stacks[stack];
        if (h->since != peak.peaks)
            *h = (struct held){.bytes = h->bytes, .before = h->bytes, .since = peak.peaks};
        h->bytes += bytes;
        peak.alive += bytes;
        if (peak.alive > peak.most) {
            peak.most = peak.alive;
            peak.peaks++;
            peak.at = vp_clock_ns();
        }
    }
    vp_lock_release(&vp_stack_peak_guard);
}

static VP_REQUIRES(vp_stack_peak_guard) uint64_t held_then(uint32_t stack) {
    const struct held *h = &peak.stacks[stack];
    const int64_t bytes = h->since == peak.peaks ? h->before : h->bytes;
    return bytes > 0 ? (uint64_t)bytes : 0;
}

/* ---- lines ---- */

/* The rule of the tool's vp_stacks_line(): the innermost frame of the highest rank. */
enum { ANY = 1, NATIVE, PYTHON, OWN };

/* Is it the program's own code, by the file behind LINE:FUNCTION:? Typed code has a name in angle brackets, too. */
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

static uint8_t rank_of(uint32_t frame) {
    const struct vp_frame *f = vp_frame(frame);
    if (f->kind == VP_FRAME_PYTHON)
        return is_own(f->label) ? OWN : PYTHON;
    if (f->kind == VP_FRAME_NATIVE)
        return is_cuda(vp_module((uint32_t)strtoul(f->label, NULL, 10))->path) ? ANY : NATIVE;
    return ANY;
}

bool vp_line_peak(struct vp_line_peak *out) {
    /* Count stacks first: their frames exist already. */
    const uint32_t stacks = vp_stack_count() + 1, frames = vp_frame_count() + 1;
    const size_t room = frames * (sizeof(uint64_t) + sizeof(uint8_t)) + stacks * sizeof(uint32_t);
    uint64_t *held = vp_os_take(room);
    *out = (struct vp_line_peak){0};
    if (!held)
        return false;
    uint32_t *line = (uint32_t *)(held + frames); /* the frame that is each stack's line */
    uint8_t *rank = (uint8_t *)(line + stacks);
    /* A stack's own frame is called by its parent's, whose number is lower. */
    for (uint32_t i = 1; i < stacks; i++) {
        const uint32_t own = vp_stack_frame(i), outer = line[vp_stack_parent(i)];
        if (!rank[own])
            rank[own] = rank_of(own);
        line[i] = rank[outer] > rank[own] ? outer : own;
    }
    if (vp_lock_for_a_while(&vp_stack_peak_guard)) {
        for (uint32_t i = 1; peak.stacks && i < stacks; i++)
            held[line[i]] += held_then(i);
        out->of = (uint64_t)peak.most;
        out->ns = peak.at - peak.first;
        vp_lock_release(&vp_stack_peak_guard);
    }
    for (uint32_t i = 1; i < frames; i++)
        if (held[i] > out->bytes) {
            out->frame = i;
            out->bytes = held[i];
        }
    vp_os_give(held, room);
    return out->frame;
}
