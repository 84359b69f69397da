/* Where plans lie whose file nobody names, and how many: see plans.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/plans.h"

#include "base/clock.h"
#include "pool/learnt/learnt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* All plans together: more than a job of some hundred ranks has. Files looked at. */
enum { FOLDER_MOST = 64 << 20, FILES_MOST = 4096 };

/* A temporary file so old is of a process that was killed while it wrote: seconds. */
enum { LEFT_BEHIND = 600 };

static const char SUFFIX[] = ".learnt";

/* ---- which run it is ---- */

static uint64_t add(uint64_t hash, const char *text) {
    return vp_learnt_hash(hash, text, strlen(text) + 1);
}

/* The executable: where it lies, and which one it is. */
static uint64_t add_executable(uint64_t hash) {
    static char text[PATH_MAX]; /* too large for some stacks */
    char about[96];
    struct stat st;
    const ssize_t n = readlink("/proc/self/exe", text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    hash = add(hash, text);
    if (stat("/proc/self/exe", &st))
        return hash;
    snprintf(about, sizeof about, "%lld %lld.%09ld", (long long)st.st_size, (long long)st.st_mtim.tv_sec,
             st.st_mtim.tv_nsec);
    return add(hash, about);
}

static uint64_t add_arguments(uint64_t hash) {
    char text[512];
    const int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    for (ssize_t n; fd >= 0 && (n = read(fd, text, sizeof text)) > 0;)
        hash = vp_learnt_hash(hash, text, (size_t)n);
    if (fd >= 0)
        close(fd);
    return hash;
}

uint64_t vp_plans_key(void) {
    static const char *const ranks[] = {
        "RANK",      "LOCAL_RANK",          "WORLD_SIZE", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK",
        "PMIX_RANK", "MV2_COMM_WORLD_RANK", "PMI_RANK",
    };
    uint64_t hash = add_arguments(add_executable(VP_LEARNT_HASH));
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        const char *value = secure_getenv(ranks[i]);
        hash = add(hash, value ? value : "-");
    }
    return hash;
}

/* ---- the folder ---- */

/* Finds a folder, or makes it and those above it, for the user alone. */
static bool make_folders(char *path) {
    struct stat st;
    bool made = !stat(path, &st);
    for (char *at = path; !made && (at = strchr(at + 1, '/'));) {
        *at = 0;
        const bool there = !mkdir(path, 0700) || errno == EEXIST || !stat(path, &st);
        *at = '/';
        if (!there)
            return false;
    }
    return made || !mkdir(path, 0700) || errno == EEXIST;
}

bool vp_plans_path(char *path, size_t room, uint64_t key, const char **why) {
    const char *cache = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
    struct stat st;
    const int n = cache && *cache == '/' ? snprintf(path, room, "%s/vpool/plans", cache)
                  : home && *home == '/' ? snprintf(path, room, "%s/.cache/vpool/plans", home)
                                         : -1;
    *why = n < 0 ? "neither XDG_CACHE_HOME nor HOME names a folder" : "the path is too long";
    if (n < 0 || (size_t)n + 1 + 16 + sizeof SUFFIX > room)
        return false;
    const bool there = make_folders(path);
    *why = there ? "the folder is another user's, or others may write to it" : strerror(errno);
    if (!there || lstat(path, &st) || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() ||
        st.st_mode & (S_IWGRP | S_IWOTH))
        return false;
    snprintf(path + n, room - (size_t)n, "/%016llx%s", (unsigned long long)key, SUFFIX);
    return true;
}

/* ---- no more than it should have ---- */

struct sweep {
    int folder;
    uint64_t bytes;
    time_t oldest; /* of the plans */
    char name[NAME_MAX + 1];
};

static bool ends_in(const char *name, const char *suffix) {
    const size_t n = strlen(name), m = strlen(suffix);
    return n > m && !strcmp(name + n - m, suffix);
}

static void look_at(struct sweep *s, const char *name, time_t now) {
    struct stat st;
    const bool plan = ends_in(name, SUFFIX), temporary = strstr(name, SUFFIX) && ends_in(name, ".new");
    if ((!plan && !temporary) || fstatat(s->folder, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
        return;
    if (temporary) {
        if (now - st.st_mtime > LEFT_BEHIND)
            unlinkat(s->folder, name, 0);
        return;
    }
    s->bytes += (uint64_t)st.st_size;
    if (!*s->name || st.st_mtime < s->oldest) {
        s->oldest = st.st_mtime;
        snprintf(s->name, sizeof s->name, "%s", name);
    }
}

static void look_at_all(struct sweep *s) {
    _Alignas(struct dirent64) char entries[2048];
    unsigned files = FILES_MOST;
    const time_t now = vp_clock_date();
    s->bytes = 0;
    *s->name = 0;
    lseek(s->folder, 0, SEEK_SET);
    for (ssize_t n; files && (n = syscall(SYS_getdents64, s->folder, entries, sizeof entries)) > 0;)
        for (ssize_t at = 0; at < n && files; files--) {
            const struct dirent64 *entry = (const void *)(entries + at);
            at += entry->d_reclen;
            look_at(s, entry->d_name, now);
        }
}

void vp_plans_tidy(const char *path) {
    static char folder[PATH_MAX]; /* too large for some stacks */
    const char *slash = strrchr(path, '/');
    if (!slash || (size_t)(slash - path) >= sizeof folder)
        return;
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    struct sweep s = {.folder = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    if (s.folder < 0)
        return;
    for (int tries = 0; tries < FILES_MOST; tries++) {
        look_at_all(&s);
        if (s.bytes <= FOLDER_MOST || !*s.name || unlinkat(s.folder, s.name, 0))
            break;
    }
    close(s.folder);
}
