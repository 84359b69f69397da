/* What ends a program under test that does not find what it expects, for programs in processes of their own. It ends at
 * once: what runs at an exit may be what is tested. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdio.h>
#include <unistd.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                    \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

/* For calls that return CUresult or cudaError_t. */
#define CHECK_OK(call)                                                                                                 \
    do {                                                                                                               \
        int result_ = (int)(call);                                                                                     \
        if (result_) {                                                                                                 \
            fprintf(stderr, "%s:%d: %s returned %d\n", __FILE__, __LINE__, #call, result_);                            \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)
