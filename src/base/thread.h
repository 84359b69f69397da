/* Threads of this process, as the kernel sees them. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

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
