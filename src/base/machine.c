/* What this machine has, by /proc/meminfo, the files of control groups, and what the kernel shows in /sys. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/machine.h"

#include "base/os_memory.h"
#include "base/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- memory ---- */

/* The longest of the system files read has some 3 KiB. */
enum { TEXT = 8192, PATH = 1024 };

/* Not on the stack, which may have only some KiB. */
struct scratch {
    char groups[TEXT], text[TEXT], path[PATH];
};

/* Finds the number behind a word at the beginning of a line. */
static bool find_number(const char *text, const char *word, uint64_t *number) {
    const size_t length = strlen(word);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, word, length) == 0) {
            *number = strtoull(line + length, NULL, 10);
            return true;
        }
    }
    return false;
}

/* The files with a group's limit, what it uses, and what of that is only the cache of files. */
struct files {
    const char *mount, *most, *used, *cache;
};

static const struct files V1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                "total_inactive_file "},
                          V2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "};

static bool group_text(struct scratch *scratch, const char *root, const struct files *f, const char *group,
                       const char *name) {
    char *path = scratch->path;
    return (size_t)snprintf(path, PATH, "%s%s%s/%s", root, f->mount, group, name) < PATH &&
           vp_process_read_file(path, scratch->text, TEXT);
}

static uint64_t group_room(struct scratch *scratch, const char *root, const struct files *f, const char *group) {
    const char *text = scratch->text;
    uint64_t cache = 0;
    if (!group_text(scratch, root, f, group, f->most) || *text < '0' || *text > '9')
        return UINT64_MAX;
    const uint64_t most = strtoull(text, NULL, 10);
    if (!group_text(scratch, root, f, group, f->used))
        return UINT64_MAX;
    uint64_t used = strtoull(text, NULL, 10);
    if (group_text(scratch, root, f, group, "memory.stat"))
        find_number(text, f->cache, &cache);
    used -= cache < used ? cache : used;
    return most > used ? most - used : 0;
}

/* The least room of a group and all above it. A group that cannot be seen from here (its path is of another namespace)
 * limits nothing. */
static uint64_t room_up_to_root(struct scratch *scratch, const char *root, const struct files *f, char *group) {
    uint64_t least = UINT64_MAX;
    for (;;) {
        const uint64_t room = group_room(scratch, root, f, group);
        char *last = strrchr(group, '/');
        least = room < least ? room : least;
        if (!last)
            return least;
        *last = '\0';
    }
}

static uint64_t groups_room(struct scratch *scratch, const char *root) {
    char *line, *rest = scratch->groups;
    uint64_t least = UINT64_MAX;
    snprintf(scratch->path, PATH, "%s/proc/self/cgroup", root);
    if (!vp_process_read_file(scratch->path, scratch->groups, TEXT))
        return least;
    /* NUMBER:CONTROLLERS:PATH; version 2 names no controllers. */
    while ((line = strsep(&rest, "\n"))) {
        strsep(&line, ":");
        const char *controllers = strsep(&line, ":");
        if (!line || (*controllers && strcmp(controllers, "memory") != 0))
            continue;
        const uint64_t room = room_up_to_root(scratch, root, *controllers ? &V1 : &V2, line);
        least = room < least ? room : least;
    }
    return least;
}

uint64_t vp_host_memory_room(const char *root) {
    struct scratch *scratch = vp_os_take(sizeof *scratch);
    uint64_t available = 0;
    if (!scratch)
        return 0;
    snprintf(scratch->path, PATH, "%s/proc/meminfo", root);
    if (vp_process_read_file(scratch->path, scratch->text, TEXT) &&
        find_number(scratch->text, "MemAvailable:", &available)) {
        available *= 1024;
        available -= available / 10;
        const uint64_t groups = groups_room(scratch, root);
        available = groups < available ? groups : available;
    }
    vp_os_give(scratch, sizeof *scratch);
    return available;
}

/* ---- devices that reach a GPU's memory by themselves ---- */

/* NVIDIA's own modules, in a listing of a folder; they have other ways in. */
static const char OWN[] = " . .. nvidia_uvm nvidia_modeset nvidia_drm ";
/* A kernel that cannot unload modules does not show which of them use which. Nor do these show, which look NVIDIA's
 * symbols up at run time (HPE Slingshot, PG-Strom). */
static const char *const KNOWN[] = {"nvidia_peermem", "nv_peer_mem", "gdrdrv", "nvidia_fs", "cxi_ss1", "nvme_strom"};

static const char *in(char path[512], const char *root, const char *folder, const char *name) {
    snprintf(path, 512, "%s/sys/%s/%s", root, folder, name);
    return path;
}

/* Does a folder contain anything but NVIDIA's own modules? True, too, if it cannot be read. */
static bool has_others(const char *path) {
    _Alignas(struct dirent64) char entries[1024], word[260];
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long n = fd < 0 && errno != ENOENT ? -1 : 0;
    bool others = false;
    while (fd >= 0 && !others && (n = syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0)
        for (const struct dirent64 *e = (void *)entries; (char *)e < entries + n;
             e = (void *)((char *)e + e->d_reclen)) {
            snprintf(word, sizeof word, " %s ", e->d_name);
            others |= !strstr(OWN, word);
        }
    if (fd >= 0)
        close(fd);
    return others || n < 0;
}

bool vp_rdma_possible(const char *root) {
    char path[512];
    bool possible = access(in(path, root, "module", "nvidia"), F_OK) || access(in(path, root, "class", ""), F_OK);
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++)
        possible |= !access(in(path, root, "module", KNOWN[i]), F_OK);
    return possible || has_others(in(path, root, "class", "infiniband")) ||
           has_others(in(path, root, "module/nvidia", "holders"));
}
