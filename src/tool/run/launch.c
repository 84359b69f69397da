/* Starts a program under the library: finds the library, and sets the environment. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/run/launch.h"

#include "tool/tool.h"
#include "base/options.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define DRIVER "libcuda.so.1"

enum library { OWN, COMPARE };
static const char *const libraries[] = {[OWN] = "libvpool.so", [COMPARE] = "libvpool-compare.so"};

/* ---- where things are ---- */

/* Without /proc, the path is the one by which the command was started. */
bool vp_launch_self(char path[PATH_MAX]) {
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
    path[n > 0 ? n : 0] = 0;
    return n > 0 || realpath((const char *)getauxval(AT_EXECFN), path);
}

/* Finds the first of the places where `file` can be read, and the folder that contains it. */
static bool find(char folder[PATH_MAX], const char *const places[], const char *file) {
    char self[PATH_MAX], path[PATH_MAX];
    if (!vp_launch_self(self))
        return false;
    *strrchr(self, '/') = 0;
    for (; *places; places++) {
        bool absolute = **places == '/';
        int length = snprintf(path, sizeof path, "%s%s%s/%s", absolute ? "" : self, absolute ? "" : "/", *places, file);
        if (length < 0 || length >= PATH_MAX || access(path, R_OK) || !realpath(path, folder))
            continue;
        /* The file may be a link to elsewhere; the folder of the link counts. */
        path[length - (int)strlen(file) - 1] = 0;
        if (realpath(path, folder))
            return true;
    }
    return false;
}

static const char *look_up(void *context, const char *name) {
    (void)context;
    return getenv(name);
}

const struct vp_options *vp_launch_options(void) {
    static struct vp_options options;
    vp_options_parse(&options, look_up, NULL, NULL, NULL);
    return &options;
}

const char *vp_launch_library_name(void) {
    const int policy = vp_launch_options()->policy;
    return libraries[policy == VP_POLICY_VPOOL || policy == VP_POLICY_NATIVE ? OWN : COMPARE];
}

bool vp_launch_library(char path[PATH_MAX]) {
    static const char *const places[] = {".", "../" VP_LIBDIR, "../lib", VP_PREFIX "/" VP_LIBDIR, NULL};
    const char *name = vp_launch_library_name();
    char folder[PATH_MAX];
    return find(folder, places, name) && snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX;
}

bool vp_launch_sim(char folder[PATH_MAX]) {
    static const char *const places[] = {"sim", "../" VP_LIBDIR "/vpool", "../lib/vpool",
                                         VP_PREFIX "/" VP_LIBDIR "/vpool", NULL};
    return find(folder, places, DRIVER);
}

bool vp_launch_pages(char folder[PATH_MAX]) {
    static const char *const places[] = {"..", "../share/doc/vpool", VP_PREFIX "/share/doc/vpool", NULL};
    return find(folder, places, "docs/design.md");
}

static bool make_folder(const char *room, const char *command, char folder[PATH_MAX]) {
    return snprintf(folder, PATH_MAX, "%.3000s/vpool-%s-XXXXXX", room, command) < PATH_MAX && mkdtemp(folder);
}

bool vp_launch_room(const char *command, char folder[PATH_MAX]) {
    const char *room = getenv("TMPDIR");
    char whole[PATH_MAX];
    if (!make_folder(room && *room && !strchr(room, '%') ? room : "/tmp", command, folder) &&
        !make_folder("/tmp", command, folder))
        return false;
    /* A program may have changed its working directory when it writes there. */
    if (realpath(folder, whole) && !strchr(whole, '%'))
        strcpy(folder, whole);
    return true;
}

/* ---- the environment ---- */

/* Adds to a list in a variable, before or after what is there. */
static void add(const char *variable, const char *text, const char *separator, bool before) {
    const char *old = getenv(variable);
    char *joined;
    if (!old || !*old) {
        setenv(variable, text, 1);
        return;
    }
    if (asprintf(&joined, "%s%s%s", before ? text : old, separator, before ? old : text) < 0)
        return;
    setenv(variable, joined, 1);
    free(joined);
}

/* Does the path of `length` characters name this library? */
static bool names(const char *path, size_t length, const char *library) {
    size_t wanted = strlen(library);
    return length >= wanted && !memcmp(path + length - wanted, library, wanted) &&
           (length == wanted || path[length - wanted - 1] == '/');
}

/* Finds the first of our libraries in a list such as LD_PRELOAD's, and where it is there; NULL: none. Of two, the first
 * one serves. */
static const char *first_of_ours(const char *list, const char **where) {
    for (const char *at = list; at && *at; at += strcspn(at, ": "), at += strspn(at, ": "))
        for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
            if (names(at, strcspn(at, ": "), libraries[i])) {
                *where = at;
                return libraries[i];
            }
    return NULL;
}

const char *vp_launch_preloaded(void) {
    const char *where;
    return first_of_ours(getenv("LD_PRELOAD"), &where);
}

bool vp_launch_preload(const char *library) {
    const char *list = getenv("LD_PRELOAD"), *where;
    const char *there = first_of_ours(list, &where);
    char *changed;
    if (strpbrk(library, ": "))
        return false;
    if (!there)
        add("LD_PRELOAD", library, ":", false);
    /* The library with all policies can stand in for the other. */
    else if (there == libraries[OWN] && names(library, strlen(library), libraries[COMPARE]) &&
             asprintf(&changed, "%.*s%s%s", (int)(where - list), list, library, where + strcspn(where, ": ")) >= 0) {
        setenv("LD_PRELOAD", changed, 1);
        free(changed);
    }
    return true;
}

void vp_launch_simulate(const char *folder, const char *capacity) {
    char setting[64];
    add("LD_LIBRARY_PATH", folder, ":", true);
    if (capacity) {
        snprintf(setting, sizeof setting, "capacity=%s", capacity);
        add("VPOOL_SIM", setting, ",", false);
    }
}

bool vp_launch_is_size(const char *text) {
    size_t digits = strspn(text, "0123456789");
    uint64_t bytes;
    return (!text[digits] || (strchr("KMGT", text[digits]) && !text[digits + 1])) &&
           vp_options_number(&text, true, &bytes) && bytes >= VP_LAUNCH_LEAST && bytes <= VP_LAUNCH_MOST;
}

/* ---- programs that the library cannot reach ---- */

/* Finds a program as execvp() does. */
static bool find_program(const char *name, char path[PATH_MAX]) {
    const char *list = strchr(name, '/') ? NULL : getenv("PATH");
    if (strchr(name, '/'))
        return snprintf(path, PATH_MAX, "%s", name) < PATH_MAX && !access(path, X_OK);
    for (const char *at = list ? list : "/bin:/usr/bin"; *at; at += *at == ':') {
        size_t length = strcspn(at, ":");
        if (snprintf(path, PATH_MAX, "%.*s/%s", length ? (int)length : 1, length ? at : ".", name) < PATH_MAX &&
            !access(path, X_OK))
            return true;
        at += length;
    }
    return false;
}

/* Only a dynamic linker of the same kind as this command's own loads the library. */
static const char *obstacle_in_elf(int fd, const unsigned char *head, size_t n) {
    const Elf64_Ehdr *elf = (const Elf64_Ehdr *)(const void *)head;
    if (n < sizeof *elf)
        return NULL;
    if (head[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32))
        return "is built for another word size than the library";
    for (int i = 0; i < elf->e_phnum; i++) {
        Elf64_Phdr program;
        if (pread(fd, &program, sizeof program, (off_t)(elf->e_phoff + (size_t)i * elf->e_phentsize)) != sizeof program)
            return NULL;
        if (program.p_type == PT_INTERP)
            return NULL;
    }
    return "is linked statically to libc and ignores LD_PRELOAD";
}

static const char *obstacle_in_file(const char *path, int depth) {
    _Alignas(Elf64_Ehdr) unsigned char head[PATH_MAX] = {0};
    const char *why = NULL;
    struct stat st;
    /* Without O_NONBLOCK, opening a pipe would wait for a writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, head, sizeof head - 1);
    if (n > 0 && !fstat(fd, &st) &&
        (((st.st_mode & S_ISUID) && st.st_uid != getuid()) || ((st.st_mode & S_ISGID) && st.st_gid != getgid())))
        why = "runs with raised privileges and ignores LD_PRELOAD";
    else if (n > 0 && geteuid() && fgetxattr(fd, "security.capability", NULL, 0) > 0)
        why = "has file capabilities (getcap shows them) and ignores LD_PRELOAD";
    else if (n > SELFMAG && !memcmp(head, ELFMAG, SELFMAG))
        why = obstacle_in_elf(fd, head, (size_t)n);
    else if (n > 2 && head[0] == '#' && head[1] == '!' && !depth) {
        char *interpreter = (char *)head + 2 + strspn((char *)head + 2, " \t");
        interpreter[strcspn(interpreter, " \t\n")] = 0;
        why = obstacle_in_file(interpreter, 1);
    }
    if (fd >= 0)
        close(fd);
    return why;
}

const char *vp_launch_obstacle(const char *program) {
    char path[PATH_MAX];
    return find_program(program, path) ? obstacle_in_file(path, 0) : NULL;
}

int vp_launch_exec(const char *command, char **argv) {
    vp_tool_give_signals_back();
    execvp(*argv, argv);
    int err = errno;
    const char *before = argv[-1];
    /* An optional value of an option must follow "=". */
    bool apart = err == ENOENT && !strncmp(before, "--", 2) && before[2] && strcmp(before, "--quiet");
    fprintf(stderr, "vpool %s: %s: %s", command, *argv, strerror(err));
    if (apart && !strchr(before, '='))
        fprintf(stderr, "; write a value after '=': %s=%s", before, *argv);
    fputc('\n', stderr);
    return err == ENOENT ? 127 : 126;
}
