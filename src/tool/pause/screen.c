/* Checks whether the driver can checkpoint a process: it is reported to hang with NCCL, and to fail with managed memory
 * and with memory shared between processes. A process under the library has these in its page; of any other process
 * only the memory maps are checked. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/pause/screen.h"

#include "process/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- the process ---- */

/* Reads the user of a process. False: its user ids differ, or it has ended. */
static bool read_user(int pid, uid_t *uid) {
    char path[32], line[256];
    unsigned ids[3];
    bool one = false;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *in = fopen(path, "re");
    while (in && fgets(line, sizeof line, in))
        if (sscanf(line, "Uid: %u %u %u", &ids[0], &ids[1], &ids[2]) == 3) {
            *uid = ids[0];
            one = ids[0] == ids[1] && ids[1] == ids[2];
        }
    if (in)
        fclose(in);
    return one;
}

static void read_maps(struct vp_screened *s) {
    char path[32], *line = NULL;
    size_t room = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", s->pid);
    FILE *in = fopen(path, "re");
    while (in && getline(&line, &room, in) >= 0) {
        char *file = strchr(line, '/');
        if (!file)
            continue;
        file[strcspn(file, "\n")] = 0;
        const char *name = strrchr(file, '/') + 1;
        if (!strncmp(name, "libcuda.so", 10)) {
            s->cuda = true;
            snprintf(s->driver, sizeof s->driver, "%s", file);
        }
        s->nccl |= !strncmp(name, "libnccl.so", 10);
        s->shares |= !strncmp(file, "/dev/shm/nccl-", 14);
        s->library |= !strncmp(name, "libvpool.so", 11) || !strncmp(name, "libvpool-compare.so", 19);
    }
    free(line);
    if (in)
        fclose(in);
    /* Libraries that another user's process has loaded must not run here. */
    if (s->uid != geteuid())
        *s->driver = 0;
}

/* Is it one of several ranks, by the variables of its launcher? */
static bool is_rank(int pid) {
    static const char *const names[] = {"WORLD_SIZE=", "OMPI_COMM_WORLD_SIZE=", "PMI_SIZE=", "SLURM_NTASKS="};
    char path[32], *word = NULL;
    size_t room = 0;
    bool several = false;
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    FILE *in = fopen(path, "re");
    while (in && getdelim(&word, &room, 0, in) >= 0)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            several |= !strncmp(word, names[i], strlen(names[i])) && atoi(word + strlen(names[i])) > 1;
    free(word);
    if (in)
        fclose(in);
    return several;
}

static int take(void *context, const struct vp_page *page) {
    struct vp_screened *s = context;
    if (page->pid != s->pid)
        return 0;
    s->is = *page;
    s->stats = *page->stats;
    s->is.stats = &s->stats;
    s->page = true;
    return 1;
}

bool vp_screen_again(struct vp_screened *s) {
    s->page = false;
    return vp_pages_each(take, s) == 1;
}

bool vp_screen(struct vp_screened *s, int pid) {
    *s = (struct vp_screened){.pid = pid};
    if (!vp_process_read(pid, &s->process))
        return false;
    if (!read_user(pid, &s->uid))
        s->uid = (uid_t)-1;
    read_maps(s);
    vp_screen_again(s);
    return true;
}

/* ---- may it? ---- */

static const char *of_page(unsigned told) {
    if (told & VP_TOLD_RANKS)
        return "it has made an NCCL communicator of more than one rank: its peers would wait for it, and the driver hangs";
    if (told & (VP_TOLD_TIES << VP_TIE_MANAGED))
        return "it has managed memory (cudaMallocManaged), which the driver's checkpoint cannot take";
    if (told & (VP_TOLD_TIES << VP_TIE_EXPORT))
        return "it has shared memory or events with other processes (CUDA IPC, or an exported handle)";
    if (told & (VP_TOLD_TIES << VP_TIE_IMPORT))
        return "it has opened memory, events or semaphores of other processes (CUDA IPC, or an imported handle)";
    if (told & (VP_TOLD_TIES << VP_TIE_REGISTERED))
        return "its memory is known to a network or another library (registered, or shown as a file)";
    if (told & (VP_TOLD_TIES << VP_TIE_MULTICAST))
        return "it has a multicast object";
    if (told & VP_TOLD_CAPTURES)
        return "one of its streams is capturing: try again when the graph is made";
    return NULL;
}

const char *vp_screen_refusal(const struct vp_screened *s) {
    const unsigned told = s->page ? atomic_load(&s->stats.ties.told) : 0;
    const char *why = of_page(told);
    if (geteuid() && s->uid != geteuid())
        return "it belongs to another user or has raised privileges: only root may do this";
    if (!s->cuda)
        return "it does not use CUDA (libcuda.so.1 is not loaded there)";
    if (why)
        return why;
    if (s->shares)
        return "NCCL shares memory with other ranks there (/dev/shm/nccl-...)";
    if (!told && s->nccl && is_rank(s->pid))
        return "NCCL is loaded there, and it is one of several ranks";
    return NULL;
}

/* ---- its page ---- */

static int open_page(const struct vp_screened *s) {
    return s->page ? vp_page_open(&s->is) : -1;
}

struct vp_shared_stats *vp_screen_map(const struct vp_screened *s) {
    int fd = open_page(s);
    void *at = fd < 0 ? MAP_FAILED : mmap(NULL, VP_SHARED_STATS_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    return at == MAP_FAILED ? NULL : at;
}

void vp_screen_mark(const struct vp_screened *s, bool paused) {
    const uint16_t value = paused;
    int fd = open_page(s);
    if (fd < 0)
        return;
    (void)!pwrite(fd, &value, sizeof value, (off_t)offsetof(struct vp_shared_stats, ties.paused));
    close(fd);
}
