/* The start and the end of the library in a process: load, exit, fork. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"

#include <dlfcn.h>
#include <pthread.h>
#include <vpool.h>
#include "process/process.h"
#include "base/clock.h"
#include "base/options.h"
#include "base/output.h"
#include "watch/dump.h"
#include "watch/stacks.h"
#include "watch/watch.h"
#include "early.h"
#include "torch.h"

bool vp_load_aside;

/* Runs in every process that the preload reaches, nearly all of which never touch a GPU: only the environment
 * is looked at, and what stderr is. libc's dlsym is found while the process has one thread, though a door may have come
 * first, in another library's constructor. */
__attribute__((constructor)) static void begin(void) {
    vp_early_find();
    int (*clock)(clockid_t, struct timespec *) = (__typeof__(clock))vp_early_own("clock_gettime");
    if (clock)
        vp_clock_ask = clock;
    /* Asked as the program would: we ourselves, being linked with -Bsymbolic, find our own. */
    const void *first = vp_real_dlsym(vp_real_dlopen(NULL, RTLD_LAZY), "vpool_version");
    if ((vp_load_aside = first && first != (void *)vpool_version))
        return;
    vp_output_know_stderr();
    const struct vp_options *options = vp_options();
    vp_output_know(options->stats);
    vp_output_know(options->dump_file);
    vp_output_know(options->trace);
    /* Else NVTX has loaded it, say: the program has begun, and what is in its environment is its own. */
    if (first) {
        vp_adopt();
        vp_first_mark();
    }
    /* A fork may meet another thread that opens the library. */
    pthread_atfork(vp_api_fork_prepare, vp_api_fork_parent, vp_api_fork_child);
}

/* Runs after the program's own exit handlers. CUDA may be gone by now, and is not called; the doors still work. */
__attribute__((destructor)) static void end(void) {
    if (!vp_load_aside)
        vp_api_exit();
}

void vp_load_opened(void) {
    vp_adopt_report();
    if (vp_adopt_bare)
        vp_torch_listen();
    if (vp_dump_start())
        vp_shared_stats_take_dumps();
    vp_first_hear_signals();
    vp_stacks_start();
}
