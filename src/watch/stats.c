/* Writes statistics at exit. Makes no CUDA call, and waits for no lock that a thread of a dying process may hold. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/watch.h"

#include "watch/holders.h"
#include "watch/plans.h"
#include "watch/trace.h"
#include "base/clock.h"
#include "base/output.h"
#include "pool/bare/bare.h"
#include "process/poison.h"
#include "process/spill.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static double efficiency(const struct vp_memory_stats *s) {
    const uint64_t held = s->peak_held_bytes + s->peak_spilled_bytes;
    return held > s->peak_live_bytes ? (double)s->peak_live_bytes / (double)held : 1.0; /* asleep memory is not held */
}

void vp_stats_json_blocks(struct vp_json *j, const struct vp_memory_stats *s) {
    vp_json_numbers(j, {"allocs", s->allocs}, {"frees", s->frees}, {"live_bytes", s->live_bytes},
                    {"peak_live_bytes", s->peak_live_bytes}, {"held_bytes", s->held_bytes},
                    {"peak_held_bytes", s->peak_held_bytes}, {"spilled_bytes", s->spilled_bytes},
                    {"peak_spilled_bytes", s->peak_spilled_bytes}, {"spilled_blocks", s->spills},
                    {"spills_refused", s->spills_refused});
}

void vp_stats_json_waits(struct vp_json *j, const struct vp_memory_stats *s, const struct vp_timeline_stats *timelines,
                         const struct vp_slack_state *slack) {
    vp_json_double(j, "driver_us", (double)(s->driver_ns + timelines->ns) / 1e3);
    vp_json_numbers(j, {"waits_gpu", s->waits_gpu}, {"waits_host", s->waits_host},
                    {"waits_fruitless", s->waits_fruitless});
    vp_json_double(j, "waits_host_us", (double)s->host_wait_ns / 1e3);
    vp_json_u64(j, "ooms", s->ooms);
    vp_json_begin_object(j, "slack");
    vp_json_double(j, "percent", slack->percent);
    vp_json_double(j, "novelty", slack->novelty);
    vp_json_numbers(j, {"steps", slack->steps}, {"spared_bytes", s->spared_bytes},
                    {"returned_bytes", s->returned_bytes});
    vp_json_end_object(j);
}

void vp_stats_json_passed(struct vp_json *j) {
    vp_json_begin_object(j, "passed_on");
    for (int i = 0; i < VP_PASSED_COUNT; i++)
        if (atomic_load(&vp_state.passed[i]))
            vp_json_u64(j, vp_passed_names[i], atomic_load(&vp_state.passed[i]));
    vp_json_end_object(j);
}

static void json_calls(struct vp_json *j, const struct vp_memory_stats *s, const struct vp_timeline_stats *timelines) {
    vp_json_begin_object(j, "driver_calls");
#define JSON_CALL(field, name) vp_json_u64(j, #name, s->calls.field);
    VP_MEMORY_CALLS(JSON_CALL)
#undef JSON_CALL
    vp_json_numbers(j, {"cuEventRecord", timelines->records}, {"cuCtxRecordEvent", timelines->barriers},
                    {"cuEventQuery", timelines->queries}, {"cuStreamWaitEvent", timelines->waits});
    vp_json_end_object(j);
}

static const struct {
    const char *name, *why;
} refusals[] = {
#define REFUSAL(name, why) {#name, why},
    VP_SPILL_REFUSALS(REFUSAL)
#undef REFUSAL
};

static VP_LOCKED void json_device(struct vp_json *j, const struct vp_pool *pool) {
    const struct vp_memory_stats *s = &pool->mem.stats;
    const struct vp_timeline_stats timelines = vp_state.timelines.stats[pool->mem.device];
    vp_json_begin_object(j, NULL);
    vp_json_u64(j, "device", (uint64_t)pool->mem.device);
    vp_stats_json_blocks(j, s);
    if (pool->bare)
        vp_json_numbers(j, {"addressed_bytes", pool->bare->addressed},
                        {"peak_addressed_bytes", pool->bare->peak_addressed});
    vp_json_double(j, "efficiency", efficiency(s));
    json_calls(j, s, &timelines);
    const struct vp_slack_state slack = vp_slack_state(pool);
    vp_stats_json_waits(j, s, &timelines, &slack);
    vp_json_numbers(j, {"stitches", s->stitches}, {"reactivations", s->reactivations}, {"reaps", s->reaps},
                    {"given_back_bytes", s->given_back}, {"regrets", s->regrets},
                    {"asleep_bytes", pool->mem.asleep_bytes}, {"lent_bytes", s->lent_bytes},
                    {"loans_asked", s->loans_asked}, {"loans_refused", s->loans_refused});
    vp_json_begin_object(j, "spills_refused_for");
    for (int i = 0; i < VP_SPILL_REFUSED_COUNT; i++)
        if (vp_spill_refused[pool->mem.device][i])
            vp_json_u64(j, refusals[i].name, vp_spill_refused[pool->mem.device][i]);
    vp_json_end_object(j);
    vp_json_u64(j, "metadata_bytes", vp_pool_metadata(pool));
    const struct vp_plan_figures plan = vp_plans_figures(pool);
    vp_plans_json(j, &plan);
    vp_holders_json(j, pool->mem.device, false);
    vp_json_end_object(j);
}

static VP_LOCKED int write_json(int fd) {
    struct vp_json j;
    static char buffer[4096]; /* too large for some stacks */
    vp_json_init(&j, fd, buffer, sizeof buffer);
    vp_json_begin_object(&j, NULL);
    vp_json_string(&j, "version", VP_VERSION);
    vp_json_u64(&j, "pid", (uint64_t)getpid());
    vp_json_string(&j, "policy", vp_policy_name());
    vp_json_begin_array(&j, "devices");
    vp_pools_each(pool) json_device(&j, pool);
    vp_json_end_array(&j);
    vp_json_begin_array(&j, "others");
    for (int dev = 0; dev < VP_DEVICES; dev++) { /* what other code in the process created by cuMemCreate */
        const struct vp_foreign_sum *o = &vp_state.others[dev];
        if (!o->peak_bytes)
            continue;
        vp_json_begin_object(&j, NULL);
        vp_json_numbers(&j, {"device", (uint64_t)dev}, {"handles", o->handles}, {"bytes", o->bytes},
                        {"peak_bytes", o->peak_bytes});
        vp_json_end_object(&j);
    }
    vp_json_end_array(&j);
    vp_ranges_json(&j);
    if (vp_state.fills) {
        vp_json_begin_object(&j, "poison");
        vp_json_numbers(&j, {"checked_bytes", vp_poison_counts.checked_bytes},
                        {"unchecked_bytes", vp_poison_counts.unchecked_bytes},
                        {"written_blocks", vp_poison_counts.written_blocks});
        vp_json_end_object(&j);
    }
    vp_json_begin_array(&j, "doors");
    for (int i = 0; i < VP_PASSED_COUNT; i++)
        if (vp_state.doors >> i & 1)
            vp_json_string(&j, NULL, vp_passed_names[i]);
    vp_json_end_array(&j);
    vp_stats_json_passed(&j);
    vp_json_end_object(&j);
    return vp_json_finish(&j);
}

uint64_t vp_stats_passed(void) {
    uint64_t passed = 0;
    for (int i = 0; i < VP_PASSED_COUNT; i++)
        passed += atomic_load_explicit(&vp_state.passed[i], memory_order_relaxed);
    return passed;
}

bool vp_stats_has_used_cuda(void) {
    bool pools = false;
    vp_pools_each(pool) pools = true;
    return pools || vp_stats_passed();
}

/* The process that was started under the library, if its parent was not. */
static pid_t first;
static bool serves;

/* Page faults of child processes that were waited for: none if there were no children. An earlier program of this
 * process, such as a script that looked for this one and called exec, may have had some. */
static long faults_before;

static long faults_of_children(void) {
    struct rusage children;
    return getrusage(RUSAGE_CHILDREN, &children) ? -1 : children.ru_minflt;
}

void vp_stats_serves(bool is_first) {
    serves = true;
    first = is_first ? getpid() : 0;
    faults_before = faults_of_children();
}

static void print_spilled(const struct vp_memory_stats *s, CUdevice dev) {
    if (s->spills)
        vp_log_print("  spilled: %lu blocks, at most %s in the host's memory at once (held, for the efficiency)",
                     s->spills, VP_ABOUT(s->peak_spilled_bytes));
    for (int i = 0; i < VP_SPILL_REFUSED_COUNT; i++)
        if (vp_spill_refused[dev][i])
            vp_log_print("  not spilled %lu times: %s", vp_spill_refused[dev][i], refusals[i].why);
}

static VP_LOCKED void print_summary(void) {
    vp_log_print("%s, process %d (%s), policy %s", VP_VERSION, (int)getpid(), program_invocation_short_name,
                 vp_policy_name());
    vp_pools_each(pool) {
        const struct vp_memory_stats *s = &pool->mem.stats;
        const struct vp_timeline_stats timelines = vp_state.timelines.stats[pool->mem.device];
        vp_log_print("device %d: peak live %s, peak held %s, efficiency %.1f %%", pool->mem.device,
                     VP_ABOUT(s->peak_live_bytes), VP_ABOUT(s->peak_held_bytes), 100 * efficiency(s));
        print_spilled(s, pool->mem.device);
        vp_log_print("  at exit: %s live, %s held; %lu allocations, %lu frees, out of memory %lu times",
                     VP_ABOUT(s->live_bytes), VP_ABOUT(s->held_bytes), s->allocs, s->frees, s->ooms);
        vp_log_print("  driver calls: %.1f ms in all; %lu creates, %lu maps, %lu unmaps, %lu events, %lu queries",
                     (double)(s->driver_ns + timelines.ns) / 1e6, s->calls.create, s->calls.map, s->calls.unmap,
                     (timelines.records + timelines.barriers), timelines.queries);
        vp_log_print(
            "  address ranges: %lu mapped, %lu used again without a call; waits: %lu on the GPU, %lu on the host "
            "(%.1f ms, %lu in vain)",
            s->stitches, s->reactivations, s->waits_gpu, s->waits_host, (double)s->host_wait_ns / 1e6,
            s->waits_fruitless);
        if (pool->bare && pool->bare->peak_addressed)
            vp_log_print("  bare segments: at most %s of addresses, %s now", VP_ABOUT(pool->bare->peak_addressed),
                         VP_ABOUT(pool->bare->addressed));
        vp_plans_print(pool);
    }
    for (int dev = 0; dev < VP_DEVICES; dev++)
        if (vp_state.others[dev].peak_bytes)
            vp_log_print("device %d: outside the pool, by cuMemCreate: at most %s; %s now, in %lu handles", dev,
                         VP_ABOUT(vp_state.others[dev].peak_bytes), VP_ABOUT(vp_state.others[dev].bytes),
                         vp_state.others[dev].handles);
    if (vp_options()->poison)
        vp_log_print("poison: %s checked, %s not; %lu blocks were written to after they were freed",
                     VP_ABOUT(vp_poison_counts.checked_bytes), VP_ABOUT(vp_poison_counts.unchecked_bytes),
                     vp_poison_counts.written_blocks);
    for (int i = 0; i < VP_PASSED_COUNT; i++)
        if (atomic_load(&vp_state.passed[i]))
            vp_log_print("passed on to CUDA: %s, %lu times", vp_passed_names[i], atomic_load(&vp_state.passed[i]));
}

/* When the process began, in nanoseconds since 1970. */
static int64_t began(void) {
    struct vp_process self = {0};
    const long ticks = sysconf(_SC_CLK_TCK);
    if (!vp_process_read(0, &self) || ticks <= 0)
        return INT64_MAX;
    const uint64_t age = vp_clock_by(CLOCK_BOOTTIME) - self.start * (1000000000ull / (uint64_t)ticks);
    return (int64_t)(vp_clock_by(CLOCK_REALTIME) - age);
}

/* Has a process written the file that ended while this one ran, such as another rank or a child? Then the file stays as
 * it is. The file is locked while it is examined and written. */
static bool is_taken(int fd) {
    struct stat st;
    int tries = 0;
    while (flock(fd, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK || ++tries > 100)
            return errno == EWOULDBLOCK;
        vp_clock_sleep(10000000);
    }
    if (fstat(fd, &st) || !st.st_size)
        return false;
    /* Clocks tick every 10 ms at worst. A file that an earlier run wrote just before this one began does not count. */
    return (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec > began() + 20000000;
}

/* "stats.json" becomes "stats-1234.json". */
static bool add_process_id(char *out, size_t room, const char *name) {
    const char *slash = strrchr(name, '/'), *dot = strrchr(slash ? slash : name, '.');
    size_t stem = dot && dot > name && dot[-1] != '/' ? (size_t)(dot - name) : strlen(name);
    int n = snprintf(out, room, "%.*s-%d%s", (int)stem, name, (int)getpid(), name + stem);
    return n > 0 && (size_t)n < room;
}

/* Prints what is alive at the end, by stack if stacks are recorded, and the program's ranges if it has any. */
static VP_LOCKED void print_alive(bool several) {
    enum { HOLDERS = 5, FRAMES = 4 };
    static struct vp_text t; /* too large for some stacks */
    t.fd = STDERR_FILENO;
    if (!vp_output_is_stderr())
        return;
    vp_pools_each(pool) {
        char indent[48];
        snprintf(indent, sizeof indent, several ? "vpool:   alive on device %d" : "vpool:   alive  ", pool->mem.device);
        vp_holders_say(&t, pool->mem.device, HOLDERS, FRAMES, indent);
    }
    vp_ranges_say_most(&t, "vpool:   peak   ");
    vp_say_flush(&t);
}

/* Prints where the peak was, as far as known, and how to look at it; the latter only once for all ranks. `several`:
 * several devices have pools. */
static void print_look(bool several) {
    char text[512], rank[16];
    vp_holders_peak(text, sizeof text);
    if (*text)
        vp_log_print("  the peak%s was %s", several ? " of all devices" : "", text);
    if (first != getpid() || vp_process_rank(rank, sizeof rank))
        return;
    const char *file = vp_trace_file();
    if (file)
        vp_log_print("  look: `vpool report %s` draws it", file);
    else if (!*vp_options()->trace)
        vp_log_print("  look: `vpool run --report=FILE -- PROGRAM` draws it, and which lines hold it");
}

/* False: that is not possible, which was said. */
static VP_LOCKED bool write_file(const char *pattern) {
    static char name[VP_OPTION_TEXT + 16], own[VP_OPTION_TEXT + 32]; /* too large for some stacks */
    const char *path = name;
    if (!vp_output_name(name, sizeof name, pattern, "phr%", 0, 0)) {
        vp_log_print("VPOOL_STATS: the file name is too long");
        return false;
    }
    /* What is no regular file, or means a descriptor of the program's own, is not truncated. */
    struct stat st;
    int fd = vp_output_open(name, 0);
    bool plain = fd >= 0 && vp_output_own(name) < 0 && !fstat(fd, &st) && S_ISREG(st.st_mode);
    if (plain && is_taken(fd) && add_process_id(own, sizeof own, name)) {
        close(fd);
        path = own;
        fd = vp_output_open(own, 0);
        vp_log_print("VPOOL_STATS: %s belongs to another process; the statistics of this one are in %s", name, own);
    }
    int err = fd < 0 ? fd : plain && ftruncate(fd, 0) ? -errno : write_json(fd);
    if (fd >= 0 && close(fd) < 0 && !err)
        err = -errno;
    if (err)
        vp_log_print("VPOOL_STATS: %s cannot be written: %s", path, vp_output_error(err));
    return !err;
}

/* Not analysed: the process ends, and statistics are written even if a thread that hangs or ended has the lock. */
VP_NOT_ANALYSED void vp_stats_write(void) {
    static atomic_flag written = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&written))
        return;
    const char *where = vp_options()->stats;
    bool open = atomic_load(&vp_state.phase) == VP_OPEN, summary = !strcmp(where, "1");
    if (summary && serves && !vp_stats_has_used_cuda() &&
        (open || (first == getpid() && faults_of_children() == faults_before)))
        vp_log_print("%s (process %d) made no CUDA allocation that the library saw; `vpool doctor -- PROGRAM` says why",
                     program_invocation_short_name, (int)getpid());
    if (!*where || !open || (summary && !vp_stats_has_used_cuda()))
        return;
    bool locked = vp_lock_for_a_while(&vp_library_lock);
    if (locked)
        vp_pools_each(pool) vp_pool_stats(pool);
    /* The figures of a long run are not lost because a folder is missing. */
    if (summary || !write_file(where))
        print_summary();
    if (locked)
        vp_lock_release(&vp_library_lock);
    if (summary) {
        int pools = 0;
        vp_pools_each(pool) pools++;
        print_alive(pools > 1);
        print_look(pools > 1);
    }
}
