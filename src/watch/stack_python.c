/* Walks Python stacks by reading the thread's own state: CPython 3.9 to 3.15.
 *
 * CPython's functions that return frames need the interpreter's lock and count references, which may create objects
 * and, in 3.11, collect garbage: destructors would run in the middle of an allocation. PyTorch releases that lock
 * before each of its operators, so those functions could not be used there; and waiting for the lock here could
 * deadlock, since its holder may be waiting for an allocator. So frames are read and never changed: only the thread
 * itself changes its frames, and it is here now; a frame keeps its code object alive, and that its names. One table has
 * the differences between versions; CPython itself says where the members of a code object are.
 *
 * Another code object may reuse an address. So a frame is identified by the contents of the object, not by its address
 * alone: see signature(). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/stack_walk.h"

#include "watch/symbols.h"
#include "base/json.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* ---- layouts ---- */

/* Offsets of members, in bytes. All members are pointers but `lasti`, which is an int. */
struct layout {
    int minor;
    int state_frame;        /* in a thread's state: its frame, or a struct that has it */
    int through;            /* in that struct: the frame; -1: there is no such struct */
    int back, code, instr;  /* in a frame; `instr` is -1 if there is `lasti` */
    int lasti, lasti_bytes; /* the bytes of code that one unit of `lasti` stands for */
    int owner;              /* in a frame, a byte: OWNED_BY_C if it is no frame; 0: not looked at */
    int ascii, wide;        /* in a string: where characters begin, if all are ASCII or if not */
};

/* clang-format off */
static const struct layout layouts[] = {
    /* minor  state_frame  through  back  code  instr  lasti  lasti_bytes  owner  ascii  wide */
    {      9,          24,      -1,   24,   32,    -1,   104,           1,     0,    48,   72},
    {     10,          24,      -1,   24,   32,    -1,    96,           2,     0,    48,   72},
    {     11,          56,       8,   48,   32,    56,     0,           0,     0,    48,   72},
    {     12,          56,       0,    8,    0,    56,     0,           0,    70,    40,   56},
    /* From 3.13 on the interpreter says where a thread's frame is, and what is no frame has no code. */
    {     13,           0,      -1,    8,    0,    56,     0,           0,     0,    40,   56},
    {     14,           0,      -1,    8,    0,    56,     0,           0,     0,    40,   56},
    {     15,           0,      -1,    8,    0,    56,     0,           0,     0,    40,   56},
};
/* clang-format on */

/* The same in all of them. */
enum { OWNED_BY_C = 3 };
enum { BYTES_LENGTH = 16, BYTES = 32 };
enum { OBJECT_TYPE = 8, TYPE_NAME = 24, TYPE_SIZE = 32, TYPE_MEMBERS = 240, STRING_LENGTH = 16, STRING_STATE = 32 };

struct member {
    const char *name;
    int type;
    ptrdiff_t offset;
    int flags;
    const char *doc;
};

/* What was found of an interpreter. `why`: if not NULL, the reason why its stacks are not read. */
struct interpreter {
    struct layout at;
    ptrdiff_t filename, name, table, line, instructions; /* in a code object */
    const char *code_type;
    int (*is_initialized)(void), (*is_finalizing)(void);
    char *(*this_thread)(void);
    int (*line_of)(const char *code, int bytes);
    const char *why;
};

static inline const char *pointer_at(const char *object, ptrdiff_t offset) {
    const char *p;
    memcpy(&p, object + offset, sizeof p);
    return p;
}

static inline int int_at(const char *object, ptrdiff_t offset) {
    int n;
    memcpy(&n, object + offset, sizeof n);
    return n;
}

static inline uint64_t u64_at(const char *object, ptrdiff_t offset) {
    uint64_t n;
    memcpy(&n, object + offset, sizeof n);
    return n;
}

/* ---- to find it ---- */

enum symbol { THIS_THREAD, IS_INITIALIZED, VERSION, LINE_OF, FINALIZING, FINALIZING_OLD, RUNTIME, SYMBOLS };
static const char *const names[SYMBOLS] = {
    [THIS_THREAD] = "PyGILState_GetThisThreadState",
    [IS_INITIALIZED] = "Py_IsInitialized",
    [VERSION] = "Py_GetVersion",
    [LINE_OF] = "PyCode_Addr2Line",
    [FINALIZING] = "Py_IsFinalizing",
    [FINALIZING_OLD] = "_Py_IsFinalizing",
    [RUNTIME] = "_PyRuntime",
};

static ptrdiff_t member_of(const char *type, const char *name) {
    const struct member *m = (const void *)pointer_at(type, TYPE_MEMBERS);
    for (; m && m->name; m++)
        if (!strcmp(m->name, name))
            return m->offset;
    return -1;
}

/* Finds the members of code objects. A program may have CPython's data in its own module. */
static const char *find_members(struct interpreter *py) {
    static const char *const type_name[] = {"PyCode_Type"}, *const type_type_name[] = {"PyType_Type"};
    void *type, *type_type;
    if (!vp_symbols_find(type_name, 1, &type) || !vp_symbols_find(type_type_name, 1, &type_type) ||
        pointer_at(type, OBJECT_TYPE) != type_type || strcmp(pointer_at(type, TYPE_NAME), "code") != 0)
        return "no Python stack: a build of Python whose objects are not the usual ones";
    py->code_type = type;
    py->filename = member_of(type, "co_filename");
    py->name = member_of(type, py->at.minor >= 11 ? "co_qualname" : "co_name");
    py->line = member_of(type, "co_firstlineno");
    py->table = member_of(type, py->at.minor >= 10 ? "co_linetable" : "co_lnotab");
    py->instructions = (ptrdiff_t)u64_at(type, TYPE_SIZE);
    if (py->filename < 0 || py->name < 0 || py->line < 0 || py->table < 0)
        return "no Python stack: a build of Python whose code objects are not the usual ones";
    return NULL;
}

/* 3.13 and later begin with a table of offsets for debuggers: a cookie, the version, whether threads are free. After a
 * varying number of others come those of a thread's state: its size, `prev` (0), `next` (8), `interp` (16), frame. */
static const char *ask_runtime(struct interpreter *py, const char *runtime) {
    enum { FREE_THREADED = 2, FIRST = 6, LAST = 64 };
    if (!runtime || memcmp(runtime, "xdebugpy", 8) != 0)
        return "no Python stack: a build of Python that does not describe itself";
    if (u64_at(runtime, 8 * FREE_THREADED))
        return "no Python stack: a free-threaded build of Python";
    for (int i = FIRST; i < LAST; i++)
        if (!u64_at(runtime, 8 * i) && u64_at(runtime, 8 * (i + 1)) == 8 && u64_at(runtime, 8 * (i + 2)) == 16) {
            py->at.state_frame = (int)u64_at(runtime, 8 * (i + 3));
            return py->at.state_frame > 16 && py->at.state_frame < 512 ? NULL : "no Python stack: it lies nowhere";
        }
    return "no Python stack: a build of Python that describes itself in another way";
}

static const char *study(struct interpreter *py, void *const *symbols) {
    const char *(*version)(void) = (const char *(*)(void))symbols[VERSION];
    int major, minor;
    py->this_thread = (char *(*)(void))symbols[THIS_THREAD];
    py->is_initialized = (int (*)(void))symbols[IS_INITIALIZED];
    py->line_of = (int (*)(const char *, int))symbols[LINE_OF];
    py->is_finalizing = (int (*)(void))(symbols[FINALIZING] ? symbols[FINALIZING] : symbols[FINALIZING_OLD]);
    if (!py->is_initialized || !version || !py->line_of || !py->is_finalizing ||
        sscanf(version(), "%d.%d", &major, &minor) != 2)
        return "no Python stack: an interpreter that is not CPython's";
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (major == 3 && minor == layouts[i].minor)
            py->at = layouts[i];
    if (!py->at.minor)
        return "no Python stack: a version of Python that is not 3.9 to 3.15";
    /* This comes first: in a free-threaded build, objects have another header. */
    const char *why = py->at.state_frame ? NULL : ask_runtime(py, symbols[RUNTIME]);
    return why ? why : find_members(py);
}

/* Two, so that one can be read while the other is filled in. Modules come and go seldom. */
static struct interpreter found[2];
static struct interpreter *_Atomic current;
static atomic_uint_least64_t came = UINT64_MAX, went;
struct vp_lock vp_python_guard;

static void find(struct vp_modules_seen seen) {
    void *symbols[SYMBOLS];
    vp_lock_take(&vp_python_guard);
    struct interpreter *py = atomic_load(&current) == &found[0] ? &found[1] : &found[0];
    if (!vp_symbols_find(names, SYMBOLS, symbols)) {
        atomic_store(&current, NULL);
    } else {
        *py = (struct interpreter){0};
        py->why = study(py, symbols);
        atomic_store(&current, py);
    }
    atomic_store(&went, seen.went);
    atomic_store(&came, seen.came);
    vp_lock_release(&vp_python_guard);
}

/* An interpreter may come and go with a plug-in. While there is one, only the unloading of modules matters. */
static const struct interpreter *interpreter(void) {
    const struct vp_modules_seen seen = vp_modules_seen();
    const struct interpreter *py = atomic_load_explicit(&current, memory_order_acquire);
    if ((!py && seen.came != atomic_load_explicit(&came, memory_order_relaxed)) ||
        seen.went != atomic_load_explicit(&went, memory_order_relaxed)) {
        find(seen);
        py = atomic_load(&current);
    }
    return py;
}

/* ---- names ---- */

struct string_state {
    unsigned kind; /* bytes per character; 0: not known */
    bool compact, ascii;
};

/* There are two layouts of these bits: 3.14 may use 16 bits for a field that had 2. */
static inline struct string_state state_of(const char *string) {
    unsigned bits = (unsigned)int_at(string, STRING_STATE);
    bits = bits >> 2 & 7 ? bits >> 2 : bits >> 16;
    return (struct string_state){bits & 7, bits >> 3 & 1, bits >> 4 & 1};
}

enum { REPLACEMENT = 0xfffd, COLON_LIKE = 0xa789 };

/* A character that a frame's label can hold: no zero byte, no half of a surrogate pair. A colon in a name, which would
 * end the name, is replaced by a character that looks alike: IPython calls code "<cell line: 1>". */
static inline uint32_t fit_for_text(uint32_t c, bool is_name) {
    if (c == ':' && is_name)
        return COLON_LIKE;
    return c && (c < 0xd800 || c > 0xdfff) ? c : REPLACEMENT;
}

/* Writes as much of a string as there is room for, in UTF-8. */
static char *put_string(const struct interpreter *py, char *at, const char *end, const char *string, bool is_name) {
    const struct string_state state = state_of(string);
    const uint64_t n = u64_at(string, STRING_LENGTH);
    const char *from = string + (state.ascii ? py->at.ascii : py->at.wide);
    if (!state.compact || (state.kind != 1 && state.kind != 2 && state.kind != 4)) {
        *at++ = '?';
        return at;
    }
    for (uint64_t i = 0; i < n && end - at > 5; i++, from += state.kind) {
        uint32_t c = 0;
        memcpy(&c, from, state.kind); /* little-endian, as are all machines with CUDA */
        at = vp_utf8_put(at, fit_for_text(c, is_name));
    }
    return at;
}

/* ---- frames ---- */

/* Signatures are sums of products with odd constants, which the processor computes in parallel, then folds. */
enum { PRIMES = 8 };
static const uint64_t primes[PRIMES] = {UINT64_C(0x9e3779b185ebca87), UINT64_C(0xc2b2ae3d27d4eb4f),
                                        UINT64_C(0x165667b19e3779f9), UINT64_C(0x85ebca77c2b2ae63),
                                        UINT64_C(0x27d4eb2f165667c5), UINT64_C(0xd6e8feb86659fd93),
                                        UINT64_C(0xa0761d6478bd642f), UINT64_C(0xe7037ed1a0b428db)};

static inline uint64_t fold(uint64_t sum) {
    __uint128_t product = (__uint128_t)(sum ^ primes[6]) * primes[7];
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* A hash of a name: its address, its length and its last sixteen bytes. For a shorter name these include bytes of its
 * header, but not its reference count. Names made one after the other at the same address, such as <cell 1> and <cell
 * 2>, differ in them. */
static inline uint64_t look_of(const struct interpreter *py, const char *string) {
    const uint64_t n = u64_at(string, STRING_LENGTH), where = (uintptr_t)string * primes[0] + n * primes[1];
    const struct string_state state = state_of(string);
    const char *end = string + (state.ascii ? py->at.ascii : py->at.wide) + n;
    if (!state.compact)
        return where;
    return where + u64_at(end, -8) * primes[2] + u64_at(end, -16) * primes[3];
}

/* A hash of a line table: its address, its length and its contents, of a long table only both ends. Code that is made
 * repeatedly at one address, such as a notebook's, has short tables. */
static inline uint64_t look_of_table(const char *bytes) {
    const uint64_t n = u64_at(bytes, BYTES_LENGTH);
    const char *from = bytes + BYTES, *end = from + n;
    uint64_t look = (uintptr_t)bytes * primes[4] + n * primes[5] + u64_at(end, -8) * primes[6];
    if (n >= 64) {
        for (int i = 0; i < 4; i++)
            look += u64_at(from, 8 * i) * primes[i] + u64_at(end, -8 * i - 8) * primes[i + 4];
        return look;
    }
    for (int i = 0; end - from >= 8; from += 8, i++)
        look += u64_at(from, 0) * primes[i];
    return look;
}

/* Two code objects with the same signature have (except with a chance of 2^-64) the same name, file and first line, and
 * almost the same line table. Only then can a reported line be wrong, and it is still in that function. */
static inline uint64_t signature(const struct interpreter *py, const char *code) {
    const uint64_t file = look_of(py, pointer_at(code, py->filename)), name = look_of(py, pointer_at(code, py->name));
    return fold(fold(file) * primes[0] + name * primes[1] + look_of_table(pointer_at(code, py->table)) * primes[2] +
                (uintptr_t)code * primes[3] + (uint64_t)(unsigned)int_at(code, py->line) * primes[4]);
}

static uint32_t add_frame(const struct interpreter *py, struct vp_frame_key key, const char *code, int bytes) {
    char text[2048], *at = text;
    const char *const end = text + sizeof text - 1, *const end_of_name = text + sizeof text / 4;
    at += snprintf(at, 16, "%d:", py->line_of(code, bytes));
    at = put_string(py, at, end_of_name, pointer_at(code, py->name), true);
    *at++ = ':';
    at = put_string(py, at, end, pointer_at(code, py->filename), false);
    *at = 0;
    return vp_frame_add(key, VP_FRAME_PYTHON, text);
}

/* The code object of a frame. NULL: it is an entry for a call from C, which has none. */
static inline const char *code_of(const struct interpreter *py, const char *frame) {
    const char *code = (const char *)((uintptr_t)pointer_at(frame, py->at.code) & ~(uintptr_t)7);
    if (py->at.owner && frame[py->at.owner] == OWNED_BY_C)
        return NULL;
    return code && pointer_at(code, OBJECT_TYPE) == py->code_type ? code : NULL;
}

static inline uint32_t frame_of(const struct interpreter *py, const char *frame, const char *code) {
    const int bytes = py->at.instr < 0 ? int_at(frame, py->at.lasti) * py->at.lasti_bytes
                                       : (int)(pointer_at(frame, py->at.instr) - (code + py->instructions));
    const struct vp_frame_key key = {signature(py, code), (uint64_t)'p' << 56 | (uint32_t)bytes};
    const uint32_t n = vp_frame_find(key);
    return __builtin_expect(n != 0, true) ? n : add_frame(py, key, code, bytes);
}

enum words { WORDS_UNKNOWN = 32, WORDS_ENDING };

enum vp_python vp_python_walk(struct vp_walk *walk) {
    const struct interpreter *py = interpreter();
    if (!py || (py->is_initialized && !py->is_initialized()))
        return VP_PYTHON_NONE;
    if (py->why) {
        vp_walk_add_words(walk, WORDS_UNKNOWN, py->why);
        return VP_PYTHON_UNKNOWN;
    }
    /* At that time the states of other threads are being freed. */
    if (py->is_finalizing()) {
        vp_walk_add_words(walk, WORDS_ENDING, "no Python stack: the interpreter is ending");
        return VP_PYTHON_UNKNOWN;
    }
    const char *state = py->this_thread();
    const char *frame = state ? pointer_at(state, py->at.state_frame) : NULL;
    if (frame && py->at.through >= 0)
        frame = pointer_at(frame, py->at.through);
    for (bool room = true; frame && room; frame = pointer_at(frame, py->at.back)) {
        const char *code = code_of(py, frame);
        if (code)
            room = vp_walk_add(walk, frame_of(py, frame, code));
    }
    return walk->count ? VP_PYTHON_FRAMES : VP_PYTHON_OTHER;
}

const void *vp_python_code(void) {
    const struct interpreter *py = interpreter();
    return py ? (const void *)py->line_of : NULL;
}
