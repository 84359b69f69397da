/* A recorder before the functions of process/bare.h, which the linker puts in between (--wrap). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "told.h"

#include <pthread.h>
#include "process/bare.h"

enum { MOST = 65536 };
static struct vpool_told told[MOST];
static size_t count;
static int refusals;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define API __attribute__((visibility("default")))
API vpool_told_count_fn vpool_told_count;
API vpool_told_at_fn vpool_told_at;
API vpool_told_refuse_fn vpool_told_refuse;

size_t vpool_told_count(void) {
    return count;
}

struct vpool_told vpool_told_at(size_t at) {
    return told[at];
}

void vpool_told_refuse(int more) {
    refusals = more;
}

static void note(struct vpool_told event) {
    pthread_mutex_lock(&lock);
    if (count < MOST)
        told[count++] = event;
    pthread_mutex_unlock(&lock);
}

#define DECLARE(result, name, ...)                                                                                     \
    result __real_##name(__VA_ARGS__);                                                                                 \
    result __wrap_##name(__VA_ARGS__);
DECLARE(CUresult, vp_bare_segment, CUdeviceptr *, size_t, struct vp_bare_stream)
DECLARE(CUresult, vp_bare_room, CUdevice, size_t, struct vp_bare_stream)
DECLARE(bool, vp_bare_used, CUdeviceptr, size_t, struct vp_bare_stream)
DECLARE(bool, vp_bare_unused, CUdeviceptr, size_t, bool)
DECLARE(CUresult, vp_bare_pin, CUdeviceptr, size_t)

CUresult __wrap_vp_bare_segment(CUdeviceptr *out, size_t size, struct vp_bare_stream stream) {
    CUresult res = __real_vp_bare_segment(out, size, stream);

    note((struct vpool_told){'s', res ? 0 : *out, size, stream.known, stream.handle, 0});
    return res;
}

CUresult __wrap_vp_bare_room(CUdevice dev, size_t size, struct vp_bare_stream stream) {
    note((struct vpool_told){'r', 0, size, stream.known, stream.handle, 0});
    if (refusals > 0) {
        refusals--;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return __real_vp_bare_room(dev, size, stream);
}

bool __wrap_vp_bare_used(CUdeviceptr ptr, size_t size, struct vp_bare_stream stream) {
    note((struct vpool_told){'u', ptr, size, stream.known, stream.handle, 0});
    return __real_vp_bare_used(ptr, size, stream);
}

bool __wrap_vp_bare_unused(CUdeviceptr ptr, size_t size, bool barrier) {
    note((struct vpool_told){'n', ptr, size, 0, NULL, barrier});
    return __real_vp_bare_unused(ptr, size, barrier);
}

CUresult __wrap_vp_bare_pin(CUdeviceptr ptr, size_t size) {
    note((struct vpool_told){'p', ptr, size, 0, NULL, 0});
    return __real_vp_bare_pin(ptr, size);
}
