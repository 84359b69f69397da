/* vpool plan show: lists the plans that runs have written, or shows all of one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"
#include "memory/memory.h"
#include "tool/plan/learnt_list.h"
#include "tool/tool.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void help(void) {
    puts("usage: vpool plan show [--json] [FILE…]\n\n"
         "Lists the plans that runs under VPOOL_PLAN=auto have written, with a row for each device. With FILE, shows\n"
         "all details of those plans: FILE is a path, or a name from the list.\n\n"
         "  --json  JSON instead of the table: an object whose list `plans` has an entry for each plan\n"
         "  --help  this text\n\n"
         "The table's columns:\n"
         "  plan        its name in the folder; auto finds it by program, arguments, rank, device and driver\n"
         "  program     the program that wrote it\n"
         "  age         time since then\n"
         "  KiB         size of the file\n"
         "  device      the device that it is for, and its driver\n"
         "  peak MiB    most that the program had alive\n"
         "  held MiB    most that the pool held\n"
         "  requests    large requests that it knows the places of\n"
         "If a plan cannot be used, its row says why.\n"
         "Exit status: 0, 1 if a named plan cannot be used, 2 for wrong usage.");
}

/* A program may have any name, but a printed name must not control the terminal. */
static const char *plain(const char *text, char out[VP_LEARNT_TEXT]) {
    size_t n = 0;
    for (; *text && n < VP_LEARNT_TEXT - 1; text++)
        out[n++] = (unsigned char)*text < ' ' || *text == 127 ? '?' : *text;
    out[n] = 0;
    return out;
}

/* ---- the list ---- */

static void print_header(void) {
    printf("%-24s %-16s %8s %8s  %-28s %10s %10s %9s\n", "plan", "program", "age", "KiB", "device", "peak MiB",
           "held MiB", "requests");
}

static void print_entry(const struct vp_learnt_entry *e) {
    char age[32], program[VP_LEARNT_TEXT], name[VP_LEARNT_TEXT], device[VP_LEARNT_TEXT + 64];
    if (e->err) {
        printf("%-24s %-16s %8s %8.1f  %s\n", plain(e->name, name), "-", vp_learnt_age(e->written, age),
               (double)e->bytes / 1024, e->why);
        return;
    }
    for (unsigned d = 0; d < e->plan.device_count; d++) {
        const struct vp_learnt_device *of = &e->plan.device[d];
        char model[VP_LEARNT_TEXT];
        snprintf(device, sizeof device, "%u %s, %u.%u", of->device, plain(of->name, model), of->driver / 1000,
                 of->driver % 1000 / 10);
        printf("%-24s %-16s %8s %8.1f  %-28s %10.1f %10.1f %9zu\n", d ? "" : plain(e->name, name),
               d ? "" : plain(e->plan.program, program), vp_learnt_age(e->written, age), (double)e->bytes / 1024,
               device, (double)of->peak_live / 1048576, (double)of->peak_held / 1048576, of->request_count);
    }
}

/* ---- all of one ---- */

static const char *const zones[VP_ZONES] = {"small", "large", "bare"};

/* Counts all handles of a run's zone and size. False: an earlier run has the same zone and size. */
static bool handles_from(const struct vp_learnt_device *d, size_t run, uint64_t *count) {
    *count = 0;
    for (size_t i = 0; i < d->run_count; i++) {
        if (d->runs[i].zone != d->runs[run].zone || d->runs[i].size != d->runs[run].size)
            continue;
        if (i < run)
            return false;
        *count += d->runs[i].count;
    }
    return true;
}

static void print_device(const struct vp_learnt_device *d) {
    char name[VP_LEARNT_TEXT];
    uint64_t count;
    printf("  device %u, %s, %.1f GiB, driver %u.%u, granularity %" PRIu64 " KiB\n", d->device, plain(d->name, name),
           (double)d->memory / (1 << 30), d->driver / 1000, d->driver % 1000 / 10, d->granularity / 1024);
    printf("    peak live %.1f MiB, peak held %.1f MiB\n", (double)d->peak_live / 1048576,
           (double)d->peak_held / 1048576);
    printf("    %" PRIu64 " large requests (1 MiB and more), of which %zu are known; %zu places\n", d->total_requests,
           d->request_count, d->slot_count);
    if (d->left)
        puts("    the last run did not follow this plan; the next run that does not is learnt as a whole");
    for (size_t i = 0; i < d->run_count; i++)
        if (handles_from(d, i, &count))
            printf("    %6" PRIu64 " handle%s of %.1f MiB (%s)\n", count, count == 1 ? "" : "s",
                   (double)d->runs[i].size / 1048576, zones[d->runs[i].zone]);
}

/* Is the file named by its key, so that VPOOL_PLAN=auto finds it? VPOOL_PLAN can name any other, for any program. */
static bool is_found_by_key(const struct vp_learnt_entry *e) {
    char name[32];
    const char *slash = strrchr(e->path, '/');
    snprintf(name, sizeof name, "%016" PRIx64 ".learnt", e->plan.key);
    return !strcmp(slash ? slash + 1 : e->path, name);
}

static void print_whole(const struct vp_learnt_entry *e) {
    char age[32], program[VP_LEARNT_TEXT], made[VP_LEARNT_TEXT], path[VP_LEARNT_TEXT];
    printf("%s\n  for %s, written by vpool %s, %s ago; %.1f KiB\n", plain(e->path, path),
           plain(e->plan.program, program), plain(e->plan.made, made), vp_learnt_age(e->written, age),
           (double)e->bytes / 1024);
    if (is_found_by_key(e))
        printf("  VPOOL_PLAN=auto finds it by its key, %016" PRIx64 "\n", e->plan.key);
    else
        puts("  VPOOL_PLAN=FILE uses it by its name");
    for (unsigned d = 0; d < e->plan.device_count; d++)
        print_device(&e->plan.device[d]);
}

/* ---- JSON ---- */

static void put_device(struct vp_json *j, const struct vp_learnt_device *d) {
    uint64_t count;
    vp_json_begin_object(j, NULL);
    vp_json_u64(j, "device", d->device);
    vp_json_string(j, "name", d->name);
    vp_json_u64(j, "memory_bytes", d->memory);
    vp_json_u64(j, "granularity", d->granularity);
    vp_json_u64(j, "driver", d->driver);
    vp_json_u64(j, "peak_live_bytes", d->peak_live);
    vp_json_u64(j, "peak_held_bytes", d->peak_held);
    vp_json_u64(j, "requests", d->total_requests);
    vp_json_u64(j, "known_requests", d->request_count);
    vp_json_u64(j, "places", d->slot_count);
    vp_json_bool(j, "left", d->left);
    vp_json_begin_array(j, "handles");
    for (size_t i = 0; i < d->run_count; i++)
        if (handles_from(d, i, &count)) {
            vp_json_begin_row(j, NULL);
            vp_json_string(j, "zone", zones[d->runs[i].zone]);
            vp_json_u64(j, "bytes", d->runs[i].size);
            vp_json_u64(j, "count", count);
            vp_json_end_object(j);
        }
    vp_json_end_array(j);
    vp_json_end_object(j);
}

static void put_entry(struct vp_json *j, const struct vp_learnt_entry *e) {
    const time_t now = time(NULL);
    char key[20];
    vp_json_begin_object(j, NULL);
    vp_json_string(j, "plan", e->name);
    vp_json_string(j, "path", e->path);
    vp_json_u64(j, "bytes", (uint64_t)e->bytes);
    vp_json_u64(j, "age_seconds", now > e->written ? (uint64_t)(now - e->written) : 0);
    if (e->err) {
        vp_json_string(j, "fault", e->why);
    } else {
        snprintf(key, sizeof key, "%016" PRIx64, e->plan.key);
        vp_json_string(j, "program", e->plan.program);
        vp_json_string(j, "made_by", e->plan.made);
        vp_json_string(j, "key", e->plan.key ? key : NULL);
        vp_json_begin_array(j, "devices");
        for (unsigned d = 0; d < e->plan.device_count; d++)
            put_device(j, &e->plan.device[d]);
        vp_json_end_array(j);
    }
    vp_json_end_object(j);
}

/* ---- the work ---- */

/* Returns 1 if one of the named plans cannot be used. */
static int show_named(struct vp_json *j, char **names, int count) {
    int status = 0;
    for (int i = 0; i < count; i++) {
        struct vp_learnt_entry entry;
        vp_learnt_look(&entry, names[i]);
        if (entry.err) {
            fprintf(stderr, "vpool plan: %s: %s\n", names[i], entry.why);
            status = 1;
        }
        if (j)
            put_entry(j, &entry);
        else if (!entry.err)
            print_whole(&entry);
        vp_learnt_looked(&entry);
    }
    return status;
}

static int show_all(struct vp_json *j, const char *folder) {
    char path[2 * PATH_MAX];
    struct vp_array names;
    int err = vp_learnt_names(folder, &names);
    if (err && err != -ENOENT)
        fprintf(stderr, "vpool plan: %s: %s\n", folder, strerror(-err));
    else if (!j && !names.count)
        printf("no plans in %s\n", folder);
    for (size_t i = 0; i < names.count; i++) {
        struct vp_learnt_entry entry;
        snprintf(path, sizeof path, "%s/%s", folder, ((char **)names.items)[i]);
        vp_learnt_look(&entry, path);
        if (!i && !j)
            print_header();
        if (j)
            put_entry(j, &entry);
        else
            print_entry(&entry);
        vp_learnt_looked(&entry);
    }
    vp_learnt_named(&names);
    return err && err != -ENOENT;
}

int vp_learnt_show(int argc, char **argv) {
    static const struct option long_options[] = {
        {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {0}};
    char folder[PATH_MAX] = "", buffer[4096];
    struct vp_json json;
    bool wants_json = false;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, "h", long_options, NULL)) >= 0;) {
        if (c == 'h') {
            help();
            return 0;
        }
        if (c != 'j')
            return vp_tool_unknown("plan", long_options, argv);
        wants_json = true;
    }
    const bool known = vp_learnt_folder(folder);
    if (!known && optind == argc) {
        fputs("vpool plan: neither XDG_CACHE_HOME nor HOME says where plans are\n", stderr);
        return 1;
    }
    if (wants_json) {
        vp_json_init(&json, STDOUT_FILENO, buffer, sizeof buffer);
        vp_json_begin_object(&json, NULL);
        vp_json_string(&json, "folder", known ? folder : NULL);
        vp_json_begin_array(&json, "plans");
    }
    struct vp_json *j = wants_json ? &json : NULL;
    int status = optind < argc ? show_named(j, argv + optind, argc - optind) : show_all(j, folder);
    if (wants_json) {
        vp_json_end_array(&json);
        vp_json_end_object(&json);
        status |= vp_tool_wrote(vp_json_finish(&json));
    }
    return status;
}
