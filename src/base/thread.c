/* Threads of this process, as the kernel sees them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include "base/process.h"

#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

__thread uint64_t vp_thread_own __attribute__((tls_model("initial-exec"), visibility("hidden")));

uint64_t vp_thread_ask(void) {
    return vp_thread_own = (uint64_t)syscall(SYS_gettid);
}

void vp_thread_fork_child(void) {
    vp_thread_own = 0;
}

/* The clock of a thread by its number, of which pthread_getcpuclockid() makes a secret: it takes a pthread_t, and that
 * of a thread that has ended is none. */
enum { CLOCK_OF_THREAD = 4, CLOCK_OF_SCHEDULER = 2 };

uint64_t vp_thread_cpu_ns(uint64_t id) {
    struct timespec ts;
    const clockid_t clock = (clockid_t)(~(unsigned)id << 3 | CLOCK_OF_THREAD | CLOCK_OF_SCHEDULER);
    if (clock_gettime(clock, &ts))
        return 0;
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

bool vp_thread_is_ready(uint64_t id) {
    char name[48], text[128];
    snprintf(name, sizeof name, "/proc/self/task/%llu/stat", (unsigned long long)id);
    vp_process_read_file(name, text, sizeof text);
    const char *state = strrchr(text, ')'); /* behind the thread's name, which may hold anything */
    return state && (state[2] == 'R' || state[2] == 'D');
}
