/* include/vpool.h alone, as C and as C++ (header.cpp): everything that it declares, by the types that it says. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <vpool.h>

/* Not linked to anything: as a program would find them. */
struct vpool_found {
    __typeof__(&vpool_version) version;
    __typeof__(&vpool_stats) stats;
    __typeof__(&vpool_trim) trim;
    __typeof__(&vpool_mark) mark;
    __typeof__(&vpool_pause) pause;
    __typeof__(&vpool_pause_with) pause_with;
    __typeof__(&vpool_resume) resume;
};

int vpool_header_test(const struct vpool_found *found);

int vpool_header_test(const struct vpool_found *found) {
    struct vpool_stats stats;
    const char *version = found->version();
    int64_t given = found->trim(0, 0);

    stats.size = sizeof(stats);
    struct vpool_pause how = {sizeof(how), VPOOL_DROP, 0, NULL, NULL};
    int err = found->pause(0) + found->resume(0) + found->pause_with(0, &how);

    return found->stats(0, &stats) + found->mark(version) + (given < 0) + err;
}
