/* Which process is it, and which thread? A process id alone does not say: ids come back, and a program may put another
 * in its own place. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vp_process {
    uint64_t start; /* when it began, in clock ticks since boot */
    uint64_t stack; /* where its stack begins, another for each exec; 0: not told to us */
};

/* Reads a file of the system's, as one in /proc: as much as there is room for, and a zero behind it. The bytes read; 0:
 * it has none, or cannot be read. Allocates nothing. */
size_t vp_process_read_file(const char *path, char *text, size_t room);

/* Reads both from /proc, without allocating. `pid` 0: this process. False: there is no such process (a dead
 * one that nobody waited for is none). */
bool vp_process_read(int pid, struct vp_process *out);

/* Is that process stopped, by a signal or a debugger? False: it runs, or there is none. */
bool vp_process_is_stopped(int pid);

/* The same process, and the same program in it, as far as both tell? */
bool vp_process_same(const struct vp_process *a, const struct vp_process *b);

/* Forks that no handler hears of: _Fork(), and clone() by itself. After vp_process_mark() this process is the same
 * until it is a child of a fork, whatever made that (Linux 4.14 on; before it always seems so). Cost: two loads. */
void vp_process_mark(void);
/* A page that the kernel clears in every child that does not share this memory; NULL: not marked yet. */
extern atomic_int *_Atomic vp_process_page;
static inline bool vp_process_is_marked(void) {
    const atomic_int *page = atomic_load_explicit(&vp_process_page, memory_order_acquire);
    return !page || atomic_load_explicit(page, memory_order_relaxed);
}

/* The number of the namespace that this process's ids belong to; 0: unknown. */
uint64_t vp_process_namespace(void);

/* Which of several processes that were started together this is, as whoever started them says (torchrun, MPI, Slurm):
 * its rank, as text. False, and "": it is alone, as far as is known. Allocates nothing. Programs set it themselves,
 * until they use CUDA: it is read of the environment each time until vp_process_know_rank(), and no more from then on,
 * as another thread may change that. */
bool vp_process_rank(char *rank, size_t room);
bool vp_process_know_rank(void);

/* ---- threads of this process ---- */

/* The kernel's number of the calling thread. Asked for once in a thread. */
extern __thread uint64_t vp_thread_own __attribute__((tls_model("initial-exec"), visibility("hidden")));
uint64_t vp_thread_ask(void) __attribute__((cold));
static inline uint64_t vp_thread_id(void) {
    return vp_thread_own ? vp_thread_own : vp_thread_ask();
}
/* In the child of a fork: its one thread has another number. */
void vp_thread_fork_child(void);

/* The time for which that thread has had a CPU, in ns; 0: there is no such thread in this process. */
uint64_t vp_thread_cpu_ns(uint64_t id);

/* It has a CPU, or would run if it had one, or waits for a page; it does not sleep, has not ended, and is not stopped.
 * Reads /proc. False where that tells nothing. */
bool vp_thread_is_ready(uint64_t id);
