/* While a process is brought back by `vpool resume`, no other one of the user takes more memory of the devices: the
 * driver is reported to leave a process stuck for which there is not enough.
 *
 * Whoever brings it back holds the lock of the user's processes and raises a word in the page of each, so that there is
 * nothing to ask as long as there is nothing to wait for. The lock goes with its holder; the word says nothing. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/watch.h"

#include "base/clock.h"
#include "watch/shared_stats.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

/* 139 GiB are back in 23 s. It is not this program that is to fail. */
static const uint64_t MOST_NS = 30000000000;

/* Is it? The lock is not kept. */
static bool is_locked(void) {
    char name[64];
    const int place_errno = errno;
    vp_shared_stats_lock_name((unsigned)geteuid(), name);
    const int fd = open(name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    const bool locked = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
    if (fd >= 0)
        close(fd);
    errno = place_errno;
    return locked;
}

bool vp_hold_may_grow(void) {
    static uint64_t since; /* under the library's lock: when the holder `by` was first met */
    static uint32_t by;
    struct vp_shared_stats *page = vp_shared_stats_page();
    uint32_t holder = page ? atomic_load_explicit(&page->ties.hold, memory_order_acquire) : 0;
    if (!holder)
        return true;
    const uint64_t now = vp_clock_ns();
    if (holder != by)
        since = now;
    by = holder;
    if (now - since < MOST_NS && is_locked())
        return false;
    /* Unless another has raised it by now. */
    atomic_compare_exchange_strong(&page->ties.hold, &holder, 0);
    return true;
}
