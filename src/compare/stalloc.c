/* STAlloc (arXiv 2507.16274), on our mechanisms: its runtime. The planner is src/plan/stalloc.c. As published:
 *   - a run was profiled, and each of its requests was given a place in a range of addresses that is got at once;
 *   - the n-th request gets the n-th place, if it is of that size: sizes alone are compared, and streams are not
 *     looked at;
 *   - a request of another size is left to a caching allocator (PyTorch's, as bfc.c has it), and its place is passed
 *     by; so is one whose place is still in use;
 *   - requests within a module whose requests differ from visit to visit (experts) are not counted. They get the best
 *     fit among what is free of the range now, and lies where the plan leaves room until the last of those that the
 *     module made when it was profiled had been freed; else the cache serves;
 *   - requests of at most 512 bytes are not counted, either, and have a pool of their own.
 * Behind the last place comes that where the last step of the profiled run began, or the first.
 *
 * Other than published: a place that another stream has freed is taken behind that, by a wait on the GPU, or, where
 * none may be queued, only once it was seen over.
 *
 * What is got is held to the end, but for ranges that are wholly free when the device has no more. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "compare/stalloc.h"
#include "compare/bfc.h"
#include "compare/stalloc_file.h"
#include "base/os_memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* The limits of segments of tiny blocks (4 million blocks, if a granule is 2 MiB; the cache serves further ones), and
 * of nested modules. */
enum { TINY_SEGMENT = 2 << 20, TINY_SEGMENTS = 1024, MODULES_OPEN = 64 };

/* Stands for a stream in memory that belongs to none: the range of the places, and segments of tiny blocks. */
static const uint64_t OF_THE_PLAN = UINT64_MAX, OF_TINY = UINT64_MAX - 1;

struct module_open {
    uint64_t thread;
    unsigned depth;
    size_t module; /* index in the plan; the number of modules: its requests count as all others */
    size_t visit;
};

struct books {
    const struct vp_stalloc_plan *plan;
    struct vp_stalloc_plan *loaded;             /* the plan if it must be unloaded; NULL: the caller owns it */
    CUdeviceptr base;                           /* address of the range of places; 0: there is none */
    size_t next;                                /* index of the next place */
    size_t *visits;                             /* by module, its next visit */
    size_t visits_bytes;                        /* the size of that memory */
    uint64_t first_stream;                      /* the first stream that asked; 0: none yet */
    bool several;                               /* several streams ask, or did when the program was profiled */
    CUdeviceptr tiny[TINY_SEGMENTS], tiny_from; /* where the last one was found; searched first */
    unsigned tiny_count;
    struct module_open open[MODULES_OPEN];
    unsigned opened; /* the program is in the last of them */
    struct vp_stalloc_figures figures;
};

/* ---- ranges ---- */

/* Makes a range that belongs to no stream: free memory that only this policy takes from. */
static int get_range(struct vp_pool *pool, size_t size, uint64_t of, enum vp_zone_name zone, CUdeviceptr *addr) {
    struct vp_request req = {.asked = size, .size = size, .align = pool->mem.granularity, .zone = zone};
    int err = vp_per_stream_hole(pool, zone, size, addr);
    if (!err)
        err = vp_per_stream_map(pool, &req, size, 1, *addr);
    if (!err)
        vp_mapping_at(&pool->mem, *addr)->chunk->stream = of;
    return err;
}

/* Returns the free region that contains [addr, addr + size), if it belongs to `of`; else NULL. */
static struct vp_region *free_at(const struct vp_pool *pool, CUdeviceptr addr, size_t size, uint64_t of) {
    struct vp_region *r = vp_region_at(&pool->mem, addr);
    bool is_free = r && r->state == VP_FREE && vp_region_end(r) - addr >= size;
    return is_free && vp_mapping_at(&pool->mem, addr)->chunk->stream == of ? r : NULL;
}

/* The same, if the request may use it. */
static struct vp_region *usable_at(const struct vp_pool *pool, CUdeviceptr addr, size_t size, uint64_t of,
                                   const struct vp_request *req) {
    struct vp_region *r = free_at(pool, addr, size, of);
    bool late = req->waits == VP_WAITS_LATE && req->pressed;
    if (!r)
        return NULL;
    if (vp_range_usable(r, addr, addr + size, req, VP_USE_READY) ||
        (req->timeline && req->waits == VP_WAITS_EARLY && vp_range_usable(r, addr, addr + size, req, VP_USE_WAIT)) ||
        (req->timeline && late && vp_range_usable(r, addr, addr + size, req, VP_USE_WAIT_ANY)))
        return r;
    return NULL;
}

static int take(struct vp_pool *pool, struct vp_region *r, CUdeviceptr addr, const struct vp_request *req,
                struct vp_region **out) {
    return vp_fit_take(&pool->mem, (struct vp_fit){r, addr}, req, out);
}

/* ---- tiny blocks ---- */

/* Returns the first free region of [from, end) whose beginning the request may use; NULL: none. */
static struct vp_region *look_for_tiny(struct vp_pool *pool, CUdeviceptr from, CUdeviceptr end,
                                       const struct vp_request *req) {
    struct vp_region *r = vp_region_at(&pool->mem, from);
    while (r && r->addr < end && !usable_at(pool, r->addr, req->size, OF_TINY, req))
        r = vp_region_next(r);
    return r && r->addr < end ? r : NULL;
}

/* Searches segment by segment, from where the last block was found. */
static int take_tiny(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    struct books *books = pool->books;
    const size_t segment = vp_round_up(TINY_SEGMENT, pool->mem.granularity);
    struct vp_region *found = NULL;
    unsigned at = 0;
    while (at < books->tiny_count &&
           (books->tiny_from < books->tiny[at] || books->tiny_from - books->tiny[at] >= segment))
        at++;
    if (at < books->tiny_count)
        found = look_for_tiny(pool, books->tiny_from, books->tiny[at] + segment, req);
    for (unsigned i = 0; i < books->tiny_count && !found; i++)
        found = look_for_tiny(pool, books->tiny[i], books->tiny[i] + segment, req);
    if (!found) {
        if (books->tiny_count == TINY_SEGMENTS)
            return vp_bfc_alloc(pool, req, out);
        CUdeviceptr *new = &books->tiny[books->tiny_count];
        int err = get_range(pool, segment, OF_TINY, req->zone, new);
        if (err)
            return err;
        books->tiny_count++;
        found = vp_region_at(&pool->mem, *new);
    }
    books->tiny_from = found->addr;
    return take(pool, found, found->addr, req, out);
}

/* ---- places ---- */

/* Returns what the host could wait for so that cudaMalloc gets the place: with CUDA alone, cudaFree had waited already.
 */
static struct vp_event *host_event(const struct vp_pool *pool, CUdeviceptr addr, const struct vp_request *req) {
    struct vp_region *r = req->timeline || req->impatient ? NULL : free_at(pool, addr, req->size, OF_THE_PLAN);
    struct vp_event *event = NULL;
    for (const struct vp_piece *p = r ? vp_piece_at(r, addr) : NULL; p && !event; p = p->next) {
        event = vp_fence_host_waitable(&p->fence) ? vp_fence_event(&p->fence) : NULL;
        if (p->end >= addr + req->size)
            break;
    }
    return event;
}

/* Takes the next place, if it has that size and is free. `*out` is NULL if the cache must serve. On errors, nothing has
 * changed. */
static int take_place(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    struct books *books = pool->books;
    const struct vp_stalloc_plan *plan = books->plan;
    if (!books->base || !plan->count)
        return 0;
    const struct vp_stalloc_place *place = &plan->places[books->next];
    const CUdeviceptr at = books->base + place->offset;
    struct vp_region *r = place->size == req->size ? usable_at(pool, at, place->size, OF_THE_PLAN, req) : NULL;
    /* Perhaps the work on it is over, and nobody has checked yet. */
    if (!r && place->size == req->size && free_at(pool, at, req->size, OF_THE_PLAN) && vp_fit_refresh(&pool->mem))
        r = usable_at(pool, at, place->size, OF_THE_PLAN, req);
    if (!r && place->size == req->size && (req->await = host_event(pool, at, req)))
        return -EAGAIN;
    int err = r ? take(pool, r, at, req, out) : 0;
    if (!err && ++books->next == plan->count)
        books->next = plan->repeat < plan->count ? plan->repeat : 0;
    return err;
}

/* Finds what a module may use of [low, high): the smallest free stretch that is large enough. */
static void look_within(struct vp_pool *pool, CUdeviceptr low, CUdeviceptr high, const struct vp_request *req,
                        CUdeviceptr *best, size_t *best_size) {
    for (struct vp_region *r = vp_region_at(&pool->mem, low); r && r->addr < high; r = vp_region_next(r)) {
        CUdeviceptr from = r->addr > low ? r->addr : low, to = vp_region_end(r) < high ? vp_region_end(r) : high;
        if (r->state != VP_FREE || to - from < req->size || to - from >= *best_size)
            continue;
        if (!usable_at(pool, from, req->size, OF_THE_PLAN, req))
            continue;
        *best = from;
        *best_size = to - from;
    }
}

static int take_room(struct vp_pool *pool, size_t visit, const struct vp_request *req, struct vp_region **out) {
    struct books *books = pool->books;
    const struct vp_stalloc_visit *v = &books->plan->visits[visit];
    CUdeviceptr best = 0;
    size_t size = SIZE_MAX;
    for (size_t i = 0; books->base && i < v->count; i++) {
        const struct vp_stalloc_space *space = &books->plan->spaces[v->first + i];
        if (space->high - space->low >= req->size)
            look_within(pool, books->base + space->low, books->base + space->high, req, &best, &size);
    }
    return best ? take(pool, vp_region_at(&pool->mem, best), best, req, out) : 0;
}

/* Returns the module that the program is in, if its requests take no places of the plan. */
static const struct module_open *module_of(const struct books *books) {
    const struct module_open *last = books->opened ? &books->open[books->opened - 1] : NULL;
    return last && last->module < books->plan->module_count ? last : NULL;
}

static int allocate(struct vp_pool *pool, struct vp_request *req, struct vp_region **out) {
    struct books *books = pool->books;
    const struct module_open *module = books->plan ? module_of(books) : NULL;
    *out = NULL;
    if (req->asked <= VP_STALLOC_TINY)
        return take_tiny(pool, req, out);
    if (req->timeline && !books->first_stream)
        books->first_stream = req->timeline->id;
    books->several |= req->timeline && books->first_stream != req->timeline->id;
    /* A request that is repeated for lack of memory was counted already; the cache serves it. */
    if (req->impatient || req->pressed)
        return vp_bfc_alloc(pool, req, out);
    const size_t before = books->next;
    int err = module ? take_room(pool, module->visit, req, out) : books->plan ? take_place(pool, req, out) : 0;
    const bool placed = *out != NULL;
    if (!err && !placed)
        err = vp_bfc_alloc(pool, req, out);
    /* After a wait, the request is repeated as if for the first time. */
    if (err == -EAGAIN || err == -EBUSY) {
        books->next = before;
        return err;
    }
    books->figures.placed += placed;
    books->figures.missed += !placed;
    books->figures.module_placed += module && placed;
    books->figures.module_missed += module && !placed;
    return err;
}

/* If there are several streams, another stream must wait for what was freed in a place. */
static bool wants_event(const struct vp_pool *pool, const struct vp_region *block) {
    const struct books *books = pool->books;
    return books->several && vp_mapping_at(&pool->mem, block->addr)->chunk->stream == OF_THE_PLAN;
}

/* ---- modules ---- */

static void enter(struct books *books, const char *name, uint64_t thread, unsigned depth) {
    const struct vp_stalloc_plan *plan = books->plan;
    size_t module = vp_stalloc_module(plan, name), visit = 0;
    if (module < plan->module_count) {
        visit = books->visits[module];
        books->visits[module] = plan->visits[visit].next ? plan->visits[visit].next - 1 : plan->modules[module].repeat;
    }
    if (books->opened < MODULES_OPEN)
        books->open[books->opened++] = (struct module_open){
            .thread = thread, .depth = depth, .module = module, .visit = visit};
}

void vp_stalloc_range(struct vp_pool *pool, const char *name, uint64_t thread, unsigned depth) {
    struct books *books = pool->books;
    if (!books->plan)
        return;
    /* A range that begins at a depth ends all ranges there: an earlier thread with this id may have ended without a
     * notice. */
    for (unsigned i = books->opened; i; i--)
        if (books->open[i - 1].thread == thread && books->open[i - 1].depth >= depth) {
            memmove(&books->open[i - 1], &books->open[i], (books->opened - i) * sizeof *books->open);
            books->opened--;
        }
    if (name && !strncmp(name, VP_STALLOC_MODULE, strlen(VP_STALLOC_MODULE)))
        enter(books, name, thread, depth);
}

void vp_stalloc_restart(struct vp_pool *pool) {
    struct books *books = pool->books;
    books->next = 0;
    books->opened = 0;
    for (size_t i = 0; books->plan && i < books->plan->module_count; i++)
        books->visits[i] = books->plan->modules[i].first;
}

struct vp_stalloc_figures vp_stalloc_figures(const struct vp_pool *pool) {
    return ((const struct books *)pool->books)->figures;
}

/* ---- open and close ---- */

static void *memory(size_t bytes) {
    void *mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return mem == MAP_FAILED ? NULL : mem;
}

static int open_books(struct vp_pool *pool) {
    const struct vp_stalloc_plan *plan = pool->config.plan;
    struct books *books = memory(sizeof *books);
    if (!books)
        return -ENOMEM;
    pool->books = books;
    if (!plan && *vp_options()->plan)
        plan = books->loaded = vp_stalloc_load(vp_options()->plan, (unsigned)pool->mem.device);
    if (!plan || !plan->peak)
        return 0;
    books->plan = plan;
    books->visits_bytes = (plan->module_count + 1) * sizeof *books->visits;
    books->visits = memory(books->visits_bytes);
    if (!books->visits)
        return -ENOMEM;
    vp_stalloc_restart(pool);
    for (size_t i = 1; i < plan->count && !books->several; i++)
        books->several = plan->places[i].stream != plan->places[0].stream;
    int err = get_range(pool, vp_round_up(plan->peak, pool->mem.granularity), OF_THE_PLAN, VP_ZONE_LARGE, &books->base);
    if (err)
        books->base = 0;
    /* If the device has no room for the plan, the cache serves. */
    return err == -ENOMEM ? 0 : err;
}

static void close_books(struct vp_pool *pool) {
    struct books *books = pool->books;
    if (!books)
        return;
    vp_stalloc_unload(books->loaded);
    if (books->visits)
        vp_os_give(books->visits, books->visits_bytes);
    vp_os_give(books, sizeof *books);
    pool->books = NULL;
}

const struct vp_policy vp_policy_stalloc = {
    .name = "stalloc",
    .traits = {.events = VP_EVENTS_CHOSEN, .per_stream = true, .never_stitches = true},
    .open = open_books,
    .layout = vp_bfc_layout,
    .alloc = allocate,
    .wants_event = wants_event,
    .range = vp_stalloc_range,
    .close = close_books,
};
