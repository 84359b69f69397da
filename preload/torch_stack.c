/* Which stream a call deeper in the stack is about. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "torch_stack.h"

#include <dlfcn.h>
#include <stdint.h>
#include "early.h"

/* The unwinder of the C++ runtime, which PyTorch brings along. The C++ ABI of the platform defines these names. */
struct _Unwind_Context;
typedef int trace_fn(struct _Unwind_Context *frame, void *data);
static struct unwinder {
    int (*trace)(trace_fn *, void *);
    uintptr_t (*address)(struct _Unwind_Context *);
    void *(*function)(void *);
} unwinder;

static bool look_for_unwinder(void *handle) {
    unwinder.trace = (__typeof__(unwinder.trace))vp_real_dlsym(handle, "_Unwind_Backtrace");
    unwinder.address = (__typeof__(unwinder.address))vp_real_dlsym(handle, "_Unwind_GetIP");
    unwinder.function = (__typeof__(unwinder.function))vp_real_dlsym(handle, "_Unwind_FindEnclosingFunction");
    return unwinder.trace && unwinder.address && unwinder.function;
}

/* One thread looks for it, once; until then other threads get no answer. */
static bool find_unwinder(void) {
    enum { NOT_YET, LOOKING, THERE, NOWHERE };
    static atomic_int state = NOT_YET;
    int now = atomic_load_explicit(&state, memory_order_acquire);
    if (now == NOT_YET && atomic_compare_exchange_strong(&state, &now, LOOKING)) {
        bool found = look_for_unwinder(RTLD_DEFAULT);
        void *handle = found ? NULL : vp_real_dlopen("libgcc_s.so.1", RTLD_NOLOAD | RTLD_LAZY);
        now = found || (handle && look_for_unwinder(handle)) ? THERE : NOWHERE;
        atomic_store_explicit(&state, now, memory_order_release);
    }
    return now == THERE;
}

/* Frames from here to the function in question: the cache's own, and ours. */
enum { FRAMES = 16, TRACED = 0, STOP = 4 /* _URC_NORMAL_STOP */ };

struct search {
    const void *function;
    unsigned frames;
    bool found;
};

static int look(struct _Unwind_Context *frame, void *data) {
    struct search *search = data;
    uintptr_t address = unwinder.address(frame);
    search->found = address && unwinder.function((void *)(address - 1)) == search->function;
    return search->found || ++search->frames == FRAMES ? STOP : TRACED;
}

static bool is_running(const char *from) {
    struct search search = {0};
    if (!find_unwinder())
        return false;
    search.function = unwinder.function((void *)(uintptr_t)(from - 1));
    if (search.function)
        unwinder.trace(look, &search);
    return search.found;
}

bool vp_torch_is_one_function(const char *a, const char *b) {
    static _Thread_local struct {
        const char *a, *b;
        bool one;
    } known[8] __attribute__((tls_model("initial-exec")));
    static _Thread_local unsigned next __attribute__((tls_model("initial-exec")));
    enum { KNOWN = sizeof(known) / sizeof(known[0]) };
    void *function = NULL;
    unsigned i;
    for (i = 0; i < KNOWN; i++)
        if (known[i].a == a && known[i].b == b)
            return known[i].one;
    i = next++ % KNOWN;
    if (find_unwinder())
        function = unwinder.function((void *)(uintptr_t)(a - 1));
    known[i].a = a;
    known[i].b = b;
    known[i].one = function && function == unwinder.function((void *)(uintptr_t)(b - 1));
    return known[i].one;
}

/* What was found, of this thread: a function that calls on from one place has one distance to each place further in. */
static _Thread_local struct {
    struct known {
        const char *from;
        ptrdiff_t distance;
        bool runs;
    } known[8];
    unsigned next;
} seen __attribute__((tls_model("initial-exec")));

static bool runs(const struct vp_torch_hint *hint, const char *frame) {
    enum { KNOWN = sizeof(seen.known) / sizeof(seen.known[0]) };
    const ptrdiff_t distance = hint->frame - frame;
    struct known *known;
    for (known = seen.known; known < seen.known + KNOWN; known++)
        if (known->from == hint->from && known->distance == distance)
            return known->runs;
    known = &seen.known[seen.next++ % KNOWN];
    *known = (struct known){hint->from, distance, is_running(hint->from)};
    return known->runs;
}

struct vp_bare_stream vp_torch_hint_take(struct vp_torch_hints *hints, const char *frame, CUdevice *device) {
    struct vp_bare_stream stream = {0};
    while (hints->count && !stream.known) {
        const struct vp_torch_hint *hint = &hints->hint[--hints->count];
        if (hint->frame > frame && runs(hint, frame)) {
            stream = (struct vp_bare_stream){hint->stream, true};
            *device = hint->device;
        }
    }
    hints->count = 0;
    return stream;
}
