/* The processes that are asleep, or are being paused: a file for each, written by `vpool pause`; and the lock for
 * waking one. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/process.h"
#include "watch/shared_stats.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* How far a pause has come. */
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
        uint64_t bytes; /* what the process held of the device */
    } device[VP_SHARED_STATS_DEVICES];
};

/* Opens the file and locks it until the descriptor is closed, or its holder ends. With `make`, creates the file if
 * there is none. Returns a descriptor; -ENOENT; -EBUSY: another process holds it; or another negative errno. */
int vp_asleep_open(uid_t uid, int pid, bool make);
bool vp_asleep_read(int fd, struct vp_asleep *out);
/* False: the file system is full. */
bool vp_asleep_write(int fd, const struct vp_asleep *asleep);
void vp_asleep_remove(uid_t uid, int pid);
/* Calls `take` for each sleeping process of this user, or of all users for root. Removes files of processes that have
 * ended. */
void vp_asleep_each(void (*take)(void *context, uid_t uid, const struct vp_asleep *asleep), void *context);
/* Does the helper that wrote the file still run? */
bool vp_asleep_is_helped(const struct vp_asleep *asleep);

/* From now on, no process under the library takes more memory of the listed devices (of all, if none is listed), as far
 * as we may tell them so. False: the lock was not available by that time (CLOCK_MONOTONIC, nanoseconds). This ends with
 * vp_hold_end(), or with our process. */
bool vp_hold_begin(const struct vp_asleep *asleep, uint64_t until_ns);
void vp_hold_end(void);
