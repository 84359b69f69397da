/* What the doors have told of bare segments: libvpool.so with a recorder before process/bare.h's functions (told.c). */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `what`: r(oom), s(egment), u(sed), n(ot used), p(inned). */
struct vpool_told {
    char what;
    unsigned long long ptr;
    size_t size;
    int known; /* the stream */
    void *stream;
    int barrier;
};

/* How many there are, and one; the next `refusals` calls for room are answered with out of memory. */
typedef size_t vpool_told_count_fn(void);
typedef struct vpool_told vpool_told_at_fn(size_t at);
typedef void vpool_told_refuse_fn(int refusals);

#ifdef __cplusplus
}
#endif
