/* The state, the code around every driver call, and the control functions. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_private.h"
#include "sim.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* How many violations are printed: a program that is wrong once is often wrong a million times. */
#define MAX_SHOWN 20

struct sim_state sim = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .progress = PTHREAD_COND_INITIALIZER,
    .generation = 1,
};

static __thread struct sim_thread self;
static __thread bool counted; /* the running call is counted in the file that processes share */
static __thread int
    cancel_before; /* the thread's own state: it is not cancelled in a call, as it would keep the lock */

struct sim_thread *sim_self(void) {
    if (self.generation != sim.generation) {
        bool per_thread_call = self.per_thread_call;
        free(self.more);
        memset(&self, 0, sizeof(self));
        self.generation = sim.generation;
        self.id = ++sim.threads;
        self.per_thread_call = per_thread_call;
    }
    return &self;
}

/* ---- the contexts that a thread has entered ---- */

struct sim_context *sim_entered(void) {
    const struct sim_thread *me = sim_self();
    const size_t last = me->depth - 1;
    return !me->depth ? NULL : last < SIM_ENTERED_FIRST ? me->first[last] : me->more[last - SIM_ENTERED_FIRST];
}

CUresult sim_enter_context(struct sim_context *context) {
    struct sim_thread *me = sim_self();
    if (me->depth < SIM_ENTERED_FIRST) {
        me->first[me->depth++] = context;
        return CUDA_SUCCESS;
    }
    if (me->depth - SIM_ENTERED_FIRST == me->room) {
        const size_t room = 2 * me->room + SIM_ENTERED_FIRST;
        struct sim_context **more = realloc(me->more, room * sizeof(struct sim_context *));
        if (!more)
            return CUDA_ERROR_OUT_OF_MEMORY;
        me->more = more;
        me->room = room;
    }
    me->more[me->depth++ - SIM_ENTERED_FIRST] = context;
    return CUDA_SUCCESS;
}

void sim_leave_context(void) {
    struct sim_thread *me = sim_self();
    me->depth -= me->depth > 0;
    if (me->depth == SIM_ENTERED_FIRST) {
        free(me->more);
        me->more = NULL;
        me->room = 0;
    }
}

/* ---- chance, time and what is wrong ---- */

uint32_t sim_random(uint32_t below) {
    /* xorshift64*: small, seeded, good enough to shuffle queues. */
    sim.random ^= sim.random >> 12;
    sim.random ^= sim.random << 25;
    sim.random ^= sim.random >> 27;
    return below ? (uint32_t)((sim.random * 0x2545f4914f6cdd1dull) >> 33) % below : 0;
}

void sim_violation(const char *format, ...) {
    int saved = errno;
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (++sim.violations <= MAX_SHOWN)
        fprintf(stderr, "[sim] violation: %s\n", text);
    if (sim.violations == MAX_SHOWN)
        fprintf(stderr, "[sim] further violations are counted and not shown\n");
    errno = saved;
}

void sim_cost(uint64_t nanoseconds) {
    sim.cost_ns += nanoseconds;
    sim.clock_ns += nanoseconds;
}

uint64_t sim_now_ns(void) {
    return sim.timed ? sim.clock_ns : sim_real_ns();
}

uint64_t sim_real_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

bool sim_device_ok(CUdevice device) {
    return device >= 0 && device < sim.device_count;
}

int sim_device_at(int physical) {
    int device = 0;
    while (device < sim.device_count && sim.devices[device].physical != physical)
        device++;
    return device;
}

bool sim_has_vmm(int device) {
    return sim.options.vmm >> sim.devices[device].physical & 1;
}

size_t sim_capacity(int device) {
    return sim.options.capacity[sim.devices[device].physical];
}

bool sim_device_reaches(int device, int owner) {
    return device == owner || sim.options.peers;
}

bool sim_phys_take(int device, size_t bytes) {
    if (!sim_ledger_take(device, bytes) && !(sim_managed_leave(device, bytes) && sim_ledger_take(device, bytes)))
        return false;
    sim.devices[device].used += bytes;
    return true;
}

void sim_phys_give(int device, size_t bytes) {
    sim.devices[device].used -= bytes;
    sim_ledger_give(device, bytes);
}

/* As with the real driver, the child of a fork has no driver. The lock may be held by a thread that the child does not
 * have. */
static void after_fork(void) {
    pthread_mutex_init(&sim.lock, NULL);
    pthread_cond_init(&sim.progress, NULL);
    if (sim.initialised)
        sim.forked = true;
}

/* Runs when the library is loaded: a thread may be in the first call when another forks. */
__attribute__((constructor)) static void hear_of_forks(void) {
    pthread_atfork(NULL, NULL, after_fork);
}

static void configure_once(void) {
    if (!sim.configured) {
        sim.configured = true;
        sim_options_parse(NULL, NULL);
        const char *text = getenv("VPOOL_SIM");
        if (text)
            sim_options_parse(text, "VPOOL_SIM");
    }
}

static __thread struct sim_op *waited_for; /* the op that the thread waits for where it may be cancelled */
static pthread_key_t ends;

/* AddressSanitizer's: it is not informed when a cancelled thread's stack is unwound. */
extern void __asan_unpoison_memory_region(void const volatile *begin, size_t size) __attribute__((weak));
enum { UNWOUND = 64 << 10 };

/* Runs when a thread ends that was cancelled in a call. */
static void thread_ends(void *op) {
    if (__asan_unpoison_memory_region)
        __asan_unpoison_memory_region((char *)__builtin_frame_address(0) - UNWOUND, UNWOUND);
    pthread_mutex_lock(&sim.lock);
    sim_op_put(*(struct sim_op **)op);
    if (counted)
        sim_ledger_end();
    pthread_mutex_unlock(&sim.lock);
}

static void make_key(void) {
    pthread_key_create(&ends, thread_ends);
}

void sim_may_be_cancelled(struct sim_op *op) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int now;
    pthread_mutex_unlock(&sim.lock);
    pthread_once(&once, make_key);
    waited_for = op;
    pthread_setspecific(ends, &waited_for);
    pthread_setcancelstate(cancel_before, &now);
    pthread_testcancel();
    pthread_setcancelstate(now, NULL);
    pthread_setspecific(ends, NULL);
    pthread_mutex_lock(&sim.lock);
}

CUresult sim_enter(struct sim_entry *entry, bool per_thread) {
    /* A call that goes to the kernel may be a cancellation point. */
    if (entry->flags & SIM_VMM)
        pthread_testcancel();
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    pthread_mutex_lock(&sim.lock);
    cancel_before = before;
    configure_once();
    entry->calls++;
    self.per_thread_call = per_thread;
    counted = false;
    if (sim.forked)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (entry->flags & SIM_EARLY)
        return CUDA_SUCCESS;
    if (!sim.initialised)
        return CUDA_ERROR_NOT_INITIALIZED;
    sim_self();
    counted = sim_ledger_begin();
    if (entry->since > sim.options.driver)
        return CUDA_ERROR_NOT_SUPPORTED;
    if ((entry->flags & SIM_VMM) && !sim.options.vmm)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult injected = sim_fail_check(entry);
    if (injected != CUDA_SUCCESS)
        return injected;
    for (unsigned ms = sim_delay_check(entry, false); ms; ms--)
        sim_nap();
    if (sim.timed)
        sim_progress_due();
    else if (sim.options.lazy == 0)
        sim_progress(INT32_MAX);
    else if (sim_random(100) >= (uint32_t)sim.options.lazy)
        sim_progress(1);
    return CUDA_SUCCESS;
}

CUresult sim_leave(struct sim_entry *entry, CUresult result) {
    if (sim.options.trace) {
        int saved = errno;
        fprintf(stderr, "[sim] %s%s = %d\n", entry->name, self.per_thread_call ? " (per thread)" : "", result);
        errno = saved;
    }
    for (unsigned ms = sim_delay_check(entry, true); ms; ms--)
        sim_nap();
    if (counted)
        sim_ledger_end();
    counted = false;
    pthread_mutex_unlock(&sim.lock);
    pthread_setcancelstate(cancel_before, NULL);
    return result;
}

static int physical(int device) {
    return sim.options.visible_count ? sim.options.visible[device] : device;
}

/* Returns how many devices are visible: as with CUDA_VISIBLE_DEVICES, the list ends at the first that does not exist.
 */
static int visible(void) {
    const int most = sim.options.visible_count ? sim.options.visible_count : sim.options.devices;
    int count = 0;
    while (count < most && physical(count) < sim.options.devices)
        count++;
    return count;
}

SIM_API(SIM_EARLY, 2000, cuInit, (unsigned int flags), (flags)) {
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim.initialised)
        return CUDA_SUCCESS;
    sim.random = sim.options.seed * 0x9e3779b97f4a7c15ull | 1;
    sim.device_count = visible();
    if (!sim.device_count)
        return CUDA_ERROR_NO_DEVICE;
    for (int i = 0; i < sim.device_count; i++) {
        struct sim_device *dev = &sim.devices[i];
        *dev = (struct sim_device){.ordinal = i, .physical = physical(i), .memfd = -1};
        if (!sim.options.ledger) {
            dev->memfd = memfd_create("vpool-sim-device", MFD_CLOEXEC);
            /* The file is sparse and far larger than the capacity, so that released offsets need not be reused. */
            if (dev->memfd < 0 || ftruncate(dev->memfd, (off_t)1 << 44) < 0)
                return CUDA_ERROR_OPERATING_SYSTEM;
        }
    }
    sim.initialised = true;
    sim_ledger_join();
    return CUDA_SUCCESS;
}

/* ---- control ---- */

SIM_EXPORT int vp_sim_configure(const char *text) {
    pthread_mutex_lock(&sim.lock);
    sim.configured = true;
    sim_options_parse(NULL, NULL);
    int result = text ? sim_options_parse(text, "vp_sim_configure") : 0;
    pthread_mutex_unlock(&sim.lock);
    return result;
}

SIM_EXPORT void vp_sim_reset(void) {
    pthread_mutex_lock(&sim.lock);
    sim_queue_reset();
    sim_graphs_reset();
    sim_pools_reset();
    sim_contexts_reset();
    sim_blocks_reset();
    sim_vmm_reset();
    sim_handle_reset();
    sim_fail_reset();
    sim_ledger_reset();
    for (int i = 0; i < SIM_MAX_DEVICES; i++) {
        if (sim.initialised && i < sim.device_count && sim.devices[i].memfd >= 0)
            close(sim.devices[i].memfd);
        sim.devices[i] = (struct sim_device){.memfd = -1};
    }
    for (struct sim_entry *const *e = __start_vp_sim_entries; e < __stop_vp_sim_entries; e++)
        (*e)->calls = 0;
    sim.configured = sim.initialised = sim.forked = false;
    sim.violations = 0;
    sim_timed_reset();
    sim.cost_ns = sim.clock_ns = 0;
    sim.timed = false;
    sim.generation++;
    pthread_mutex_unlock(&sim.lock);
}

SIM_EXPORT unsigned long vp_sim_calls(const char *name) {
    unsigned long calls = 0;
    pthread_mutex_lock(&sim.lock);
    for (struct sim_entry *const *e = __start_vp_sim_entries; e < __stop_vp_sim_entries; e++)
        if (!name || sim_name_matches((*e)->name, name))
            calls += (*e)->calls;
    pthread_mutex_unlock(&sim.lock);
    return calls;
}

static void hold(CUstream handle, bool held) {
    struct sim_stream *stream;
    pthread_mutex_lock(&sim.lock);
    sim_self();
    if (sim.initialised && sim_stream_of(handle, &stream) == CUDA_SUCCESS) {
        if (sim.timed)
            sim_timed_hold(stream);
        stream->held = held;
        sim_timed_look(stream);
        pthread_cond_broadcast(&sim.progress);
    }
    pthread_mutex_unlock(&sim.lock);
}

SIM_EXPORT void vp_sim_hold(CUstream stream) {
    hold(stream, true);
}

SIM_EXPORT void vp_sim_release(CUstream stream) {
    hold(stream, false);
}

SIM_EXPORT int vp_sim_step(int n) {
    pthread_mutex_lock(&sim.lock);
    int ran = sim_progress(n);
    pthread_mutex_unlock(&sim.lock);
    return ran;
}

SIM_EXPORT size_t vp_sim_pending(void) {
    pthread_mutex_lock(&sim.lock);
    size_t pending = sim_pending();
    pthread_mutex_unlock(&sim.lock);
    return pending;
}

SIM_EXPORT size_t vp_sim_used(int device) {
    pthread_mutex_lock(&sim.lock);
    size_t used = sim_device_ok(device) ? sim.devices[device].used : 0;
    pthread_mutex_unlock(&sim.lock);
    return used;
}

SIM_EXPORT size_t vp_sim_used_vmm(int device) {
    pthread_mutex_lock(&sim.lock);
    size_t used = sim_device_ok(device) ? sim.devices[device].used_vmm : 0;
    pthread_mutex_unlock(&sim.lock);
    return used;
}

SIM_EXPORT unsigned long vp_sim_violations(void) {
    pthread_mutex_lock(&sim.lock);
    unsigned long violations = sim.violations;
    pthread_mutex_unlock(&sim.lock);
    return violations;
}

SIM_EXPORT void vp_sim_watch_fills(vp_sim_fill_fn *told) {
    pthread_mutex_lock(&sim.lock);
    sim.watch_fills = told;
    pthread_mutex_unlock(&sim.lock);
}

SIM_EXPORT void vp_sim_watch_copies(vp_sim_copy_fn *told) {
    pthread_mutex_lock(&sim.lock);
    sim.watch_copies = told;
    pthread_mutex_unlock(&sim.lock);
}

SIM_EXPORT uint64_t vp_sim_cost_ns(void) {
    pthread_mutex_lock(&sim.lock);
    uint64_t cost = sim.cost_ns;
    pthread_mutex_unlock(&sim.lock);
    return cost;
}
