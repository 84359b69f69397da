/* While `vpool resume` wakes a process, other processes of the user take no more memory of its devices: the driver is
 * reported to leave a process stuck if there is too little.
 *
 * The waker holds a lock file of the user and raises a word in the page of each process, so that processes need not
 * check the lock while nobody wakes one. The lock ends with its holder, so the word alone means nothing. The lock's
 * file lists the devices concerned, 16 bytes of UUID each; if it is empty, all are. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/watch.h"

#include "base/clock.h"
#include "process/ipc.h"
#include "watch/shared_stats.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* Waking a process takes less: 139 GiB are back in 23 s. After this, the hold must not make this program fail. */
static const uint64_t MOST_NS = 30000000000;

enum lock { IS_FREE, IS_FOR_OTHERS, IS_FOR_THIS };

static bool is_about(int fd, const CUuuid *uuid) {
    CUuuid listed[VP_SHARED_STATS_DEVICES];
    const ssize_t bytes = pread(fd, listed, sizeof listed, 0);
    for (ssize_t i = 0; i < bytes / (ssize_t)sizeof *uuid; i++)
        if (!memcmp(&listed[i], uuid, sizeof *uuid))
            return true;
    return bytes < (ssize_t)sizeof *uuid;
}

/* Looks who has the lock, and does not keep it. */
static enum lock look(const CUuuid *uuid) {
    char name[64];
    const int place_errno = errno;
    vp_shared_stats_lock_name((unsigned)geteuid(), name);
    const int fd = open(name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    const bool locked = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
    const enum lock found = !locked ? IS_FREE : is_about(fd, uuid) ? IS_FOR_THIS : IS_FOR_OTHERS;
    if (fd >= 0)
        close(fd);
    errno = place_errno;
    return found;
}

bool vp_hold_may_grow(CUdevice device) {
    static uint64_t since; /* guarded by the library's lock: when `by` was first seen as the holder */
    static uint32_t by;
    struct vp_shared_stats *page = vp_shared_stats_page;
    uint32_t holder = page ? atomic_load_explicit(&page->ties.hold, memory_order_acquire) : 0;
    if (!holder)
        return true;
    const uint64_t now = vp_clock_ns();
    if (holder != by)
        since = now;
    by = holder;
    const CUuuid uuid = vp_ipc_uuid(device);
    const enum lock found = now - since < MOST_NS ? look(&uuid) : IS_FREE;
    if (found != IS_FREE)
        return found == IS_FOR_OTHERS;
    /* Clears the word, unless another process has raised it by now. */
    atomic_compare_exchange_strong(&page->ties.hold, &holder, 0);
    return true;
}
