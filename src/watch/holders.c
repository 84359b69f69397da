/* Writes who holds memory: see holders.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/holders.h"

#include "base/descriptor.h"
#include "base/os_memory.h"
#include "watch/marks.h"
#include "watch/stack_peak.h"
#include "watch/stacks.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- a frame, taken apart again ---- */

struct frame {
    enum vp_frame_kind kind;
    char function[256];
    const char *file; /* the Python file, the native module's file, or else the words */
    uint64_t place;   /* the line, or an address in the module's file */
    uint32_t module;
};

/* Fills in the name of a function that its module exports, unless another module lies at that address now. */
static void name_function(struct frame *f) {
    const ElfW(Sym) *symbol = NULL;
    Dl_info info;
    const void *address = (const void *)(uintptr_t)(vp_module(f->module)->bias + f->place);
    if (!dladdr1(address, &info, (void **)&symbol, RTLD_DL_SYMENT) || !symbol || !info.dli_sname || !info.dli_fname ||
        (uintptr_t)address - (uintptr_t)info.dli_saddr >= symbol->st_size ||
        (*f->file && strcmp(basename(f->file), basename(info.dli_fname)) != 0))
        return;
    snprintf(f->function, sizeof f->function, "%s", info.dli_sname);
}

/* Takes a label apart. With `named`, a native frame also gets its function's name. */
static struct frame frame_of(uint32_t number, bool named) {
    const char *text = vp_frame(number)->label, *colon;
    struct frame f = {.kind = vp_frame(number)->kind, .file = text};
    if (f.kind == VP_FRAME_PYTHON && (colon = strchr(text, ':'))) {
        const char *name = colon + 1, *end = strchr(name, ':');
        f.place = strtoul(text, NULL, 10);
        const int room = vp_utf8_fit(name, sizeof f.function - 1), length = end ? (int)(end - name) : 0;
        snprintf(f.function, sizeof f.function, "%.*s", length < room ? length : room, name);
        f.file = end ? end + 1 : name;
    } else if (f.kind == VP_FRAME_NATIVE && (colon = strchr(text, ':'))) {
        f.module = (uint32_t)strtoul(text, NULL, 10);
        f.place = strtoul(colon + 1, NULL, 16);
        f.file = vp_module(f.module)->path;
        if (named)
            name_function(&f);
    }
    return f;
}

/* ---- JSON ---- */

/* Writes a frame: with its number if `numbered`, and with the name of a native function if `named`. */
static void json_frame(struct vp_json *j, uint32_t number, bool numbered, bool named) {
    struct frame f = frame_of(number, named);
    char address[24];
    vp_json_begin_row(j, NULL);
    if (numbered)
        vp_json_u64(j, "frame", number);
    if (f.kind == VP_FRAME_PYTHON || *f.function)
        vp_json_string(j, "function", f.function);
    if (f.kind == VP_FRAME_PYTHON) {
        vp_json_string(j, "file", f.file);
        vp_json_u64(j, "line", f.place);
    } else if (f.kind == VP_FRAME_NATIVE) {
        snprintf(address, sizeof address, "0x%lx", f.place);
        vp_json_string(j, "module", f.file);
        vp_json_string(j, "build_id", vp_module(f.module)->build_id);
        vp_json_string(j, "address", address);
    } else {
        vp_json_string(j, "text", f.file);
    }
    vp_json_end_object(j);
}

void vp_holders_json(struct vp_json *j, CUdevice device, bool named) {
    struct vp_stack_holder all[VP_HOLDERS_TOLD];
    const int count = vp_stacks_holders(device, all, VP_HOLDERS_TOLD);
    if (count < 0)
        return;
    vp_json_begin_array(j, "holders");
    for (int i = 0; i < count; i++) {
        vp_json_begin_object(j, NULL);
        vp_json_numbers(j, {"bytes", all[i].bytes}, {"blocks", all[i].blocks}, {"sampled", all[i].sampled});
        vp_json_begin_array(j, "stack");
        for (uint32_t s = all[i].stack; s; s = vp_stack_parent(s))
            json_frame(j, vp_stack_frame(s), false, named);
        vp_json_end_array(j);
        vp_json_end_object(j);
    }
    vp_json_end_array(j);
}

void vp_holders_stacks_json(struct vp_json *j, uint8_t *named, uint32_t count) {
    const uint32_t frames = vp_frame_count() + 1;
    uint8_t *used = vp_os_take(frames);
    if (!used)
        return;
    for (uint32_t s = count; s-- > 1;)
        if (named[s]) {
            named[vp_stack_parent(s)] = true;
            used[vp_stack_frame(s)] = true;
        }
    vp_json_begin_array(j, "stacks");
    for (uint32_t s = 1; s < count; s++)
        if (named[s])
            vp_json_row(j, NULL, {"stack", s}, {"parent", vp_stack_parent(s)}, {"frame", vp_stack_frame(s)});
    vp_json_end_array(j);
    vp_json_begin_array(j, "frames");
    for (uint32_t f = 1; f < frames; f++)
        if (used[f])
            json_frame(j, f, true, false);
    vp_json_end_array(j);
    vp_os_give(used, frames);
}

/* ---- to a reader of the page ---- */

/* Writes a new file for each answer: a reader that still has the last one open keeps that. */
static void write_answer(const char *page, uint32_t device) {
    struct vp_json j;
    char name[96], buffer[4096];
    snprintf(name, sizeof name, "%s" VP_SHARED_STATS_HOLDERS, page);
    unlink(name);
    int fd = vp_descriptor_above_standard(open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (fd < 0)
        return;
    vp_json_init(&j, fd, buffer, sizeof buffer);
    vp_json_begin_object(&j, NULL);
    vp_json_u64(&j, "device", device);
    vp_json_bool(&j, "recorded", vp_stacks_wanted());
    vp_holders_json(&j, (CUdevice)device, true);
    vp_json_end_object(&j);
    const bool whole = !vp_json_finish(&j);
    if (close(fd) < 0 || !whole)
        unlink(name);
}

void vp_holders_answer(struct vp_shared_stats *page, const char *file) {
    struct vp_holders_wish *wish = &page->loans.holders;
    const uint8_t asked = atomic_load(&wish->asked);
    if (asked == atomic_load(&wish->answered))
        return;
    write_answer(file, atomic_load(&wish->device));
    atomic_store(&wish->answered, asked);
}

/* ---- text ---- */

/* The two arguments of "%.*s" that print at most so many bytes of a text, and no part of a character. */
#define CUT(text, most) vp_utf8_fit(text, most), text

static void say_frame(struct vp_text *t, const char *indent, uint32_t number) {
    struct frame f = frame_of(number, true);
    vp_say(t, "%s               ", indent);
    if (f.kind == VP_FRAME_PYTHON)
        vp_say_line(t, "%.*s (%.*s:%lu)", CUT(f.function, 80), CUT(f.file, 200), f.place);
    else if (f.kind == VP_FRAME_NATIVE && *f.function)
        vp_say_line(t, "%.*s (%.*s)", CUT(f.function, 120), CUT(basename(f.file), 80));
    else if (f.kind == VP_FRAME_NATIVE)
        vp_say_line(t, "%.*s+0x%lx", CUT(basename(f.file), 80), f.place);
    else
        vp_say_line(t, "%.*s", CUT(f.file, 200));
}

static void say_stack(struct vp_text *t, const char *indent, uint32_t stack, int frames) {
    for (; stack && frames; frames--, stack = vp_stack_parent(stack))
        say_frame(t, indent, vp_stack_frame(stack));
    if (stack)
        vp_say(t, "%s               ...\n", indent);
}

void vp_holders_say(struct vp_text *t, CUdevice device, int most, int frames, const char *indent) {
    struct vp_stack_holder all[VP_HOLDERS_TOLD];
    const int count = vp_stacks_holders(device, all, most < VP_HOLDERS_TOLD ? most : VP_HOLDERS_TOLD);
    for (int i = 0; i < count; i++) {
        vp_say(t, "%s%12s %s %lu block%s, asked for by\n", indent, VP_SIZE(all[i].bytes),
               all[i].sampled ? "in about" : "in", all[i].blocks, all[i].blocks == 1 ? "" : "s");
        say_stack(t, indent, all[i].stack, frames);
    }
}

void vp_holders_log(uint32_t stack) {
    enum { FRAMES = 8 };
    /* Too large for some stacks. This text is far from filling the buffer. */
    struct vp_text *t = vp_log_shows(VP_LOG_WARN) ? vp_os_take(sizeof *t) : NULL;
    if (!t)
        return;
    vp_say(t, "vpool:   it was asked for by\n");
    say_stack(t, "vpool: ", stack, FRAMES);
    vp_log_block(t->buffer);
    vp_os_give(t, sizeof *t);
}

void vp_holders_peak(char *text, size_t room) {
    struct vp_line_peak peak;
    *text = 0;
    if (!vp_stacks_wanted() || !vp_line_peak(&peak))
        return;
    struct frame f = frame_of(peak.frame, true);
    const size_t n = (size_t)snprintf(text, room, "%s after the first block: ", VP_TIME(peak.ns));
    const int percent = (int)(100 * peak.bytes / peak.of);
    char bytes[32];
    snprintf(bytes, sizeof bytes, "%s", VP_SIZE(peak.bytes));
    if (f.kind == VP_FRAME_PYTHON)
        snprintf(text + n, room - n, "%.*s:%lu %.*s held most, %s (%d %%)", CUT(basename(f.file), 80), f.place,
                 CUT(f.function, 80), bytes, percent);
    else if (f.kind == VP_FRAME_NATIVE && *f.function)
        snprintf(text + n, room - n, "%.*s held most, %s (%d %%)", CUT(f.function, 120), bytes, percent);
    else if (f.kind == VP_FRAME_NATIVE)
        snprintf(text + n, room - n, "%.*s+0x%lx held most, %s (%d %%)", CUT(basename(f.file), 80), f.place, bytes,
                 percent);
    else
        snprintf(text + n, room - n, "%s held most (%d %%): %.*s", bytes, percent, CUT(f.file, 120));
}

/* ---- ranges ---- */

void vp_ranges_json(struct vp_json *j) {
    struct vp_marks_peak peak;
    vp_json_begin_array(j, "ranges");
    for (unsigned i = 0; vp_marks_peak(&i, &peak);) {
        vp_json_begin_row(j, NULL);
        vp_json_string(j, "name", peak.name);
        vp_json_numbers(j, {"peak_bytes", peak.peak_bytes}, {"times", peak.times});
        vp_json_end_object(j);
    }
    vp_json_end_array(j);
}

void vp_ranges_open_json(struct vp_json *j) {
    struct vp_marks_open open;
    vp_json_begin_array(j, "threads");
    for (unsigned i = 0; vp_marks_open(&i, &open);) {
        vp_json_begin_row(j, NULL);
        vp_json_u64(j, "thread", open.thread);
        vp_json_string(j, "range", open.name);
        vp_json_u64(j, "depth", open.depth);
        vp_json_end_object(j);
    }
    vp_json_end_array(j);
}

void vp_ranges_say(struct vp_text *t) {
    struct vp_marks_peak peak;
    struct vp_marks_open open;
    bool any = false;
    for (unsigned i = 0; vp_marks_peak(&i, &peak);) {
        if (!any)
            vp_say(t, "\nthe program's ranges: the most that was alive in each, how often it began\n");
        vp_say_line(t, "  %12s %8lu time%s %s", VP_SIZE(peak.peak_bytes), peak.times, peak.times == 1 ? " " : "s",
                    peak.name);
        any = true;
    }
    for (unsigned i = 0; vp_marks_open(&i, &open);)
        if (open.thread)
            vp_say_line(t, "  thread %lu is in %s, at depth %u", open.thread, open.name, open.depth);
        else
            vp_say_line(t, "  the process is in %s", open.name);
}

void vp_ranges_say_most(struct vp_text *t, const char *indent) {
    enum { MOST = 5 };
    struct vp_marks_peak all[MOST + 1], peak; /* the largest first; the last is dropped */
    unsigned count = 0, dropped = 0;
    for (unsigned i = 0; vp_marks_peak(&i, &peak);) {
        unsigned at = count;
        for (; at && all[at - 1].peak_bytes < peak.peak_bytes; at--)
            all[at] = all[at - 1];
        all[at] = peak;
        count == MOST ? dropped++ : count++;
    }
    for (unsigned i = 0; i < count; i++)
        vp_say_line(t, "%s%12s at most in range %s, %lu time%s", indent, VP_SIZE(all[i].peak_bytes), all[i].name,
                    all[i].times, all[i].times == 1 ? "" : "s");
    if (dropped)
        vp_say(t, "%s             and %u more, named in VPOOL_STATS=FILE\n", indent, dropped);
}
