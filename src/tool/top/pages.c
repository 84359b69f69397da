/* Finds shared statistics: in our /dev/shm, and in those of containers that we may read.
 *
 * Files in a folder that others can write to are not trusted: links are not followed; a file counts if it is a regular
 * file that belongs to the process that it names; it is read, not mapped (its owner may make it shorter); and only the
 * reader's counters in it are written. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/top/pages.h"

#include "base/clock.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A process that we may look into, and is in another container. */
struct guest {
    int pid, inner; /* as we know it, and as it knows itself */
    ino_t pids, mounts;
};

struct search {
    int (*take)(void *context, const struct vp_page *page);
    void *context;
    struct guest *guests;
    size_t guest_count;
    struct folder {
        dev_t device;
        ino_t number;
    } *seen;
    size_t seen_count;
    struct vp_shared_stats copy;
};

static unsigned strangers;

unsigned vp_pages_strangers(void) {
    return strangers;
}

/* ---- processes ---- */

static ino_t namespace_of(int pid, const char *kind) {
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%d/ns/%s", pid, kind);
    return stat(path, &st) ? 0 : st.st_ino;
}

/* The text behind "KEY:" in /proc/PID/status, up to its line's end; NULL: there is none. */
static const char *status_of(int pid, const char *key, char text[4096]) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, 4095);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    for (char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL)
        if (!strncmp(line, key, strlen(key)) && line[strlen(key)] == ':') {
            line[strcspn(line, "\n")] = 0;
            return line + strlen(key) + 1;
        }
    return NULL;
}

static int add_guest(struct search *s, int pid, ino_t pids, ino_t mounts) {
    char text[4096];
    struct guest *more = reallocarray(s->guests, s->guest_count + 1, sizeof *more);
    if (!more)
        return -ENOMEM;
    s->guests = more;
    const char *inner = status_of(pid, "NSpid", text), *last = inner ? strrchr(inner, '\t') : NULL;
    more[s->guest_count++] = (struct guest){pid, last ? atoi(last) : pid, pids, mounts};
    return 0;
}

/* All that are in another namespace of process ids or of mounts than we, as far as we may know. */
static int find_guests(struct search *s) {
    ino_t pids = namespace_of(getpid(), "pid"), mounts = namespace_of(getpid(), "mnt");
    DIR *all = opendir("/proc");
    int err = 0;
    for (struct dirent *entry; all && !err && (entry = readdir(all));) {
        int pid = isdigit((unsigned char)*entry->d_name) ? atoi(entry->d_name) : 0;
        ino_t its = pid ? namespace_of(pid, "pid") : 0, its_mounts = its ? namespace_of(pid, "mnt") : 0;
        if (its && (its != pids || its_mounts != mounts))
            err = add_guest(s, pid, its, its_mounts);
    }
    if (all)
        closedir(all);
    return err;
}

/* The process that a page is of, as we know it; 0: there is none, or it is not the one any more. */
static int process_of(const struct search *s, const struct vp_shared_stats *stats) {
    struct vp_process now;
    int pid = stats->namespace == vp_process_namespace() ? (int)stats->pid : 0;
    for (size_t i = 0; !pid && i < s->guest_count; i++)
        if (s->guests[i].pids == stats->namespace && s->guests[i].inner == (int)stats->pid)
            pid = s->guests[i].pid;
    return pid > 0 && vp_process_read(pid, &now) && vp_process_same(&now, &stats->process) ? pid : 0;
}

/* One of its real, effective and saved ids? */
static bool runs_as(int pid, uid_t uid) {
    char text[4096];
    unsigned ids[3];
    const char *line = status_of(pid, "Uid", text);
    return line && sscanf(line, "%u %u %u", &ids[0], &ids[1], &ids[2]) == 3 &&
           (ids[0] == uid || ids[1] == uid || ids[2] == uid);
}

/* A container's id is 64 hexadecimal digits in the names of its cgroups, whoever started it. */
static bool find_id(const char *text, char out[VP_PAGE_CONTAINER]) {
    enum { DIGITS = 64, SHOWN = 12 };
    for (; *text; text += *text != 0) {
        size_t n = strspn(text, "0123456789abcdef");
        if (n == DIGITS) {
            snprintf(out, VP_PAGE_CONTAINER, "%.*s", SHOWN, text);
            return true;
        }
        text += n;
        if (!*text)
            return false;
    }
    return false;
}

/* One of another kind is told by the number of its namespace. */
static void name_container(const struct search *s, struct vp_page *page) {
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%d/cgroup", page->pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    *page->container = 0;
    for (size_t i = 0; i < s->guest_count && !*page->container; i++)
        if (s->guests[i].pid == page->pid && !find_id(text, page->container))
            snprintf(page->container, sizeof page->container, "ns%llu",
                     (unsigned long long)(s->guests[i].pids != namespace_of(getpid(), "pid") ? s->guests[i].pids
                                                                                             : s->guests[i].mounts));
}

/* ---- folders ---- */

/* The folder of pages in a process's root; 0: in ours. */
static int open_folder(int via) {
    char path[32];
    if (!via)
        return open(VP_SHARED_STATS_FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    snprintf(path, sizeof path, "/proc/%d/root", via);
    int root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int dev = openat(root, "dev", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int shm = openat(dev, "shm", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (root >= 0)
        close(root);
    if (dev >= 0)
        close(dev);
    return shm;
}

static int open_page(int folder, const char *name, struct stat *st) {
    int fd = openat(folder, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && !fstat(fd, st) && S_ISREG(st->st_mode) && st->st_nlink == 1 && st->st_size >= VP_SHARED_STATS_SIZE &&
        (st->st_uid == geteuid() || !geteuid()))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static bool same_moment(const struct vp_shared_stats *a, const struct vp_shared_stats *b) {
    bool same = true;
    for (uint32_t i = 0; i < VP_SHARED_STATS_DEVICES; i++)
        same &= a->device[i].changes == b->device[i].changes && !(a->device[i].changes & 1);
    return same;
}

/* The figures of one moment, unless the writer is so busy that a hundred tries meet it writing. */
static bool copy_page(int fd, struct vp_shared_stats *out) {
    struct vp_shared_stats again;
    int tries = 0;
    do {
        if (pread(fd, out, sizeof *out, 0) != sizeof *out || pread(fd, &again, sizeof again, 0) != sizeof again)
            return false;
    } while (!same_moment(out, &again) && ++tries < 100);
    return out->magic == VP_SHARED_STATS_MAGIC;
}

/* The word on which the thread sleeps that answers readers. */
#define LISTENER (offsetof(struct vp_shared_stats, loans) + offsetof(struct vp_loans, asked))

static uint32_t raise_counter(int fd, size_t offset) {
    uint32_t value = 0;
    if (pread(fd, &value, sizeof value, (off_t)offset) == sizeof value) {
        value++;
        (void)!pwrite(fd, &value, sizeof value, (off_t)offset);
    }
    return value;
}

/* What stream caches serve is counted when a reader asks. That takes some 0.1 ms, or longer while a call of the driver
 * lasts: then, or where nobody listens, the figures are those that the next reading would show, or older. */
static void let_count(int fd, struct vp_shared_stats *page) {
    enum { TRIES = 50, NAP_NS = 100000 };
    const uint32_t asked = raise_counter(fd, offsetof(struct vp_shared_stats, asked));
    uint32_t answered;
    if (!(atomic_load(&page->loans.takes) & VP_LOANS_HEARD))
        return;
    vp_page_wake(fd, LISTENER);
    for (int i = 0; i < TRIES; i++) {
        vp_clock_sleep(NAP_NS);
        if (pread(fd, &answered, sizeof answered, offsetof(struct vp_shared_stats, answered)) != sizeof answered)
            return;
        if ((int32_t)(answered - asked) >= 0) /* another reader may have asked since */
            break;
    }
    struct vp_shared_stats now;
    if (copy_page(fd, &now) && now.pid == page->pid && now.version == page->version && now.size == page->size)
        *page = now;
}

static int take_page(struct search *s, int folder, int via, const char *name) {
    struct vp_page page = {.stats = &s->copy, .via = via};
    struct stat st;
    unsigned uid;
    int pid, end = 0, status = 0;
    if (sscanf(name, "vpool-%u-%d%n", &uid, &pid, &end) != 2 || name[end] || (size_t)end >= sizeof page.name)
        return 0;
    int fd = open_page(folder, name, &st);
    bool good = fd >= 0 && copy_page(fd, &s->copy) && s->copy.pid == (uint32_t)pid &&
                (page.pid = process_of(s, &s->copy)) && runs_as(page.pid, st.st_uid);
    if (good && (s->copy.version != VP_SHARED_STATS_VERSION || s->copy.size < VP_SHARED_STATS_SIZE)) {
        strangers++; /* what comes behind may lie elsewhere there */
    } else if (good) {
        memcpy(page.name, name, (size_t)end + 1);
        page.uid = st.st_uid;
        name_container(s, &page);
        let_count(fd, &s->copy);
        status = s->take(s->context, &page);
    }
    if (fd >= 0)
        close(fd);
    return status;
}

/* Once each: containers may share theirs with each other and with us. */
static bool is_new(struct search *s, int folder) {
    struct stat st;
    if (fstat(folder, &st))
        return false;
    for (size_t i = 0; i < s->seen_count; i++)
        if (s->seen[i].device == st.st_dev && s->seen[i].number == st.st_ino)
            return false;
    struct folder *more = reallocarray(s->seen, s->seen_count + 1, sizeof *more);
    if (!more)
        return false;
    s->seen = more;
    more[s->seen_count++] = (struct folder){st.st_dev, st.st_ino};
    return true;
}

static int take_folder(struct search *s, int via) {
    int fd = open_folder(via), status = 0;
    if (fd < 0)
        return via ? 0 : -errno;
    DIR *entries = is_new(s, fd) ? fdopendir(fd) : NULL;
    if (!entries) {
        close(fd);
        return 0;
    }
    for (struct dirent *entry; !status && (entry = readdir(entries));)
        status = take_page(s, fd, via, entry->d_name);
    closedir(entries);
    return status;
}

int vp_pages_each(int (*take)(void *context, const struct vp_page *page), void *context) {
    struct search s = {.take = take, .context = context};
    strangers = 0;
    int status = find_guests(&s);
    if (!status)
        status = take_folder(&s, 0);
    for (size_t i = 0; i < s.guest_count && !status; i++) {
        bool again = false;
        for (size_t n = 0; n < i && !again; n++)
            again = s.guests[n].mounts == s.guests[i].mounts;
        if (!again)
            status = take_folder(&s, s.guests[i].pid);
    }
    free(s.guests);
    free(s.seen);
    return status;
}

int vp_page_open(const struct vp_page *page) {
    struct stat st;
    struct vp_process now;
    int folder = open_folder(page->via), fd = folder < 0 ? -1 : open_page(folder, page->name, &st);
    if (fd >= 0 && !(vp_process_read(page->pid, &now) && vp_process_same(&now, &page->stats->process))) {
        close(fd);
        fd = -1;
    }
    if (folder >= 0)
        close(folder);
    return fd;
}

int vp_page_take_answer(const struct vp_page *page, const char *suffix) {
    char name[VP_PAGE_NAME + 32];
    struct stat st;
    int folder = open_folder(page->via), fd = -1;
    snprintf(name, sizeof name, "%s%s", page->name, suffix);
    if (folder >= 0)
        fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != page->uid)) {
        close(fd);
        fd = -1;
    }
    if (fd >= 0)
        unlinkat(folder, name, 0);
    if (folder >= 0)
        close(folder);
    return fd;
}

void vp_page_wake(int fd, size_t offset) {
    char *at = mmap(NULL, VP_SHARED_STATS_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) {
        syscall(SYS_futex, at + offset, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
        munmap(at, VP_SHARED_STATS_SIZE);
    }
}

/* A dump's thread sleeps on its own word; a counter that is no more there wakes nobody, and is no fault. */
bool vp_page_ask(const struct vp_page *page, enum vp_page_wish wish) {
    static const struct {
        size_t raised, woken;
    } words[] = {[VP_PAGE_TRIM] = {offsetof(struct vp_shared_stats, trims_asked), LISTENER},
                 [VP_PAGE_DUMP] = {offsetof(struct vp_shared_stats, dumps_asked),
                                   offsetof(struct vp_shared_stats, dumps_asked)}};
    const int fd = vp_page_open(page);
    if (fd >= 0) {
        raise_counter(fd, words[wish].raised);
        vp_page_wake(fd, words[wish].woken);
        close(fd);
    }
    return fd >= 0;
}
