/* vpool doctor: the report on plans (VPOOL_PLAN). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/plan/learnt_list.h"
#include "tool/plan/planned.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef void teller(int mark, const char *format, ...) __attribute__((format(printf, 2, 3)));

enum { OK, NOTE, WRONG };

static void check_folder(const char *folder, teller *say) {
    struct stat about;
    if (lstat(folder, &about))
        return;
    if (!S_ISDIR(about.st_mode))
        say(WRONG, "%s is not a folder: no plans are kept there", folder);
    else if (about.st_uid != geteuid())
        say(WRONG, "%s belongs to another user: no plans are kept there", folder);
    else if (about.st_mode & (S_IWGRP | S_IWOTH))
        say(WRONG, "others may write to %s: run chmod go-w on it", folder);
}

/* Is the file a symbolic link? `vpool plan forget` does not remove those. */
static bool is_link(const char *path) {
    struct stat about;
    return !lstat(path, &about) && S_ISLNK(about.st_mode);
}

/* Reports what is wrong with any plan. Returns how many there are; adds their sizes to `bytes`. */
static size_t look_at_all(const char *folder, off_t *bytes, teller *say) {
    char path[2 * PATH_MAX];
    struct vp_array names;
    int err = vp_learnt_names(folder, &names);
    size_t count = names.count;
    if (err && err != -ENOENT)
        say(WRONG, "%s: %s", folder, strerror(-err));
    for (size_t i = 0; i < names.count; i++) {
        struct vp_learnt_entry entry;
        snprintf(path, sizeof path, "%s/%s", folder, ((char **)names.items)[i]);
        vp_learnt_look(&entry, path);
        *bytes += entry.bytes;
        if (entry.err)
            say(WRONG, "the plan %s is not used: %s; %s %s removes it", path, entry.why,
                is_link(path) ? "rm" : "vpool plan forget", is_link(path) ? path : entry.name);
        vp_learnt_looked(&entry);
    }
    vp_learnt_named(&names);
    return count;
}

static void check_named(const char *path, teller *say) {
    struct vp_learnt_entry entry;
    char age[32];
    vp_learnt_look(&entry, path);
    if (entry.err == -ENOENT)
        say(OK, "plans are on: this run writes %s at its end (VPOOL_PLAN)", path);
    else if (entry.err)
        say(WRONG, "VPOOL_PLAN: %s is not used: %s", path, entry.why);
    else
        say(OK, "plans are on: runs begin with %s, of %s, %s old, %.1f KiB (VPOOL_PLAN)", path, entry.plan.program,
            vp_learnt_age(entry.written, age), (double)entry.bytes / 1024);
    vp_learnt_looked(&entry);
}

/* Reports on the plan of the policy stalloc. */
static void check_places(const char *path, teller *say) {
    struct vp_planned_file file;
    char message[512];
    if (!*path)
        say(NOTE, "VPOOL_POLICY=stalloc without VPOOL_PLAN: PyTorch's cache alone serves");
    else if (vp_planned_read(&file, path, message, sizeof message) < 0)
        say(WRONG, "VPOOL_PLAN: %s", message);
    else {
        say(OK, "stalloc places by %s, of %s (VPOOL_PLAN)", path, file.trace);
        vp_planned_file_finish(&file);
    }
}

void vp_learnt_doctor(const char *option, bool stalloc, teller *say) {
    char folder[PATH_MAX];
    off_t bytes = 0;
    if (stalloc) {
        check_places(option, say);
        return;
    }
    const bool known = vp_learnt_folder(folder), on = !strcmp(option, "auto");
    if (*option && !on)
        check_named(option, say);
    if (!known) {
        if (on)
            say(WRONG, "VPOOL_PLAN=auto: neither XDG_CACHE_HOME nor HOME says where to keep plans");
        return;
    }
    check_folder(folder, say);
    const size_t count = look_at_all(folder, &bytes, say);
    const double size = (double)bytes / 1024;
    if (on)
        say(OK, "plans are on: %zu of %.1f KiB in %s (VPOOL_PLAN=auto)", count, size, folder);
    else if (!*option && count)
        say(NOTE, "plans are off, and %zu of %.1f KiB are in %s: VPOOL_PLAN=auto uses them", count, size, folder);
    else if (!*option)
        say(NOTE, "plans are off: with VPOOL_PLAN=auto a second run begins where the first ended");
}

void vp_learnt_take(struct vp_learnt_told *told, const char *path, const char *value) {
    const char *plan = strncmp(path, "devices.", 8) ? NULL : strstr(path, ".plan.");
    if (!plan)
        return;
    const char *member = plan + strlen(".plan.");
    told->wanted = true;
    told->used |= !strcmp(member, "used") && !strcmp(value, "true");
    told->requests += strcmp(member, "requests") ? 0 : strtoull(value, NULL, 10);
    told->placed += strcmp(member, "placed") ? 0 : strtoull(value, NULL, 10);
}

void vp_learnt_fitted(const struct vp_learnt_told *told, const char *which, const char *pid, teller *say) {
    if (told->used)
        say(OK, "%s (process %s) used its plan: %llu of %llu large requests had their places", which, pid, told->placed,
            told->requests);
    else if (told->wanted)
        say(NOTE, "%s (process %s) had no plan; its next run begins with what this one has learnt", which, pid);
}
