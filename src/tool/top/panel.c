/* The devices above the table of vpool top: what all processes together hold of each, as a bar and as a history.
 *
 * A device may have a different number in each process that sees only some of them; its place on the machine's buses
 * identifies it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/top/top.h"

#include <stdlib.h>
#include <string.h>

enum { DEVICES = 64, HISTORY = 512 };

/* In shares of the device's memory, or of the most that was held where that is not known. */
struct device {
    uint64_t place, ordinal;
    uint64_t live, here, held, total, most; /* here: of what is live, no more than is held */
    unsigned processes;
    double past_here[HISTORY], past_held[HISTORY]; /* bytes, a ring */
};

struct vp_panel {
    unsigned count;
    unsigned long samples;
    struct device device[DEVICES];
};

static struct device *find(struct vp_panel *p, const struct vp_row *row) {
    for (unsigned i = 0; i < p->count; i++)
        if (p->device[i].place == row->place && (row->place || p->device[i].ordinal == row->device))
            return &p->device[i];
    if (p->count == DEVICES)
        return NULL;
    struct device *d = &p->device[p->count++];
    *d = (struct device){.place = row->place, .ordinal = row->device};
    return d;
}

void vp_panel_add(struct vp_panel **panel, const struct vp_sample *s) {
    if (!*panel && !(*panel = calloc(1, sizeof **panel)))
        return;
    struct vp_panel *p = *panel;
    for (unsigned i = 0; i < p->count; i++)
        p->device[i].live = p->device[i].here = p->device[i].held = p->device[i].processes = 0;
    for (unsigned i = 0; i < s->row_count; i++) {
        const struct vp_row *row = &s->rows[i];
        struct device *d = find(p, row);
        if (!d)
            continue;
        d->live += row->now.live_bytes;
        d->here += row->now.live_bytes < row->now.held_bytes ? row->now.live_bytes : row->now.held_bytes;
        d->held += row->now.held_bytes;
        d->processes++;
        d->total = row->total ? row->total : d->total;
    }
    for (unsigned i = 0; i < p->count; i++) {
        struct device *d = &p->device[i];
        d->past_here[p->samples % HISTORY] = (double)d->here;
        d->past_held[p->samples % HISTORY] = (double)d->held;
        d->most = d->held > d->most ? d->held : d->most;
    }
    p->samples++;
}

void vp_panel_drop(struct vp_panel *panel) {
    free(panel);
}

static double whole(const struct device *d) {
    return d->total ? (double)d->total : d->most ? (double)d->most : 1;
}

/* "[####--    ]": live, held, the rest. What sleeps or lies in the host's memory is not there. */
static void put_bar(FILE *out, const struct device *d, unsigned width) {
    unsigned live = (unsigned)((double)d->here / whole(d) * width + 0.5),
             held = (unsigned)((double)d->held / whole(d) * width + 0.5);
    fputc('[', out);
    for (unsigned i = 0; i < width; i++)
        fputc(i < live ? '#' : i < held ? '-' : ' ', out);
    fputc(']', out);
}

static void put_device(FILE *out, const struct device *d, unsigned width) {
    char live[16], held[16], total[16], name[32], figures[96];
    if (d->place)
        snprintf(name, sizeof name, "GPU %04x:%02x:%02x", (unsigned)(d->place >> 32) & 0xffff,
                 (unsigned)(d->place >> 16) & 0xffff, (unsigned)d->place & 0xffff);
    else
        snprintf(name, sizeof name, "device %llu", (unsigned long long)d->ordinal);
    int n = snprintf(figures, sizeof figures, "%s live (#), %s held (-)%s%s, %u process%s",
                     vp_top_human(live, (double)d->live), vp_top_human(held, (double)d->held), d->total ? " of " : "",
                     d->total ? vp_top_human(total, (double)d->total) : "", d->processes,
                     d->processes == 1 ? "" : "es");
    unsigned used = (unsigned)n + (unsigned)strlen(name) + 4, bar = width > used + 8 ? width - used : 0;
    fprintf(out, "%s ", name);
    if (bar)
        put_bar(out, d, bar > 60 ? 60 : bar);
    fprintf(out, "%s%s", bar ? " " : "", figures);
}

/* One line of a history that is `height` high, from the top; the newest stands on the right. On the left stands the
 * scale: the most that was held, and at the bottom nothing. */
static void put_history(FILE *out, const struct vp_panel *p, const struct device *d, unsigned line, unsigned height,
                        unsigned width) {
    unsigned long shown = p->samples < HISTORY ? p->samples : HISTORY;
    enum { SCALE = 8 };
    unsigned columns = width > SCALE ? width - SCALE : 0;
    double most = d->most ? (double)d->most : 1, above = most * (height - line - 0.5) / height;
    char text[16];
    fprintf(out, "%*s|", SCALE - 1, !line ? vp_top_human(text, most) : line == height - 1 ? "0B" : "");
    for (unsigned i = 0; i < columns; i++) {
        unsigned long ago = columns - 1 - i;
        if (ago >= shown) {
            fputc(' ', out);
            continue;
        }
        size_t at = (p->samples - 1 - ago) % HISTORY;
        fputc(d->past_here[at] >= above ? '#' : d->past_held[at] >= above ? '-' : ' ', out);
    }
}

unsigned vp_panel_draw(const struct vp_panel *p, unsigned rows, unsigned width,
                       void (*line)(void *context, const char *text), void *context) {
    enum { HIGHEST = 16, LEAST = 3 };
    unsigned count = p ? (p->count < rows ? p->count : rows) : 0, drawn = 0;
    unsigned height = count ? (rows - count) / count : 0;
    height = height > HIGHEST ? HIGHEST : height < LEAST ? 0 : height;
    for (unsigned i = 0; i < count; i++)
        for (unsigned n = 0; n <= height; n++) {
            char *text = NULL;
            size_t size;
            FILE *out = open_memstream(&text, &size);
            if (!out)
                return drawn;
            if (n == 0)
                put_device(out, &p->device[i], width);
            else
                put_history(out, p, &p->device[i], n - 1, height, width);
            fclose(out);
            line(context, text);
            free(text);
            drawn++;
        }
    return drawn;
}
