/* The sleeping processes: the files of `vpool pause`, and the lock under which a process is woken (see
 * src/watch/hold.c). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/pause/asleep.h"

#include "base/clock.h"
#include "tool/top/pages.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x7065656c73417056) /* "VpAsleep" */

/* ---- files ---- */

static void name_of(uid_t uid, int pid, char out[64]) {
    snprintf(out, 64, VP_SHARED_STATS_FOLDER "/vpool-%u-%d.paused", (unsigned)uid, pid);
}

/* Returns `fd` if it is a regular file of that user or of ours; otherwise closes it: other users can create files of
 * this name. */
static int kept_if_good(int fd, uid_t uid) {
    struct stat st;
    if (fd < 0)
        return -errno;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_nlink == 1 && (st.st_uid == uid || st.st_uid == geteuid()))
        return fd;
    close(fd);
    return -EPERM;
}

/* Opens a file. A new one belongs to the user whose process it is about. */
static int open_for(const char *name, uid_t uid, bool make) {
    int fd = open(name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && make) {
        fd = open(name, O_RDWR | O_NOFOLLOW | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd >= 0 && uid != geteuid() && fchown(fd, uid, (gid_t)-1) < 0)
            return close(fd), -EPERM;
    }
    return kept_if_good(fd, uid);
}

int vp_asleep_open(uid_t uid, int pid, bool make) {
    char name[64];
    name_of(uid, pid, name);
    struct stat st;
    int fd = open_for(name, uid, make);
    /* The process that held it may just have removed it. */
    if (fd >= 0 && (flock(fd, LOCK_EX | LOCK_NB) < 0 || fstat(fd, &st) < 0 || !st.st_nlink)) {
        close(fd);
        return -EBUSY;
    }
    return fd;
}

bool vp_asleep_read(int fd, struct vp_asleep *out) {
    return pread(fd, out, sizeof *out, 0) == sizeof *out && out->magic == MAGIC &&
           out->devices <= VP_SHARED_STATS_DEVICES;
}

bool vp_asleep_write(int fd, const struct vp_asleep *asleep) {
    struct vp_asleep copy = *asleep;
    copy.magic = MAGIC;
    return pwrite(fd, &copy, sizeof copy, 0) == sizeof copy;
}

void vp_asleep_remove(uid_t uid, int pid) {
    char name[64];
    name_of(uid, pid, name);
    unlink(name);
}

static bool is(int pid, const struct vp_process *process) {
    struct vp_process now;
    return pid > 0 && vp_process_read(pid, &now) && vp_process_same(&now, process);
}

bool vp_asleep_is_helped(const struct vp_asleep *asleep) {
    return is(asleep->helper, &asleep->helper_process);
}

void vp_asleep_each(void (*take)(void *context, uid_t uid, const struct vp_asleep *asleep), void *context) {
    DIR *folder = opendir(VP_SHARED_STATS_FOLDER);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        struct vp_asleep asleep;
        unsigned uid;
        int pid, end = 0;
        if (sscanf(entry->d_name, "vpool-%u-%d.paused%n", &uid, &pid, &end) != 2 || !end || entry->d_name[end] ||
            (geteuid() && uid != geteuid()))
            continue;
        int fd = kept_if_good(openat(dirfd(folder), entry->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC),
                              uid);
        const bool good = fd >= 0 && vp_asleep_read(fd, &asleep) && asleep.pid == pid;
        if (good && is(pid, &asleep.process))
            take(context, uid, &asleep);
        else if (good)
            unlinkat(dirfd(folder), entry->d_name, 0);
        if (fd >= 0)
            close(fd);
    }
    if (folder)
        closedir(folder);
}

/* ---- the lock ---- */

enum { USERS = 32 };

static struct {
    int fd[USERS]; /* one lock for each user */
    uid_t uid[USERS];
    int count;
    unsigned char uuid[VP_SHARED_STATS_DEVICES][16]; /* the devices concerned; none: all */
    uint32_t devices;
} held;

static bool lock_for(uid_t uid, uint64_t until_ns) {
    char name[64];
    for (int i = 0; i < held.count; i++)
        if (held.uid[i] == uid)
            return true;
    vp_shared_stats_lock_name((unsigned)uid, name);
    int fd = held.count < USERS ? open_for(name, uid, true) : -1;
    if (fd < 0)
        return false;
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (vp_clock_ns() > until_ns) {
            close(fd);
            return false;
        }
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    /* Written before a page's word makes its process look here. If it cannot be written, the file stays empty: all
     * devices. */
    const size_t bytes = held.devices * sizeof *held.uuid;
    if (ftruncate(fd, 0) < 0 || pwrite(fd, held.uuid, bytes, 0) != (ssize_t)bytes)
        (void)!ftruncate(fd, 0);
    held.uid[held.count] = uid;
    held.fd[held.count++] = fd;
    return true;
}

static void put_word(const struct vp_page *page, uint32_t value) {
    const int fd = vp_page_open(page);
    if (fd < 0)
        return;
    (void)!pwrite(fd, &value, sizeof value, (off_t)offsetof(struct vp_shared_stats, ties.hold));
    close(fd);
}

/* Raises a page's word. Containers have locks of their own, which are not ours, so their pages are left alone. */
static int raise_word(void *context, const struct vp_page *page) {
    const uint64_t *until_ns = context;
    if (page->via)
        return 0;
    if (!lock_for(page->uid, *until_ns))
        return -ETIME;
    put_word(page, (uint32_t)getpid());
    return 0;
}

/* Lowers a page's word. If we do not have the lock, the word is not ours either. */
static int lower_word(void *context, const struct vp_page *page) {
    (void)context;
    for (int i = 0; i < held.count && !page->via; i++)
        if (held.uid[i] == page->uid)
            put_word(page, 0);
    return 0;
}

bool vp_hold_begin(const struct vp_asleep *asleep, uint64_t until_ns) {
    held.devices = asleep->devices;
    for (uint32_t i = 0; i < held.devices; i++)
        memcpy(held.uuid[i], asleep->device[i].uuid, sizeof held.uuid[i]);
    if (!lock_for(geteuid(), until_ns) || vp_pages_each(raise_word, &until_ns) == -ETIME) {
        vp_hold_end();
        return false;
    }
    return true;
}

void vp_hold_end(void) {
    vp_pages_each(lower_word, NULL);
    while (held.count)
        close(held.fd[--held.count]);
}
