/* Marks and ranges: which thread is in which range, and how much was alive meanwhile. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/marks.h"

#include "watch/trace.h"
#include "base/clock.h"
#include "base/os_memory.h"
#include "base/process.h"
#include "pool/stream_cache.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vpool.h>

/* Limits: different names, the last of which stands for all without room; threads that are in ranges at once; nested
 * ranges of a thread; open ranges of the process; marks and ends of ranges that are kept until CUDA starts. All tables
 * take some 200 KiB of addresses, and memory as they are used. */
enum { NAMES = 256, THREADS = 128, DEEP = 32, STARTED = 256, EARLY = 512 };

/* Readers of traces do not tell deeper ranges apart. */
enum { DEPTHS_TOLD = 4096 };

static const uint64_t ENDING = UINT64_MAX;

struct name {
    uint64_t hash; /* so that looking for a name compares numbers */
    struct vp_marks_peak peak;
};

struct range {
    const void *domain; /* a pop of this domain ends it */
    uint32_t name;
    bool over; /* it has ended, but ranges of other domains within it have not */
};

struct thread {
    uint64_t id;    /* 0: free */
    uint32_t depth; /* open ranges; those beyond DEEP are only counted */
    struct range open[DEEP];
};

/* A range of the process, which belongs to no thread. Traces show its index as its depth. */
struct started {
    uint64_t id; /* 0: free; ENDING: the entry is free once the range's end is in the trace */
    uint32_t name;
};

struct early {
    uint64_t ns, thread;
    uint32_t depth, name;
    char op;
};

/* Guards what is not atomic. May be taken with the trace's lock held; that is never taken under this one. */
struct vp_lock vp_marks_guard;
static struct {
    uint32_t names VP_GUARDED_BY(vp_marks_guard), threads VP_GUARDED_BY(vp_marks_guard),
        started VP_GUARDED_BY(vp_marks_guard); /* entries that were ever used */
    uint64_t starts VP_GUARDED_BY(vp_marks_guard);
    pthread_key_t key VP_GUARDED_BY(vp_marks_guard); /* its destructor ends a thread's ranges */
    bool have_key VP_GUARDED_BY(vp_marks_guard);
    atomic_uint_least32_t early;
    atomic_bool counting;
    atomic_int_least64_t alive; /* bytes, while counting */
    atomic_int_least64_t most;  /* the highest value of `alive` since it was last looked at */
} marks;
static struct {
    struct name names[NAMES];
    struct thread threads[THREADS];
    struct started started[STARTED];
    struct early early[EARLY];
} tables VP_GUARDED_BY(vp_marks_guard);

static __thread struct {
    struct thread *ranges; /* NULL: the thread is in none */
    bool told;             /* the destructor will run */
} own __attribute__((tls_model("initial-exec")));

/* Copies the part of a name that counts, in whole UTF-8 characters. */
static void cut_name(char cut[VP_MARKS_NAME], const char *text) {
    size_t n = strnlen(text, VP_MARKS_NAME);
    if (n == VP_MARKS_NAME)
        for (n--; n && ((unsigned char)text[n] & 0xc0) == 0x80;)
            n--;
    memcpy(cut, text, n);
    cut[n] = 0;
}

/* ---- under the lock ---- */

/* A fork in a signal handler takes these locks, unless its own thread is inside. `inside`: was it already? */
static VP_ACQUIRES(vp_marks_guard) bool lock(void) {
    const bool inside = vp_thread.inside;
    vp_thread.inside = true;
    vp_lock_take(&vp_marks_guard);
    return inside;
}

static VP_RELEASES(vp_marks_guard) void unlock(bool inside) {
    vp_lock_release(&vp_marks_guard);
    vp_thread.inside = inside;
}

static VP_TRIES(vp_marks_guard) VP_NOT_ANALYSED /* it returns both ways */ bool lock_for_a_while(bool *inside) {
    *inside = vp_thread.inside;
    vp_thread.inside = true;
    const bool taken = vp_lock_for_a_while(&vp_marks_guard);
    vp_thread.inside = taken || *inside;
    return taken;
}

static VP_REQUIRES(vp_marks_guard) uint32_t name_of(const char *text) {
    char cut[VP_MARKS_NAME];
    cut_name(cut, text);
    uint64_t hash = 0;
    for (const char *c = cut; *c; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(0x9e3779b97f4a7c15);
    for (uint32_t i = 0; i < marks.names; i++)
        if (tables.names[i].hash == hash && !strcmp(tables.names[i].peak.name, cut))
            return i;
    if (marks.names == NAMES) {
        vp_log_once(VP_LOG_WARN, "ranges have more than %d names; the rest count under one name", NAMES - 1);
        return NAMES - 1;
    }
    tables.names[marks.names].hash = hash;
    strcpy(tables.names[marks.names].peak.name, marks.names == NAMES - 1 ? "(others)" : cut);
    return marks.names++;
}

static bool is_gone(const struct thread *t) {
    return syscall(SYS_tgkill, getpid(), (pid_t)t->id, 0) < 0 && errno == ESRCH;
}

/* Finds or makes the thread's entry. A thread that ended in a range without running destructors loses its entry. */
static VP_REQUIRES(vp_marks_guard) struct thread *ranges_of_thread(void) {
    if (own.ranges)
        return own.ranges;
    struct thread *free = NULL;
    for (uint32_t i = 0; i < marks.threads && !free; i++)
        if (!tables.threads[i].id)
            free = &tables.threads[i];
    if (!free && marks.threads < THREADS)
        free = &tables.threads[marks.threads++];
    for (uint32_t i = 0; i < marks.threads && !free; i++)
        if (is_gone(&tables.threads[i]))
            free = &tables.threads[i];
    if (free) {
        free->id = vp_thread_id();
        free->depth = 0;
        own.ranges = free;
    }
    return free;
}

static VP_REQUIRES(vp_marks_guard) void note_peak(uint32_t name, int64_t alive) {
    struct vp_marks_peak *peak = &tables.names[name].peak;
    if (alive > 0 && (uint64_t)alive > peak->peak_bytes)
        peak->peak_bytes = (uint64_t)alive;
}

/* The most that was alive since the last look counts for all ranges that are open. */
static VP_REQUIRES(vp_marks_guard) void look_at_peaks(void) {
    const int64_t alive = atomic_load(&marks.alive), most = atomic_exchange(&marks.most, alive);
    for (uint32_t i = 0; i < marks.threads; i++) {
        const struct thread *t = &tables.threads[i];
        for (uint32_t k = 0; t->id && k < t->depth && k < DEEP; k++)
            if (!t->open[k].over)
                note_peak(t->open[k].name, most);
    }
    for (uint32_t i = 0; i < marks.started; i++)
        if (tables.started[i].id)
            note_peak(tables.started[i].name, most);
}

/* Counts a range of that name, and returns the name's number. */
static VP_REQUIRES(vp_marks_guard) uint32_t begin_range(const char *name) {
    const uint32_t n = name_of(name);
    tables.names[n].peak.times++;
    note_peak(n, atomic_load(&marks.alive));
    return n;
}

/* Keeps an event until CUDA starts. False: CUDA has started, or there will be no trace. */
static VP_REQUIRES(vp_marks_guard) bool keep_early(char op, const char *name, uint64_t thread, uint32_t depth) {
    if (!*vp_options()->trace || vp_api_ready())
        return false;
    if (marks.early == EARLY) {
        vp_log_once(VP_LOG_WARN, "VPOOL_TRACE: only the first %d marks before CUDA's start are kept", EARLY);
        return true;
    }
    tables.early[marks.early++] = (struct early){
        .ns = vp_clock_ns(), .thread = thread, .depth = depth, .name = *name ? name_of(name) : 0, .op = op};
    return true;
}

/* ---- counting what is alive ---- */

bool vp_marks_want_events(void) {
    return atomic_load_explicit(&marks.counting, memory_order_relaxed);
}

void vp_marks_event(char op, size_t size) {
    if (op != 'a') {
        atomic_fetch_sub_explicit(&marks.alive, (int64_t)size, memory_order_relaxed);
        return;
    }
    int64_t alive = atomic_fetch_add_explicit(&marks.alive, (int64_t)size, memory_order_relaxed) + (int64_t)size;
    int64_t most = atomic_load_explicit(&marks.most, memory_order_relaxed);
    while (alive > most && !atomic_compare_exchange_weak(&marks.most, &most, alive)) {}
}

/* Counts from the first range on. What was alive before is counted once, under the library's lock; events that other
 * threads serve on the fast path at that very moment may be missed. */
static void start_counting(void) {
    if (vp_marks_want_events())
        return;
    if (!vp_enter()) {
        atomic_store(&marks.counting, true);
        return;
    }
    int64_t alive = 0;
    vp_pools_each(pool) alive += (int64_t)pool->mem.stats.live_bytes - (int64_t)vp_stream_caches_count(&pool->caches);
    if (!vp_marks_want_events()) {
        atomic_store(&marks.alive, alive);
        atomic_store(&marks.most, alive);
        atomic_store(&marks.counting, true);
        atomic_store_explicit(&vp_state.recording, true, memory_order_relaxed);
    }
    vp_leave();
}

/* ---- the calls ---- */

/* Writes the events from before the trace as its beginning. */
void vp_marks_tell_early(void) {
    if (!atomic_load_explicit(&marks.early, memory_order_relaxed) || !vp_api_ready() || !vp_trace_lock())
        return;
    const bool inside = lock();
    for (uint32_t i = 0; i < marks.early; i++) {
        const struct early *e = &tables.early[i];
        vp_trace_at(e->ns);
        vp_trace_put(e->op, VP_TRACE_TEXT(e->op == 'e' ? "" : tables.names[e->name].peak.name),
                     VP_TRACE_NUMBER(e->thread), VP_TRACE_NUMBER(e->depth));
    }
    marks.early = 0;
    unlock(inside);
    vp_trace_unlock();
}

/* Records a mark (m), or a range that begins (b) or ends (e). False: nothing is recorded. A thread must not be
 * cancelled meanwhile: files may be opened under the trace's lock, and it would keep that. */
static bool tell(char op, const char *name, uint64_t thread, uint32_t depth) {
    const bool inside = vp_thread.inside;
    char cut[VP_MARKS_NAME];
    int cancel;
    if (!vp_api_ready())
        return false;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    vp_thread.inside = true;
    vp_marks_tell_early();
    cut_name(cut, name);
    const bool told = vp_trace_lock();
    if (told) {
        vp_trace_put(op, VP_TRACE_TEXT(cut), VP_TRACE_NUMBER(thread), VP_TRACE_NUMBER(depth));
        vp_trace_unlock();
    }
    vp_thread.inside = inside;
    pthread_setcancelstate(cancel, NULL);
    return told;
}

/* Records or keeps an event, and releases the lock, as the trace's is never taken under it. False: it did neither. */
static VP_RELEASES(vp_marks_guard) bool tell_unlocked(bool inside, char op, const char *name, uint64_t thread,
                                                      uint32_t depth) {
    const bool kept = keep_early(op, name, thread, depth);
    unlock(inside);
    return kept || tell(op, name, thread, depth);
}

VP_PUBLIC int vpool_mark(const char *name) {
    if (!name || !*name)
        return -EINVAL;
    if (!vp_process_is_marked() && vp_api_ready())
        return -ENODEV;
    const bool inside = lock();
    return tell_unlocked(inside, 'm', name, vp_thread_id(), 0) ? 0 : -ENODEV;
}

static void thread_ends(void *unused);

/* Has the thread's end reported. Without the lock: setting the value may call malloc(), which is the program's. */
static void tell_own_end(void) {
    const bool inside = lock();
    const bool have = marks.have_key = marks.have_key || !pthread_key_create(&marks.key, thread_ends);
    const pthread_key_t key = marks.key;
    unlock(inside);
    own.told = have && !pthread_setspecific(key, &own);
}

int vp_marks_push(const char *name, const void *domain) {
    start_counting();
    if (!own.told)
        tell_own_end();
    const bool inside = lock();
    struct thread *t = ranges_of_thread();
    if (!t) {
        unlock(inside);
        return -ENOMEM;
    }
    look_at_peaks();
    const uint32_t depth = t->depth++;
    if (depth < DEEP)
        t->open[depth] = (struct range){.domain = domain, .name = begin_range(name)};
    tell_unlocked(inside, 'b', name, vp_thread_id(), depth);
    return (int)depth;
}

/* Returns one more than the index of the domain's innermost range; 0: none. Ranges beyond DEEP count for any domain. */
static uint32_t innermost(const struct thread *t, const void *domain) {
    uint32_t at = t->depth;
    while (at && at <= DEEP && (t->open[at - 1].over || t->open[at - 1].domain != domain))
        at--;
    return at;
}

int vp_marks_pop(const void *domain) {
    struct thread *t = own.ranges;
    if (!t)
        return -ENOENT;
    const bool inside = lock();
    const uint32_t depth = innermost(t, domain) - 1;
    if (depth == UINT32_MAX) {
        unlock(inside);
        return -ENOENT;
    }
    look_at_peaks();
    if (depth < DEEP)
        t->open[depth].over = true;
    else
        t->depth--;
    while (t->depth && t->depth <= DEEP && t->open[t->depth - 1].over)
        t->depth--;
    if (!t->depth) {
        t->id = 0;
        own.ranges = NULL;
    }
    if (depth < DEPTHS_TOLD)
        tell_unlocked(inside, 'e', "", vp_thread_id(), depth);
    else
        unlock(inside);
    return (int)depth;
}

/* Reports ranges to a policy that knows the program's modules. */
static void tell_policy(const char *name, int depth) {
    const struct vp_policy *policy = vp_policy_chosen();
    if (depth < 0 || !policy || !policy->range || !vp_enter())
        return;
    vp_pools_each(pool) pool->policy->range(pool, name, (uint64_t)pthread_self(), (unsigned)depth);
    vp_leave();
}

VP_PUBLIC int vpool_range_push(const char *name) {
    int depth = name && *name ? vp_marks_push(name, NULL) : -EINVAL;
    tell_policy(name, depth);
    return depth;
}

VP_PUBLIC int vpool_range_pop(void) {
    int depth = vp_marks_pop(NULL);
    tell_policy(NULL, depth);
    return depth;
}

/* A thread's ranges end with it. */
static void thread_ends(void *unused) {
    own.told = false;
    if (own.ranges && own.ranges->depth > DEPTHS_TOLD)
        own.ranges->depth = DEPTHS_TOLD;
    while (own.ranges) {
        const struct thread *t = own.ranges;
        vp_marks_pop(t->depth <= DEEP ? t->open[t->depth - 1].domain : NULL);
    }
}

/* ---- ranges of the process ---- */

uint64_t vp_marks_start(const char *name) {
    start_counting();
    const bool inside = lock();
    uint32_t place = 0;
    while (place < marks.started && tables.started[place].id)
        place++;
    if (place == STARTED) {
        unlock(inside);
        vp_log_once(VP_LOG_WARN,
                    "more than %d ranges between a start and an end are open; further ones are not recorded", STARTED);
        return 0;
    }
    if (place == marks.started)
        marks.started++;
    look_at_peaks();
    struct started *s = &tables.started[place];
    *s = (struct started){.id = ++marks.starts, .name = begin_range(name)};
    const uint64_t id = s->id;
    tell_unlocked(inside, 'b', name, 0, place);
    return id;
}

void vp_marks_end(uint64_t id) {
    bool inside = lock();
    uint32_t place = 0;
    while (place < marks.started && tables.started[place].id != id)
        place++;
    if (!id || id == ENDING || place == marks.started) {
        unlock(inside);
        return;
    }
    look_at_peaks();
    tables.started[place].id = ENDING;
    tell_unlocked(inside, 'e', "", 0, place);
    inside = lock();
    tables.started[place].id = 0;
    unlock(inside);
}

/* ---- registered: a program makes one for each place in its code ---- */

void *vp_marks_register(const char *name) {
    enum { REGISTERED = 4096 };
    static char(*names)[VP_MARKS_NAME];
    static unsigned count;
    char *kept = NULL;
    if (!name)
        return NULL;
    const bool inside = lock();
    if (!names)
        names = vp_os_take_sparse(sizeof *names * REGISTERED);
    for (unsigned i = 0; i < count && !kept; i++)
        if (!strncmp(names[i], name, VP_MARKS_NAME - 1))
            kept = names[i];
    if (!kept && names && count < REGISTERED)
        kept = strncpy(names[count++], name, VP_MARKS_NAME - 1);
    unlock(inside);
    return kept;
}

/* ---- told ---- */

bool vp_marks_peak(unsigned *next, struct vp_marks_peak *out) {
    bool inside;
    if (!lock_for_a_while(&inside))
        return false;
    while (*next < marks.names && !tables.names[*next].peak.times)
        ++*next; /* a mark's */
    const bool there = *next < marks.names;
    if (there) {
        look_at_peaks();
        *out = tables.names[(*next)++].peak;
    }
    unlock(inside);
    return there;
}

/* Ranges of the process come after the threads. */
bool vp_marks_open(unsigned *next, struct vp_marks_open *out) {
    uint32_t name = NAMES; /* none was found */
    bool inside;
    if (!lock_for_a_while(&inside))
        return false;
    for (; name == NAMES && *next < THREADS + marks.started; ++*next) {
        const struct thread *t = *next < marks.threads ? &tables.threads[*next] : NULL;
        const struct started *s = *next < THREADS ? NULL : &tables.started[*next - THREADS];
        if (t && t->id && t->depth && !is_gone(t)) {
            out->thread = t->id;
            out->depth = t->depth - 1;
            name = t->open[(t->depth < DEEP ? t->depth : DEEP) - 1].name;
        } else if (s && s->id && s->id != ENDING) {
            out->thread = 0;
            out->depth = *next - THREADS;
            name = s->name;
        }
    }
    if (name < NAMES)
        strcpy(out->name, tables.names[name].peak.name);
    unlock(inside);
    return name < NAMES;
}

/* ---- forks: the child is one thread, in the ranges that it was in, and the process in its own; what is early was the
 * parent's ---- */

VP_NOT_ANALYSED /* there is one thread */ void vp_marks_fork_child(void) {
    marks.early = 0;
    atomic_store(&marks.alive, 0);
    atomic_store(&marks.most, 0);
    for (uint32_t i = 0; i < marks.threads; i++)
        if (&tables.threads[i] != own.ranges)
            tables.threads[i].id = 0;
    for (uint32_t i = 0; i < marks.started; i++)
        if (tables.started[i].id == ENDING)
            tables.started[i].id = 0;
    if (own.ranges)
        own.ranges->id = vp_thread_id();
}
