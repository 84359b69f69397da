/* NVTX: takes up the program's ranges and marks, through the interface by which tools attach to NVTX.
 *
 * NVTX is a set of headers. In each library that includes them, the first NVTX call loads the library that
 * NVTX_INJECTION64_PATH names (adopt.c sets it) and calls this file's entry, which gets tables of pointers and stores
 * its functions there. If nothing that reports ranges is enabled, it attaches to none, and NVTX calls still cost next
 * to nothing.
 *
 * A domain's handle is the address of its name among the registered strings. Ranges outside any domain have the domain
 * NULL, the default one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <vpool.h>
#include <wchar.h>
#include "base/json.h"
#include "base/options.h"
#include "early.h"
#include "load.h"
#include "watch/marks.h"

/* ---- NVTX's side, by its version 3 ---- */

enum { EXPORT_CALLBACKS = 1 };
enum { MODULE_CORE = 1, MODULE_CORE2 = 5 };
enum { CORE_MARK_EX = 1, CORE_MARK_A, CORE_MARK_W };
enum { CORE_START_EX = 4, CORE_START_A, CORE_START_W, CORE_END, CORE_PUSH_EX, CORE_PUSH_A, CORE_PUSH_W, CORE_POP };
enum {
    CORE2_MARK_EX = 1,
    CORE2_START_EX,
    CORE2_END,
    CORE2_PUSH_EX,
    CORE2_POP,
    CORE2_REGISTER_A = 10,
    CORE2_REGISTER_W,
    CORE2_DOMAIN_A,
    CORE2_DOMAIN_W
};
enum { MESSAGE_ASCII = 1, MESSAGE_WIDE, MESSAGE_REGISTERED };

struct nvtx_callbacks {
    size_t size;
    int (*table)(int module, void ****table, unsigned *size);
};

struct nvtx_attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const void *message;
};

/* ---- names ---- */

enum { NAME = VP_MARKS_NAME };
#define NO_NAME "(no name)"

/* Into UTF-8, as much as there is room for. */
static const char *narrow(const wchar_t *wide, char name[NAME]) {
    char *at = name;
    for (; wide && *wide && at < name + NAME - 4; wide++)
        at = vp_utf8_put(at, (uint32_t)*wide);
    *at = 0;
    return name;
}

static const char *name_of(const struct nvtx_attributes *a, char name[NAME]) {
    const char *text = NULL;
    if (a && a->size >= sizeof(*a)) {
        if (a->message_type == MESSAGE_WIDE)
            text = narrow(a->message, name);
        else if (a->message_type == MESSAGE_ASCII || a->message_type == MESSAGE_REGISTERED)
            text = a->message;
    }
    return text && *text ? text : NO_NAME;
}

/* ---- what NVTX calls ---- */

/* A range without a name is one all the same: its end will come. */
static const char *name_or_none(const char *name) {
    return name && *name ? name : NO_NAME;
}

static void mark(const char *name, void *domain) {
    vpool_mark(name);
}

static int push(const char *name, void *domain) {
    return domain ? vp_marks_push(name_or_none(name), domain) : vpool_range_push(name_or_none(name));
}

static int domain_pop(void *domain) {
    return domain ? vp_marks_pop(domain) : vpool_range_pop();
}

/* Of the process: one thread may start it, and another end it. */
static uint64_t start(const char *name, void *domain) {
    return vp_marks_start(name_or_none(name));
}

/* Each of these is to be had with a name in ASCII, a wide one, and one among other attributes, and so of a domain. */
#define NAMED(result, call)                                                                                            \
    static result call##_a(const char *name) {                                                                         \
        return call(name, NULL);                                                                                       \
    }                                                                                                                  \
    static result call##_w(const wchar_t *wide) {                                                                      \
        char name[NAME];                                                                                               \
        return call(narrow(wide, name), NULL);                                                                         \
    }                                                                                                                  \
    static result domain_##call(void *domain, const struct nvtx_attributes *attributes) {                              \
        char name[NAME];                                                                                               \
        return call(name_of(attributes, name), domain);                                                                \
    }                                                                                                                  \
    static result call##_ex(const struct nvtx_attributes *attributes) {                                                \
        return domain_##call(NULL, attributes);                                                                        \
    }
NAMED(void, mark)
NAMED(int, push)
NAMED(uint64_t, start)

static void domain_end(void *domain, uint64_t id) {
    vp_marks_end(id);
}

static void *register_a(void *domain, const char *name) {
    return vp_marks_register(name);
}

static void *domain_w(const wchar_t *wide) {
    char name[NAME];
    return vp_marks_register(narrow(wide, name));
}

static void *register_w(void *domain, const wchar_t *wide) {
    return domain_w(wide);
}

/* ---- attaching ---- */

/* Functions by NVTX's numbers of them; NULL: it is not wanted. */
static void fill(const struct nvtx_callbacks *callbacks, int module, void *const *functions, size_t count) {
    void ***table = NULL;
    unsigned size = 0;
    if (!callbacks->table(module, &table, &size) || !table)
        return;
    for (size_t i = 0; i < count && i < size; i++) {
        if (functions[i] && table[i])
            *table[i] = functions[i];
    }
}

/* A child without the preload may have inherited the variable, and NVTX has just loaded this library for it. */
static bool is_preloaded(void) {
    void *program = vp_real_dlopen(NULL, RTLD_LAZY);
    bool found = program && vp_real_dlsym && vp_real_dlsym(program, "vpool_version") == (void *)vpool_version;
    if (program)
        vp_real_dlclose(program);
    return found;
}

VP_PUBLIC int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t));
VP_PUBLIC int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t)) {
    static void *const core[] = {
        [CORE_MARK_EX] = mark_ex, [CORE_MARK_A] = mark_a,   [CORE_MARK_W] = mark_w,       [CORE_PUSH_EX] = push_ex,
        [CORE_PUSH_A] = push_a,   [CORE_PUSH_W] = push_w,   [CORE_POP] = vpool_range_pop, [CORE_START_EX] = start_ex,
        [CORE_START_A] = start_a, [CORE_START_W] = start_w, [CORE_END] = vp_marks_end,
    };
    static void *const core2[] = {
        [CORE2_MARK_EX] = domain_mark,   [CORE2_PUSH_EX] = domain_push,
        [CORE2_POP] = domain_pop,        [CORE2_START_EX] = domain_start,
        [CORE2_END] = domain_end,        [CORE2_REGISTER_A] = register_a,
        [CORE2_REGISTER_W] = register_w, [CORE2_DOMAIN_A] = vp_marks_register,
        [CORE2_DOMAIN_W] = domain_w,
    };
    const struct vp_options *o = vp_options();
    const bool wanted = *o->trace || *o->stats || *o->dump || *o->stacks;
    if (!export_table || !wanted || !is_preloaded())
        return 0;
    const struct nvtx_callbacks *callbacks = export_table(EXPORT_CALLBACKS);
    if (!callbacks || callbacks->size < sizeof(*callbacks) || !callbacks->table)
        return 0;
    fill(callbacks, MODULE_CORE, core, sizeof(core) / sizeof(core[0]));
    fill(callbacks, MODULE_CORE2, core2, sizeof(core2) / sizeof(core2[0]));
    return 1;
}
