/* Files that survive a kill, and the compression in them. `gzip` is the judge. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

/* The journal is compiled in, so that the file can be looked at right before and right after each store that
 * shows something. */
#include <stdatomic.h>
static void look(void);
#undef atomic_signal_fence
#define atomic_signal_fence(order) look()
#include "../../src/watch/journal.c"

#include "../common/fewer.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>

static char folder[] = "/tmp/vpool-journal-XXXXXX", path[sizeof folder + 16];

static void make_folder(void) {
    cr_assert(mkdtemp(folder) != NULL);
}

static void remove_folder(void) {
    unlink(path);
    rmdir(folder);
}

TestSuite(journal, .init = make_folder, .fini = remove_folder);

static void name_file(bool packed) {
    snprintf(path, sizeof path, "%s/t.csv%s", folder, packed ? ".gz" : "");
}

/* A pseudo-random number, the same on every machine. */
static uint64_t dice(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Lines as a trace has them, each told by its number. */
static size_t make_line(char *line, uint64_t i) {
    uint64_t state = i;
    return (size_t)sprintf(line, "%c,%llu,%llu,%u,%llu\n", dice(&state) % 2 ? 'a' : 'f', (unsigned long long)i,
                           (unsigned long long)(dice(&state) << (state >> 60) * 2), (unsigned)(i % 3),
                           (unsigned long long)i * 17);
}

static FILE *open_text(bool packed) {
    char command[sizeof path + 32];
    snprintf(command, sizeof command, "gzip -dc '%s' 2>&1", path);
    return packed ? popen(command, "r") : fopen(path, "r");
}

/* How many lines the file has; each must be right, and there must be nothing else. A plain file may end in
 * zeros (behind a line of which only the first byte is missing). */
static uint64_t count_lines(bool packed) {
    char line[VP_JOURNAL_LINE], wanted[VP_JOURNAL_LINE];
    FILE *file = open_text(packed);
    uint64_t count = 0;
    cr_assert(file != NULL);
    while (fgets(line, sizeof line, file) && *line) {
        make_line(wanted, count++);
        cr_assert(eq(str, line, wanted));
    }
    if (packed)
        cr_assert(zero(pclose(file)), "gzip did not like the file after %llu lines", (unsigned long long)count);
    else
        fclose(file);
    return count;
}

static struct {
    bool on;
    uint64_t least, looks;
} looking;

static void look(void) {
    if (!looking.on)
        return;
    uint64_t count = count_lines(true);
    cr_assert(le(u64, count - looking.least, 1), "%llu lines where there were %llu", (unsigned long long)count,
              (unsigned long long)looking.least);
    looking.looks++;
}

static void append_lines(struct vp_journal *j, uint64_t from, uint64_t to) {
    char line[VP_JOURNAL_LINE];
    for (uint64_t i = from; i < to; i++)
        cr_assert(zero(vp_journal_append(j, line, make_line(line, i))));
}

static void closes_with(bool packed, uint64_t lines) {
    struct vp_journal j;
    name_file(packed);
    cr_assert(zero(vp_journal_open(&j, path)));
    append_lines(&j, 0, lines);
    cr_assert(zero(vp_journal_close(&j)));
    cr_assert(eq(u64, count_lines(packed), lines));
}

Test(journal, closed_is_whole) {
    static const uint64_t counts[] = {1, 2, 3, 1000, 1100, 1200, 5000, 300000};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        closes_with(false, counts[i]);
        closes_with(true, counts[i]);
    }
    struct stat about;
    cr_assert(zero(stat(path, &about)));
    cr_assert(lt(i64, about.st_size, 300000 * 14), "little is compressed: %lld bytes", (long long)about.st_size);
}

Test(journal, long_lines) {
    char line[VP_JOURNAL_LINE];
    struct vp_journal j;
    uint64_t state = 1;
    name_file(true);
    cr_assert(zero(vp_journal_open(&j, path)));
    for (int i = 0; i < 10000; i++) {
        for (int k = 0; k < VP_JOURNAL_LINE - 1; k++)
            line[k] = (char)(dice(&state) % 250 + 1 == '\n' ? ' ' : dice(&state) % 64 + 32);
        line[VP_JOURNAL_LINE - 1] = '\n';
        cr_assert(zero(vp_journal_append(&j, line, sizeof line)));
    }
    cr_assert(zero(vp_journal_close(&j)));
    FILE *file = open_text(true);
    state = 1;
    for (int i = 0; i < 10000 * VP_JOURNAL_LINE; i++) {
        int wanted = i % VP_JOURNAL_LINE == VP_JOURNAL_LINE - 1 ? '\n'
                     : dice(&state) % 250 + 1 == '\n'           ? ' '
                                                                : (int)(dice(&state) % 64 + 32);
        cr_assert(eq(int, getc(file), wanted), "byte %d", i);
    }
    cr_assert(eq(int, getc(file), EOF));
    cr_assert(zero(pclose(file)));
}

/* Each state that a kill between two appearances could leave: of the first lines, and of those around two
 * compressions. */
Test(journal, each_state_is_whole) {
    char line[VP_JOURNAL_LINE];
    struct vp_journal j;
    int packs = 0;
    name_file(true);
    cr_assert(zero(vp_journal_open(&j, path)));
    for (uint64_t i = 0; packs < 2; i++) {
        size_t first = j.first;
        looking.least = i;
        looking.on = i < 20 || j.end - j.first > SINGLES - 200;
        cr_assert(zero(vp_journal_append(&j, line, make_line(line, i))));
        packs += j.first != first;
    }
    looking.on = true;
    looking.least++;
    cr_assert(zero(vp_journal_close(&j)));
    cr_assert(gt(u64, looking.looks, 50));
}

/* The writer appends as fast as it can, so that most kills meet it inside an append, and many while it
 * compresses. */
static void survives_kills(bool packed, int kills) {
    volatile uint64_t *done = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t state = 7, most = 0;
    name_file(packed);
    for (int i = 0; i < kills; i++) {
        *done = 0;
        pid_t pid = fork();
        cr_assert(ge(int, pid, 0));
        if (!pid) {
            char line[VP_JOURNAL_LINE];
            struct vp_journal j;
            if (vp_journal_open(&j, path))
                _exit(1);
            for (;; ++*done)
                if (vp_journal_append(&j, line, make_line(line, *done)))
                    _exit(2);
        }
        while (!*done && !waitpid(pid, NULL, WNOHANG))
            usleep(10);
        usleep((useconds_t)(dice(&state) % (i % 8 ? 3000 : 40000)));
        int status;
        kill(pid, i % 2 ? SIGKILL : SIGTERM);
        cr_assert(eq(int, waitpid(pid, &status, 0), pid));
        cr_assert(ne(int, WIFSIGNALED(status), 0));
        uint64_t served = *done, found = count_lines(packed);
        cr_assert(le(u64, found - served, 1), "%llu lines of %llu", (unsigned long long)found,
                  (unsigned long long)served);
        most = served > most ? served : most;
    }
    cr_assert(gt(u64, most, 5000), "the writer did too little to prove anything: %llu lines", (unsigned long long)most);
}

Test(journal, killed_plain_is_whole) {
    survives_kills(false, 60);
}

Test(journal, killed_packed_is_whole) {
    survives_kills(true, VP_FEWER(120));
}

/* A limit on the file's size is an error, not a signal; what was appended stays. */
Test(journal, stops_at_the_limit) {
    struct rlimit limit = {.rlim_cur = 2500000, .rlim_max = RLIM_INFINITY};
    char line[VP_JOURNAL_LINE];
    for (int packed = 0; packed < 2; packed++) {
        struct vp_journal j;
        int err = 0;
        uint64_t count = 0;
        name_file(packed);
        cr_assert(zero(setrlimit(RLIMIT_FSIZE, &limit)));
        limit.rlim_cur = 2500000;
        cr_assert(zero(vp_journal_open(&j, path)));
        while (!err)
            err = vp_journal_append(&j, line, make_line(line, count++));
        cr_assert(eq(int, err, -EFBIG));
        cr_assert(eq(u64, count_lines(packed), count));
    }
    limit.rlim_cur = 1000;
    cr_assert(zero(setrlimit(RLIMIT_FSIZE, &limit)));
    struct vp_journal j;
    cr_assert(eq(int, vp_journal_open(&j, path), -EFBIG));
}

/* The program closes the descriptor, and has a file of its own under the number. */
static void take_number(const struct vp_journal *j, FILE **own) {
    close(j->file.fd);
    *own = tmpfile();
    cr_assert(ne(ptr, *own, NULL));
    cr_assert(eq(int, fileno(*own), j->file.fd));
    cr_assert(eq(int, fprintf(*own, "mine"), 4));
    cr_assert(zero(fflush(*own)));
}

static bool is_as_it_was(FILE *own) {
    struct stat about;
    return !fstat(fileno(own), &about) && about.st_size == 4;
}

/* Another file has the journal's name by now. */
static void put_another(void) {
    FILE *other = fopen(path, "w");
    cr_assert(other && fprintf(other, "other") == 5 && !fclose(other));
}

static void goes_on_elsewhere(bool packed, bool lost) {
    char line[VP_JOURNAL_LINE];
    struct vp_journal j;
    FILE *own;
    uint64_t count = 0;
    int err = 0;
    name_file(packed);
    cr_assert(zero(vp_journal_open(&j, path)));
    take_number(&j, &own);
    if (lost) {
        unlink(path);
        if (packed)
            put_another();
    }
    for (; count < 100000 && !err; count++)
        err = vp_journal_append(&j, line, make_line(line, count));
    cr_assert(is_as_it_was(own));
    if (lost) {
        struct stat about;
        cr_assert(eq(int, err, -EBADF));
        cr_assert(stat(path, &about) ? !packed : about.st_size == 5);
    } else {
        cr_assert(zero(err));
        close(j.file.fd); /* and again, before the end */
        cr_assert(zero(vp_journal_close(&j)));
        cr_assert(eq(u64, count_lines(packed), count));
    }
    cr_assert(is_as_it_was(own), "and at the end");
    fclose(own);
}

Test(journal, a_closed_descriptors_number_is_anothers) {
    for (int packed = 0; packed < 2; packed++) {
        goes_on_elsewhere(packed, false);
        goes_on_elsewhere(packed, true);
    }
}

Test(journal, refuses_what_it_cannot_write) {
    struct vp_journal j, other;
    name_file(false);
    cr_assert(eq(int, vp_journal_open(&j, "/no/such/file"), -ENOENT));
    cr_assert(eq(int, vp_journal_open(&j, "/tmp"), -EISDIR));
    cr_assert(eq(int, vp_journal_open(&j, "/dev/full"), -ENODEV));
    cr_assert(zero(vp_journal_open(&j, path)));
    append_lines(&j, 0, 10);
    close(open(path, O_RDONLY)); /* as a program does that looks at its trace */
    pid_t pid = fork();
    if (!pid)
        _exit(vp_journal_open(&other, path) == -EBUSY ? 0 : 1);
    int status;
    cr_assert(eq(int, waitpid(pid, &status, 0), pid));
    cr_assert(zero(status));
    append_lines(&j, 10, 20);
    cr_assert(zero(vp_journal_close(&j)));
    cr_assert(eq(u64, count_lines(false), 20));
}

/* ---- compression ---- */

static void round_trip(const uint8_t *text, size_t n) {
    struct vp_deflate *d = calloc(1, vp_deflate_size());
    uint8_t *padded = calloc(1, n + 16), *out = malloc(n + VP_DEFLATE_EXTRA), *back = malloc(n + 1);
    static const uint8_t head[10] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255};
    memcpy(padded, text, n);
    for (int times = 0; times < 2; times++) {
        size_t packed = vp_deflate(d, out, padded, n);
        cr_assert(le(sz, packed, n + VP_DEFLATE_EXTRA));
        uint32_t trailer[2] = {vp_crc32((struct vp_crc32){0}, padded, n).a, (uint32_t)n};
        name_file(true);
        FILE *file = fopen(path, "w");
        fwrite(head, 1, sizeof head, file);
        fwrite(out, 1, packed, file);
        fwrite(trailer, 1, sizeof trailer, file);
        cr_assert(zero(fclose(file)));
        file = open_text(true);
        cr_assert(eq(sz, fread(back, 1, n + 1, file), n));
        cr_assert(zero(pclose(file)));
        cr_assert(zero(memcmp(back, text, n)));
    }
    free(d);
    free(padded);
    free(out);
    free(back);
}

Test(journal, crc32) {
    static const char digits[32] = "123456789";
    struct vp_crc32 crc = {0};
    cr_assert(eq(u32, vp_crc32(crc, digits, 9).a, 0xcbf43926));
    /* In two pieces, of all lengths. */
    for (size_t n = 0; n <= 9; n++) {
        crc = vp_crc32((struct vp_crc32){0}, digits, n);
        crc.b = 0;
        crc = vp_crc32(crc, digits + n, 9 - n);
        cr_assert(eq(u32, crc.a, 0xcbf43926));
        cr_assert(eq(u32, crc.b, vp_crc32((struct vp_crc32){0}, digits + n, 9 - n).a));
    }
}

Test(journal, compresses_anything) {
    static uint8_t text[VP_DEFLATE_MOST];
    static const size_t sizes[] = {0, 1, 2, 5, 6, 7, 8, 100, 257, 258, 259, 260, 1000, 32768, 40000, VP_DEFLATE_MOST};
    uint64_t state = 3;
    for (int kind = 0; kind < 5; kind++) {
        uint32_t a = 1, b = 1;
        for (size_t i = 0; i < sizeof text; i++)
            switch (kind) {
            case 0: text[i] = 0; break;
            case 1: text[i] = (uint8_t)dice(&state); break;
            case 2: text[i] = "0123456789,\n"[dice(&state) % 12]; break;
            /* Each piece comes again, at all distances and in all lengths. */
            case 3:
                text[i] = i < 300 || dice(&state) % 97 == 0 ? (uint8_t)dice(&state)
                                                            : text[i - 1 - dice(&state) % 3 * (i / 4)];
                break;
            /* Counts that grow like Fibonacci's make the deepest trees. */
            case 4:
                text[i] = (uint8_t)(a % 64);
                if (i % b == b - 1 && a < 24)
                    b += b / 2 + 1, a++;
                break;
            }
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            round_trip(text, sizes[i]);
    }
}

/* Codes of one text serve the next ones: there each byte may be among the rarest, whose codes are the longest, wherever
 * the bits stand that wait to be written. */
Test(journal, rare_letters_become_common) {
    static char wanted[2000][VP_JOURNAL_LINE];
    static size_t length[2000];
    struct vp_journal j;
    uint64_t state = 7;
    name_file(true);
    cr_assert(zero(vp_journal_open(&j, path)));
    for (int i = 0; i < 2000; i++) {
        /* Some 48 KiB of letters, each half as often as the one before; then rare ones are among them again and again.
         */
        length[i] = VP_JOURNAL_LINE - 1;
        for (size_t k = 0; k + 1 < length[i]; k++)
            wanted[i][k] = (char)('0' + (i < 200 || dice(&state) % 8 ? (unsigned)__builtin_ctzll(dice(&state) | 1 << 6)
                                                                     : (unsigned)dice(&state) % 70));
        wanted[i][length[i] - 1] = '\n';
        cr_assert(zero(vp_journal_append(&j, wanted[i], length[i])));
    }
    cr_assert(zero(vp_journal_close(&j)));
    FILE *file = open_text(true);
    char line[VP_JOURNAL_LINE];
    for (int i = 0; i < 2000; i++)
        cr_assert(fgets(line, sizeof line, file) && !strcmp(line, wanted[i]), "line %d", i);
    cr_assert(zero(pclose(file)));
}
