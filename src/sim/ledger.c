/* Several processes on the same devices: a file in which each of them records what it has taken.
 *
 * VPOOL_SIM="shared=FILE" gives every process that names the file the same devices: what one has taken, the others
 * lack. Each process has a line in the file. The line of a process that has ended is removed by the next process that
 * takes something, as a driver gives back the memory of a dead process. Only amounts are shared, not bytes; and the
 * state of a checkpoint (checkpoint.c). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_private.h"
#include "sim.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINES = 64 };

static struct {
    int fd;
    struct sim_line *lines; /* NULL: there is no file */
    pid_t pid;
    struct sim_line *own;
    size_t others[SIM_MAX_DEVICES]; /* what other processes have by a test's word */
} ledger = {.fd = -1};

static bool open_file(void) {
    if (ledger.lines)
        return true;
    int fd = open(sim.options.shared, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, LINES * (off_t)sizeof(struct sim_line)) < 0) {
        fprintf(stderr, "[sim] shared=%s: %s\n", sim.options.shared, strerror(errno));
        sim.options.shared[0] = '\0';
        return false;
    }
    void *at = mmap(NULL, LINES * sizeof(struct sim_line), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        close(fd);
        return false;
    }
    ledger.fd = fd;
    ledger.lines = at;
    return true;
}

/* A zombie, whose parent has not waited for it yet, holds no device either. */
static bool is_dead(pid_t pid) {
    char name[32], text[512];
    snprintf(name, sizeof(name), "/proc/%d/stat", (int)pid);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return kill(pid, 0) < 0 && errno == ESRCH;
    text[n] = '\0';
    const char *state = strrchr(text, ')');
    return state && (state[2] == 'Z' || state[2] == 'X');
}

static void strike_out_the_dead(void) {
    for (int i = 0; i < LINES; i++)
        if (ledger.lines[i].pid && is_dead(ledger.lines[i].pid))
            memset(&ledger.lines[i], 0, sizeof(struct sim_line));
}

/* Opens the file, finds our line, and locks the file. False: there is no file. */
static bool lock(void) {
    if (!sim.options.shared[0] || !open_file() || TEMP_FAILURE_RETRY(flock(ledger.fd, LOCK_EX)) < 0)
        return false;
    if (ledger.pid == getpid())
        return true;
    strike_out_the_dead();
    ledger.own = NULL;
    /* A line with our process id belongs to the program that this one replaced (exec). */
    for (int i = 0; i < LINES; i++)
        if (ledger.lines[i].pid == getpid())
            memset(&ledger.lines[i], 0, sizeof(struct sim_line));
    for (int i = 0; i < LINES && !ledger.own; i++)
        if (!ledger.lines[i].pid)
            ledger.own = &ledger.lines[i];
    if (!ledger.own) {
        flock(ledger.fd, LOCK_UN);
        return false;
    }
    memset(ledger.own, 0, sizeof(struct sim_line));
    ledger.own->pid = ledger.pid = getpid();
    return true;
}

/* ---- checkpoints ---- */

void sim_ledger_unlock(void) {
    if (ledger.fd >= 0)
        flock(ledger.fd, LOCK_UN);
}

struct sim_line *sim_ledger_find(int pid) {
    if (!lock())
        return NULL;
    strike_out_the_dead();
    for (int i = 0; i < LINES; i++)
        if (ledger.lines[i].pid == pid)
            return &ledger.lines[i];
    return NULL;
}

void sim_ledger_join(void) {
    if (lock())
        sim_ledger_unlock();
}

bool sim_ledger_begin(void) {
    struct sim_line *own = ledger.own;
    if (!own || ledger.pid != getpid())
        return false;
    for (;;) {
        atomic_fetch_add(&own->inside, 1);
        if (atomic_load(&own->state) == CU_PROCESS_STATE_RUNNING)
            return true;
        atomic_fetch_sub(&own->inside, 1);
        pthread_mutex_unlock(&sim.lock);
        sim_nap();
        pthread_mutex_lock(&sim.lock);
    }
}

void sim_ledger_end(void) {
    if (ledger.own)
        atomic_fetch_sub(&ledger.own->inside, 1);
}

static uint64_t sum(int physical) {
    uint64_t all = 0;
    for (int i = 0; i < LINES; i++)
        all += ledger.lines[i].pid ? ledger.lines[i].used[physical] : 0;
    return all;
}

void sim_ledger_put_away(struct sim_line *line) {
    memcpy(line->kept, line->used, sizeof(line->kept));
    memset(line->used, 0, sizeof(line->used));
}

/* Returns what others leave for this process and those that share the file. */
static uint64_t left_by_others(int device) {
    const size_t others = ledger.others[device];
    return others == VP_SIM_ALL ? sim.devices[device].used : sim_capacity(device) - others;
}

bool sim_ledger_bring_back(struct sim_line *line) {
    for (int i = 0; i < SIM_MAX_DEVICES; i++)
        if (line->kept[i] && sum(i) + line->kept[i] > sim.options.capacity[i])
            return false;
    memcpy(line->used, line->kept, sizeof(line->used));
    return true;
}

/* ---- amounts ---- */

bool sim_ledger_take(int device, size_t bytes) {
    const uint64_t capacity = left_by_others(device);
    const int physical = sim.devices[device].physical;
    if (bytes > capacity || sim.devices[device].used > capacity - bytes)
        return false;
    if (!lock())
        return true;
    if (sum(physical) + bytes > capacity)
        strike_out_the_dead();
    bool room = sum(physical) + bytes <= capacity;
    if (room)
        ledger.own->used[physical] += bytes;
    flock(ledger.fd, LOCK_UN);
    return room;
}

void sim_ledger_give(int device, size_t bytes) {
    if (!lock())
        return;
    ledger.own->used[sim.devices[device].physical] -= bytes;
    flock(ledger.fd, LOCK_UN);
}

size_t sim_ledger_others(int device) {
    uint64_t others = sim_capacity(device) - left_by_others(device);
    if (!lock())
        return others;
    strike_out_the_dead();
    others += sum(sim.devices[device].physical) - ledger.own->used[sim.devices[device].physical];
    flock(ledger.fd, LOCK_UN);
    return others;
}

/* Forgets what is in use, with the rest of the state. */
void sim_ledger_reset(void) {
    if (ledger.lines && ledger.pid == getpid()) {
        memset(ledger.own, 0, sizeof(struct sim_line));
        munmap(ledger.lines, LINES * sizeof(struct sim_line));
        close(ledger.fd);
    }
    memset(&ledger, 0, sizeof(ledger));
    ledger.fd = -1;
}

SIM_EXPORT void vp_sim_others(int device, size_t bytes) {
    pthread_mutex_lock(&sim.lock);
    ledger.others[device] = bytes;
    pthread_mutex_unlock(&sim.lock);
}
