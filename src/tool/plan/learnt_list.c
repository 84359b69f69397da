/* Lists the folder of the plans that runs have written, and reads one of them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/plan/learnt_list.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *home(void) {
    const char *named = getenv("HOME");
    const struct passwd *user = named && *named == '/' ? NULL : getpwuid(geteuid());
    return user ? user->pw_dir : named && *named == '/' ? named : NULL;
}

bool vp_learnt_folder(char folder[PATH_MAX]) {
    const char *cache = getenv("XDG_CACHE_HOME"), *at = cache && *cache == '/' ? cache : home();
    int n = at ? snprintf(folder, PATH_MAX, "%s%s/vpool/plans", at, at == cache ? "" : "/.cache") : -1;
    return n > 0 && n < PATH_MAX;
}

void vp_learnt_look(struct vp_learnt_entry *entry, const char *name) {
    char folder[PATH_MAX];
    struct stat about;
    *entry = (struct vp_learnt_entry){.written = time(NULL)};
    int n = snprintf(entry->path, sizeof entry->path, "%s", name);
    if (!strchr(name, '/') && access(name, F_OK) && vp_learnt_folder(folder))
        n = snprintf(entry->path, sizeof entry->path, "%s/%s", folder, name);
    if (n < 0 || (size_t)n >= sizeof entry->path)
        entry->path[0] = 0;
    const char *slash = strrchr(entry->path, '/');
    entry->name = slash ? slash + 1 : entry->path;
    if (!lstat(entry->path, &about)) {
        entry->bytes = about.st_size;
        entry->written = about.st_mtime;
    }
    entry->err = vp_learnt_load(entry->path, &entry->plan, entry->why, sizeof entry->why);
}

void vp_learnt_looked(struct vp_learnt_entry *entry) {
    if (!entry->err)
        vp_learnt_finish(&entry->plan);
}

/* ---- the folder ---- */

/* Is it a plan, or perhaps one that cannot be read? Not a file of another program, and not one that is being written.
 */
static bool looks_like_one(const char *folder, const char *name) {
    char path[PATH_MAX], begin[sizeof VP_LEARNT_MAGIC];
    const size_t length = strlen(name);
    if (*name == '.' || (length > 4 && !strcmp(name + length - 4, ".new")) ||
        snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return false;
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return errno == EACCES || errno == ELOOP;
    const ssize_t n = read(fd, begin, sizeof VP_LEARNT_MAGIC - 1);
    close(fd);
    return n >= 0 && !memcmp(begin, VP_LEARNT_MAGIC, (size_t)n);
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int vp_learnt_names(const char *folder, struct vp_array *names) {
    DIR *entries = opendir(folder);
    int err = entries ? 0 : -errno;
    *names = (struct vp_array){0};
    for (struct dirent *entry; entries && !err && (entry = readdir(entries));) {
        if (!looks_like_one(folder, entry->d_name))
            continue;
        char **name = vp_array_add(names, sizeof *name);
        if (name)
            *name = strdup(entry->d_name);
        err = name && *name ? 0 : -ENOMEM;
    }
    if (entries)
        closedir(entries);
    if (names->count && !err)
        qsort(names->items, names->count, sizeof(char *), by_name);
    return err;
}

void vp_learnt_named(struct vp_array *names) {
    char **all = names->items;
    for (size_t i = 0; i < names->count; i++)
        free(all[i]);
    free(names->items);
    *names = (struct vp_array){0};
}

const char *vp_learnt_age(time_t written, char text[32]) {
    const time_t now = time(NULL);
    const long long s = now > written ? (long long)(now - written) : 0;
    if (s < 60)
        snprintf(text, 32, "%lld s", s);
    else if (s < 3600)
        snprintf(text, 32, "%lld min", s / 60);
    else if (s < 2 * 86400)
        snprintf(text, 32, "%lld h", s / 3600);
    else
        snprintf(text, 32, "%lld days", s / 86400);
    return text;
}
