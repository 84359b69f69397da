/* The table of vpool top: its columns, as many as the screen has room for, and their order. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/top/top.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- order ---- */

const struct vp_top_order vp_top_orders[] = {
    {'l', "live"},  {'h', "held"},  {'f', "free"},       {'e', "efficiency"}, {'a', "allocations"},
    {'c', "calls"}, {'w', "waits"}, {'p', "process id"}, {'u', "user"},       {0},
};

bool vp_top_is_order(char key) {
    const struct vp_top_order *o = vp_top_orders;
    while (o->key && o->key != key)
        o++;
    return o->key && key;
}

static const struct vp_watched *process_of(const struct vp_sample *s, const struct vp_row *row) {
    return &s->processes[row->process];
}

static double order_value(const struct vp_sample *s, const struct vp_row *row, char key) {
    switch (key) {
    case 'l': return (double)row->now.live_bytes;
    case 'f': return (double)vp_row_free(row);
    case 'e': return vp_row_efficiency(row);
    case 'a': return row->allocs_per_s;
    case 'c': return row->driver_calls_per_s;
    case 'w': return (double)(row->now.waits_gpu + row->now.waits_host);
    case 'p': return -(double)process_of(s, row)->page.pid;
    case 'u': return -(double)process_of(s, row)->page.uid;
    default: return (double)row->now.held_bytes;
    }
}

struct sorting {
    const struct vp_sample *sample;
    char key;
};

static int compare(const void *a, const void *b, void *context) {
    const struct sorting *by = context;
    const struct vp_row *x = a, *y = b;
    double left = order_value(by->sample, x, by->key), right = order_value(by->sample, y, by->key);
    if (left != right)
        return left < right ? 1 : -1;
    int p = process_of(by->sample, x)->page.pid, q = process_of(by->sample, y)->page.pid;
    return p != q ? (p > q) - (p < q) : (x->device > y->device) - (x->device < y->device);
}

void vp_top_sort(struct vp_sample *sample, char key) {
    if (sample->row_count)
        qsort_r(sample->rows, sample->row_count, sizeof *sample->rows, compare, &(struct sorting){sample, key});
}

/* ---- cells ---- */

const char *vp_top_human(char text[16], double bytes) {
    static const char units[] = "BKMGTP";
    int unit = 0;
    for (; bytes >= 999.95 && unit < 5; unit++)
        bytes /= 1024;
    snprintf(text, 16, unit ? "%.1f%c" : "%.0f%c", bytes, units[unit]);
    return text;
}

static const char *rate(char text[16], double per_s) {
    if (per_s < 0)
        return "-";
    snprintf(text, 16, per_s < 1e6 ? "%.0f" : "%.1e", per_s);
    return text;
}

static const char *count(char text[16], uint64_t value) {
    snprintf(text, 16, value < 100000 ? "%.0f" : "%.0e", (double)value);
    return text;
}

enum {
    PID,
    USER,
    RANK,
    CONTAINER,
    DEV,
    LIVE,
    HELD,
    FREE,
    EFF,
    ALLOCS,
    CALLS,
    WAITS,
    OOM,
    SLACK,
    LENT,
    ASKED,
    REFUSED,
    SPILLED,
    POLICY,
    COLUMNS
};

/* Text stands left, numbers right. */
static const struct {
    const char *head;
    int width;
} columns[COLUMNS] = {
    [PID] = {"PID", 7},         [USER] = {"USER", -8},      [RANK] = {"RANK", 5},      [CONTAINER] = {"CONTAINER", -12},
    [DEV] = {"DEV", 3},         [LIVE] = {"LIVE", 6},       [HELD] = {"HELD", 6},      [FREE] = {"FREE", 6},
    [EFF] = {"EFF%", 5},        [ALLOCS] = {"ALLOC/S", 7},  [CALLS] = {"CALLS/S", 7},  [WAITS] = {"WAITS", 5},
    [OOM] = {"OOM", 5},         [SLACK] = {"SLACK", 5},     [LENT] = {"LENT", 6},      [ASKED] = {"ASKED", 5},
    [REFUSED] = {"REFUSED", 7}, [SPILLED] = {"SPILLED", 7}, [POLICY] = {"POLICY", -7},
};
/* What makes room first. The others stay, and what does not fit then is cut. */
static const int spare[] = {REFUSED, ASKED, LENT, SLACK, CALLS, WAITS, ALLOCS, CONTAINER, FREE, USER, OOM, EFF, POLICY};
/* Room that a command is to have, before columns go. */
enum { COMMAND_LEAST = 18, WIDE = 100 };

static const char *cell(char text[16], const struct vp_sample *s, const struct vp_row *row, int column) {
    const struct vp_watched *w = process_of(s, row);
    switch (column) {
    case PID: snprintf(text, 16, "%d", w->page.pid); return text;
    case USER: return w->user;
    case RANK: return *w->rank ? w->rank : "-";
    case CONTAINER: return *w->page.container ? w->page.container : "-";
    case DEV: snprintf(text, 16, "%llu", (unsigned long long)row->device); return text;
    case LIVE: return vp_top_human(text, (double)row->now.live_bytes);
    case HELD: return vp_top_human(text, (double)row->now.held_bytes);
    case FREE: return vp_top_human(text, (double)vp_row_free(row));
    case EFF: snprintf(text, 16, "%.1f", 100 * vp_row_efficiency(row)); return text;
    case ALLOCS: return rate(text, row->allocs_per_s);
    case CALLS: return rate(text, row->driver_calls_per_s);
    case WAITS: return count(text, row->now.waits_gpu + row->now.waits_host);
    case OOM: return count(text, row->now.ooms);
    case SLACK: snprintf(text, 16, "%.1f", (double)row->now.slack_permille / 10); return text;
    case LENT: return vp_top_human(text, (double)row->now.lent_bytes);
    case ASKED: return count(text, row->now.loans_asked);
    case REFUSED: return count(text, row->now.loans_refused);
    case SPILLED: return vp_top_human(text, (double)row->now.spilled_bytes);
    default: return w->policy;
    }
}

/* Columns that say the same of all are not shown where room is dear. Bits by column. */
static unsigned layout(const struct vp_sample *s, unsigned width) {
    unsigned shown = (1u << COLUMNS) - 1;
    bool ranks = false, containers = false, spilled = false, others = !geteuid() || !width || width >= WIDE;
    for (unsigned i = 0; i < s->process_count; i++) {
        ranks |= *s->processes[i].rank != 0;
        containers |= *s->processes[i].page.container != 0;
        others |= s->processes[i].page.uid != geteuid();
    }
    for (unsigned i = 0; i < s->row_count; i++)
        spilled |= s->rows[i].now.spilled_bytes != 0;
    shown &= ~((unsigned)!ranks << RANK | (unsigned)!spilled << SPILLED | (unsigned)!containers << CONTAINER |
               (unsigned)!others << USER);
    for (size_t next = 0; width && next <= sizeof spare / sizeof *spare; next++) {
        unsigned used = COMMAND_LEAST;
        for (int i = 0; i < COLUMNS; i++)
            used += shown >> i & 1 ? (unsigned)abs(columns[i].width) + 1 : 0;
        if (used <= width || next == sizeof spare / sizeof *spare)
            break;
        shown &= ~(1u << spare[next]);
    }
    return shown;
}

void vp_top_head(FILE *out, const struct vp_sample *s, unsigned width) {
    unsigned shown = layout(s, width);
    for (int i = 0; i < COLUMNS; i++)
        if (shown >> i & 1)
            fprintf(out, "%*s ", columns[i].width, columns[i].head);
    fputs("COMMAND", out);
}

/* Long names are cut where room is dear. */
static void put_cell(FILE *out, int width, bool cut, const char *text) {
    if (width < 0 && cut)
        fprintf(out, "%-*.*s ", -width, -width, text);
    else
        fprintf(out, "%*s ", width, text);
}

void vp_top_row(FILE *out, const struct vp_sample *s, const struct vp_row *row, unsigned width) {
    unsigned shown = layout(s, width);
    char text[16];
    for (int i = 0; i < COLUMNS; i++)
        if (shown >> i & 1)
            put_cell(out, columns[i].width, width != 0, cell(text, s, row, i));
    const struct vp_watched *w = process_of(s, row);
    fprintf(out, "%s%s",
            w->page.stats->ties.paused ? "(paused) "
            : row->now.asleep_bytes    ? "(asleep) "
                                       : "",
            w->command);
}

const char *vp_top_nothing(void) {
    if (vp_pages_strangers())
        return "Processes are under another version of libvpool.so, whose vpool top shows them.";
    return geteuid() ? "No process of yours is under libvpool.so, or none has allocated yet (vpool help start)."
                     : "No process is under libvpool.so, or none has allocated yet (vpool help start).";
}

void vp_top_totals(FILE *out, const struct vp_sample *s) {
    char live[16], held[16], free[16];
    uint64_t lives = 0, helds = 0, frees = 0;
    for (unsigned i = 0; i < s->row_count; i++) {
        lives += s->rows[i].now.live_bytes;
        helds += s->rows[i].now.held_bytes;
        frees += vp_row_free(&s->rows[i]);
    }
    fprintf(out, "%u process%s: %s live, %s held, %s free", s->process_count, s->process_count == 1 ? "" : "es",
            vp_top_human(live, (double)lives), vp_top_human(held, (double)helds), vp_top_human(free, (double)frees));
}
