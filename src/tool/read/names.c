/* Names of native code: libdw's offline modules, told apart by their build ids. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/read/names.h"

#include "base/log.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef VP_HAVE_LIBIBERTY
#include <libiberty/demangle.h>
#endif

/* ---- demangling ---- */

/* Drops the end of Rust's older names: "::h" and sixteen digits, of no use to people. */
static void drop_hash(char *name) {
    size_t n = strlen(name);
    if (n > 19 && !strncmp(name + n - 19, "::h", 3) && strspn(name + n - 16, "0123456789abcdef") == 16)
        name[n - 19] = 0;
}

#ifdef VP_HAVE_LIBIBERTY

static char *demangle(const char *name) {
    return cplus_demangle(name, DMGL_PARAMS | DMGL_ANSI | DMGL_AUTO);
}

#else

static char *demangle(const char *name) {
    static char *(*cxa)(const char *, char *, size_t *, int *);
    static bool tried;
    int status = 0;
    if (!tried) {
        void *runtime = dlopen("libstdc++.so.6", RTLD_NOW);
        *(void **)&cxa = runtime ? dlsym(runtime, "__cxa_demangle") : NULL;
        tried = true;
    }
    return cxa && !strncmp(name, "_Z", 2) ? cxa(name, NULL, NULL, &status) : NULL;
}

#endif

char *vp_names_demangle(const char *name) {
    char *plain = demangle(name);
    if (!plain)
        return strdup(name);
    drop_hash(plain);
    return plain;
}

/* ---- libdw ---- */

/* The part of libdwfl that is used, as its header declares it, so that no build needs the header, and no machine the
 * library. Its binary interface is versioned, and old: ELFUTILS_0.122 to 0.158. */
typedef struct Dwfl Dwfl;
typedef struct Dwfl_Module Dwfl_Module;
typedef struct Dwfl_Line Dwfl_Line;
typedef struct Elf Elf;
struct callbacks {
    void *find_elf, *find_debuginfo, *section_address;
    char **debuginfo_path;
};

static struct {
    bool tried;
    void *library;
    struct callbacks callbacks;
    Dwfl *(*begin)(const struct callbacks *);
    void (*end)(Dwfl *);
    Dwfl_Module *(*report)(Dwfl *, const char *name, const char *path, int fd);
    int (*report_end)(Dwfl *, void *, void *);
    int (*build_id)(Dwfl_Module *, const unsigned char **bits, uint64_t *addr);
    Elf *(*elf)(Dwfl_Module *, uint64_t *bias);
    const char *(*name)(Dwfl_Module *, uint64_t addr);
    Dwfl_Line *(*line)(Dwfl_Module *, uint64_t addr);
    const char *(*source)(Dwfl_Line *, uint64_t *addr, int *line, int *column, uint64_t *time, uint64_t *length);
} dw;

static bool find_libdw(void) {
    static const struct {
        void *to;
        const char *name;
    } symbols[] = {
        {&dw.begin, "dwfl_begin"},
        {&dw.end, "dwfl_end"},
        {&dw.report, "dwfl_report_offline"},
        {&dw.report_end, "dwfl_report_end"},
        {&dw.build_id, "dwfl_module_build_id"},
        {&dw.elf, "dwfl_module_getelf"},
        {&dw.name, "dwfl_module_addrname"},
        {&dw.line, "dwfl_module_getsrc"},
        {&dw.source, "dwfl_lineinfo"},
        {&dw.callbacks.find_elf, "dwfl_build_id_find_elf"},
        {&dw.callbacks.find_debuginfo, "dwfl_standard_find_debuginfo"},
        {&dw.callbacks.section_address, "dwfl_offline_section_address"},
    };
    if (dw.tried)
        return dw.library;
    dw.tried = true;
    /* libdwfl would ask servers for what it does not find. */
    unsetenv("DEBUGINFOD_URLS");
    dw.library = dlopen("libdw.so.1", RTLD_NOW);
    for (size_t i = 0; dw.library && i < sizeof symbols / sizeof *symbols; i++)
        if (!(*(void **)symbols[i].to = dlsym(dw.library, symbols[i].name)))
            dw.library = NULL;
    return dw.library;
}

/* ---- modules ---- */

/* An open module. */
struct module {
    bool tried;
    Dwfl *dwfl;
    Dwfl_Module *module; /* NULL: it has no names, or differs from the recorded one */
    uint64_t bias;
};

/* Is it the recorded module? A module without a build id must be believed. */
static bool is_same(Dwfl_Module *module, const char *build_id) {
    const unsigned char *bits = NULL;
    uint64_t addr;
    int length = dw.build_id(module, &bits, &addr);
    char text[129] = "";
    for (int i = 0; i < length && i < 64; i++)
        snprintf(text + 2 * i, 3, "%02x", bits[i]);
    return !*build_id || length <= 0 || !strcasecmp(text, build_id);
}

/* Opens a file. A stranger's trace may name a pipe that nobody writes to, or a device that acts when it is opened.
 * Returns the file; or -1, and `why` not. */
static int open_file(const char *path, const char **why) {
    struct stat st;
    *why = "is not here";
    if (stat(path, &st) || access(path, R_OK))
        return -1;
    *why = "cannot be read";
    int fd = S_ISREG(st.st_mode) ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1;
    if (fd >= 0 && (fstat(fd, &st) || !S_ISREG(st.st_mode))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Opens a module. Returns NULL, or why that failed. */
static const char *open_module(struct module *m, const struct vp_module *about) {
    const char *why;
    m->tried = true;
    int fd = open_file(about->path, &why);
    if (fd < 0)
        return why;
    /* Once it is reported, the module owns the file. */
    m->dwfl = dw.begin(&dw.callbacks);
    Dwfl_Module *module = m->dwfl ? dw.report(m->dwfl, about->path, about->path, fd) : NULL;
    if (m->dwfl)
        dw.report_end(m->dwfl, NULL, NULL);
    if (!module)
        close(fd);
    if (!module || !dw.elf(module, &m->bias))
        return "cannot be read";
    if (!is_same(module, about->build_id))
        return "is not the one that was recorded";
    m->module = module;
    return NULL;
}

static int complain(struct vp_stacks *s, const char *path, const char *why) {
    if (!s->complaint &&
        asprintf(&s->complaint, "native frames have no names: %s%s%s", path, *path ? " " : "", why) < 0) {
        s->complaint = NULL;
        return -ENOMEM;
    }
    /* The path comes from the file, and is printed on a terminal. */
    vp_log_make_plain(s->complaint);
    return 0;
}

/* Sets a frame's name and, if there is debug information, its line. */
static int name_frame(struct module *m, struct vp_frame *f) {
    const char *name = dw.name(m->module, f->offset + m->bias);
    Dwfl_Line *line = dw.line(m->module, f->offset + m->bias);
    const char *file = line ? dw.source(line, NULL, (int *)&f->line, NULL, NULL, NULL) : NULL;
    if (file && !(f->file = strdup(file)))
        return -ENOMEM;
    return !name || (f->name = vp_names_demangle(name)) ? 0 : -ENOMEM;
}

int vp_names_look_up(struct vp_stacks *s) {
    struct vp_frame *frames = s->frames.items;
    struct module *modules = calloc(s->modules.count + 1, sizeof *modules);
    int err = modules ? 0 : -ENOMEM;
    for (size_t i = 0; i < s->frames.count && !err; i++) {
        if (frames[i].kind != VP_FRAME_NATIVE || frames[i].name)
            continue;
        if (!find_libdw()) {
            err = complain(s, "", "libdw.so.1 (Debian: libdw1) is not on this machine");
            break;
        }
        struct module *m = &modules[frames[i].module];
        const struct vp_module *about = vp_stacks_module(s, &frames[i]);
        const char *why = m->tried ? NULL : open_module(m, about);
        /* What the kernel maps into a process (the vDSO) is no file. */
        if (why && *about->path == '/')
            err = complain(s, about->path, why);
        if (!err && m->module)
            err = name_frame(m, &frames[i]);
    }
    for (size_t i = 0; modules && i < s->modules.count; i++)
        if (modules[i].dwfl)
            dw.end(modules[i].dwfl);
    free(modules);
    return err;
}
