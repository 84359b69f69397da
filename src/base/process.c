/* Identities of processes and threads that survive reused process ids, exec and fork. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/process.h"

#include "base/descriptor.h"
#include "base/os_memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Fields of /proc/PID/stat, as counted in proc(5). The state is the first one behind the program's name, which may
 * contain anything. */
enum { STATE = 3, START = 22, STACK = 28 };

size_t vp_process_read_file(const char *path, char *text, size_t room) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? 0 : vp_descriptor_read(fd, text, room - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

/* Reads a process's fields, or those of a thread of this one. Returns the end of its name, with all fields behind it;
 * NULL: it does not exist. */
static const char *read_fields(int pid, uint64_t thread, char text[1024]) {
    char name[48] = "/proc/self/stat";
    if (pid)
        snprintf(name, sizeof name, "/proc/%d/stat", pid);
    if (thread)
        snprintf(name, sizeof name, "/proc/self/task/%llu/stat", (unsigned long long)thread);
    vp_process_read_file(name, text, 1024);
    return strrchr(text, ')');
}

/* The letter of its state; 0: unknown. */
static char state_of(int pid, uint64_t thread) {
    char text[1024];
    const char *at = read_fields(pid, thread, text);
    return at && at[1] ? at[2] : '\0';
}

bool vp_process_is_stopped(int pid) {
    const char state = state_of(pid, 0);
    return state == 'T' || state == 't';
}

bool vp_process_read(int pid, struct vp_process *out) {
    char text[1024];
    const char *at = read_fields(pid, 0, text);
    struct vp_process found = {0};
    for (int field = STATE - 1; at && field <= STACK; field++, at = strchr(at + 1, ' ')) {
        if (field == STATE && (at[1] == 'Z' || at[1] == 'X'))
            return false;
        if (field == START)
            found.start = strtoull(at, NULL, 10);
        if (field == STACK)
            found.stack = strtoull(at, NULL, 10);
    }
    *out = found;
    return at != NULL;
}

atomic_int *_Atomic vp_process_page;

void vp_process_mark(void) {
    atomic_int *page = atomic_load(&vp_process_page);
    if (!page) {
        size_t size = (size_t)sysconf(_SC_PAGESIZE);
        if (!(page = vp_os_take(size)))
            return;
#ifdef MADV_WIPEONFORK
        (void)madvise(page, size, MADV_WIPEONFORK);
#endif
    }
    atomic_store_explicit(page, 1, memory_order_relaxed);
    atomic_store_explicit(&vp_process_page, page, memory_order_release);
}

bool vp_process_same(const struct vp_process *a, const struct vp_process *b) {
    return a->start == b->start && (a->stack == b->stack || !a->stack || !b->stack);
}

uint64_t vp_process_namespace(void) {
    struct stat st;
    return stat("/proc/self/ns/pid", &st) ? 0 : (uint64_t)st.st_ino;
}

static void read_rank(char *rank, size_t room) {
    /* The rank, and the number of processes. */
    static const char *const names[][2] = {
        {"RANK", "WORLD_SIZE"},
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
        {"PMIX_RANK", "OMPI_COMM_WORLD_SIZE"},
        {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
        {"PMI_RANK", "PMI_SIZE"},
        {"SLURM_PROCID", "SLURM_NTASKS"},
    };
    *rank = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *number = secure_getenv(names[i][0]), *size = secure_getenv(names[i][1]);
        size_t length = number ? strspn(number, "0123456789") : 0;
        if (!length || number[length] || length >= room || !size || !strtoul(size, NULL, 10))
            continue;
        if (strtoul(size, NULL, 10) > 1)
            memcpy(rank, number, length + 1);
        return;
    }
}

static char known_rank[16];
static atomic_bool rank_is_known;

bool vp_process_rank(char *rank, size_t room) {
    if (atomic_load_explicit(&rank_is_known, memory_order_acquire))
        snprintf(rank, room, "%s", known_rank);
    else
        read_rank(rank, room);
    return *rank;
}

bool vp_process_know_rank(void) {
    read_rank(known_rank, sizeof known_rank);
    atomic_store_explicit(&rank_is_known, true, memory_order_release);
    return *known_rank;
}

/* ---- threads ---- */

__thread uint64_t vp_thread_own __attribute__((tls_model("initial-exec"), visibility("hidden")));

uint64_t vp_thread_ask(void) {
    return vp_thread_own = (uint64_t)syscall(SYS_gettid);
}

void vp_thread_fork_child(void) {
    vp_thread_own = 0;
}

/* The CPU clock of a thread by its id, as the kernel encodes it. pthread_getcpuclockid() takes a pthread_t, which
 * is invalid once a thread has ended. */
enum { CLOCK_OF_THREAD = 4, CLOCK_OF_SCHEDULER = 2 };

uint64_t vp_thread_cpu_ns(uint64_t id) {
    struct timespec ts;
    const clockid_t clock = (clockid_t)(~(unsigned)id << 3 | CLOCK_OF_THREAD | CLOCK_OF_SCHEDULER);
    if (clock_gettime(clock, &ts))
        return 0;
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

bool vp_thread_is_ready(uint64_t id) {
    const char state = state_of(0, id);
    return state == 'R' || state == 'D';
}
