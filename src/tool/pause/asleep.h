/* The processes that are asleep, or are being paused: a file for each, written by `vpool pause`; and the lock for
 * waking one. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/process.h"
#include "watch/shared_stats.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* How far a pause came. */
enum vp_asleep_stage { VP_ASLEEP_BEGUN, VP_ASLEEP_LOCKED, VP_ASLEEP_DONE };

/* The file VP_SHARED_STATS_FOLDER/vpool-UID-PID.paused, of mode 0600; UID is the sleeper's. */
struct vp_asleep {
    uint64_t magic;
    uint32_t stage; /* enum vp_asleep_stage */
    int32_t pid, helper;
    uint32_t devices;
    struct vp_process process, helper_process;
    struct {
        unsigned char uuid[16];
        uint64_t bytes; /* what it had of the device */
    } device[VP_SHARED_STATS_DEVICES];
};

/* Opens the file, for itself alone until the descriptor is closed: it goes with its holder. With `make` it is made if
 * it is not there, and emptied. A descriptor; -ENOENT; -EBUSY: another holds it; or another negative errno. */
int vp_asleep_open(uid_t uid, int pid, bool make);
bool vp_asleep_read(int fd, struct vp_asleep *out);
/* False: the file system is full. */
bool vp_asleep_write(int fd, const struct vp_asleep *asleep);
void vp_asleep_remove(uid_t uid, int pid);
/* Calls `take` for each of this user's, for root of every user's. Files of processes that are gone are removed. */
void vp_asleep_each(void (*take)(void *context, uid_t uid, const struct vp_asleep *asleep), void *context);
/* Does the helper that wrote it still run? */
bool vp_asleep_is_helped(const struct vp_asleep *asleep);

/* From now on nobody takes more memory of the devices that it lists, or of any, if it lists none: of the processes
 * under the library, as far as we may tell them so. False: it was not to be had by that moment (CLOCK_MONOTONIC,
 * nanoseconds). Ends with vp_hold_end(), or with us. */
bool vp_hold_begin(const struct vp_asleep *asleep, uint64_t until_ns);
void vp_hold_end(void);
