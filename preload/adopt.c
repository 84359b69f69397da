/* Adopting frameworks: which environment variables are set before the program starts, unless the user has set them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "adopt.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include "base/log.h"
#include "base/options.h"
#include "callers.h"
#include "early.h"

#define EXPANDABLE "expandable_segments:True"
#define PREALLOCATE "XLA_PYTHON_CLIENT_PREALLOCATE"
#define XLA "/xla_" /* JAX's plug-in; before 0.4.26 xla_extension.so */

/* This library's own; empty where it cannot be told. */
static char own_path[PATH_MAX];

/* A variable to set, if neither it nor its other name (`alias`) is set. A value of the user is kept; it agrees with
 * ours if it contains `agrees`. A variable that `needs` another is set only if that one agrees. */
static struct setting {
    const char *variable;
    const char *alias;
    const char *value;
    const char *agrees;
    const char *needs;
    const char *framework;
    const char *library; /* what the path of the framework's library holds, if this chooses its allocator */
    const char *kept;    /* the variable kept although it disagrees */
    bool set;
} settings[] = {
    /* PyTorch's, which VPOOL_ADOPT=bare leaves out, comes first. */
    {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync", "backend:cudaMallocAsync", NULL,
     "PyTorch", "/libc10_cuda"},
    {"XLA_PYTHON_CLIENT_ALLOCATOR", NULL, "cuda_async", "cuda_async", NULL, "JAX", XLA},
    /* Taken as false: vp_adopt_threshold(). */
    {PREALLOCATE, NULL, "false", "false", "XLA_PYTHON_CLIENT_ALLOCATOR", "JAX"},
    {"TF_GPU_ALLOCATOR", NULL, "cuda_malloc_async", "cuda_malloc_async", NULL, "TensorFlow", "/libtensorflow"},
    {"TF_FORCE_GPU_ALLOW_GROWTH", NULL, "true", "true", "TF_GPU_ALLOCATOR", "TensorFlow"},
    /* Who has another value there has another tool, and no framework minds: it agrees. */
    {"NVTX_INJECTION64_PATH", NULL, own_path, "", NULL, "NVTX"},
};

#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

/* Lists what was set, for the child processes of this one: "NAME=VALUE NAME=VALUE". A child first unsets all of that
 * which still has our values. If adoption is off there, or the user has set something that disagrees, the child finds
 * the environment that it would have without the library. */
#define MARK "VPOOL_ADOPTED"

/* The functions of libc itself. The program may define its own: a shell keeps its variables itself, and before it has
 * started it sees either the environment or what was set, not both. */
static struct {
    char *(*getenv)(const char *);
    int (*setenv)(const char *, const char *, int);
    int (*unsetenv)(const char *);
} libc;

static bool find_libc(void) {
    libc.getenv = (__typeof__(libc.getenv))vp_real_dlsym(RTLD_NEXT, "getenv");
    libc.setenv = (__typeof__(libc.setenv))vp_real_dlsym(RTLD_NEXT, "setenv");
    libc.unsetenv = (__typeof__(libc.unsetenv))vp_real_dlsym(RTLD_NEXT, "unsetenv");
    return libc.getenv && libc.setenv && libc.unsetenv;
}

/* Is "NAME=VALUE" among the words of the mark? */
static bool is_marked(const char *mark, const char *name, const char *value) {
    size_t name_length = strlen(name), value_length = strlen(value);
    for (const char *end; *mark; mark = *end ? end + 1 : end) {
        end = mark + strcspn(mark, " ");
        if ((size_t)(end - mark) == name_length + 1 + value_length && strncmp(mark, name, name_length) == 0 &&
            mark[name_length] == '=' && strncmp(mark + name_length + 1, value, value_length) == 0)
            return true;
    }
    return false;
}

static void take_back(void) {
    const char *mark = libc.getenv(MARK);
    if (!mark)
        return;
    for (size_t i = 0; i < SETTINGS; i++) {
        const char *value = libc.getenv(settings[i].variable);
        if (value && is_marked(mark, settings[i].variable, value))
            libc.unsetenv(settings[i].variable);
    }
    libc.unsetenv(MARK);
}

/* Where NVTX is to find us; a mark has no room for a space. */
static void find_own_path(void) {
    Dl_info info;
    if (!dladdr((void *)vp_adopt, &info) || !info.dli_fname || !realpath(info.dli_fname, own_path) ||
        strpbrk(own_path, " :"))
        *own_path = 0;
}

/* Sets one, and adds it to the mark. */
static void set(struct setting *setting, char *mark, size_t room) {
    size_t used = strlen(mark);
    setting->set = true;
    libc.setenv(setting->variable, setting->value, 0);
    snprintf(mark + used, room - used, "%s%s=%s", used ? " " : "", setting->variable, setting->value);
}

static bool agrees(const char *variable) {
    for (size_t i = 0; i < SETTINGS; i++) {
        if (strcmp(settings[i].variable, variable) == 0)
            return !settings[i].kept;
    }
    return true;
}

enum { TORCH, OTHERS, PREALLOCATES = OTHERS + 1 };

bool vp_adopt_bare, vp_adopt_async;
static bool keeps_nothing; /* XLA, where the program does not say otherwise */

/* Sets those from one to another. */
static void adopt(size_t from, size_t to) {
    char mark[512 + PATH_MAX] = "";
    const char *marked = libc.getenv(MARK);
    if (marked)
        snprintf(mark, sizeof(mark), "%s", marked);
    for (size_t i = from; i < to; i++) {
        struct setting *setting = &settings[i];
        const char *variable = setting->variable;
        const char *value = libc.getenv(variable);
        if (!*setting->value || (setting->needs && !agrees(setting->needs)))
            continue;
        if (!value && setting->alias) {
            value = libc.getenv(setting->alias);
            variable = setting->alias;
        }
        if (!value) {
            if (i == PREALLOCATES)
                keeps_nothing = true;
            else
                set(setting, mark, sizeof(mark));
            vp_adopt_async |= i == TORCH;
        } else if (!strstr(value, setting->agrees)) {
            setting->kept = variable;
        }
    }
    if (*mark)
        libc.setenv(MARK, mark, 1);
}

void vp_adopt(void) {
    static atomic_flag done = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&done))
        return;
    vp_early_find();
    const enum vp_adopt_choice how = vp_options_adopt(vp_options());
    /* A program with raised privileges is given no variables of ours; its user's are not read either. */
    if (getauxval(AT_SECURE) || !find_libc())
        return;
    find_own_path();
    take_back();
    if (how == VP_ADOPT_NOTHING)
        return;
    vp_adopt_bare = how == VP_ADOPT_BARE;
    adopt(vp_adopt_bare ? OTHERS : TORCH, SETTINGS);
}

void vp_adopt_torch(void) {
    if (!getauxval(AT_SECURE) && find_libc())
        adopt(TORCH, OTHERS);
}

void vp_adopt_changed(void) {
    const char *value = vp_adopt_async ? libc.getenv(settings[TORCH].variable) : NULL;
    vp_adopt_async = settings[TORCH].set = false;
    if (value && strcmp(value, settings[TORCH].value) == 0)
        libc.unsetenv(settings[TORCH].variable);
}

static atomic_bool was_read;

void vp_adopt_read(void) {
    if (!atomic_exchange(&was_read, true) && vp_adopt_async && libc.getenv(settings[TORCH].alias))
        vp_adopt_changed();
}

void *vp_adopt_threshold(const void *caller, CUmemPool_attribute attr, void *value) {
    static cuuint64_t none;
    const cuuint64_t *threshold = value;
    if (!keeps_nothing || attr != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD || !value || !*threshold ||
        *threshold == UINT64_MAX || libc.getenv(PREALLOCATE))
        return value;
    const struct link_map *object = vp_object_at(caller);
    return object && strstr(object->l_name, XLA) ? &none : value;
}

/* How many objects had been loaded when no framework that we chose for was among them. */
static atomic_ullong others;

static int is_adopted(struct dl_phdr_info *object, size_t size, void *loaded) {
    (void)size;
    *(unsigned long long *)loaded = object->dlpi_adds;
    if (object->dlpi_adds == atomic_load(&others))
        return -1;
    for (size_t i = 0; i < SETTINGS; i++)
        if (settings[i].set && settings[i].library && strstr(object->dlpi_name, settings[i].library))
            return 1;
    return 0;
}

bool vp_adopt_has_any(void) {
    unsigned long long loaded = 0;
    const int found = dl_iterate_phdr(is_adopted, &loaded);
    if (!found)
        atomic_store(&others, loaded);
    return found > 0;
}

/* With expandable segments PyTorch's cache is not over memory of ours. */
static void report_expandable(const char *variable) {
    const char *value = libc.getenv(variable);
    if (value && strstr(value, EXPANDABLE) && !strstr(value, settings[TORCH].agrees))
        vp_log(VP_LOG_WARN, "%s is set and kept; without " EXPANDABLE ", PyTorch would leave its memory to vpool",
               variable);
}

void vp_adopt_report(void) {
    if (vp_adopt_bare) {
        report_expandable(settings[TORCH].variable);
        report_expandable(settings[TORCH].alias);
    }
    for (size_t i = 0; i < SETTINGS; i++) {
        const struct setting *setting = &settings[i];
        if (setting->kept)
            vp_log(VP_LOG_WARN, "%s is set and kept; with %s=%s, %s would leave its memory to vpool", setting->kept,
                   setting->variable, setting->value, setting->framework);
    }
}

void vp_adopt_refused(const char *text) {
    static atomic_flag said = ATOMIC_FLAG_INIT;
    bool refused = !text && was_read;
    if (text && strstr(text, "MallocAsync"))
        refused = strstr(text, "not yet support") || strstr(text, "meaningful") || strstr(text, "ptr_info");
    if (vp_adopt_async && refused && !atomic_flag_test_and_set(&said))
        vp_log(VP_LOG_WARN,
               "%s with backend:cudaMallocAsync, which the library has set. Under VPOOL_ADOPT=bare PyTorch keeps its "
               "own allocator, with all of its features (docs/pytorch.md)",
               text ? "PyTorch refuses this" : "PyTorch shares no memory with others (cuIpcGetMemHandle)");
}

void vp_adopt_freed(void) {
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&said))
        vp_log(
            VP_LOG_WARN,
            "PyTorch frees, outside of a CUDA graph, what that allocates, as under vLLM: with backend:cudaMallocAsync, "
            "which the library has set, anything may lie there after a launch. Under VPOOL_ADOPT=bare PyTorch keeps "
            "it for the graph (docs/frameworks.md)");
}

/* Rewrites the text in place, in the same number of bytes. Programs that retry with smaller batches, as accelerate's
 * find_executable_batch_size does, recognise the error by its words. PyTorch 2.6 writes the device as a raw byte, which
 * ends the text for Python. */
void vp_adopt_reword(char *text, size_t length) {
    static const char begin[] = "Allocation on device ", end[] = " would exceed allowed memory. (out of memory)",
                      new_begin[] = "CUDA out of memory. ", new_end[] = " would exceed its memory.";
    enum { BEGIN = sizeof(begin) - 1, END = sizeof(end) - 1, ADDED = sizeof(new_begin) - 1 };
    _Static_assert(ADDED + sizeof(new_end) - 1 == END, "no byte more");
    if (!vp_adopt_async || length <= BEGIN + END || memcmp(text, begin, BEGIN) != 0)
        return;
    const bool raw = (unsigned char)text[BEGIN] < 10;
    const size_t device = BEGIN + (raw ? 1 : strspn(text + BEGIN, "0123456789"));
    if (device == BEGIN || device > length - END || memcmp(text + device, end, END) != 0)
        return;
    text[BEGIN] += raw ? '0' : 0;
    memmove(text + ADDED, text, device);
    memcpy(text, new_begin, ADDED);
    memcpy(text + ADDED + device, new_end, sizeof(new_end) - 1);
}
