/* A program under the library, watched: see watched.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/doctor/watched.h"

#include "tool/run/launch.h"
#include "tool/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile pid_t program;

static void pass_on(int number) {
    if (program > 0)
        kill(program, number);
}

/* A user who ends the command has seen enough of the program, and wants the findings so far. So these signals are
 * passed on to the program; those that come while it is being started, once it has been. */
static const int endings[] = {SIGTERM, SIGHUP};

static void hold_endings(sigset_t *before) {
    sigset_t held;
    sigemptyset(&held);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        sigaddset(&held, endings[i]);
    sigprocmask(SIG_BLOCK, &held, before);
}

static void pass_endings_on(void) {
    const struct sigaction pass = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
    struct sigaction before;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (!sigaction(endings[i], NULL, &before) && before.sa_handler == SIG_DFL)
            sigaction(endings[i], &pass, NULL);
}

pid_t vp_watched_start(char **argv, const char *library, const char *statistics) {
    int failed[2];
    char byte = 0;
    sigset_t before;
    vp_tool_flush();
    hold_endings(&before);
    void (*const on_interrupt)(int) = signal(SIGINT, SIG_IGN), (*const on_quit)(int) = signal(SIGQUIT, SIG_IGN);
    pid_t pid = pipe2(failed, O_CLOEXEC) < 0 ? -1 : fork();
    if (!pid) {
        signal(SIGINT, on_interrupt);
        signal(SIGQUIT, on_quit);
        sigprocmask(SIG_SETMASK, &before, NULL);
        vp_launch_preload(library);
        setenv("VPOOL_STATS", statistics, 1);
        int status = vp_launch_exec("doctor", argv);
        (void)!write(failed[1], &byte, 1);
        _exit(status);
    }
    if (pid < 0) {
        fprintf(stderr, "vpool doctor: %s: %s\n", *argv, strerror(errno));
        sigprocmask(SIG_SETMASK, &before, NULL);
        return -1;
    }
    program = pid;
    pass_endings_on();
    sigprocmask(SIG_SETMASK, &before, NULL);
    /* Either exec closes the pipe, or the child writes to it if exec failed. */
    close(failed[1]);
    const bool never = read(failed[0], &byte, 1) == 1;
    close(failed[0]);
    if (never) {
        program = 0;
        waitpid(pid, NULL, 0);
    }
    return never ? -1 : pid;
}

/* Looks what is mapped in the process. */
static enum vp_seen look(pid_t pid) {
    char path[32], line[PATH_MAX + 128];
    bool library = false, driver = false;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *in = fopen(path, "r");
    while (in && !(library && driver) && fgets(line, sizeof line, in)) {
        library |= strstr(line, "/libvpool.so") || strstr(line, "/libvpool-compare.so");
        driver |= !!strstr(line, "/libcuda.so");
    }
    if (in)
        fclose(in);
    return !library ? VP_MISSING : driver ? VP_WITH_DRIVER : VP_THERE;
}

/* After so many looks (60 ms), even on a busy machine, the dynamic linker must have mapped the library. */
enum { EARLY = 6 };

/* The pause between looks doubles, up to about 0.1 s. */
int vp_watched_end(pid_t pid, enum vp_seen *seen) {
    int status = 0, looks = 0;
    long pause = 1000000;
    *seen = VP_TOO_SHORT;
    while (!waitpid(pid, &status, *seen == VP_WITH_DRIVER ? 0 : WNOHANG)) {
        const enum vp_seen now = look(pid);
        /* A process that is ending has nothing mapped any more. */
        if (now > VP_MISSING)
            *seen = now;
        else if (*seen <= VP_MISSING)
            *seen = ++looks > EARLY ? VP_MISSING : VP_TOO_SHORT;
        nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
        pause = pause < 100000000 ? pause * 2 : pause;
    }
    program = 0;
    return status;
}
