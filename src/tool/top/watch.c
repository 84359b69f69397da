/* vpool top on a terminal: the table, updated at intervals, and keys.
 *
 * Plain ANSI, on the terminal's second screen: the picture is drawn over the old one in one write, and each line is
 * cleared behind its end, so that nothing flickers. Whatever ends the command, a signal or q, the terminal is restored.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/top/top.h"

#include "base/clock.h"
#include "tool/top/asked.h"

#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#define ENTER "\033[?1049h\033[?25l"
#define LEAVE "\033[?25h\033[?1049l"

/* The first look is a short one: the rates are there at once. */
static const double FIRST_SECONDS = 0.2;

static struct termios terminal_before;
static volatile sig_atomic_t caught; /* a signal that ends or stops us; 0: none */

static void on_signal(int number) {
    if (number != SIGWINCH)
        caught = number;
}

static void put(const char *text, size_t length) {
    while (length) {
        ssize_t n = write(STDOUT_FILENO, text, length);
        if (n < 0 && errno != EINTR)
            return;
        if (n > 0) {
            text += n;
            length -= (size_t)n;
        }
    }
}

static void enter(void) {
    struct termios raw = terminal_before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    put(ENTER, strlen(ENTER));
}

static void leave(void) {
    put(LEAVE, strlen(LEAVE));
    tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before);
}

/* ---- what is shown ---- */

struct view {
    const struct vp_top_options *options;
    struct vp_sample sample;
    char order;
    int pid; /* of the row chosen, with its device; 0: none */
    uint64_t device;
    struct vp_panel *panel;
    bool keys;    /* what they do is shown in the table's place */
    bool holders; /* or who holds most of the chosen process's memory, as it has told */
    struct vp_asked asked;
    char message[160];
};

static unsigned chosen_row(const struct view *v) {
    for (unsigned i = 0; i < v->sample.row_count; i++)
        if (v->sample.processes[v->sample.rows[i].process].page.pid == v->pid && v->sample.rows[i].device == v->device)
            return i;
    return v->sample.row_count;
}

static void choose(struct view *v, int step) {
    unsigned n = v->sample.row_count, at = chosen_row(v);
    if (!n)
        return;
    at = at == n ? (step > 0 ? 0 : n - 1)
                 : (unsigned)((int)at + step < 0         ? 0
                              : (int)at + step >= (int)n ? (int)n - 1
                                                         : (int)at + step);
    v->pid = v->sample.processes[v->sample.rows[at].process].page.pid;
    v->device = v->sample.rows[at].device;
}

/* The picture while it is drawn. */
struct picture {
    FILE *out;
    unsigned columns, rows, used;
};

/* How many bytes of the text fit into that many columns. */
static int fitting(const char *text, unsigned columns) {
    const char *at = text;
    for (wchar_t wide; *at;) {
        mbstate_t state = {0};
        const size_t n = (unsigned char)*at < 128 ? 1 : mbrtowc(&wide, at, MB_CUR_MAX, &state);
        const int width = n == 1 ? 1 : n > MB_CUR_MAX ? -1 : wcwidth(wide);
        if (width < 0 || (unsigned)width > columns)
            break;
        columns -= (unsigned)width;
        at += n;
    }
    return (int)(at - text);
}

/* One line: cut at the width, in reverse if `strong`. */
static void put_line(struct picture *p, const char *text, bool strong) {
    fprintf(p->out, "%s%.*s%s\033[K\n", strong ? "\033[7m" : "", fitting(text, p->columns), text,
            strong ? "\033[m" : "");
    p->used++;
}

static void put_plain(void *picture, const char *text) {
    put_line(picture, text, false);
}

#define LINE(p, strong, ...)                                                                                           \
    do {                                                                                                               \
        char text[512] = "";                                                                                           \
        FILE *words = fmemopen(text, sizeof text, "w");                                                                \
        if (words) {                                                                                                   \
            __VA_ARGS__;                                                                                               \
            fclose(words);                                                                                             \
            put_line(p, text, strong);                                                                                 \
        }                                                                                                              \
    } while (0)

static void draw_keys(struct picture *p) {
    static const char *const lines[] = {
        "up, down   choose a process",
        "d          have it write a dump (it must run with VPOOL_DUMP=signal)",
        "s          list the stacks that hold most of its memory, and the table again",
        "t          have it give idle memory back to the device",
        "l h f e    sort by live, held, free, efficiency",
        "a c w      sort by allocations, calls to the driver, waits",
        "p u        sort by process id, user",
        "?          this list, and the table again",
        "q          quit",
        "",
        "LIVE: what the program asked for. HELD: what the pool has of the device.",
        "EFF%: peak LIVE as a percentage of peak HELD. 1K is 1024 bytes.",
        "The devices' bars and charts: # live, - held and not live; newest on the right.",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines && p->used + 1 < p->rows; i++)
        put_line(p, lines[i], false);
}

/* One of them, with as many of its callers as are wanted. */
static void draw_holder(struct picture *p, const struct vp_asked_holder *h, uint64_t live, unsigned callers) {
    const struct vp_asked_frame *f = h->stack.items;
    const int line = vp_asked_line(h);
    char human[16], frame[400] = "?";
    if (line >= 0)
        vp_asked_frame_text(&f[line], frame, sizeof frame);
    LINE(p, false,
         fprintf(words, "%8s %4.0f%% %7lu  %s", vp_top_human(human, (double)h->bytes),
                 live ? 100 * (double)h->bytes / (double)live : 0, (unsigned long)h->blocks, frame));
    for (size_t i = (size_t)line + 1; line >= 0 && i < h->stack.count && callers; i++, callers--) {
        vp_asked_frame_text(&f[i], frame, sizeof frame);
        LINE(p, false, fprintf(words, "%24sby %s", "", frame));
    }
}

/* In the table's place. Callers are shown where the screen has room for some of each. */
static void draw_holders(struct picture *p, const struct view *v) {
    const unsigned at = chosen_row(v), count = (unsigned)v->asked.holders.count;
    const struct vp_asked_holder *h = v->asked.holders.items;
    if (at == v->sample.row_count)
        return;
    const struct vp_row *row = &v->sample.rows[at];
    const struct vp_watched *w = &v->sample.processes[row->process];
    char human[16];
    LINE(p, true,
         fprintf(words, "    HELD  SHARE  BLOCKS  BY, of %s live of process %d on device %u: %s",
                 vp_top_human(human, (double)row->now.live_bytes), w->page.pid, (unsigned)row->device, w->command));
    const unsigned room = p->rows > p->used + 1 ? p->rows - p->used - 1 : 0;
    for (unsigned i = 0; i < count && p->used + 1 < p->rows; i++) {
        const unsigned callers = room > count ? (room - count) / count : 0, left = p->rows - p->used - 2;
        draw_holder(p, &h[i], row->now.live_bytes, callers < left ? callers : left);
    }
    if (!count)
        put_line(p, "Nothing whose stack is recorded is alive.", false);
}

static void draw_table(struct picture *p, const struct view *v) {
    LINE(p, true, vp_top_head(words, &v->sample, p->columns));
    unsigned room = p->rows > p->used + 1 ? p->rows - p->used - 1 : 0, chosen = chosen_row(v);
    unsigned first = chosen < v->sample.row_count && chosen >= room ? chosen + 1 - room : 0;
    for (unsigned i = first; i < v->sample.row_count && i - first < room; i++)
        LINE(p, i == chosen, vp_top_row(words, &v->sample, &v->sample.rows[i], p->columns));
    if (!v->sample.row_count)
        put_line(p, vp_top_nothing(), false);
}

static void draw(const struct view *v) {
    struct winsize size = {0};
    char *drawn = NULL;
    size_t length = 0;
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    struct picture p = {.out = open_memstream(&drawn, &length),
                        .columns = size.ws_col ? size.ws_col : 80,
                        .rows = size.ws_row ? size.ws_row : 24};
    if (!p.out)
        return;
    const struct vp_top_order *order = vp_top_orders;
    while (order->key && order->key != v->order)
        order++;
    fputs("\033[H", p.out);
    LINE(&p, false, fputs("vpool top: ", words); vp_top_totals(words, &v->sample);
         fprintf(words, "; by %s", order->name));
    put_line(
        &p, *v->message ? v->message : "arrows choose, d dump, s holders, t trim, ? keys, q quit; by l h f e a c w p u",
        false);
    /* The devices get what the processes leave, and of a small screen nothing. */
    unsigned table = v->sample.row_count + 5;
    if (p.rows >= 16 && p.rows > table && !v->holders && !v->keys)
        vp_panel_draw(v->panel, p.rows - table < p.rows / 2 ? p.rows - table : p.rows / 2, p.columns, put_plain, &p);
    if (v->keys)
        draw_keys(&p);
    else if (v->holders)
        draw_holders(&p, v);
    else
        draw_table(&p, v);
    fputs("\033[J", p.out);
    if (!fclose(p.out))
        put(drawn, length);
    free(drawn);
}

/* What has told once is asked each time. */
static void look_at_holders(struct view *v) {
    const unsigned at = chosen_row(v);
    vp_asked_drop(&v->asked);
    if (at == v->sample.row_count) {
        v->holders = false;
        return;
    }
    const struct vp_page *page = &v->sample.processes[v->sample.rows[at].process].page;
    const char *silent = vp_asked_take(&v->asked, page, v->device);
    if (silent)
        snprintf(v->message, sizeof v->message, "process %d %s", page->pid, silent);
    v->holders = !silent;
}

static int look(struct view *v) {
    struct vp_sample now;
    int err = vp_sample_take(&now, v->sample.ns ? &v->sample : NULL, v->options->pids, v->options->pid_count);
    if (err)
        return err;
    vp_sample_drop(&v->sample);
    v->sample = now;
    vp_panel_add(&v->panel, &now);
    vp_top_sort(&v->sample, v->order);
    if (v->holders)
        look_at_holders(v);
    return 0;
}

/* ---- keys ---- */

static const struct vp_page *chosen_page(struct view *v) {
    unsigned at = chosen_row(v);
    if (at == v->sample.row_count && v->sample.process_count == 1)
        at = 0;
    if (at < v->sample.row_count)
        return &v->sample.processes[v->sample.rows[at].process].page;
    snprintf(v->message, sizeof v->message, "choose a process first (arrow keys)");
    return NULL;
}

static void dump(struct view *v) {
    const struct vp_page *page = chosen_page(v);
    if (!page)
        return;
    if (!page->stats->takes_dumps)
        snprintf(v->message, sizeof v->message, "process %d takes no dumps; start it with VPOOL_DUMP=signal",
                 page->pid);
    else
        snprintf(v->message, sizeof v->message, "process %d %s", page->pid,
                 vp_page_ask(page, VP_PAGE_DUMP) ? "was asked for a dump" : "is gone");
}

static void trim(struct view *v) {
    const struct vp_page *page = chosen_page(v);
    if (page)
        snprintf(v->message, sizeof v->message, "process %d %s", page->pid,
                 vp_page_ask(page, VP_PAGE_TRIM) ? "gives idle memory back" : "is gone");
}

static void holders(struct view *v) {
    v->keys = false;
    if (v->holders) {
        v->holders = false;
    } else if (chosen_page(v)) {
        if (chosen_row(v) == v->sample.row_count)
            choose(v, 1);
        look_at_holders(v);
    }
}

/* False: that is all. */
static bool press(struct view *v, const char *keys, size_t count) {
    for (size_t i = 0; i < count; i++) {
        char key = keys[i];
        *v->message = 0;
        if (key == '\033' && i + 2 < count && keys[i + 1] == '[') {
            choose(v, keys[i + 2] == 'A' ? -1 : keys[i + 2] == 'B' ? 1 : 0);
            if (v->holders)
                look_at_holders(v);
            i += 2;
        } else if (key == 'q') {
            return false;
        } else if (key == '?') {
            v->keys = !v->keys;
        } else if (key == 'd') {
            dump(v);
        } else if (key == 's') {
            holders(v);
        } else if (key == 't') {
            trim(v);
        } else if (vp_top_is_order(key)) {
            v->order = key;
            vp_top_sort(&v->sample, key);
        }
    }
    return true;
}

/* ---- the loop ---- */

static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH};

static void catch_signals(sigset_t *open) {
    struct sigaction action = {.sa_handler = on_signal};
    sigset_t ours;
    sigemptyset(&ours);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        sigaddset(&ours, signals[i]);
        sigaction(signals[i], &action, NULL);
    }
    /* They arrive while we wait, and at no other time. */
    sigprocmask(SIG_BLOCK, &ours, open);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigdelset(open, signals[i]);
}

/* What the signal would have done without us. A stopped one goes on afterwards. */
static void take_signal(int number, const sigset_t *open) {
    struct sigaction action = {.sa_handler = SIG_DFL}, old;
    sigset_t ours;
    sigaction(number, &action, &old);
    raise(number);
    sigprocmask(SIG_SETMASK, open, &ours);
    sigprocmask(SIG_SETMASK, &ours, NULL);
    sigaction(number, &old, NULL);
}

int vp_top_watch(const struct vp_top_options *options) {
    struct view view = {.options = options, .order = options->order};
    setlocale(LC_CTYPE, ""); /* which characters the terminal knows */
    sigset_t open;
    char keys[32];
    bool more = true;
    int err = look(&view);
    if (!err && tcgetattr(STDIN_FILENO, &terminal_before))
        err = -errno;
    if (err) {
        fprintf(stderr, "vpool top: %s\n", strerror(-err));
        return 1;
    }
    catch_signals(&open);
    enter();
    uint64_t next = vp_clock_ns() + (uint64_t)(FIRST_SECONDS * 1e9);
    while (more && !err) {
        draw(&view);
        uint64_t now = vp_clock_ns(), left = next > now ? next - now : 0;
        struct timespec wait = {(time_t)(left / 1000000000), (long)(left % 1000000000)};
        int ready = ppoll(&(struct pollfd){.fd = STDIN_FILENO, .events = POLLIN}, 1, &wait, &open);
        if (caught == SIGTSTP) {
            leave();
            take_signal(SIGTSTP, &open);
            caught = 0;
            enter();
        } else if (caught) {
            break;
        } else if (ready > 0) {
            ssize_t n = read(STDIN_FILENO, keys, sizeof keys);
            more = n > 0 && press(&view, keys, (size_t)n);
        }
        if (vp_clock_ns() >= next) {
            err = look(&view);
            next = vp_clock_ns() + (uint64_t)(options->seconds * 1e9);
        }
    }
    leave();
    vp_asked_drop(&view.asked);
    vp_sample_drop(&view.sample);
    vp_panel_drop(view.panel);
    if (caught)
        take_signal(caught, &open);
    if (err)
        fprintf(stderr, "vpool top: %s\n", strerror(-err));
    return err ? 1 : 0;
}
