/* The file is mapped, so what is stored in it stays there when the process ends; what takes care is that each
 * line appears by one store.
 *
 * Plain: behind the text there are zero bytes, which a reader takes for the end. A line is written from its
 * second byte on; its first byte is stored last.
 *
 * Packed: a gzip file is a sequence of members, and the header of a member may hold an "extra field" of up to
 * 64 KiB that every reader skips. The file always ends in an empty member with a long extra field. In there,
 * unseen, the next line is made ready as a member of its own with the next empty member behind it; then the
 * length of the extra field is set to 0, by one store of two bytes:
 *
 *     ...| head, extra: [..................................................] empty |      before
 *     ...| head, extra: [] line | head, extra: [...........................] empty |      after
 *
 * Once there are some 48 KiB of such members, their text is compressed. The result is made ready at the end
 * in the same way, and shown by making the first head's extra field so long that it hides all the single
 * lines; then it is copied to where they were, and shown there:
 *
 *     | head [] line | head [] line | head [] line | head [.......................] empty |
 *     | head [] line | head [] line | head [] line | head [ packed | head [........] empty |   packed is ready
 *     | head [....................................head ] packed | head [...........] empty |   ... and shown
 *     | head [ packed | head [....................................................] empty |   a copy is ready
 *     | head [] packed | head [...................................................] empty |   ... and shown
 *
 * An extra field reaches as far as an empty member's body. For that the file grows by pages each of which is
 * an empty member, and so is valid after each page. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/journal.h"

#include "base/cancel.h"
#include "base/gzip.h"
#include "base/os_memory.h"
#include "base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* The file grows by one step at a time: some forty thousand events in a plain file, as many in a packed one. The
 * mapping is longer than a step, for what crosses from one step to the next: a line, or a member and its copy. A killed
 * process leaves up to that many unused bytes behind its text. */
enum { PLAIN_STEP = 1 << 20, PACKED_STEP = 256 << 10 };

/* This many bytes of single lines are compressed together. When one extra field hides them, it must have room left for
 * an intact page behind what was made ready (49152 + 4096 + 300 < 65535). Larger groups compress little better. */
enum { SINGLES = 48 << 10 };

enum { PAGE = 4096, HEAD = 12, EXTRA_MOST = 65535, STORED = 5, TRAILER = 8 };

/* An empty deflate stream, its CRC and its length. */
static const uint8_t empty_body[] = {3, 0, 0, 0, 0, 0, 0, 0, 0, 0};

enum { EMPTY_BODY = sizeof empty_body };

struct vp_journal_work {
    size_t n;
    uint32_t crc;
    /* the text of the single lines, without their frames */
    uint8_t text[SINGLES + 2 * VP_JOURNAL_LINE];
    uint8_t packed[SINGLES + 2 * VP_JOURNAL_LINE + VP_DEFLATE_EXTRA];
    _Alignas(64) uint8_t deflate[];
};

/* The number of bytes that are mapped. */
static size_t window_of(const struct vp_journal *j) {
    return j->packed ? 2 * PACKED_STEP : PLAIN_STEP + PAGE;
}

/* ---- packed: members ---- */

struct __attribute__((packed)) extra_length {
    uint16_t bytes;
};

/* Stores the length of an extra field. All earlier stores are done by then: a kill comes between two instructions. */
static inline void show(uint8_t *head, size_t extra) {
    atomic_signal_fence(memory_order_seq_cst);
    ((volatile struct extra_length *)(head + HEAD - 2))->bytes = (uint16_t)extra;
    atomic_signal_fence(memory_order_seq_cst);
}

static inline void put_head(uint8_t *at, size_t extra) {
    static const uint8_t head[HEAD - 2] = {0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 255};
    memcpy(at, head, sizeof head);
    memcpy(at + HEAD - 2, &(uint16_t){(uint16_t)extra}, 2);
}

/* The length of the extra field of a head at `at`, when it is as long as possible and an empty body follows. */
static inline size_t farthest(size_t at) {
    size_t body = at + HEAD + EXTRA_MOST;
    return (body + EMPTY_BODY) / PAGE * PAGE - EMPTY_BODY - (at + HEAD);
}

static inline uint8_t *put_trailer(uint8_t *at, uint32_t crc, size_t n) {
    const uint32_t trailer[] = {crc, (uint32_t)n};
    memcpy(at, trailer, TRAILER);
    return at + TRAILER;
}

/* Copies `n` bytes and up to 31 more: copies of a fixed length need no call of memcpy(). */
static inline void copy_line(uint8_t *to, const char *line, size_t n) {
    enum { PIECE = 32 };
    for (size_t i = 0; i < n; i += PIECE)
        memcpy(to + i, line + i, PIECE);
}

static int grow_packed(struct vp_journal *j, off_t from, off_t to) {
    uint8_t page[PAGE] = {0};
    struct iovec pages[PACKED_STEP / PAGE];
    put_head(page, PAGE - HEAD - EMPTY_BODY);
    memcpy(page + PAGE - EMPTY_BODY, empty_body, EMPTY_BODY);
    for (size_t i = 0; i < PACKED_STEP / PAGE; i++)
        pages[i] = (struct iovec){.iov_base = page, .iov_len = PAGE};
    while (from < to) {
        size_t count = (size_t)(to - from) / PAGE, most = PACKED_STEP / PAGE;
        ssize_t n = pwritev(j->file.fd, pages, (int)(count < most ? count : most), from);
        if (n < 0 && errno == EINTR)
            continue;
        int err = n < 0 ? -errno : n < PAGE ? -ENOSPC : 0;
        from += n < 0 ? 0 : n / PAGE * PAGE;
        if (err)
            return ftruncate(j->file.fd, from) < 0 ? -errno : err;
    }
    return 0;
}

/* Makes one member of all single lines: see the top of this file. */
static void pack(struct vp_journal *j) {
    struct vp_journal_work *w = j->work;
    uint8_t *first = j->window + j->first, *last = j->window + j->end;
    memset(w->text + w->n, 0, 16);
    size_t n = vp_deflate((struct vp_deflate *)w->deflate, w->packed, w->text, w->n);
    n = (size_t)(put_trailer(w->packed + n, w->crc, w->n) - w->packed);

    memcpy(last + HEAD, w->packed, n);
    put_head(last + HEAD + n, farthest(j->end + HEAD + n));
    show(first, j->end - j->first);

    memcpy(first + HEAD, w->packed, n);
    j->first += HEAD + n;
    j->end = j->first;
    put_head(j->window + j->end, farthest(j->end));
    show(first, 0);
    w->n = 0;
    w->crc = 0;
}

static void append_packed(struct vp_journal *j, const char *line, size_t n) {
    struct vp_journal_work *w = j->work;
    uint8_t *head = j->window + j->end, *at = head + HEAD;
    const uint8_t stored[STORED] = {1, (uint8_t)n, (uint8_t)(n >> 8), (uint8_t)~n, (uint8_t)(~n >> 8)};
    memcpy(at, stored, STORED);
    const struct vp_crc32 crc = vp_crc32((struct vp_crc32){0, w->crc}, line, n);
    copy_line(at + STORED, line, n);
    at = put_trailer(at + STORED + n, crc.a, n);
    j->end = (size_t)(at - j->window);
    put_head(at, farthest(j->end));
    show(head, 0);
    copy_line(w->text + w->n, line, n);
    w->n += n;
    w->crc = crc.b;
}

/* ---- both ---- */

/* Locks the file: truncating a file that another process has mapped would end that process. The lock belongs to the
 * open file, which the mapping keeps open, so it stays when the program has read its own trace and closed that. Some
 * file systems have no locks. */
static int lock_file(int fd) {
    struct flock lock = {.l_type = F_WRLCK};
    return fcntl(fd, F_OFD_SETLK, &lock) < 0 && (errno == EACCES || errno == EAGAIN) ? -EBUSY : 0;
}

/* The program may have closed the descriptor, and may have opened its own file under the number. Returns 0, or -EBADF
 * if the journal's file cannot be opened again. */
static int find_file(struct vp_journal *j) {
    if (vp_descriptor_is_ours(&j->file))
        return 0;
    return *j->path && !vp_descriptor_reopen(&j->file, j->path, O_RDWR) ? 0 : -EBADF;
}

/* Makes the file reach to the end of the window that begins at `base`, with room on the disk, and maps the window. On
 * failure the old window stays. */
static int map_window(struct vp_journal *j, off_t from, off_t base) {
    off_t to = base + (off_t)window_of(j);
    if (!vp_output_fits((uint64_t)to))
        return -EFBIG;
    int err = find_file(j);
    if (!err)
        err = j->packed ? grow_packed(j, from, to) : vp_output_reserve(j->file.fd, (uint64_t)from, (uint64_t)to);
    if (err)
        return err;
    void *mem = mmap(NULL, window_of(j), PROT_READ | PROT_WRITE, MAP_SHARED, j->file.fd, base);
    if (mem == MAP_FAILED)
        return -errno;
#ifdef MADV_POPULATE_WRITE
    /* Populating all pages at once costs a quarter of faulting them in one by one. Older kernels do not know this
     * advice; there the pages are faulted in. */
    (void)madvise(mem, window_of(j), MADV_POPULATE_WRITE);
#endif
    if (j->window)
        vp_os_give(j->window, window_of(j));
    j->window = mem;
    j->base = base;
    (void)lock_file(j->file.fd); /* the lock of an earlier open file went with the last window */
    return 0;
}

static int open_alone(const char *path) {
    struct stat about;
    int fd = vp_output_open(path, O_RDWR);
    if (fd < 0)
        return fd;
    int err = 0;
    if (fstat(fd, &about) < 0)
        err = -errno;
    else if (!S_ISREG(about.st_mode))
        err = -ENODEV;
    else if (!(err = lock_file(fd)) && ftruncate(fd, 0) < 0)
        err = -errno;
    return vp_descriptor_unless(err, fd);
}

static size_t work_size(void) {
    return sizeof(struct vp_journal_work) + vp_deflate_size();
}

/* The lock stays with the parent, as it belongs to the open file. */
int vp_journal_leave(struct vp_journal *j) {
    if (j->window)
        vp_os_give(j->window, window_of(j));
    if (j->work)
        vp_os_give(j->work, work_size());
    const int err = vp_descriptor_close(&j->file);
    j->window = NULL;
    j->work = NULL;
    return err;
}

static int let_go(struct vp_journal *j) {
    int err = find_file(j);
    if (!err && ftruncate(j->file.fd, j->base + (off_t)j->end) < 0)
        err = -errno;
    int closed = vp_journal_leave(j);
    return err ? err : closed;
}

/* Stores the absolute path, as the program may change its working directory. */
static void know_path(struct vp_journal *j) {
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", j->file.fd);
    const ssize_t n = readlink(link, j->path, sizeof j->path - 1);
    j->path[n > 0 ? n : 0] = 0;
}

int vp_journal_open(struct vp_journal *j, const char *path) {
    size_t n = strlen(path);
    int fd = open_alone(path);
    if (fd < 0)
        return fd;
    *j = (struct vp_journal){.file = vp_descriptor_of(fd), .packed = n > 3 && !strcmp(path + n - 3, ".gz")};
    know_path(j);
    if (j->packed)
        j->work = vp_os_take(work_size());
    int err = j->packed && !j->work ? -ENOMEM : map_window(j, 0, 0);
    if (err)
        let_go(j);
    else if (j->packed)
        show(j->window, farthest(0));
    return err;
}

int vp_journal_append(struct vp_journal *j, const char *line, size_t n) {
    const size_t step = j->packed ? PACKED_STEP : PLAIN_STEP;
    if (!j->packed) {
        uint8_t *at = j->window + j->end;
        memcpy(at + 1, line + 1, n - 1);
        atomic_signal_fence(memory_order_seq_cst);
        *(volatile uint8_t *)at = (uint8_t)*line;
        j->end += n;
    } else {
        append_packed(j, line, n);
        if (j->end - j->first < SINGLES)
            return 0;
        pack(j);
    }
    if (j->end < step)
        return 0;
    vp_cancel_hold(); /* the file is written to, and perhaps closed */
    int err = map_window(j, j->base + (off_t)window_of(j), j->base + (off_t)step);
    if (err) {
        let_go(j);
        return err;
    }
    j->end -= step;
    j->first -= j->packed ? step : 0;
    return 0;
}

int vp_journal_close(struct vp_journal *j) {
    if (j->packed && j->end > j->first)
        pack(j);
    return let_go(j);
}
