/* The library and the simulated driver, opened afresh for each input and closed behind it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#include "../common/doors.h"
#include "pool/bare/bare.h"
#include "process/bare.h"
#include "process/state.h"
#include "../common/owners.h"
#include "pool/parking.h"
#include "sim.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct world world;

/* With FUZZ_TRACE set, every driver call is shown. */

/* A real driver lacks what is younger than it. */
static void *lookup(const char *name, void *unused) {
    int version = 0;
    (void)unused;
    cuDriverGetVersion(&version);
    void *ours = owners_lookup(name);
    return version < 12050 && !strcmp(name, "cuCtxRecordEvent") ? NULL : ours ? ours : dlsym(RTLD_DEFAULT, name);
}

/* ---- time ---- */

/* There is one thread. Time passes by what it does, the same in each run; and who waits does so for the device, which
 * gets on with its work. */
static uint64_t now_ns;
void (*world_meanwhile)(void);

/* Long waits are made short where nothing can get on: the program is what everything waits for. */
static void others_go_on(int steps) {
    if (world_meanwhile && !vp_thread.inside)
        world_meanwhile();
    if (!vp_sim_step(steps) && world.newer)
        now_ns += 2000000;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (clock != CLOCK_MONOTONIC && clock != CLOCK_MONOTONIC_COARSE)
        return (int)syscall(SYS_clock_gettime, clock, now);
    now_ns += clock == CLOCK_MONOTONIC ? 500 : 0;
    *now = (struct timespec){.tv_sec = (time_t)(now_ns / 1000000000), .tv_nsec = (long)(now_ns % 1000000000)};
    return 0;
}

int nanosleep(const struct timespec *wanted, struct timespec *left) {
    (void)left;
    now_ns += (uint64_t)wanted->tv_sec * 1000000000 + (uint64_t)wanted->tv_nsec;
    others_go_on(4);
    return 0;
}

int sched_yield(void) {
    others_go_on(1);
    return 0;
}

/* ---- options ---- */

static struct {
    const char *name;
    char value[24];
} settings[16];

static const char *setting(void *unused, const char *name) {
    (void)unused;
    for (size_t i = 0; i < sizeof settings / sizeof *settings && settings[i].name; i++)
        if (!strcmp(settings[i].name, name))
            return settings[i].value;
    return NULL;
}

__attribute__((format(printf, 2, 3))) static void set(const char *name, const char *format, ...) {
    va_list args;
    size_t i = 0;
    while (settings[i].name)
        i++;
    settings[i].name = name;
    va_start(args, format);
    vsnprintf(settings[i].value, sizeof settings[i].value, format, args);
    va_end(args);
}

/* What the host has left is asked for thousands of times by some inputs, where each answer takes a dozen files of the
 * system's: it is the same for all. */
uint64_t __real_vp_host_memory_room(const char *root);
uint64_t __wrap_vp_host_memory_room(const char *root);

uint64_t __wrap_vp_host_memory_room(const char *root) {
    static uint64_t room;
    if (!room)
        room = __real_vp_host_memory_room(root);
    return room;
}

/* A file with places for requests of many sizes, a good part of which lie on others. */
enum { PLACES = 128 };

static const char *plan_of(size_t peak, unsigned seed) {
    static char path[64];
    static int fd = -1;
    char text[8192];
    size_t quanta = peak / 512;
    int n = snprintf(text, sizeof text, "vpool-plan,2\nmade,x,y\nplanner,stalloc\ndevice,0,%d,%zu,0\n", PLACES, peak);
    for (unsigned i = 0; i < PLACES; i++) {
        seed = seed * 1103515245 + 12345;
        size_t size = (size_t)2 << (seed >> 16) % 14, at = (seed >> 8) % (quanta - size);
        n += snprintf(text + n, sizeof text - (size_t)n, "r,%zu,0,%zu\n", size * 512, at * 512);
    }
    n += snprintf(text + n, sizeof text - (size_t)n, "end\n");
    if (fd >= 0)
        close(fd);
    fd = memfd_create("plan", MFD_CLOEXEC);
    if (fd < 0 || write(fd, text, (size_t)n) != n)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return path;
}

/* The options are read once in a process's life, and lie in memory of their own. */
static void set_options(struct fuzz_input *in, bool bare) {
    static const char *const policies[] = {"vpool", "vpool", "vpool", "vpool", "vpmm", "bfc", "es", "gmlake"};
    static const char *const waits[] = {"auto", "early", "late", "never"};
    static const unsigned slack[] = {5, 0, 2, 20, 5, 50, 1, 5};
    unsigned first = fuzz_byte(in), policy = bare ? 0 : first % 8, flags = fuzz_byte(in), handle = fuzz_byte(in);
    memset(settings, 0, sizeof settings);
    const bool planned = policy == 7 && first & 64;
    set("VPOOL_POLICY", "%s", planned ? "stalloc" : policies[policy]);
    if (planned)
        set("VPOOL_PLAN", "%s", plan_of((size_t)16 << 20, handle));
    /* Other processes' time is real: what they are asked for would be waited for in no time, or for ever. */
    set("VPOOL_PAGE", "0");
    set("VPOOL_LEND", "0");
    set("VPOOL_WAIT", "%s", waits[flags & 3]);
    set("VPOOL_SYNC_FREE", "%u", (flags & 28) == 4);
    set("VPOOL_CHECK", "%u", flags >= 252);
    set("VPOOL_SLACK", "%u", slack[flags >> 5]);
    set("VPOOL_HANDLE", "%uK", 64u << handle % 13);
    set("VPOOL_VPMM_PAGES", "%u", handle >> 4);
    world.limit = SIZE_MAX;
    if (handle % 16 == 15) {
        set("VPOOL_LIMIT", "%uM", 1 + (flags >> 2));
        world.limit = (size_t)(1 + (flags >> 2)) << 20;
    }
    set("VPOOL_VA", "%s", handle & 64 ? "1G" : "64G");
    if (first & 64) { /* what is large lies in the host's memory */
        set("VPOOL_SPILL", "%uM", 8 + handle);
        set("VPOOL_SPILL_TEST", "%uK", 64u << handle % 8);
    }
    vp_options_parse((struct vp_options *)vp_options(), setting, NULL, NULL, NULL);
    world.handle = (size_t)(64u << handle % 13) << 10;
    world.newer = bare || first & 128;
    atomic_store(&vp_bare_pools, bare && first % 8 == 7);
    world.sync_free = (flags & 28) == 4;
    world.never_waits = (flags & 3) == 3 || ((flags & 3) == 0 && policy < 4 && !(handle & 64));
    world.small_are_native = policy == 4;
    world.captures = policy < 4;
}

static void set_driver(struct fuzz_input *in, bool bare) {
    static const unsigned capacities[] = {8, 64, 1 << 10, 64 << 10}, of_pages[] = {8, 24, 96, 1 << 10}; /* MiB */
    static const char *const laziness[] = {"0", "50", "90", "100"};
    unsigned kind = fuzz_byte(in), order = fuzz_byte(in), more = world.newer ? fuzz_byte(in) : 0;
    char text[200];
    const size_t mib = !bare ? capacities[kind & 3] : kind & 4 ? 8 * of_pages[kind & 3] : of_pages[kind & 3];
    world.capacity = mib << 20;
    if (world.limit > world.capacity)
        world.limit = world.capacity;
    /* The published policies ask for more at once. */
    world.captures = world.limit >= (world.captures ? (size_t)32 << 20 : (size_t)1 << 30);
    world.granularity = kind & 4 ? 2 << 20 : 64 << 10;
    world.devices = kind & 8 ? 2 : 1;
    world.unseen = (more & 6) == 6;
    world.can_peer = !(more & 1);
    world.old_driver = (kind & 48) == 16;
    world.never_waits &= (kind & 3) >= 2;
    snprintf(text, sizeof text,
             "backing=ledger,capacity=%zuM,granularity=%s,devices=%d,peers=%d,driver=%d,"
             "lazy=%s,seed=%u,timeout=1,trace=%d",
             mib, kind & 4 ? "2M" : "64K", world.devices, world.can_peer, world.old_driver ? 12000 : 13000,
             laziness[kind >> 6], order, getenv("FUZZ_TRACE") != NULL);
    if (vp_sim_configure(text))
        fuzz_fail("the driver does not know '%s'", text);
}

static void must(CUresult res, const char *what) {
    if (res)
        fuzz_fail("%s: %d", what, (int)res);
}

void world_open(struct fuzz_input *in, bool bare) {
    world = (struct world){0};
    now_ns = 0;
    doors_pause = false;
    set_options(in, bare);
    set_driver(in, bare);
    owners_open(world.granularity, fuzz_fail);
    must(cuInit(0), "cuInit");
    if (vp_api_open(lookup, NULL))
        fuzz_fail("the library does not open");
    for (int d = world.devices - 1; d >= 0; d--) {
        must(door_primary(&world.context[d], d), "cuDevicePrimaryCtxRetain");
        must(cuCtxSetCurrent(world.context[d]), "cuCtxSetCurrent");
    }
}

void world_check(void) {
    bool sound = true;
    if (!vp_enter())
        return;
    for (int d = 0; d < world.devices; d++)
        sound &= !vp_state.pools[d] || vp_pool_check(vp_state.pools[d], stderr);
    vp_leave();
    if (!sound)
        fuzz_fail("the pool is not sound");
    if (vp_sim_violations() && !world.unseen)
        fuzz_fail("the device would have been wronged");
}

/* ---- the end ---- */

/* What this thread remembers of streams points into the pools. */
static void forget_shortcuts(void) {
    const struct vp_timeline none = {0};
    for (uintptr_t slot = 0; slot < 8; slot++)
        vp_fast_know((CUstream)slot, NULL, &none, NULL);
}

static void close_library(void) {
    uint64_t changed = atomic_load(&vp_state.mempools_changed) + 1;
    for (int d = 0; d < world.devices; d++) {
        struct vp_pool *pool = vp_state.pools[d];
        if (!pool)
            continue;
        vp_parking_flush(pool, VP_FLUSH_ALL);
        struct vp_memory_stats stats = vp_pool_stats(pool);
        if (stats.live_bytes || (stats.allocs != stats.frees && !world.dropped))
            fuzz_fail("%llu bytes are live at the end, %llu blocks allocated, %llu freed",
                      (unsigned long long)stats.live_bytes, (unsigned long long)stats.allocs,
                      (unsigned long long)stats.frees);
        cuCtxSetCurrent(world.context[d]);
        vp_pool_finish(pool);
    }
    forget_shortcuts();
    vp_timelines_finish(&vp_state.timelines);
    vp_slab_finish(&vp_state.mempool_slab);
    vp_slab_finish(&vp_state.pool_slab);
    vp_slab_finish(&vp_state.other_slab);
    vp_table_finish(&vp_state.other_handles);
    memset(&vp_state, 0, sizeof vp_state);
    vp_lock_reset(&vp_library_lock);
    atomic_store(&vp_state.mempools_changed, changed);
}

void world_close(void) {
    for (int d = 0; d < world.devices; d++) {
        cuCtxSetCurrent(world.context[d]);
        must(cuCtxSynchronize(), "cuCtxSynchronize");
    }
    world_check();
    close_library();
    owners_close();
    for (int d = 0; d < world.devices; d++) {
        must(cuDevicePrimaryCtxReset(d), "cuDevicePrimaryCtxReset");
        must(cuDeviceGraphMemTrim(d), "cuDeviceGraphMemTrim");
    }
    if (!world.lossy && vp_sim_leaks(stderr))
        fuzz_fail("something is left at the driver");
    for (int d = 0; !world.lossy && d < world.devices; d++)
        if (vp_sim_used(d))
            fuzz_fail("%zu bytes of device %d are left", vp_sim_used(d), d);
    if (vp_sim_violations() && !world.unseen)
        fuzz_fail("the device would have been wronged");
    vp_sim_reset();
}
