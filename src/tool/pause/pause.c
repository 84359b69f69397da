/* vpool pause and vpool resume: move a program's device memory to the host and back, from outside.
 *
 * A driver call may never return. So a helper process makes the calls, and is ended when its time is up; another helper
 * then checks the state that it left, and lets a locked process continue. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/pause/pause.h"

#include "base/clock.h"
#include "tool/pause/asleep.h"
#include "tool/tool.h"

#include <cuda.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* 139 GiB take a minute and a half at the measured 1.6 GB/s. */
enum { SECONDS = 300 };

/* Queued work may take a tenth of that, or LOCK_SECONDS; examining the state that is left may take LOOK_SECONDS. */
enum { LOCK_SECONDS = 10, LOOK_SECONDS = 10, KILLED_MS = 5000 };

/* ---- a process of its own ---- */

static volatile sig_atomic_t signalled;

static void on_signal(int number) {
    signalled = number;
}

static void catch_signals(struct sigaction old[3], bool catch) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    const struct sigaction ours = {.sa_handler = on_signal};
    for (int i = 0; i < 3; i++)
        sigaction(numbers[i], catch ? &ours : &old[i], catch ? &old[i] : NULL);
}

/* Only the caller's death ends the helper early: signals of the terminal are for the caller. */
static void become_helper(pid_t caller) {
    const struct sigaction ignored = {.sa_handler = SIG_IGN};
    sigaction(SIGINT, &ignored, NULL);
    sigaction(SIGHUP, &ignored, NULL);
    sigaction(SIGTERM, &ignored, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != caller)
        _exit(127);
}

/* The helper's exit status. If it has closed its end of the pipe, it is about to exit; if it is killed, it may hang in
 * the driver for good. */
static int status_of(pid_t pid, bool ended) {
    int status;
    if (!ended)
        kill(pid, SIGKILL);
    for (int ms = 0; ms < KILLED_MS; ms += 5) {
        if (waitpid(pid, &status, WNOHANG) == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    return -1;
}

int vp_pause_apart(int (*steps)(void *context), void *context, double seconds, bool *interrupted) {
    const uint64_t until = vp_clock_ns() + (uint64_t)(seconds * 1e9);
    const pid_t self = getpid();
    struct sigaction old[3];
    int ends[2];
    bool ended = false;
    fflush(NULL);
    if (pipe(ends))
        return -1;
    signalled = 0;
    catch_signals(old, true);
    pid_t pid = fork();
    if (!pid) {
        become_helper(self);
        close(ends[0]);
        const int status = steps(context);
        fflush(NULL);
        _exit(status);
    }
    close(ends[1]);
    for (uint64_t now; pid > 0 && !ended && !signalled && (now = vp_clock_ns()) < until;) {
        /* The helper's end of the pipe is closed when it exits. */
        struct pollfd end = {.fd = ends[0], .events = POLLIN};
        if (poll(&end, 1, (int)((until - now) / 1000000) + 1) > 0)
            ended = true;
    }
    close(ends[0]);
    catch_signals(old, false);
    if (interrupted)
        *interrupted = signalled != 0;
    return pid < 0 ? -1 : status_of(pid, ended);
}

/* ---- the commands ---- */

struct job {
    struct vp_screened who;
    bool resume;
    double seconds;
    uint64_t until_ns;
};

static int run(void *context) {
    struct job *job = context;
    const double lock = job->seconds / 10 < LOCK_SECONDS ? LOCK_SECONDS : job->seconds / 10;
    return job->resume ? vp_resume_steps(&job->who, job->until_ns)
                       : vp_pause_steps(&job->who, job->until_ns, (unsigned)(lock * 1000));
}

static int look(void *context) {
    const struct job *job = context;
    const int state = vp_pause_state(&job->who, true);
    return state < 0 ? 100 : state;
}

/* To be called if the helper did not finish. */
static int clean_up(struct job *job, const char *command, bool interrupted) {
    const int pid = job->who.pid, state = vp_pause_apart(look, job, LOOK_SECONDS, NULL);
    struct vp_process now;
    char what[64];
    snprintf(what, sizeof what, interrupted ? "it was interrupted" : "it was not done in %g s", job->seconds);
    if (!vp_process_read(pid, &now) || !vp_process_same(&now, &job->who.process))
        fprintf(stderr, "vpool %s: process %d has ended\n", command, pid);
    else if (state == CU_PROCESS_STATE_RUNNING)
        fprintf(stderr, "vpool %s: %s; process %d runs on\n", command, what, pid);
    else if (state == CU_PROCESS_STATE_CHECKPOINTED)
        fprintf(stderr, "vpool %s: %s; process %d sleeps, vpool resume %d wakes it\n", command, what, pid, pid);
    else
        fprintf(stderr,
                "vpool %s: %s; process %d may be locked: vpool doctor shows whether, vpool resume %d lets it run on\n",
                command, what, pid, pid);
    if (state == CU_PROCESS_STATE_RUNNING) {
        vp_screen_mark(&job->who, false);
        vp_asleep_remove(job->who.uid, pid);
    }
    return VP_PAUSE_FAILED;
}

static void help(bool resume) {
    if (resume)
        printf("usage: vpool resume [OPTION…] PID\n\n"
               "Wakes a process that vpool pause has put to sleep, or lets a process whose pause\n"
               "was interrupted continue. On each device, what the process had and 512 MiB more\n"
               "must be free (a 16th of a device of less than 8 GiB). Your other processes under\n"
               "libvpool.so are first asked for idle memory, and take no more in the meantime.\n"
               "If there is too little, or time runs out first, the process stays asleep.\n");
    else
        printf("usage: vpool pause [OPTION…] PID\n\n"
               "Puts a process to sleep: the driver's checkpoint (CUDA 12.8, driver 570) moves\n"
               "its memory on all devices to the host, and its CUDA calls wait until vpool\n"
               "resume PID. The process does not need libvpool.so. Under it, idle memory is\n"
               "given back first, and what cannot be paused is detected and refused: NCCL with\n"
               "more than one rank, managed memory, memory that is shared with other processes\n"
               "or registered with networks, multicast objects, a capture. Of a process without\n"
               "it, only the memory maps are checked. The process must be yours, unless you are\n"
               "root. vpool top shows which processes are asleep.\n");
    printf("\n  --timeout=SECONDS  most time that it may take (default %d)%s\n"
           "  -h, --help\n\n"
           "The exit status is 0 if the process %s, 1 after a failure, 2 after wrong\n"
           "arguments, and 3 if vpool refused and changed nothing. docs/pausing.md has more.\n",
           SECONDS, resume ? "" : ";\n                     a tenth of it for queued work",
           resume ? "runs" : "is asleep");
}

static int parse(struct job *job, int *pid, bool *helped, int argc, char **argv) {
    static const struct option long_options[] = {
        {"timeout", required_argument, NULL, 't'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    const char *command = job->resume ? "resume" : "pause";
    char *end;
    opterr = 0;
    optind = 0;
    for (int chosen; (chosen = getopt_long(argc, argv, "h", long_options, NULL)) >= 0;)
        switch (chosen) {
        case 't':
            if (vp_tool_seconds(command, optarg, 0.1, &job->seconds))
                return 2;
            break;
        case 'h': *helped = true; return 0;
        default: return vp_tool_unknown(command, long_options, argv);
        }
    if (argc - optind != 1)
        return vp_tool_usage(command, argc == optind ? "no process id given" : "one process at a time");
    const long number = strtol(argv[optind], &end, 10);
    if (*end || end == argv[optind] || number <= 0 || number > INT32_MAX)
        return vp_tool_usage(command, "'%s' is not a process id", argv[optind]);
    *pid = (int)number;
    return 0;
}

static int command(bool resume, int argc, char **argv) {
    static struct job job;
    const char *name = resume ? "resume" : "pause";
    bool helped = false, interrupted;
    int pid = 0;
    job = (struct job){.resume = resume, .seconds = SECONDS};
    int status = parse(&job, &pid, &helped, argc, argv);
    if (status || helped) {
        if (helped)
            help(resume);
        return status;
    }
    if (pid == getpid() || !vp_screen(&job.who, pid)) {
        fprintf(stderr, "vpool %s: there is no process %d\n", name, pid);
        return VP_PAUSE_FAILED;
    }
    const bool others = geteuid() && job.who.uid != geteuid();
    const char *why = resume && !others ? NULL : vp_screen_refusal(&job.who);
    if (why) {
        fprintf(stderr, "vpool %s: process %d is not %sd: %s\n", name, pid, name, why);
        return VP_PAUSE_REFUSED;
    }
    if (!resume && !(job.who.page && atomic_load(&job.who.stats.ties.told)))
        fprintf(stderr,
                "vpool pause: process %d has no page of libvpool.so: captures, managed and shared memory of it "
                "would not be seen\n",
                pid);
    job.until_ns = vp_clock_ns() + (uint64_t)(job.seconds * 1e9);
    status = vp_pause_apart(run, &job, job.seconds, &interrupted);
    return status < 0 ? clean_up(&job, name, interrupted) : status;
}

int vp_tool_pause(int argc, char **argv) {
    return command(false, argc, argv);
}

int vp_tool_resume(int argc, char **argv) {
    return command(true, argc, argv);
}
