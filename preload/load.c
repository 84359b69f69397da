/* The beginning and the end of the library in a process: load, exit, fork. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"

#include <pthread.h>
#include "process/process.h"
#include "base/options.h"
#include "base/output.h"
#include "watch/stacks.h"
#include "early.h"
#include "torch.h"

/* Runs in every process that the preload reaches, nearly all of which never touch a GPU: only the environment
 * is looked at, and what stderr is. libc's dlsym is found while the process has one thread, though a door may have come
 * first, in another library's constructor. */
__attribute__((constructor)) static void begin(void) {
    vp_early_find();
    vp_output_know_stderr();
    vp_options();
    vp_adopt();
    vp_first_mark();
    /* A fork may meet another thread that opens the library. */
    pthread_atfork(vp_api_fork_prepare, vp_api_fork_parent, vp_api_fork_child);
    pthread_atfork(NULL, NULL, vp_nvtx_fork_child);
}

/* Runs after the program's own exit handlers. CUDA may be gone by now, and is not called; the doors still
 * work. */
__attribute__((destructor)) static void end(void) {
    vp_api_exit();
}

void vp_load_opened(void) {
    vp_adopt_report();
    if (vp_adopt_bare)
        vp_torch_listen();
    vp_dumper_start();
    vp_first_hear_signals();
    vp_stacks_start();
}
