/* Identities of processes and threads. A process id alone is not enough: ids are reused, and exec puts another program
 * in the process. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vp_process {
    uint64_t start; /* when it began, in clock ticks since boot */
    uint64_t stack; /* where its stack begins, which changes with exec; 0: not shown to us */
};

/* Reads a system file, as in /proc, as far as there is room, and puts a zero behind it. Returns the bytes read; 0: it
 * is empty or cannot be read. Allocates nothing. */
size_t vp_process_read_file(const char *path, char *text, size_t room);

/* Reads both from /proc, without allocating. `pid` 0: this process. False: there is no such process (a zombie counts as
 * none). */
bool vp_process_read(int pid, struct vp_process *out);

/* Is the process stopped by a signal or a debugger? False: it runs, or there is none. */
bool vp_process_is_stopped(int pid);

/* Are they the same process running the same program, as far as both are known? */
bool vp_process_same(const struct vp_process *a, const struct vp_process *b);

/* Detects forks that run no handlers: _Fork(), or clone() by itself. After vp_process_mark() vp_process_is_marked() is
 * true until this process is the child of a fork, however made (from Linux 4.14 on; before it is always true). Costs
 * two loads. */
void vp_process_mark(void);
/* A page that the kernel clears in every child that does not share our memory; NULL: not marked yet. */
extern atomic_int *_Atomic vp_process_page;
static inline bool vp_process_is_marked(void) {
    const atomic_int *page = atomic_load_explicit(&vp_process_page, memory_order_acquire);
    return !page || atomic_load_explicit(page, memory_order_relaxed);
}

/* The number of this process's PID namespace; 0: unknown. */
uint64_t vp_process_namespace(void);

/* This process's rank, as text, among processes that were started together, as their launcher tells it (torchrun, MPI,
 * Slurm). False and "": alone, as far as is known. Allocates nothing. Programs may set it themselves until they use
 * CUDA: it is read from the environment each time until vp_process_know_rank() is called, and never after that, as
 * another thread may change the environment. */
bool vp_process_rank(char *rank, size_t room);
bool vp_process_know_rank(void);

/* ---- threads of this process ---- */

/* The calling thread's kernel id (gettid). Asked for once in each thread. */
extern __thread uint64_t vp_thread_own __attribute__((tls_model("initial-exec"), visibility("hidden")));
uint64_t vp_thread_ask(void) __attribute__((cold));
static inline uint64_t vp_thread_id(void) {
    return vp_thread_own ? vp_thread_own : vp_thread_ask();
}
/* In the child of a fork: its one thread has another id. */
void vp_thread_fork_child(void);

/* The CPU time that the thread has used, in ns; 0: there is no such thread in this process. */
uint64_t vp_thread_cpu_ns(uint64_t id);

/* Is the thread running, or could it run if it got a CPU or a page? Not if it sleeps, is stopped or has ended. Reads
 * /proc; false if that tells nothing. */
bool vp_thread_is_ready(uint64_t id);
