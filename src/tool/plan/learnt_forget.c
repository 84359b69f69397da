/* vpool plan forget: removes plans that runs have written. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/plan/learnt_list.h"
#include "tool/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void help(void) {
    puts(
        "usage: vpool plan forget FILE… | --all\n\n"
        "Removes plans that runs under VPOOL_PLAN have written. FILE is a path, or the name of a plan in the folder of\n"
        "VPOOL_PLAN=auto, as vpool plan show lists it. A file that is no such plan is not removed, whatever its name.\n"
        "The next run of the program begins without a plan, and writes a new one.\n\n"
        "  --all   remove all plans in the folder\n"
        "  --help  this text\n\n"
        "Exit status: 0, 1 if one could not be removed, 2 for wrong usage.");
}

/* Does the file begin as a plan does? So do plans that are damaged, or of another version. */
static int is_plan(const char *path) {
    char begin[sizeof VP_LEARNT_MAGIC];
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    const ssize_t n = read(fd, begin, sizeof VP_LEARNT_MAGIC - 1);
    close(fd);
    return n == (ssize_t)(sizeof VP_LEARNT_MAGIC - 1) && !memcmp(begin, VP_LEARNT_MAGIC, (size_t)n) ? 0 : -EINVAL;
}

/* 1 if that failed. */
static int forget(const char *name) {
    struct vp_learnt_entry entry;
    vp_learnt_look(&entry, name);
    int err = is_plan(entry.path);
    if (!err && unlink(entry.path))
        err = -errno;
    if (err)
        fprintf(stderr, "vpool plan: %s: %s\n", *entry.path ? entry.path : name,
                err == -EINVAL ? "it is not a plan that a run has written" : strerror(-err));
    else
        printf("forgot %s\n", entry.path);
    vp_learnt_looked(&entry);
    return err != 0;
}

static int forget_all(void) {
    char folder[PATH_MAX], path[2 * PATH_MAX];
    struct vp_array names;
    int status = 0, err = vp_learnt_folder(folder) ? vp_learnt_names(folder, &names) : -ENOENT;
    if (err == -ENOENT)
        return 0;
    if (err) {
        fprintf(stderr, "vpool plan: %s: %s\n", folder, strerror(-err));
        status = 1;
    }
    for (size_t i = 0; i < names.count && !err; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, ((char **)names.items)[i]);
        status |= forget(path);
    }
    vp_learnt_named(&names);
    return status;
}

int vp_learnt_forget(int argc, char **argv) {
    static const struct option long_options[] = {
        {"all", no_argument, NULL, 'a'}, {"help", no_argument, NULL, 'h'}, {0}};
    bool all = false;
    int status = 0;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, "h", long_options, NULL)) >= 0;) {
        if (c == 'h') {
            help();
            return 0;
        }
        if (c != 'a')
            return vp_tool_unknown("plan", long_options, argv);
        all = true;
    }
    if (all == (optind < argc))
        return vp_tool_usage("plan", all ? "--all takes no file" : "no plan given to forget; --all forgets every plan");
    if (all)
        return forget_all();
    for (; optind < argc; optind++)
        status |= forget(argv[optind]);
    return status;
}
