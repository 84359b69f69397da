/* vpool doctor: does the machine have all that the library needs, and does a program get its memory from the library?
 *
 * It assumes nothing: driver and library are tested in processes of their own (probe.c), and the program itself reports
 * what it did, by VPOOL_STATS. A line begins with `ok`, with `--` if there is something to know, or with `!!` if there
 * is something to do. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/config.h"
#include "base/options.h"
#include "base/process.h"
#include "tool/doctor/doctor.h"
#include "tool/read/json_read.h"
#include "tool/run/launch.h"
#include "tool/plan/learnt_list.h"
#include "tool/doctor/probe.h"
#include "tool/doctor/watched.h"
#include "tool/tool.h"
#include "watch/shared_stats.h"

#include <cuda.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int wrongs;

__attribute__((format(printf, 2, 3))) static void say(int mark, const char *format, ...) {
    static const char *const marks[] = {"ok", "--", "!!"}, *const colours[] = {"32", "33", "1;31"};
    const char *none = getenv("NO_COLOR"), *kind = getenv("TERM");
    bool coloured = isatty(STDOUT_FILENO) && (!none || !*none) && kind && strcmp(kind, "dumb");
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            *c = '?';
    if (coloured)
        printf("\033[%sm%s\033[m  %s\n", colours[mark], marks[mark], text);
    else
        printf("%s  %s\n", marks[mark], text);
    wrongs += mark == WRONG;
}

static void say_line(enum mark mark, const char *line) {
    say(mark, "%s", line);
}

/* ---- processes of our own ---- */

static char folder[PATH_MAX]; /* for the files that they write */

static const char *in_folder(const char *name) {
    static char path[sizeof folder + 256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* Reads a whole text file; the caller frees the text. NULL: there is no such file. */
static char *read_file(const char *path) {
    char *text = NULL;
    size_t size = 0;
    FILE *in = fopen(path, "r");
    if (!in)
        return NULL;
    if (getdelim(&text, &size, 0, in) < 0 && text)
        *text = 0;
    fclose(in);
    return text;
}

static void remove_folder(void) {
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        if (*entry->d_name != '.')
            unlink(in_folder(entry->d_name));
    if (entries)
        closedir(entries);
    rmdir(folder);
}

/* How long a driver may take. The first use of a cold one takes some seconds. */
enum { PROBE_SECONDS = 60 };

/* Runs a probe, with libvpool.so if `library`. Returns what it printed, which the caller frees. *stopped: why the probe
 * did not finish, or "". */
static char *run_probe(const char *which, const char *library, char stopped[64]) {
    *stopped = 0;
    vp_tool_flush();
    pid_t pid = fork();
    if (!pid) {
        char self[PATH_MAX];
        int out = open(in_folder("out"), O_WRONLY | O_CREAT | O_TRUNC, 0600),
            err = open(in_folder("err"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(out, STDOUT_FILENO);
        dup2(err, STDERR_FILENO);
        if (library) {
            vp_launch_preload(library);
            setenv("VPOOL_STATS", in_folder("probe.stats"), 1);
            unsetenv("VPOOL_TRACE");
            unsetenv("VPOOL_PLAN");
        }
        alarm(PROBE_SECONDS);
        if (vp_launch_self(self))
            execl(self, "vpool", "doctor", "--probe", which, (char *)NULL);
        _exit(127);
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        snprintf(stopped, 64, "%s", strerror(errno));
    else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        snprintf(stopped, 64, "it hangs");
    else if (WIFSIGNALED(status))
        snprintf(stopped, 64, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) > 1)
        snprintf(stopped, 64, "exit status %d", WEXITSTATUS(status));
    return read_file(in_folder("out"));
}

/* ---- the driver ---- */

static void say_device(char *line) {
    static const struct {
        const char *word, *meaning;
        enum mark without;
    } abilities[] = {
        {"vmm", "virtual memory management", WRONG},
        {"fd", "POSIX-fd export", NOTE},
        {"rdma", "RDMA to mapped memory", NOTE},
        {"pools", "memory pools", NOTE},
        {"ipc", "IPC events", NOTE},
    };
    int number = 0, used = 0;
    size_t bytes = 0;
    char has[256] = "", lacks[256] = "";
    enum mark mark = OK;
    if (sscanf(line, "%d %zu %n", &number, &bytes, &used) != 2)
        return;
    char *rest = line + used, *word;
    for (size_t i = 0; i < sizeof abilities / sizeof *abilities && (word = strsep(&rest, " ")); i++) {
        bool lacking = !strncmp(word, "no-", 3);
        char *list = lacking ? lacks : has;
        snprintf(list + strlen(list), sizeof has - strlen(list), "%s%s", *list ? ", " : "", abilities[i].meaning);
        if (lacking && abilities[i].without > mark)
            mark = abilities[i].without;
    }
    say(mark, "device %d, %s, %.1f GiB: %s%s%s%s%s", number, rest ? rest : "?", (double)bytes / (1 << 30),
        *has ? "has " : "", has, *lacks ? (*has ? "; lacks " : "lacks ") : "", lacks,
        mark == WRONG ? ": its memory is left to CUDA; vpool needs a newer device or driver" : "");
    const enum vp_adopt_choice adopt = vp_options_adopt(vp_options());
    if (strstr(lacks, "memory pools") && adopt != VP_ADOPT_NOTHING)
        say(WRONG,
            "device %d: %sJAX and TensorFlow are told to use memory pools, and fail without them: set VPOOL_ADOPT=0",
            number, adopt == VP_ADOPT_ASYNC ? "PyTorch, " : "");
}

static void say_failure(char *line) {
    int code = atoi(line);
    const char *advice =
        code == CUDA_ERROR_NO_DEVICE
            ? "is there a GPU, does CUDA_VISIBLE_DEVICES include it, does the container have it (--gpus all)?"
        : code == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH || code == CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE
            ? "the kernel's driver and libcuda.so.1 have different versions: reboot, or remove the "
              "container's compat folder from the path"
            : "nvidia-smi and the kernel's log may say more";
    say(WRONG, "the driver: %s; %s", line + strcspn(line, " ") + 1, advice);
}

static void say_version(int version) {
    if (version < 12000)
        say(WRONG, "driver API %d.%d is too old: before 12.0 everything is left to CUDA; update the driver",
            version / 1000, version % 1000 / 10);
    else
        say(OK, "driver API %d.%d%s", version / 1000, version % 1000 / 10,
            version < 12050 ? " (from 12.5 on, cudaFree takes one event for all streams)" : "");
}

static bool check_driver(void) {
    char stopped[64];
    char *text = run_probe("driver", NULL, stopped), *rest = text;
    bool good = false;
    for (char *line; (line = strsep(&rest, "\n")) && *line;) {
        char *value = line + strcspn(line, " ");
        if (*value)
            *value++ = 0;
        if (!strcmp(line, "missing"))
            say(WRONG, "no driver: %s; install NVIDIA's, start the container with GPUs, or try vpool doctor --sim",
                value);
        else if (!strcmp(line, "file"))
            say(OK, "driver %s", value);
        else if (!strcmp(line, "version"))
            say_version(atoi(value));
        else if (!strcmp(line, "failed"))
            say_failure(value);
        else if (!strcmp(line, "devices") && !(good = atoi(value) > 0))
            say(WRONG, "the driver shows no device; does CUDA_VISIBLE_DEVICES hide them?");
        else if (!strcmp(line, "device"))
            say_device(value);
    }
    if (*stopped)
        say(WRONG, "the driver cannot be asked: %s", stopped);
    free(text);
    return good && !*stopped;
}

/* ---- the environment ---- */

static const char *look_up(void *context, const char *name) {
    return getenv(name);
}

/* Complaints that the library repeats under LD_PRELOAD: see is_told(). */
static char complaints[32][256];
static unsigned complaint_count;

static void complain(void *context, const char *line) {
    say(WRONG, "%s", line);
    if (complaint_count < sizeof complaints / sizeof *complaints)
        snprintf(complaints[complaint_count++], sizeof *complaints, "%.255s", line);
}

static bool is_told(const char *line) {
    static const char prefix[] = "vpool: ";
    line += strncmp(line, prefix, strlen(prefix)) ? 0 : strlen(prefix);
    for (unsigned i = 0; i < complaint_count; i++)
        if (!strncmp(line, complaints[i], sizeof *complaints - 1))
            return true;
    return false;
}

/* Checks each library that LD_PRELOAD names by its path. If one is missing, the dynamic linker prints a message and
 * ignores it, and the program runs without it. */
static bool check_preloads(const char *list) {
    char path[PATH_MAX];
    bool good = true;
    for (const char *at = list; at && *at; at += strcspn(at, ": "), at += strspn(at, ": ")) {
        int length = (int)strcspn(at, ": ");
        snprintf(path, sizeof path, "%.*s", length, at);
        if (!length || !strchr(path, '/') || !access(path, R_OK))
            continue;
        say(WRONG, "LD_PRELOAD names %s: %s", path, strerror(errno));
        good = false;
    }
    return good;
}

/* Reports settings of frameworks that the library would keep, and log, once the program has a driver. */
static void check_frameworks(bool bare) {
    static const struct {
        const char *variable, *wanted, *framework;
    } all[] = {
        {"PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync", "PyTorch"},
        {"PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync", "PyTorch"},
        {"XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async", "JAX"},
        {"TF_GPU_ALLOCATOR", "cuda_malloc_async", "TensorFlow"},
    };
    static const char expandable[] = "expandable_segments:True"; /* all that matters if PyTorch's own allocator stays */
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const bool stays = bare && !strcmp(all[i].framework, "PyTorch");
        const char *value = getenv(all[i].variable);
        char line[256];
        if (!value || strstr(value, all[i].wanted) || (stays && !strstr(value, expandable)))
            continue;
        if (stays)
            snprintf(line, sizeof line, "%s is set and kept; without %s, PyTorch would leave its memory to vpool",
                     all[i].variable, expandable);
        else
            snprintf(line, sizeof line, "%s is set and kept; with %s=%s, %s would leave its memory to vpool",
                     all[i].variable, all[i].variable, all[i].wanted, all[i].framework);
        complain(NULL, line);
    }
}

static void check_environment(void) {
    static struct vp_options options;
    vp_options_parse(&options, look_up, NULL, complain, NULL);
    vp_options_find_unknown(environ, complain, NULL);
    if (options.policy == VP_POLICY_NATIVE)
        say(NOTE, "VPOOL_POLICY=native: everything is left to CUDA and only counted");
    if (options.adopt == VP_ADOPT_NOTHING)
        say(NOTE, "VPOOL_ADOPT=0: frameworks keep their own caches on top");
    else if (vp_options_adopt(&options) == VP_ADOPT_BARE)
        say(NOTE, "PyTorch keeps its own cache, over addresses that have memory only where they are in use "
                  "(VPOOL_ADOPT)");
    if (options.sync_free)
        say(NOTE, "cudaFree waits for the device (VPOOL_SYNC_FREE or CUDA_LAUNCH_BLOCKING): slower, "
                  "like CUDA alone");
    const char *named = getenv("VPOOL_CONFIG"), *config = named && *named ? named : VP_CONFIG_FILE;
    int err = vp_options_check_file(config, complain, NULL);
    if (!err)
        say(NOTE, "%s has options by program name, too", config);
    else if (err != -ENOENT || config == named) {
        char line[PATH_MAX + 128];
        snprintf(line, sizeof line, "VPOOL_CONFIG: %s: %s; it is ignored", config, vp_config_error(err));
        complain(NULL, line);
    }
    vp_doctor_lending(&options, say_line);
    if (options.policy != VP_POLICY_NATIVE)
        vp_learnt_doctor(options.plan, options.policy == VP_POLICY_STALLOC, say);
    const char *list = getenv("LD_PRELOAD"), *there = vp_launch_preloaded(), *wanted = vp_launch_library_name();
    bool all_there = check_preloads(list);
    if (!there)
        say(NOTE, "LD_PRELOAD does not name %s here: vpool run sets it for one program%s%s", wanted,
            list && *list ? "; it is now " : "", list && *list ? list : "");
    else if (strcmp(there, wanted) && strcmp(there, "libvpool-compare.so"))
        say(WRONG, "LD_PRELOAD names %s, but VPOOL_POLICY names a policy that only %s has: vpool's own policy serves",
            there, wanted);
    else if (all_there)
        say(OK, "LD_PRELOAD names %s: %s", there, list);
    if (vp_options_adopt(&options) != VP_ADOPT_NOTHING)
        check_frameworks(vp_options_adopt(&options) == VP_ADOPT_BARE);
}

/* ---- the library ---- */

/* What is read of the statistics that VPOOL_STATS writes. */
struct stats {
    unsigned long long allocs, frees, peak_live, peak_held, passed[16];
    char passed_names[16][48], doors[256], policy[16];
    unsigned passed_count, devices;
    struct vp_learnt_told plan;
};

static void take_value(void *context, const char *path, const char *value) {
    struct stats *s = context;
    const char *last = strrchr(path, '.') ? strrchr(path, '.') + 1 : path;
    unsigned long long number = strtoull(value, NULL, 10);
    vp_learnt_take(&s->plan, path, value);
    if (!strncmp(path, "doors.", 6)) {
        snprintf(s->doors + strlen(s->doors), sizeof s->doors - strlen(s->doors), "%s%s", *s->doors ? ", " : "", value);
    } else if (!strncmp(path, "passed_on.", 10) && s->passed_count < 16) {
        snprintf(s->passed_names[s->passed_count], sizeof s->passed_names[0], "%s", last);
        s->passed[s->passed_count++] = number;
    } else if (!strcmp(path, "policy")) {
        snprintf(s->policy, sizeof s->policy, "%s", value);
    } else if (!strncmp(path, "devices.", 8)) {
        s->devices += !strcmp(last, "device");
        s->allocs += !strcmp(last, "allocs") ? number : 0;
        s->frees += !strcmp(last, "frees") ? number : 0;
        s->peak_live += !strcmp(last, "peak_live_bytes") ? number : 0;
        s->peak_held += !strcmp(last, "peak_held_bytes") ? number : 0;
    }
}

static bool read_stats(const char *path, struct stats *out) {
    char *text = read_file(path);
    *out = (struct stats){0};
    bool good = text && vp_json_read(text, take_value, out);
    free(text);
    return good;
}

/* Repeats what the library and the dynamic linker printed meanwhile. */
static void repeat_messages(void) {
    char *text = read_file(in_folder("err")), *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) && *line;)
        if (!is_told(line))
            say(WRONG, "%s", line);
    free(text);
}

/* Reports a variable that the library has set, if it was not set before. */
static void say_variable(char *variable) {
    size_t length = strcspn(variable, "=");
    char name[128];
    snprintf(name, sizeof name, "%.*s", (int)length, variable);
    if (!getenv(name) && strncmp(name, "VPOOL_", 6) && strcmp(name, "LD_PRELOAD"))
        say(OK, "libvpool.so sets %s", variable);
}

static void check_library(const char *library, bool driver) {
    char stopped[64];
    struct stats stats;
    char *text = run_probe("pool", library, stopped), *rest = text;
    int ipc = -1;
    bool failed = false;
    for (char *line; (line = strsep(&rest, "\n")) && *line;) {
        char *value = line + strcspn(line, " ");
        if (*value)
            *value++ = 0;
        if (!strcmp(line, "variable"))
            say_variable(value);
        else if (!strcmp(line, "ipc"))
            ipc = atoi(value);
        else if (!strcmp(line, "failed") && driver) {
            failed = true;
            say(WRONG, "under libvpool.so, %s", value + strcspn(value, " ") + 1);
        }
    }
    free(text);
    repeat_messages();
    if (*stopped)
        say(WRONG, "a program under libvpool.so does not finish: %s", stopped);
    if (!driver || failed || *stopped)
        return;
    if (!read_stats(in_folder("probe.stats"), &stats))
        say(WRONG, "libvpool.so was not loaded into a program that names it in LD_PRELOAD");
    else if (!stats.allocs)
        say(strcmp(stats.policy, "native") ? WRONG : NOTE, "an allocation went on to CUDA");
    else
        say(OK, "a program under libvpool.so allocates from the pool, by %s", stats.doors);
    if (stats.allocs && ipc)
        say(NOTE, "legacy IPC of pooled memory (cudaIpcGetMemHandle, torch.multiprocessing) is refused: the "
                  "device's memory cannot be exported; VPOOL_IPC=native leaves cudaMalloc as it was");
    else if (stats.allocs)
        say(OK, "legacy IPC of pooled memory");
}

/* ---- a program ---- */

static const char *reason(const char *call) {
    static const struct {
        const char *call, *reason;
    } reasons[] = {
        {"cuMemAlloc", "no context, a device without virtual memory management, or a size that the policy "
                       "leaves to CUDA"},
        {"cuMemAllocPitch", "as for cuMemAlloc"},
        {"cuMemAllocAsync", "the stream captures (the call becomes a node of its graph), or the device's "
                            "pool was replaced by a foreign one"},
        {"cuMemAllocFromPoolAsync", "the stream captures, or the pool is one that vpool does not serve (made for "
                                    "export, or not on a device)"},
        {"cuMemPoolCreate", "a pool made for export, or not on a device, stays CUDA's"},
        {"cuMemFree", "the pointer was not from the pool"},
        {"cuMemFreeAsync", "the pointer was not from the pool, or the stream captures"},
    };
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (!strcmp(call, reasons[i].call))
            return reasons[i].reason;
    return "not served";
}

static void say_process(const char *pid, bool main, const struct stats *s) {
    const char *which = main ? "the program" : "its child";
    if (s->allocs)
        say(OK,
            "%s (process %s) was served %llu allocations on %u device%s, by %s; peak live %.1f MiB, held "
            "%.1f MiB",
            which, pid, s->allocs, s->devices, s->devices == 1 ? "" : "s", s->doors, (double)s->peak_live / (1 << 20),
            (double)s->peak_held / (1 << 20));
    else
        say(WRONG,
            "%s (process %s) used CUDA, but vpool served nothing: its allocator maps memory itself (PyTorch's "
            "expandable segments, JAX's default), "
            "or everything it asked for went on to CUDA",
            which, pid);
    vp_learnt_fitted(&s->plan, which, pid, say);
    for (unsigned i = 0; i < s->passed_count; i++)
        say(NOTE, "process %s: %s went on to CUDA %llu times: %s", pid, s->passed_names[i], s->passed[i],
            reason(s->passed_names[i]));
}

static const char *const unused[] = {
    [VP_TOO_SHORT] = "no process used CUDA through libvpool.so, and the program ended too soon to be inspected",
    [VP_MISSING] = "libvpool.so was not seen in the program, and no process used CUDA through it",
    [VP_THERE] = "libvpool.so was in the program, but no process used CUDA through it until the end",
    [VP_WITH_DRIVER] = "libvpool.so was in the program, and the driver, but no process used CUDA through it: calls "
                       "of a library opened with RTLD_DEEPBIND bypass it, as in Taichi"};

static void check_program(char **argv, const char *library) {
    const char *obstacle = vp_launch_obstacle(*argv);
    enum vp_seen seen;
    unsigned processes = 0;
    char own[32], pattern[sizeof folder + 16];
    if (obstacle)
        say(WRONG, "%s %s", *argv, obstacle);
    snprintf(pattern, sizeof pattern, "%s/%%p.json", folder);
    const pid_t pid = vp_watched_start(argv, library, pattern);
    if (pid < 0) {
        say(WRONG, "the program could not be started");
        return;
    }
    int status = vp_watched_end(pid, &seen);
    snprintf(own, sizeof own, "%d.json", (int)pid);
    /* If it still wrote its statistics, the signal was somebody's wish to end it. */
    const bool known = !access(in_folder(own), R_OK);
    if (WIFSIGNALED(status))
        say(known ? NOTE : WRONG, "the program was ended by signal %d (%s)%s", WTERMSIG(status),
            strsignal(WTERMSIG(status)), known ? "" : "; what it did is not known");
    else
        say(WEXITSTATUS(status) ? NOTE : OK, "the program ended with exit status %d", WEXITSTATUS(status));
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        struct stats stats;
        char *dot = strstr(entry->d_name, ".json");
        bool main = !strcmp(entry->d_name, own);
        if (!dot || !read_stats(in_folder(entry->d_name), &stats))
            continue;
        *dot = 0;
        say_process(entry->d_name, main, &stats);
        processes++;
    }
    if (entries)
        closedir(entries);
    if (!processes && !obstacle && !WIFSIGNALED(status))
        say(WRONG, "%s (vpool help why-not)", unused[seen]);
}

/* ---- the command ---- */

static void help(void) {
    puts("usage: vpool doctor [--sim[=SIZE]] [--] [PROGRAM [ARGUMENT…]]\n\n"
         "Tests the driver and the library on this machine. With a program, runs it under\n"
         "libvpool.so and says, also for its child processes, which functions allocated,\n"
         "what was served, what went on to CUDA and why.\n\n"
         "  --sim[=SIZE]   use the simulated driver, as vpool run does\n  --help\n\n"
         "A line begins with ok, with -- if there is something to know, or with !! if\n"
         "there is something to do. The exit status is 1 if any line begins with !!, else\n"
         "0.");
}

int vp_tool_doctor(int argc, char **argv) {
    static const struct option long_options[] = {
        {"sim", optional_argument, NULL, 's'},
        {"probe", required_argument, NULL, 'p'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    char library[PATH_MAX], sim_folder[PATH_MAX];
    const char *capacity = NULL;
    bool sim = false;
    opterr = 0;
    optind = 0;
    for (int chosen; (chosen = getopt_long(argc, argv, "+h", long_options, NULL)) >= 0;) {
        switch (chosen) {
        case 's':
            sim = true;
            capacity = optarg;
            break;
        case 'p': return !strcmp(optarg, "pool") ? vp_probe_pool() : vp_probe_driver();
        case 'h': help(); return 0;
        default: return vp_tool_unknown("doctor", long_options, argv);
        }
    }
    if (capacity && !vp_launch_is_size(capacity))
        return vp_tool_usage("doctor", "'%s' is not a device size: " VP_LAUNCH_SIZES, capacity);
    if (!vp_launch_room("doctor", folder)) {
        fprintf(stderr, "vpool doctor: %s: %s\n", folder, strerror(errno));
        return 1;
    }
    if (sim && vp_launch_sim(sim_folder))
        vp_launch_simulate(sim_folder, capacity);
    else if (sim)
        say(WRONG, "%s", VP_LAUNCH_NO_SIM);
    bool driver = check_driver();
    check_environment();
    vp_doctor_asleep(say_line);
    bool found = vp_launch_library(library);
    if (!found)
        say(WRONG, "%s is neither beside this command nor in %s/%s", vp_launch_library_name(), VP_PREFIX, VP_LIBDIR);
    else if (strpbrk(library, ": "))
        say(WRONG, "%s: LD_PRELOAD cannot hold a path with a space or a colon; move it", library);
    else {
        say(OK, "library %s", library);
        check_library(library, driver);
        if (optind < argc)
            check_program(argv + optind, library);
    }
    remove_folder();
    return wrongs ? 1 : 0;
}
