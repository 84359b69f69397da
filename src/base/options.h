/* The user's options: environment variables, all in the one table below.
 *
 * From the table come the struct, the parser, the text of --help, the table of docs/options.md and the listing of the
 * values in force. A wrong value is reported, and the default used; nothing here can stop the program. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* clang-format off */
/* An entry per option: kind, field, variable, default, what is allowed, sentence. The user and the parser read these.
 *
 *   BOOL     0 or 1 (also no, yes, off, on, false, true)
 *   INT      a whole number from 0 up; allowed as LOW..HIGH
 *   SIZE     bytes, with K, M, G or T behind (powers of 1024; Ki, KiB and KB are the same), as 1.5G, too; allowed as LOW..HIGH
 *   SHARE    a SIZE, or a percentage, which the field holds as 1..100; allowed as 0, LOW..HIGH, 1%..100%
 *   ENUM     one of the words allowed; the field holds its index in the list. If 0 and 1 are among them, no, off and false
 *            mean 0, and yes, on and true mean 1
 *   STRING   any text. If the option has no default, 0, no, off and false mean the empty string; yes, on and true mean 1
 *            if 1 is the first allowed word, and are wrong otherwise
 *   FOREIGN  not read here: another component reads the variable. It is listed so that it is not reported as unknown */
#define VP_OPTIONS(X) \
    X(STRING, config, "VPOOL_CONFIG", "/etc/vpool.conf", "FILE", \
      "A file with options for all programs or by program name; the environment comes before it (vpool help config).") \
    X(ENUM, policy, "VPOOL_POLICY", "vpool", "vpool, vpmm, bfc, es, gmlake, stalloc, native", \
      "Which policy decides what bytes an allocation gets: vpool; the published VPMM, PyTorch's cache (bfc) or its expandable " \
      "segments (es), GMLake, STAlloc (with a plan in VPOOL_PLAN); or native, CUDA itself, where calls are only counted.") \
    X(STRING, plan, "VPOOL_PLAN", "", "FILE, auto", \
      "Begin with what the previous run has learnt, and write at exit what this run has: to FILE; or, with auto, to a file in " \
      "~/.cache/vpool/plans for the program, its arguments, rank and device. Under the stalloc policy, a file that vpool plan wrote.") \
    X(STRING, stats, "VPOOL_STATS", "", "1, FILE", \
      "Statistics at exit: 1 prints a summary on stderr, a FILE gets a JSON object (%p is the process id, %r the rank, %h the host).") \
    X(STRING, trace, "VPOOL_TRACE", "", "FILE, FILE.gz", \
      "Record every allocation and free that is served, for vpool replay (%p in the name is the process id, %r the rank, %h the host).") \
    X(STRING, stacks, "VPOOL_STACKS", "", "SIZE, SIZE,native", \
      "Record the call stack of each block of SIZE or more, and of about one smaller block for every SIZE bytes; " \
      "with native, also the native frames below Python's.") \
    X(STRING, dump, "VPOOL_DUMP", "", "exit, oom, signal, every:SECONDS", \
      "When to write a dump of the pool: a list of these words.") \
    X(STRING, dump_file, "VPOOL_DUMP_FILE", "vpool-%p-%n.txt", "FILE, FILE.json", \
      "The file for dumps: %p is the process id, %r the rank, %h the host, %n the dump's number, %d the device (one file each); .json makes it JSON.") \
    X(ENUM, dump_signal, "VPOOL_DUMP_SIGNAL", "SIGUSR2", "SIGUSR2, SIGUSR1, SIGHUP, SIGQUIT", \
      "The signal that asks for a dump, unless the program has a handler for it.") \
    X(BOOL, page, "VPOOL_PAGE", "1", "0, 1", \
      "Publish the figures that vpool top reads, in a page of 4 KiB in /dev/shm, until the program exits.") \
    X(BOOL, lend, "VPOOL_LEND", "1", "0, 1", \
      "Give idle memory back to the device when another process of the same user runs out of memory there; 0 refuses.") \
    X(ENUM, adopt, "VPOOL_ADOPT", "auto", "auto, bare, async, 0, 1", \
      "Set the variables that make JAX and TensorFlow leave allocation to CUDA, and choose what PyTorch does: keep its cache, on " \
      "addresses that have memory only where they are in use (bare), or leave allocation to CUDA too (async). auto and 1 mean bare, " \
      "but async with VPOOL_POISON, VPOOL_ZERO, VPOOL_SPILL or another VPOOL_POLICY; 0 sets nothing.") \
    X(BOOL, sync_free, "VPOOL_SYNC_FREE", "0", "0, 1", \
      "Make cudaFree wait for the device, as it does without the library; CUDA_LAUNCH_BLOCKING=1 implies it.") \
    X(ENUM, wait, "VPOOL_WAIT", "auto", "auto, early, late, never", \
      "What waits for memory that another stream freed: the calling thread, for a bounded time (auto); the stream, " \
      "before the pool grows (early) or when it cannot grow (late); nothing (never).") \
    X(ENUM, log, "VPOOL_LOG", "warn", "quiet, warn, info, debug", \
      "Which messages go to stderr: those of this level and more urgent ones.") \
    X(ENUM, ipc, "VPOOL_IPC", "auto", "auto, alone, share, native", \
      "Which allocations of cudaMalloc share no physical handle with others, because other processes map whole handles (vpool " \
      "help ipc): those that are likely to be shared (auto), all (alone), none (share). native leaves cudaMalloc to CUDA.") \
    X(ENUM, rdma, "VPOOL_RDMA", "auto", "auto, 0, 1", \
      "Make memory that network cards, storage and other devices can access directly, which takes longer to map: where the " \
      "machine may have such devices (auto), never (0) or always (1).") \
    X(SIZE, handle, "VPOOL_HANDLE", "256M", "64K..1G", \
      "Largest physical handle, for the largest requests: larger handles make remapping cheaper, smaller ones waste less. " \
      "From 256M on, the pool makes larger ones for a request that would take more than 200.") \
    X(INT, slack, "VPOOL_SLACK", "5", "0..50", \
      "Memory that may be held to save driver calls while the program's sizes do not repeat, as a percentage of the peak " \
      "of live memory, above that peak; over bare segments up to ten times that, where the calls cost much; 0: none.") \
    X(SIZE, va, "VPOOL_VA", "0", "0..64T", \
      "Size of the first address reservation on each device; 0 chooses it: 4T or, under ulimit -v, a 32nd of that limit; " \
      "halved until the driver grants it.") \
    X(SHARE, limit, "VPOOL_LIMIT", "0", "0, 1M..64T, 1%..100%", \
      "Most memory that the pool of a device may hold, in bytes or as a percentage of the device's memory; 0: no limit.") \
    X(SHARE, spill, "VPOOL_SPILL", "0", "0, 1M..64T, 1%..100%", \
      "Most host memory that large allocations may use when the device has no more, in bytes or as a percentage of the device's memory; 0: none.") \
    X(SIZE, spill_test, "VPOOL_SPILL_TEST", "0", "0..64T", \
      "For tests: allocations of this size and more go to host memory at once, within VPOOL_SPILL; 0: none.") \
    X(INT, idle_trim, "VPOOL_IDLE_TRIM", "0", "0..86400", \
      "Seconds after which memory that was not needed in the meantime goes back to the device; 0: never because of its age.") \
    X(BOOL, check, "VPOOL_CHECK", "0", "0, 1", \
      "Verify the pool's invariants after each operation; very slow, for finding faults of the library.") \
    X(BOOL, zero, "VPOOL_ZERO", "0", "0, 1", \
      "Fill memory with zeros before it is handed out, for programs that rely on that.") \
    X(BOOL, poison, "VPOOL_POISON", "0", "0, 1", \
      "Fill memory with a pattern when it is freed, and report blocks that are written to afterwards; slow, for finding faults of the program.") \
    X(INT, vpmm_pages, "VPOOL_VPMM_PAGES", "0", "0..1048576", \
      "Number of pages that the vpmm policy maps in advance.") \
    X(SIZE, bfc_max_split, "VPOOL_BFC_MAX_SPLIT", "0", "0..64T", \
      "The bfc policy does not split blocks of this size and more (PyTorch's max_split_size); 0: it splits all.") \
    X(SIZE, gmlake_fragment, "VPOOL_GMLAKE_FRAGMENT", "512M", "0..64T", \
      "The gmlake policy does not stitch memory for requests below this size (GMLake's fragLimit).") \
    X(SIZE, gmlake_stitched, "VPOOL_GMLAKE_STITCHED", "1000G", "0..64T", \
      "Most bytes of addresses that stitched blocks of the gmlake policy may take (GMLake's autoGC); 0: no limit.") \
    X(FOREIGN, adopted, "VPOOL_ADOPTED", "", "", \
      "Set by the library: the variables that VPOOL_ADOPT has set, so that a child process can unset them.") \
    X(FOREIGN, first, "VPOOL_FIRST", "", "", \
      "Set by the library: marks the first process of a run, which reports if it makes no use of CUDA.") \
    X(FOREIGN, sim, "VPOOL_SIM", "", "", \
      "Settings of the simulated driver (vpool help simulator).") \
    X(FOREIGN, cuda_headers, "VPOOL_CUDA_HEADERS", "", "auto, pypi, installed", \
      "Where the build takes CUDA's headers from.")
/* clang-format on */

/* The choices of the ENUM options, in the order of the table. Those of VPOOL_LOG are enum vp_log_level. */
enum vp_policy_choice {
    VP_POLICY_VPOOL,
    VP_POLICY_VPMM,
    VP_POLICY_BFC,
    VP_POLICY_ES,
    VP_POLICY_GMLAKE,
    VP_POLICY_STALLOC,
    VP_POLICY_NATIVE,
    VP_POLICY_CHOICES
};
enum vp_adopt_choice { VP_ADOPT_AUTO, VP_ADOPT_BARE, VP_ADOPT_ASYNC, VP_ADOPT_NOTHING, VP_ADOPT_YES };
enum vp_ipc_choice { VP_IPC_AUTO, VP_IPC_ALONE, VP_IPC_SHARE, VP_IPC_NATIVE };
enum vp_rdma_choice { VP_RDMA_AUTO, VP_RDMA_NO, VP_RDMA_YES };
enum vp_dump_signal_choice { VP_DUMP_SIGUSR2, VP_DUMP_SIGUSR1, VP_DUMP_SIGHUP, VP_DUMP_SIGQUIT };
enum vp_wait_choice { VP_WAIT_AUTO, VP_WAIT_EARLY, VP_WAIT_LATE, VP_WAIT_NEVER };

/* Strings are copied: some programs overwrite the memory of their environment (setproctitle). */
#define VP_OPTION_TEXT 4096

#define VP_OPTION_FIELD_BOOL(field) bool field;
#define VP_OPTION_FIELD_INT(field) uint64_t field;
#define VP_OPTION_FIELD_SIZE(field) uint64_t field;
#define VP_OPTION_FIELD_SHARE(field) uint64_t field;
#define VP_OPTION_FIELD_ENUM(field) int field;
#define VP_OPTION_FIELD_STRING(field) char field[VP_OPTION_TEXT];
#define VP_OPTION_FIELD_FOREIGN(field) char field[0];
#define VP_OPTION_FIELD(kind, field, ...) VP_OPTION_FIELD_##kind(field)

struct vp_options {
    VP_OPTIONS(VP_OPTION_FIELD)
};

/* What PyTorch is to do: VP_ADOPT_BARE, _ASYNC or _NOTHING. Under VP_ADOPT_AUTO it keeps its allocator, so that every
 * program that ran before runs. It hands over where its cache would stand in the way of an option: the blocks of a
 * cache are not filled, not spilled, and not placed by another policy. Under the native policy nothing is set. */
enum vp_adopt_choice vp_options_adopt(const struct vp_options *options);

/* This process's options. The first call reads them from the environment and the file that VPOOL_CONFIG names; they are
 * constant from then on. Thread-safe, callable from a constructor on, allocates nothing. Sets the log's level, and logs
 * nothing. */
const struct vp_options *vp_options_read(void);
extern const struct vp_options *_Atomic vp_options_now; /* NULL: not read yet */
/* Always inline: a copy that only cold functions called would become cold, and so would their callers. */
static inline __attribute__((always_inline)) const struct vp_options *vp_options(void) {
    const struct vp_options *options = atomic_load_explicit(&vp_options_now, memory_order_acquire);
    return __builtin_expect(options != NULL, true) ? options : vp_options_read();
}

/* Logs wrong values, unknown VPOOL_ variables and, with VPOOL_LOG=info, the values in force; only once. To be called
 * when the process turns out to use CUDA: the library is also loaded into each shell and helper that the program
 * starts, and these should not all repeat it. */
void vp_options_announce(void);

/* Returns the value of a variable; NULL: not set. */
typedef const char *vp_options_lookup_fn(void *context, const char *name);
/* Takes one line of text, which is valid only during the call. */
typedef void vp_options_line_fn(void *context, const char *line);

/* Reports each wrong line of a configuration file, for any program. 0, or the error of vp_config_load(). Not
 * thread-safe. */
int vp_options_check_file(const char *path, vp_options_line_fn *report, void *report_context);

/* Sets every option: to the value that `lookup` returns if that is valid, else to the default. An empty value counts as
 * unset. Each wrong value is reported as one message (`report` may be NULL). */
void vp_options_parse(struct vp_options *options, vp_options_lookup_fn *lookup, void *lookup_context,
                      vp_options_line_fn *report, void *report_context);

/* Reports each variable of `environment` ("NAME=value" strings, NULL at the end) that begins with VPOOL_ and is not an
 * option, with the option that was probably meant. */
void vp_options_find_unknown(char *const *environment, vp_options_line_fn *report, void *report_context);

/* The number of letters to insert, remove or change to turn one name into the other; `b` has at most 64 letters. */
size_t vp_options_distance(const char *a, size_t length, const char *b);

/* Parses a number: digits and, for sizes, a fraction and a suffix, as SIZE options have them (no fractions of a byte).
 * Moves `*text` behind it. False: there is none. */
bool vp_options_number(const char **text, bool with_suffix, uint64_t *value);

/* Prints the values in force, line by line. */
void vp_options_print_values(const struct vp_options *options, vp_options_line_fn *print, void *context);
