/* A process that forks while its threads allocate. The child has no CUDA, and no thread that could give a
 * lock back: it must neither hang nor find the parent's memory; most children go on to execute another
 * program. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "race.h"

#include "process/process.h"

#include <stdatomic.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORKS = 30, CHILD_SECONDS = 20 };

static atomic_bool done;

static void allocator(int index) {
    for (int i = 0; !atomic_load(&done); i++) {
        CUdeviceptr ptr;
        size_t size = (size_t)1 << (10 + (i + index) % 12);
        CU(i % 2 ? door_alloc(&ptr, size) : door_alloc_async(&ptr, size, NULL, CU_STREAM_PER_THREAD));
        CU(cuMemsetD8Async(ptr, 2, size, CU_STREAM_PER_THREAD));
        CU(door_free(ptr));
    }
}

static void child(int i) {
    CUdeviceptr ptr = 0;
    size_t free_bytes, total;
    alarm(CHILD_SECONDS);
    if (i % 2 == 0)
        execl("/bin/true", "true", (char *)NULL);
    _exit(door_alloc(&ptr, 4096) == CUDA_SUCCESS || door_mem_info(&free_bytes, &total) == CUDA_SUCCESS || ptr);
}

static void racer(int index) {
    if (index) {
        allocator(index);
        return;
    }
    for (int i = 0; i < FORKS; i++) {
        int status = -1;
        pid_t pid = fork();
        if (!pid)
            child(i);
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    atomic_store(&done, true);
}

int main(void) {
    race_open("granularity=64K");
    CHECK(!pthread_atfork(vp_api_fork_prepare, vp_api_fork_parent, vp_api_fork_child));
    race_run(racer);
    race_close();
    return 0;
}
