/* Looks up the driver functions that we call ourselves, once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/driver.h"

#include <errno.h>
#include <string.h>

int vp_driver_fill(struct vp_driver *drv, void *(*lookup)(const char *name, void *ctx), void *ctx,
                   const char **missing) {
#define NAME(name, args) #name "\0"
#define ONE(name, args) 1 +
    static const char names[] = VP_DRIVER_REQUIRED(NAME) VP_DRIVER_OPTIONAL(NAME);
    enum { REQUIRED = VP_DRIVER_REQUIRED(ONE) 0, ALL = REQUIRED + VP_DRIVER_OPTIONAL(ONE) 0 };
#undef NAME
#undef ONE
    /* The fields are function pointers, in the order of the names. */
    void *found[ALL];
    _Static_assert(sizeof found == sizeof *drv, "each field of the table has a name");
    const char *name = names;
    for (int i = 0; i < ALL; i++, name += strlen(name) + 1)
        if (!(found[i] = lookup(name, ctx)) && i < REQUIRED) {
            *missing = name;
            return -ENOSYS;
        }
    memcpy(drv, found, sizeof found);
    return 0;
}
