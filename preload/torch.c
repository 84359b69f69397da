/* Follows the blocks of PyTorch's cache by the calls of its libraries. torch.h has the order of these calls.
 *
 * The stack tells which calls belong together: a call's frame is its caller's stack address at the call. Two calls from
 * the body of one function have the same frame, and a deeper call has a lower one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "torch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "doors.h"
#include "torch_stack.h"

/* Returned in two registers, like the C++ type. */
struct vp_torch_stream {
    int8_t device_type, device;
    int64_t id;
};

#define DOOR __attribute__((visibility("default")))
DOOR struct vp_torch_stream VP_TORCH_CURRENT(signed char device);
DOOR CUstream VP_TORCH_STREAM(const void *stream);
DOOR size_t VP_TORCH_ROUND_CUDA(size_t size);
DOOR size_t VP_TORCH_ROUND(size_t size);
DOOR void VP_TORCH_REPORT(void *ptr, int64_t change, size_t allocated, size_t reserved, uint16_t device);

#define CALLER ((const char *)__builtin_return_address(0))
/* clang has no address of the caller's stack on aarch64; there the caller's frame pointer, saved first, does too. */
#if defined(__clang__) && defined(__aarch64__)
#define FRAME (*(const char *const *)__builtin_frame_address(0))
#else
#define FRAME ((const char *)__builtin_dwarf_cfa())
#endif

/* The calls of this thread so far. */
static _Thread_local struct {
    struct vp_torch_hints hints;
    const char *asked_frame, *asked_from; /* the current stream was asked for last, there; NULL: it was not */
    CUdevice asked_device;                /* the current stream's */
    const char *frame;                    /* of the size's rounding; NULL: no block is being made */
    size_t size;
    struct vp_bare_stream stream;
    bool segment_next;  /* a segment is about to be made */
    bool refused;       /* one was refused for this block: PyTorch gives others back, and tries once more */
    bool fails;         /* there is no memory for the block, nor a place in the cache: no segment is made */
    bool unasked;       /* no room was made: if a segment is, that is to be done before */
    bool early;         /* one was made that no size came before */
    bool other_streams; /* a stream's handle was asked for, perhaps to record an event there */
    size_t unsplit_least, unsplit_more; /* the new settings, since PyTorch has read them; 0: they are in force */
    size_t asks_size;                   /* a cudaMalloc() of that size is on its way to the driver's door */
    const void *asks;                   /* where it was called; NULL: none is */
    CUdeviceptr first;                  /* a device's first segment, which has memory, waits for its report */
    size_t first_size;
    CUdevice first_device;
} said __attribute__((tls_model("initial-exec")));

/* The first segment of a device is ordinary memory. The next are bare only if its block is reported as expected. */
enum { UNKNOWN, ARMED, NEVER };
enum { DEVICES = 64, CHANCES = 3 };
static struct {
    _Atomic unsigned char state, failures;
    _Atomic uint64_t allocated, reserved; /* as it was last said */
} devices[DEVICES];

/* PyTorch records no events for other streams that used a block while any memory pool is in use (a capture, a graph's
 * pool, a MemPool), and no call tells when that ends. So from the first pool on, every free waits for all streams of
 * the device, if blocks were ever used on other streams. */
static atomic_bool other_uses;

static bool is_cuda(uint16_t device) {
    return (device & 0xff) == 1 && device >> 8 < DEVICES;
}

/* Logs once why segments are ordinary memory. */
static void log_ordinary(const char *why) {
    static atomic_flag said_it = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&said_it))
        vp_log(VP_LOG_WARN, "PyTorch's cache keeps its memory to itself: %s (docs/pytorch.md)", why);
}

static void never(CUdevice device, const char *why) {
    atomic_store(&devices[device].state, NEVER);
    log_ordinary(why);
}

static void failed(CUdevice device) {
    if (atomic_load(&devices[device].state) == UNKNOWN && atomic_fetch_add(&devices[device].failures, 1) + 1 == CHANCES)
        never(device, "it tells of its blocks in another order than any version that is known");
}

/* ---- streams ---- */

struct vp_torch_stream VP_TORCH_CURRENT(signed char device) {
    struct vp_torch_stream (*real)(signed char) = vp_torch_real_of(VP_TORCH_IS_CURRENT, CALLER);
    struct vp_torch_stream current = real(device);
    if (vp_torch_is_cache(CALLER)) {
        said.asked_from = CALLER;
        said.asked_frame = FRAME;
        said.asked_device = current.device;
    } else {
        said.hints.count = 0;
    }
    return current;
}

CUstream
VP_TORCH_STREAM(const void *stream) {
    CUstream (*real)(const void *) = vp_torch_real_of(VP_TORCH_IS_STREAM, CALLER);
    CUstream handle = real(stream);
    if (!vp_torch_is_cache(CALLER))
        return handle;
    said.other_streams = true;
    if (said.asked_frame == FRAME && vp_torch_is_one_function(said.asked_from, CALLER)) {
        vp_torch_hint_add(&said.hints, &(struct vp_torch_hint){FRAME, CALLER, handle, said.asked_device});
        said.segment_next = said.frame && FRAME < said.frame;
    } else if (!atomic_load_explicit(&other_uses, memory_order_relaxed)) {
        atomic_store(&other_uses, true);
    }
    said.asked_frame = NULL;
    return handle;
}

/* ---- a block is wanted ---- */

static CUdevice current_device(void) {
    CUdevice device = 0;
    return VP_REAL(cuCtxGetDevice)(&device) == CUDA_SUCCESS && device < DEVICES ? device : -1;
}

/* Refuses as PyTorch does: informs the profiler, then throws the error. */
static _Noreturn void refuse(CUdevice device, size_t size) {
    uint64_t allocated = atomic_load(&devices[device].allocated), reserved = atomic_load(&devices[device].reserved);
    void (*tell)(int64_t, size_t, size_t, uint16_t) = vp_torch_real_of(VP_TORCH_REFUSED,
                                                                       (const void *)atomic_load(&vp_torch_code.begin));
    said.frame = NULL;
    tell((int64_t)size, allocated, reserved, (uint16_t)(device << 8 | 1));
    vp_torch_refuse(device, size, allocated, reserved);
}

/* The cache does not split blocks of max_split_size and more. Such a block serves any request from that size on that is
 * smaller by less than a bound, so a block may be that much larger than the request. The settings are read from the
 * environment, and as the program changes them (torch.cuda.memory._set_allocator_settings); else the first such block
 * shows it. */
static const size_t UNSPLIT_MORE = (size_t)20 << 20;
static _Atomic size_t unsplit_least = SIZE_MAX, unsplit_more = UNSPLIT_MORE;

static void set_unsplit(size_t least, size_t more) {
    atomic_store(&unsplit_least, least);
    atomic_store(&unsplit_more, more);
    if (least != SIZE_MAX)
        atomic_store(&vp_bare_beside, false); /* a smaller place may do */
}

/* A remainder of up to this size is not split off a block. */
static const size_t LEFT_MOST = (size_t)1 << 20;

static size_t size_at_most(size_t size) {
    const size_t more = size >= atomic_load(&unsplit_least) ? atomic_load(&unsplit_more) : 0;
    return size < SIZE_MAX - more ? size + more : size;
}

/* PyTorch allows no smaller max_split_size. */
static const size_t UNSPLIT_LEAST = (size_t)20 << 20;

/* A block that is too large for another reason is from a pool that splits no blocks, or has a piece before it
 * (allocateWithAddress): other blocks will not be like it. */
static void note_unsplit(CUdeviceptr ptr, size_t asked, size_t given) {
    const size_t more = atomic_load_explicit(&unsplit_more, memory_order_relaxed);
    if (given - asked <= LEFT_MOST)
        return;
    if (asked < UNSPLIT_LEAST || given - asked > more)
        vp_bare_unsplit(ptr, given);
    else if (asked < atomic_load_explicit(&unsplit_least, memory_order_relaxed))
        set_unsplit(asked, more);
}

/* ---- settings ---- */

/* The value of a setting in a text of them, the last one's if there are several; NULL: it is not set there. */
static const char *setting_in(const char *text, const char *setting) {
    const char *value = NULL;
    while (text && (text = strstr(text, setting))) {
        text += strlen(setting);
        value = text + strspn(text, ": ");
    }
    return value;
}

static size_t mebibytes_in(const char *text, const char *setting, size_t otherwise) {
    enum { MOST = 1 << 30, DECIMAL = 10 };
    const char *value = setting_in(text, setting);
    const size_t number = value ? strtoul(value, NULL, DECIMAL) : 0;
    return number && number < MOST ? number << 20 : otherwise;
}

static atomic_bool settings_taken;

/* The cache may release its lock while it makes a segment. Then other threads come in between the request for a block
 * and its report, and may take the room that was made for it. */
static atomic_bool lock_released;

static bool releases_lock(const char *text) {
    const char *releases = setting_in(text, "release_lock_on_cudamalloc");
    if (!releases || *releases != 'T')
        return false;
    atomic_store(&lock_released, true);
    log_ordinary("release_lock_on_cudamalloc lets other threads in while the cache makes a segment");
    return true;
}

/* Takes what the environment says. False: the cache releases its lock. */
static bool take_settings(void) {
    static const char *const names[] = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *text = secure_getenv(names[i]);
        if (releases_lock(text)) {
            vp_adopt_bare = false;
            return false;
        }
        set_unsplit(mebibytes_in(text, "max_split_size_mb", atomic_load(&unsplit_least)),
                    mebibytes_in(text, "max_non_split_rounding_mb", atomic_load(&unsplit_more)));
    }
    atomic_store(&settings_taken, true);
    return true;
}

/* Not back if there is no memory to be had; but without a place for the block the cache finds that out as ever. */
static void wanted(size_t size, const char *frame) {
    CUdevice device = -1;
    if (said.first)
        failed(said.first_device);
    said.first = 0;
    said.frame = frame;
    said.size = size;
    said.stream = vp_torch_hint_take(&said.hints, frame, &device);
    said.segment_next = said.refused = said.fails = said.unasked = false;
    if (said.unsplit_least)
        set_unsplit(said.unsplit_least, said.unsplit_more);
    said.unsplit_least = 0;
    if (device < 0)
        device = current_device();
    if (device < 0 || device >= DEVICES || atomic_load_explicit(&devices[device].state, memory_order_relaxed) != ARMED)
        return;
    const CUresult room = vp_bare_room(device, size_at_most(size), said.stream);
    said.unasked = room == VP_NOT_OURS;
    if (room != CUDA_ERROR_OUT_OF_MEMORY)
        return;
    if (vp_bare_may_place(device, size))
        refuse(device, size);
    said.fails = true;
}

/* The smallest block that PyTorch's cache hands out; smaller sizes get it without being rounded. */
enum { LEAST = 512 };

/* How PyTorch rounds a size: up to the next of `divisions` equal parts between two powers of two. */
static size_t rounded(size_t size, size_t divisions) {
    enum { LAST_BIT = 63 };
    if (divisions <= 1 || size / LEAST < divisions || size > SIZE_MAX / 4)
        return size;
    const size_t floor = (size_t)1 << (LAST_BIT - __builtin_clzl(size));
    const size_t part = floor >> (LAST_BIT - __builtin_clzl(divisions));
    return part ? (size + part - 1) / part * part : size;
}

/* Is a cache found only now? Up to PyTorch 2.5 it reads its settings unseen. */
static __attribute__((cold)) bool is_found(const void *from) {
    return !vp_torch_learn() && vp_torch_is_cache(from) && take_settings();
}

static size_t round_told(enum vp_torch_symbol symbol, size_t size, const char *from, const char *frame) {
    size_t (*real)(size_t) = vp_torch_real_of(symbol, from), divisions = real(size);
    const bool settled = atomic_load_explicit(&settings_taken, memory_order_relaxed);
    if (vp_adopt_bare && (settled ? vp_torch_is_cache(from) : is_found(from)))
        wanted(rounded(size, divisions), frame);
    return divisions;
}

size_t VP_TORCH_ROUND_CUDA(size_t size) {
    return round_told(VP_TORCH_IS_ROUND_CUDA, size, CALLER, FRAME);
}

size_t VP_TORCH_ROUND(size_t size) {
    return round_told(VP_TORCH_IS_ROUND, size, CALLER, FRAME);
}

/* ---- a segment is made ---- */

CUresult vp_torch_segment_now(CUdeviceptr *out, size_t size, const void *address) {
    bool next = said.segment_next;
    CUdevice device;
    CUresult res;
    said.segment_next = false;
    said.asks = NULL;
    if (!vp_torch_is_cache(address) || (device = current_device()) < 0)
        return VP_NOT_OURS;
    if (said.fails && said.frame)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (atomic_load(&lock_released)) {
        vp_bare_lapsed();
        return VP_NOT_OURS;
    }
    said.early = !next;
    if (!next || !said.frame || size < said.size)
        return VP_NOT_OURS;
    switch (atomic_load(&devices[device].state)) {
    case ARMED:
        /* While pools are in use it would give nothing back, and fail. */
        if (!said.refused && !atomic_load(&vp_bare_pools) && vp_bare_is_crowded(device, size)) {
            said.refused = true;
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        res = said.unasked ? vp_bare_room_locked(device, size_at_most(said.size), said.stream) : CUDA_SUCCESS;
        if (res != CUDA_ERROR_OUT_OF_MEMORY)
            res = vp_bare_segment(out, size, said.stream);
        if (res && res != CUDA_ERROR_OUT_OF_MEMORY && res != VP_NOT_OURS)
            said.frame = NULL; /* PyTorch throws it as it is: no block comes */
        return res;
    case UNKNOWN:
        res = vp_api_alloc(out, size);
        if (res == CUDA_SUCCESS) {
            said.first = *out;
            said.first_size = size;
            said.first_device = device;
        }
        return res;
    default: return VP_NOT_OURS;
    }
}

void vp_torch_asks_now(size_t size, const void *address) {
    said.asks_size = size;
    said.asks = address;
}

CUresult vp_torch_segment_late(CUdeviceptr *out, size_t size) {
    return said.asks && said.asks_size == size ? vp_torch_segment_now(out, size, said.asks) : VP_NOT_OURS;
}

/* ---- a block is made, or is no more ---- */

static void first_reported(CUdeviceptr ptr, size_t size) {
    CUdevice device = said.first_device;
    if (!said.frame || ptr < said.first || ptr - said.first + size > said.first_size || size < said.size) {
        failed(device);
    } else if (atomic_load(&devices[device].state) == UNKNOWN) {
        atomic_store(&devices[device].state, ARMED);
        if (!vp_torch_knows_pools())
            atomic_store(&vp_bare_pools, true);
        vp_log(VP_LOG_INFO, "device %d: PyTorch's cache reports its blocks", device);
    }
    said.first = 0;
}

/* The cache hands out a tiny block without asking for room. If there is no memory for it, this makes PyTorch report out
 * of memory: it then counts those bytes as allocated for good, and the program goes on, as it could not after a kernel
 * had touched them. Blocks that a pool is set back to are never refused: their memory comes as others are freed. */
static void refuse_tiny(CUdevice device, CUdeviceptr ptr, size_t size) {
    if (!vp_bare_refused(device, ptr, size))
        return;
    said.hints.count = 0;
    said.other_streams = false;
    refuse(device, size);
}

static void used(CUdeviceptr ptr, size_t size, const char *frame) {
    CUdevice device = -1; /* of one that no size came before */
    struct vp_bare_stream stream = said.frame ? said.stream : vp_torch_hint_take(&said.hints, frame, &device);
    if (said.first)
        first_reported(ptr, size);
    else if (!vp_bare_used(ptr, size, stream) && size > LEFT_MOST && !vp_api_owns(ptr))
        atomic_store(&vp_bare_beside, atomic_load(&unsplit_least) == SIZE_MAX); /* else a smaller place may do */
    if (device >= 0 && size <= LEAST)
        refuse_tiny(device, ptr, size);
}

static void unused(CUdeviceptr ptr, size_t size) {
    bool barrier = said.other_streams || (atomic_load_explicit(&vp_bare_pools, memory_order_relaxed) &&
                                          atomic_load_explicit(&other_uses, memory_order_relaxed));
    vp_bare_unused(ptr, size, barrier);
}

static void reported(CUdeviceptr ptr, int64_t change, int device, const char *frame) {
    if (atomic_load_explicit(&devices[device].state, memory_order_relaxed) == ARMED || said.first) {
        if (change > 0)
            used(ptr, (size_t)change, frame);
        else if (change < 0)
            unused(ptr, (size_t)-change);
    }
    /* What is smaller is a piece before the block (allocateWithAddress). A free may come between, from a callback. */
    if (change >= (int64_t)said.size) {
        if (said.early && said.frame)
            failed(device);
        if (said.frame)
            note_unsplit(ptr, said.size, (size_t)change);
        said.early = false;
        said.frame = NULL;
        said.size = 0;
        said.segment_next = false;
    }
    said.hints.count = 0;
    said.other_streams = false;
}

void VP_TORCH_REPORT(void *ptr, int64_t change, size_t allocated, size_t reserved, uint16_t device) {
    void (*real)(void *, int64_t, size_t, size_t, uint16_t) = vp_torch_real_of(VP_TORCH_IS_REPORT, CALLER);
    if (vp_torch_is_cache(CALLER) && is_cuda(device)) {
        atomic_store_explicit(&devices[device >> 8].allocated, allocated, memory_order_relaxed);
        atomic_store_explicit(&devices[device >> 8].reserved, reserved, memory_order_relaxed);
        reported((CUdeviceptr)(uintptr_t)ptr, change, device >> 8, FRAME);
    }
    real(ptr, change, allocated, reserved, device);
}

/* ---- calls that pass: pass.S ---- */

/* The program changes the settings: what the text does not name has its default again. Until PyTorch has read it, and
 * this thread allocates the next time, blocks may be as before or after. Whether the lock is released again or not does
 * not matter: once it was, segments that are made have memory, and blocks in older ones come without a release. */
static void settings(const char *text) {
    (void)releases_lock(text);
    const size_t least = atomic_load(&unsplit_least), more = atomic_load(&unsplit_more);
    said.unsplit_least = mebibytes_in(text, "max_split_size_mb", SIZE_MAX);
    said.unsplit_more = mebibytes_in(text, "max_non_split_rounding_mb", UNSPLIT_MORE);
    set_unsplit(said.unsplit_least < least ? said.unsplit_least : least,
                said.unsplit_more > more ? said.unsplit_more : more);
}

/* Called when PyTorch reads its settings: the last moment to choose for it, and all of its libraries are mapped by now.
 */
static void environment(const char *name) {
    static atomic_flag decided = ATOMIC_FLAG_INIT;
    vp_adopt(); /* a program that is linked with PyTorch has it begin before this library */
    if (!name || (strcmp(name, "PYTORCH_CUDA_ALLOC_CONF") && strcmp(name, "PYTORCH_ALLOC_CONF")))
        return;
    vp_adopt_read();
    if (!vp_adopt_bare || !take_settings())
        return;
    int err = vp_torch_learn();
    if (err != -ENOTSUP || atomic_flag_test_and_set(&decided))
        return;
    vp_adopt_bare = false;
    vp_adopt_torch();
    vp_log(VP_LOG_WARN,
           "this build of PyTorch does not report its blocks; it uses cudaMallocAsync instead (docs/pytorch.md)");
}

__attribute__((visibility("hidden"))) void *vp_torch_pass(unsigned index, const uintptr_t *registers,
                                                          const void *address);

void *vp_torch_pass(unsigned index, const uintptr_t *registers, const void *address) {
#if defined(__x86_64__)
    enum { FIRST = 1 }; /* behind where the answer goes */
    enum { ERROR_TEXT = 1 };
#else
    enum { FIRST = 0 };
    enum { ERROR_TEXT = 2 }; /* behind the object and where that is made, which x86-64 has on the stack */
#endif
    enum { TEXT = 3 }; /* behind the function, the file and the line: what is said, or was to hold; no answer comes */
    if (index == VP_TORCH_REFUSED) {
        said.frame = NULL;
        vp_bare_lapsed();
    } else if (index == VP_TORCH_GET_ENV || index == VP_TORCH_GET_ENV_CXX11)
        environment((const char *)registers[FIRST]);
    else if (index >= VP_TORCH_SETS && index <= VP_TORCH_PARSES)
        settings(*(const char *const *)registers[index == VP_TORCH_PARSES]); /* behind the object */
    else if (index == VP_TORCH_FAILS || (index >= VP_TORCH_ASSERTS && index < VP_TORCH_CHANGES))
        vp_adopt_refused((const char *)registers[TEXT]);
    else if (index == VP_TORCH_FAILS_STRING || index == VP_TORCH_FAILS_OLD_STRING)
        vp_adopt_refused(*(const char *const *)registers[TEXT]); /* each kind begins with where its bytes are */
    else if (index == VP_TORCH_CHANGES)
        vp_adopt_changed();
    else if (index >= VP_TORCH_ERRORS) {
        char *const *string = (char *const *)registers[ERROR_TEXT];
        /* How long it is stands behind that, or, of an old one, before the bytes. */
        vp_adopt_reword(*string, index == VP_TORCH_ERRORS_OLD_STRING ? ((const size_t *)*string)[-3]
                                                                     : ((const size_t *)string)[1]);
    } else
        atomic_store(&vp_bare_pools, true);
    return vp_torch_real_of(index, address);
}
