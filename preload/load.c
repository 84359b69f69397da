/* The beginning and the end of the library in a process: load, exit, fork. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"

#include <pthread.h>
#include "adopt.h"
#include "process/process.h"
#include "base/options.h"
#include "watch/stacks.h"
#include "dumper.h"
#include "early.h"

/*
 * Runs in every process that the preload reaches, nearly all of which never touch a GPU: only the environment
 * is looked at. libc's dlsym is found while the process has one thread, though a door may have come first, in
 * another library's constructor.
 */
__attribute__((constructor)) static void begin(void) {
    vp_early_find();
    vp_options();
    vp_adopt();
    /* A fork may meet another thread that opens the library. */
    pthread_atfork(vp_api_fork_prepare, vp_api_fork_parent, vp_api_fork_child);
}

/*
 * Runs after the program's own exit handlers. CUDA may be gone by now, and is not called; the doors still
 * work.
 */
__attribute__((destructor)) static void end(void) {
    vp_api_exit();
}

void vp_load_opened(void) {
    vp_adopt_report();
    vp_dumper_start();
    vp_stacks_start();
}
