/* Stacks of Python. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/stacks.h"

enum vp_python vp_python_walk(struct vp_walk *walk) {
    (void)walk;
    return VP_PYTHON_NONE;
}

const void *vp_python_code(void) {
    return NULL;
}
