/* Is there a device that reaches a GPU's memory by itself? What the kernel shows in /sys. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rdma.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* NVIDIA's own modules, which are let in by other ways, in a listing. */
static const char OWN[] = " . .. nvidia_uvm nvidia_modeset nvidia_drm ";
/* A kernel that cannot unload modules does not tell which of them use which, nor does any of what looks NVIDIA's up as
 * it runs: HPE Slingshot's, PG-Strom's. */
static const char *const KNOWN[] = {"nvidia_peermem", "nv_peer_mem", "gdrdrv", "nvidia_fs", "cxi_ss1", "nvme_strom"};

static const char *in(char path[512], const char *root, const char *folder, const char *name) {
    snprintf(path, 512, "%s/sys/%s/%s", root, folder, name);
    return path;
}

/* Is anything in a folder but what is NVIDIA's own? Of one that cannot be read that is not known. */
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
