/* Walks native stacks with libgcc's unwinder, found at run time, and finds the modules of their addresses. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/stack_walk.h"

#include "base/os_memory.h"
#include "watch/stack_memo.h"

#include <dlfcn.h>
#include <elf.h>
#include <limits.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>

/* ---- the unwinder ---- */

typedef _Unwind_Reason_Code backtrace_fn(_Unwind_Trace_Fn, void *);
typedef uintptr_t get_ip_fn(struct _Unwind_Context *);
typedef uintptr_t get_register_fn(struct _Unwind_Context *, int);

static backtrace_fn *_Atomic backtrace;
static get_ip_fn *get_ip, *get_cfa;
static get_register_fn *get_register;

/* DWARF's number. 0: the register may be saved nowhere, and to ask for it then ends the program; no walk is kept. */
#ifdef __x86_64__
enum { FRAME_POINTER = 6 };
#else
enum { FRAME_POINTER = 0 };
#endif

static struct {
    uintptr_t begin, end;
} own; /* the addresses of this library */

/* Finds a libgcc function. Few programs that link libgcc in export it; C programs have none. Then it is loaded for
 * good. */
static void *find(const char *name) {
    static void *library;
    void *function = dlsym(RTLD_DEFAULT, name);
    if (!function && !library)
        library = dlopen("libgcc_s.so.1", RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
    return function || !library ? function : dlsym(library, name);
}

/* ---- modules ---- */

struct search {
    uintptr_t address;
    struct dl_phdr_info info;
    uintptr_t begin, end;
    bool found;
};

static int holds(struct dl_phdr_info *info, size_t size, void *context) {
    struct search *s = context;
    uintptr_t begin = UINTPTR_MAX, end = 0;
    bool inside = false;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD)
            continue;
        const uintptr_t from = info->dlpi_addr + p->p_vaddr, to = from + p->p_memsz;
        inside |= s->address >= from && s->address < to;
        begin = from < begin ? from : begin;
        end = to > end ? to : end;
    }
    if (!inside)
        return 0;
    s->info = *info;
    s->begin = begin;
    s->end = end;
    return s->found = true;
}

static bool find_module(struct search *s, uintptr_t address) {
    *s = (struct search){.address = address};
    dl_iterate_phdr(holds, s);
    return s->found;
}

static int count_modules(struct dl_phdr_info *info, size_t size, void *seen) {
    *(struct vp_modules_seen *)seen = (struct vp_modules_seen){info->dlpi_adds, info->dlpi_subs};
    return 1;
}

struct vp_modules_seen vp_modules_seen(void) {
    struct vp_modules_seen seen = {0};
    dl_iterate_phdr(count_modules, &seen);
    return seen;
}

enum { BUILD_ID_MOST = 32 };

static void put_build_id(const unsigned char *id, size_t n, char out[2 * BUILD_ID_MOST + 1]) {
    for (size_t i = 0; i < n && i < BUILD_ID_MOST; i++)
        snprintf(out + 2 * i, 3, "%02x", id[i]);
}

static void read_build_id(const struct dl_phdr_info *info, char out[2 * BUILD_ID_MOST + 1]) {
    *out = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_NOTE)
            continue;
        const size_t align = p->p_align == 8 ? 8 : 4;
        const char *at = (const char *)(info->dlpi_addr + p->p_vaddr), *end = at + p->p_memsz;
        while (end - at >= (ptrdiff_t)sizeof(ElfW(Nhdr))) {
            const ElfW(Nhdr) *note = (const void *)at;
            const char *name = at + sizeof *note;
            const char *data = name + (note->n_namesz + align - 1) / align * align;
            if (data > end || note->n_descsz > (size_t)(end - data))
                break;
            if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && !memcmp(name, "GNU", 4))
                put_build_id((const unsigned char *)data, note->n_descsz, out);
            at = data + (note->n_descsz + align - 1) / align * align;
        }
    }
}

/* The loader has no name for the program itself. A path is too large for some stacks. */
static uint32_t program_number(const struct search *s, const char *build_id) {
    char *path = vp_os_take(PATH_MAX);
    if (!path)
        return 0;
    readlink("/proc/self/exe", path, PATH_MAX - 1); /* on failure the path stays empty */
    const uint32_t number = vp_module_add(path, build_id, s->info.dlpi_addr);
    vp_os_give(path, PATH_MAX);
    return number;
}

static uint32_t module_number(const struct search *s) {
    char build_id[2 * BUILD_ID_MOST + 1];
    const char *name = s->info.dlpi_name;
    read_build_id(&s->info, build_id);
    return name && *name ? vp_module_add(name, build_id, s->info.dlpi_addr) : program_number(s, build_id);
}

/* ---- frames ---- */

/* `pc` lies within the call instruction. */
static uint32_t add_frame(struct vp_frame_key key, uintptr_t pc) {
    struct search s;
    char text[48];
    if (!find_module(&s, pc))
        return vp_frame_add((struct vp_frame_key){0, (uint64_t)'m' << 56}, VP_FRAME_WORDS, "code made at run time");
    const uint32_t module = module_number(&s);
    snprintf(text, sizeof text, "%u:%lx", module, (unsigned long)(pc - s.info.dlpi_addr));
    return module ? vp_frame_add(key, VP_FRAME_NATIVE, text) : 0;
}

struct step {
    struct vp_walk *walk;
    uintptr_t until_begin, until_end;
    uint64_t went;
    bool outside; /* the walk has left the library's own frames */
    struct vp_memo *memo;
};

/* Too large for some stacks. A walk that finds none free, as so many threads walk at once, is made but not kept. */
enum { NOTES = 16 };
static struct note {
    _Alignas(64) atomic_bool taken;
    struct vp_memo memo;
} notes[NOTES];

static struct note *take_note(uintptr_t frame) {
    const unsigned first = (unsigned)(frame >> 12); /* each thread has a stack of its own */
    for (unsigned i = 0; i < NOTES; i++) {
        struct note *note = &notes[(first + i) % NOTES];
        if (!atomic_load_explicit(&note->taken, memory_order_relaxed) &&
            !atomic_exchange_explicit(&note->taken, true, memory_order_acquire))
            return note;
    }
    return NULL;
}

static _Unwind_Reason_Code take(struct _Unwind_Context *context, void *state) {
    struct step *s = state;
    const uintptr_t pc = get_ip(context) - 1, cfa = get_cfa(context);
    if (pc + 1 <= 1)
        return _URC_END_OF_STACK;
    /* The unwinder's first step is to its own caller, whose frame is the one that the walk begins in. */
    if (s->memo && cfa > s->memo->key.frame + sizeof(void *))
        vp_memo_step(s->memo, pc + 1, cfa, get_register(context, FRAME_POINTER));
    if (pc >= s->until_begin && pc < s->until_end)
        return _URC_END_OF_STACK;
    if (!s->outside && pc >= own.begin && pc < own.end)
        return _URC_NO_REASON;
    s->outside = true;
    const struct vp_frame_key key = {pc, (uint64_t)'c' << 56 | s->went};
    uint32_t frame = vp_frame_find(key);
    if (!frame)
        frame = add_frame(key, pc);
    return vp_walk_add(s->walk, frame) ? _URC_NO_REASON : _URC_END_OF_STACK;
}

void vp_native_walk(struct vp_walk *walk, const void *until_python) {
    struct search python = {.found = false};
    backtrace_fn *unwind = atomic_load_explicit(&backtrace, memory_order_acquire);
    if (!unwind) {
        vp_walk_add_words(walk, 16, "no native stack: there is no libgcc_s.so.1");
        return;
    }
    if (until_python)
        find_module(&python, (uintptr_t)until_python);
    struct step s = {
        .walk = walk, .until_begin = python.begin, .until_end = python.end, .went = vp_modules_seen().went};
    const struct vp_memo_key key = {(uintptr_t)__builtin_frame_address(0), python.begin, s.went};
    if (vp_memo_recall(&key, walk))
        return;
    struct note *note = FRAME_POINTER ? take_note(key.frame) : NULL;
    s.memo = note ? &note->memo : NULL;
    if (note) {
        s.memo->key = key;
        s.memo->count = 0;
        s.memo->lost = false;
    }
    unwind(take, &s);
    if (note) {
        vp_memo_keep(s.memo, walk);
        atomic_store_explicit(&note->taken, false, memory_order_release);
    }
}

void vp_native_start(void) {
    struct search self;
    backtrace_fn *found = (backtrace_fn *)find("_Unwind_Backtrace");
    get_ip = (get_ip_fn *)find("_Unwind_GetIP");
    get_cfa = (get_ip_fn *)find("_Unwind_GetCFA");
    get_register = (get_register_fn *)find("_Unwind_GetGR");
    if (find_module(&self, (uintptr_t)vp_native_start)) {
        own.begin = self.begin;
        own.end = self.end;
    }
    if (found && get_ip && get_cfa && get_register)
        atomic_store_explicit(&backtrace, found, memory_order_release);
}
