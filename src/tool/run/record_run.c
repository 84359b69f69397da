/* Runs a program for its page: finds what it recorded, draws the page, and prints three lines about it.
 *
 * Only here the command stays, as the parent of the program, because something must be left at the end. The program has
 * the terminal, and signals that the command gets are passed on to it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/run/record_run.h"

#include "base/json.h"
#include "base/log.h"
#include "base/options.h"
#include "tool/out.h"
#include "tool/replay/engine.h"
#include "tool/read/holders.h"
#include "tool/run/launch.h"
#include "tool/report/report.h"
#include "watch/say.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* How many processes of one program a page shows: those with the largest traces. */
enum { TRACES = 16 };

/* ---- where the traces are ---- */

struct traces {
    char folder[PATH_MAX];  /* the traces' folder; removed at the end if it was made here */
    char pattern[PATH_MAX]; /* the pattern of their names in it: %p for the process, %r and %h */
    bool own;
    char *paths[TRACES];
    off_t sizes[TRACES];
    size_t count, passed_over, unread;
};

/* Finds what people call the program: of an interpreter, the script. Omits characters that are special in a trace's
 * name. */
static void name_program(char **argv, char *name, size_t room) {
    const char *what = argv[0];
    for (int i = 1; argv[i] && i < 8; i++) {
        size_t n = strlen(argv[i]);
        if (n > 3 && !strcmp(argv[i] + n - 3, ".py")) {
            what = argv[i];
            break;
        }
    }
    const char *slash = strrchr(what, '/');
    snprintf(name, room, "%s", slash ? slash + 1 : what);
    for (; (name = strchr(name, '%')); name++)
        *name = '_';
}

/* Splits a path into the folder and the name in it. */
static void split(const char *path, char folder[PATH_MAX], char name[PATH_MAX]) {
    const char *slash = strrchr(path, '/');
    snprintf(name, PATH_MAX, "%s", slash ? slash + 1 : path);
    if (slash)
        snprintf(folder, PATH_MAX, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    else
        strcpy(folder, ".");
}

static int complain(const char *path, const char *why) {
    fprintf(stderr, "vpool run: %s: %s\n", path, why);
    return -1;
}

/* Does the text begin with a placeholder of the process, the host or the rank, or with a percent sign's? */
static bool is_expanded(const char *text) {
    return *text == '%' && text[1] && strchr("phr%", text[1]);
}

static bool has_expanded(const char *text) {
    while ((text = strchr(text, '%')) && !is_expanded(text))
        text++;
    return text;
}

/* Chooses the names: of the trace that was asked for, or of a temporary one. They are absolute paths, as the program
 * may be in another folder when it begins to record. */
static int choose_names(struct traces *t, char **argv) {
    const char *asked = vp_launch_options()->trace;
    char name[PATH_MAX + 8], folder[PATH_MAX], what[64];
    if (*asked) {
        split(asked, folder, t->pattern);
        if (has_expanded(folder))
            return complain(asked, "with --report %p, %r, %h and %% stand in the name of a trace, not of its folder");
    } else {
        t->own = true;
        name_program(argv, what, sizeof what);
        snprintf(t->pattern, sizeof t->pattern, "%s-%%p.csv", what);
        if (!vp_launch_room("run", folder))
            return complain(folder, strerror(errno));
    }
    if (!realpath(folder, t->folder) || has_expanded(t->folder))
        snprintf(t->folder, sizeof t->folder, "%s", folder);
    if (snprintf(name, sizeof name, "%s/%s", t->folder, t->pattern) < (int)sizeof name)
        setenv("VPOOL_TRACE", name, 1);
    setenv("VPOOL_FIRST", "0", 1); /* this process says how to look at the trace, and if there was none */
    return 0;
}

/* Checks before the program runs that the page can be written. */
static int try_page(const char *page) {
    char folder[PATH_MAX], name[PATH_MAX];
    struct stat about;
    const bool there = !stat(page, &about);
    split(page, folder, name);
    if (!*name || (there && S_ISDIR(about.st_mode)))
        return complain(page, strerror(*page ? EISDIR : ENOENT));
    if (!strcmp(page, "-") || (there && !S_ISREG(about.st_mode)))
        return 0;
    return access(folder, W_OK | X_OK) ? complain(page, strerror(errno)) : 0;
}

/* The most digits of a number in a name: a process id or a rank. */
enum { DIGITS = 10 };

/* Does the name fit the pattern, with the same process in all places, this host, and any rank? `process` has `known`
 * digits; 0: it is not known yet. Numbers may be adjacent, and each may end anywhere. */
static bool fits(const char *pattern, const char *name, const char *process, size_t known) {
    char host[HOST_NAME_MAX + 1];
    for (; *pattern && !is_expanded(pattern); pattern++)
        if (*pattern != *name++)
            return false;
    if (!*pattern)
        return !*name;
    const char letter = pattern[1], *same = letter == 'h' ? host : process;
    if (letter == '%')
        return *name == '%' && fits(pattern + 2, name + 1, process, known);
    if (letter == 'h' && gethostname(host, sizeof host))
        strcpy(host, "localhost");
    size_t n = letter == 'h' ? strlen(host) : letter == 'p' ? known : 0;
    if (n)
        return !strncmp(name, same, n) && fits(pattern + 2, name + n, process, known);
    n = strspn(name, "0123456789");
    for (n = n < DIGITS ? n : DIGITS; n; n--)
        if (fits(pattern + 2, name + n, letter == 'p' ? name : process, letter == 'p' ? n : known))
            return true;
    return false;
}

/* Keeps the trace if it is among the largest so far. Takes the path. */
static void keep(struct traces *t, char *path, off_t size) {
    size_t at = t->count;
    while (at && t->sizes[at - 1] < size)
        at--;
    if (at == TRACES) {
        t->passed_over++;
        free(path);
        return;
    }
    if (t->count == TRACES) {
        t->passed_over++;
        free(t->paths[--t->count]);
    }
    memmove(t->paths + at + 1, t->paths + at, (t->count - at) * sizeof *t->paths);
    memmove(t->sizes + at + 1, t->sizes + at, (t->count++ - at) * sizeof *t->sizes);
    t->paths[at] = path;
    t->sizes[at] = size;
}

/* Traces without an allocation have nothing to show, and those that cannot be read have been reported. */
static bool has_events(struct traces *t, const char *path, off_t *size) {
    struct vp_trace trace;
    char message[512];
    bool read = vp_trace_read(&trace, path, message, sizeof message) == 0, any = read && trace.count;
    if (!read)
        fprintf(stderr, "vpool run: %s\n", message);
    t->unread += !read;
    *size = read ? (off_t)trace.count : 0;
    if (read)
        vp_trace_finish(&trace);
    return any;
}

static void find_traces(struct traces *t, const struct timespec *since) {
    DIR *folder = opendir(t->folder);
    for (struct dirent *e; folder && (e = readdir(folder));) {
        struct stat about;
        char *path;
        off_t size;
        if (!fits(t->pattern, e->d_name, NULL, 0) || asprintf(&path, "%s/%s", t->folder, e->d_name) < 0)
            continue;
        /* Another machine's clock may set the times of files. */
        bool now = !stat(path, &about) &&
                   (t->own || about.st_mtim.tv_sec > since->tv_sec ||
                    (about.st_mtim.tv_sec == since->tv_sec && about.st_mtim.tv_nsec >= since->tv_nsec));
        if (now && has_events(t, path, &size))
            keep(t, path, size);
        else
            free(path);
    }
    if (folder)
        closedir(folder);
}

static void remove_own(const struct traces *t) {
    DIR *folder = t->own ? opendir(t->folder) : NULL;
    for (struct dirent *e; folder && (e = readdir(folder));)
        if (fits(t->pattern, e->d_name, NULL, 0))
            unlinkat(dirfd(folder), e->d_name, 0);
    if (folder)
        closedir(folder);
    if (t->own)
        rmdir(t->folder);
}

/* ---- the program ---- */

static volatile pid_t program;

static void pass_on(int number) {
    if (program > 0)
        kill(program, number);
}

/* The terminal sends these signals to both processes, and the command must outlive the program. Other signals come only
 * to the command. */
static int run_program(char **argv, int *status) {
    static const int terminals[] = {SIGINT, SIGQUIT}, others[] = {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCONT};
    enum { OTHERS = sizeof others / sizeof *others };
    struct sigaction before[2], before_others[OTHERS], child, wait = {.sa_handler = SIG_DFL},
                                                              ignore = {.sa_handler = SIG_IGN},
                                                              pass = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
    sigset_t all, mask;
    sigaction(SIGCHLD, &wait, &child); /* if it were ignored, there would be nothing to wait for */
    for (size_t i = 0; i < 2; i++)
        sigaction(terminals[i], &ignore, &before[i]);
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &mask);
    program = fork();
    if (program < 0) {
        fprintf(stderr, "vpool run: %s\n", strerror(errno));
        return -1;
    }
    if (!program) {
        for (size_t i = 0; i < 2; i++)
            sigaction(terminals[i], &before[i], NULL);
        sigaction(SIGCHLD, &child, NULL);
        sigprocmask(SIG_SETMASK, &mask, NULL);
        _exit(vp_launch_exec("run", argv));
    }
    for (size_t i = 0; i < OTHERS; i++)
        if (!sigaction(others[i], NULL, &before_others[i]) && before_others[i].sa_handler == SIG_DFL)
            sigaction(others[i], &pass, NULL);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    while (waitpid(program, status, 0) < 0)
        if (errno != EINTR)
            return -1;
    program = 0;
    for (size_t i = 0; i < OTHERS; i++)
        sigaction(others[i], &before_others[i], NULL);
    for (size_t i = 0; i < 2; i++)
        sigaction(terminals[i], &before[i], NULL);
    return 0;
}

/* ---- in three lines ---- */

static const char *size_text(uint64_t bytes, char text[32]) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double n = (double)bytes;
    int unit = 0;
    for (; n >= 1024 && unit < 4; unit++)
        n /= 1024;
    snprintf(text, 32, n >= 100 || !unit ? "%.0f %s" : "%.1f %s", n, units[unit]);
    return text;
}

/* Replays what PyTorch's own cache would have held; 0: not known. */
static uint64_t cached_peak(const struct vp_trace *part, const char *name) {
    struct vp_replay_options o = {.command = "run", .repeat = 1, .capacity = "1T", .handle = vp_options()->handle};
    struct vp_replay_result result = {.trace = name, .policy = vp_policy_bfc.name};
    struct vp_engine engine = {0};
    uint64_t peak = 0;
    if (!vp_engine_open(&engine, &o) && !vp_engine_replay(&engine, &o, &vp_policy_bfc, part, &result))
        peak = result.pool.peak_held_bytes;
    free(result.malloc_ns.ns);
    free(result.free_ns.ns);
    return peak;
}

static void say_saved(const struct vp_trace *t, const struct vp_trace *part, const struct vp_trace_peak *peak) {
    const struct vp_trace_truth truth = vp_trace_truth(part, part->devices[0]);
    uint64_t cached = cached_peak(part, "the program");
    char live[32], held[32], other[32], saved[32];
    fprintf(stderr, "vpool: ");
    if (t->device_count > 1)
        fprintf(stderr, "device %u: ", part->devices[0]);
    const bool elsewhere = truth.known && truth.peak_held_bytes < peak->bytes;
    if (elsewhere)
        fprintf(stderr, "%s alive at most, %s of it held of the device, the rest spilled or asleep",
                size_text(peak->bytes, live), size_text(truth.peak_held_bytes, held));
    else if (truth.known)
        fprintf(stderr, "%s held at most for %s alive (%.1f %%)", size_text(truth.peak_held_bytes, held),
                size_text(peak->bytes, live),
                truth.peak_held_bytes ? 100 * (double)peak->bytes / (double)truth.peak_held_bytes : 100.0);
    else
        fprintf(stderr, "%s alive at most", size_text(peak->bytes, live));
    if (truth.known && !elsewhere && cached > truth.peak_held_bytes)
        fprintf(stderr, "; a caching allocator (bfc, replayed) would have held %s: %s saved", size_text(cached, other),
                size_text(cached - truth.peak_held_bytes, saved));
    else if (cached)
        fprintf(stderr, "; a caching allocator (bfc, replayed) would have held %s", size_text(cached, other));
    fputc('\n', stderr);
}

static void say_peak(const struct vp_trace *t, const struct vp_trace *part, const struct vp_trace_peak *peak) {
    struct vp_array holders = {0};
    char bytes[32], text[1024];
    if (part->stacks.stacks.count > 1)
        vp_holders_at(part, peak->event, &holders);
    const struct vp_holder *h = holders.items;
    if (holders.count && !h->stack && holders.count > 1)
        h++;
    fprintf(stderr, "vpool: ");
    if (t->device_count > 1)
        fprintf(stderr, "device %u: ", part->devices[0]);
    fprintf(stderr, "the peak was %s after the first event", VP_TIME(part->events[peak->event].us * 1000));
    if (holders.count && h->stack) {
        vp_frame_text(&part->stacks, vp_stacks_frame(&part->stacks, h->stack), text, sizeof text);
        vp_log_make_plain(text);
        fprintf(stderr, ": %.*s held most, %s (%.0f %%)", vp_utf8_fit(text, 200), text, size_text(h->bytes, bytes),
                peak->bytes ? 100 * (double)h->bytes / (double)peak->bytes : 0);
    }
    fputc('\n', stderr);
    free(holders.items);
}

/* Where several processes allocated, says whose figures follow. */
static void say_whose(const struct traces *traces) {
    char *title = traces->count > 1 ? vp_trace_title(traces->paths[0]) : NULL;
    if (title) {
        vp_log_make_plain(title);
        fprintf(stderr, "vpool: %zu processes allocated memory; the longest record is %s:\n",
                traces->count + traces->passed_over, title);
    }
    free(title);
}

/* Prints figures of the largest trace, for the device that held most. */
static void say(const struct traces *traces, const char *page) {
    struct vp_trace t, part = {0};
    struct vp_trace_peak peak = {0}, now;
    char message[512];
    unsigned most = 0;
    if (vp_trace_read(&t, traces->paths[0], message, sizeof message) < 0)
        return;
    for (unsigned d = 0; d < t.device_count && t.device_count > 1; d++) {
        if (vp_trace_of_device(&t, d, &part) < 0)
            break;
        if (vp_trace_peak(&part, &now) && now.bytes > peak.bytes) {
            peak = now;
            most = d;
        }
        vp_trace_finish(&part);
    }
    if (!vp_trace_name(&t) && !vp_trace_of_device(&t, most, &part)) {
        if (vp_trace_peak(&part, &peak)) {
            say_whose(traces);
            say_saved(&t, &part, &peak);
            say_peak(&t, &part, &peak);
        }
        vp_trace_finish(&part);
    }
    vp_trace_finish(&t);
    fprintf(stderr, "vpool: look: open %s in a browser%s%s\n", strcmp(page, "-") ? page : "what is on standard output",
            traces->own ? "" : "; the trace is ", traces->own ? "" : traces->paths[0]);
    if (traces->passed_over)
        fprintf(stderr, "vpool: %zu smaller processes are not on the page\n", traces->passed_over);
}

/* ---- all of it ---- */

static int end_as(int status) {
    if (!WIFSIGNALED(status))
        return WEXITSTATUS(status);
    /* So that there is no second core file beside the program's. */
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
    return 128 + WTERMSIG(status);
}

int vp_record_run(const char *page, char **argv, bool quiet) {
    struct traces *traces = calloc(1, sizeof *traces);
    struct timespec since;
    int status = 0, failed = 0;
    if (!traces || try_page(page) < 0 || choose_names(traces, argv) < 0) {
        free(traces);
        return 1;
    }
    clock_gettime(CLOCK_REALTIME_COARSE, &since);
    if (run_program(argv, &status) < 0) {
        remove_own(traces);
        free(traces);
        return 1;
    }
    char kept[PATH_MAX + 64];
    snprintf(kept, sizeof kept, "vpool run: what was recorded is kept for vpool report: %s\n", traces->folder);
    vp_out_last_words(traces->own ? kept : "");
    find_traces(traces, &since);
    const bool unread = !traces->count && traces->unread;
    if (unread)
        fprintf(stderr, "vpool run: %s: the recording cannot be read, so there is no page\n", page);
    else if (!traces->count)
        fprintf(
            stderr,
            "vpool run: %s: nothing was allocated through the library, and there is no page. What stands in the way: vpool doctor -- %s\n",
            page, argv[0]);
    else
        failed = vp_report_write("run", page, traces->paths, traces->count);
    if (failed && traces->own) {
        fputs(kept, stderr);
        traces->own = false;
    }
    if (traces->count && !failed && !quiet)
        say(traces, page);
    remove_own(traces);
    vp_out_last_words("");
    for (size_t i = 0; i < traces->count; i++)
        free(traces->paths[i]);
    free(traces);
    /* The program's own failure takes precedence over ours. */
    return status ? end_as(status) : failed || unread;
}
