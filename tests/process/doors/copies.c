/* Copies and memsets, of every form and direction. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "doors.h"

#include <stdlib.h>
#include <string.h>

/* Of an area within a block. */
static size_t part(const struct block *b, size_t *offset, size_t align) {
    if (one_in(2) || b->size < 2 * align) {
        *offset = 0;
        return b->size / align * align;
    }
    *offset = (size_t)(any() >> 16) % (b->size / align) * align;
    size_t rest = b->size - *offset;
    return (1 + (size_t)(any() >> 16) % rest) / align * align;
}

/* Work of a capture does not happen now; of the graph it will be, the block is a part. */
static void captured(struct block *b, int stream) {
    int first = world.streams[stream].capture - 1;
    b->graphs |= 1u << world.streams[first].graph;
}

bool begin_use(struct block *b, int stream) {
    if (!capturing(stream))
        return ordered(b, stream);
    if (b->last.stream != -1 && !one_in(10))
        return false;
    return b->last.stream == -1;
}

void end_use(struct block *b, int stream, int res) {
    if (res)
        return;
    if (capturing(stream))
        captured(b, stream);
    else
        used(b, stream);
}

static void fill(void) {
    int i = pick_block(), stream = one_in(3) ? LEGACY : pick_stream();
    struct block *b = &world.blocks[i < 0 ? 0 : i];
    size_t offset, n;
    if (i < 0 || !may_touch(context_of(stream), b))
        return;
    unsigned element = 1u << below(3), value = (unsigned)any();
    n = part(b, &offset, element);
    bool sync = stream == LEGACY && one_in(2);
    if (!begin_use(b, stream))
        return;
    say(" b%d+%zu %zu", i, offset, n);
    CUdeviceptr at = b->at + offset;
    int res;
    if (sync)
        res = element == 1   ? CALL(cuMemsetD8, at, (unsigned char)value, n)
              : element == 2 ? CALL(cuMemsetD16, at, (unsigned short)value, n / 2)
                             : CALL(cuMemsetD32, at, value, n / 4);
    else
        res = element == 1   ? CALLS(cuMemsetD8Async, at, (unsigned char)value, n, handle_of(stream))
              : element == 2 ? CALLS(cuMemsetD16Async, at, (unsigned short)value, n / 2, handle_of(stream))
                             : CALLS(cuMemsetD32Async, at, value, n / 4, handle_of(stream));
    end_use(b, stream, res);
    if (res == 0 && n == b->size && !capturing(stream))
        b->known = true;
}

static void fill_area(void) {
    int i = pick_block(), stream = pick_stream();
    struct block *b = &world.blocks[i < 0 ? 0 : i];
    if (i < 0 || !may_touch(context_of(stream), b) || b->size < 64)
        return;
    size_t pitch = 1 + below(b->size > 8192 ? 4096 : (unsigned)b->size / 2), height = b->size / pitch;
    size_t width = 1 + below((unsigned)pitch + (one_in(10) ? 2 : 0));
    if (!begin_use(b, stream))
        return;
    say(" b%d %zux%zu/%zu", i, width, height, pitch);
    int res = CALLS(cuMemsetD2D8Async, b->at, pitch, (unsigned char)any(), width, height, handle_of(stream));
    end_use(b, stream, res);
}

/* Wrong areas: all are refused, or do nothing. */
static void fill_wrong(void) {
    int i = pick_block_of(1u << DEVICE | 1u << ASYNC), stream = pick_stream();
    struct block *b = &world.blocks[i < 0 ? 0 : i];
    if (i < 0 || capturing(stream) || !begin_use(b, stream) || !may_touch(context_of(stream), b))
        return;
    say(" b%d", i);
    switch (below(4)) {
    case 0: CALLS(cuMemsetD8Async, b->at, 1, 0, handle_of(stream)); break;
    case 1: CALLS(cuMemsetD32Async, b->at + 1, 1, 0, handle_of(stream)); break;
    case 2: CALLS(cuMemsetD32Async, b->at + 1, 1, b->size > 8 ? 1 : 0, handle_of(stream)); break;
    default: CALLS(cuMemsetD8Async, 12345, 1, 1, handle_of(stream));
    }
    used(b, stream);
}

/* One row, by the form that the kinds allow. */
static int copy_row(CUdeviceptr to, CUdeviceptr from, size_t n, int stream, bool sync, unsigned form) {
    CUstream handle = sync ? NULL : handle_of(stream);
    CUDA_MEMCPY2D area = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .srcDevice = from,
                          .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .dstDevice = to,
                          .WidthInBytes = n,
                          .Height = 1};
    CUDA_MEMCPY3D space = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .srcDevice = from,
                           .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .dstDevice = to,
                           .WidthInBytes = n,
                           .Height = 1,
                           .Depth = 1};
    if (sync)
        return form == 0   ? CALL(cuMemcpyDtoD, to, from, n)
               : form == 1 ? CALL(cuMemcpy2D, &area)
               : form == 2 ? CALL(cuMemcpy3D, &space)
               : form == 3 ? CALL(cuMemcpy2DUnaligned, &area)
                           : CALL(cuMemcpy, to, from, n);
    return form == 0   ? CALLS(cuMemcpyDtoDAsync_v2, to, from, n, handle)
           : form == 1 ? CALLS(cuMemcpy2DAsync_v2, &area, handle)
           : form == 2 ? CALLS(cuMemcpy3DAsync_v2, &space, handle)
                       : CALLS(cuMemcpyAsync, to, from, n, handle);
}

/* Two blocks that a stream may copy between. */
static bool pair(int *to, int *from, int stream) {
    *to = pick_block();
    *from = pick_block();
    if (*to < 0 || *to == *from)
        return false;
    struct block *t = &world.blocks[*to], *f = &world.blocks[*from];
    int context = context_of(stream);
    return may_copy(context, t) && may_copy(context, f) && (!capturing(stream) || may_copy_in_graph(context, t, f)) &&
           begin_use(t, stream) && begin_use(f, stream);
}

static void copied(int to, int from, size_t n, int stream, int res) {
    struct block *t = &world.blocks[to], *f = &world.blocks[from];
    end_use(t, stream, res);
    end_use(f, stream, res);
    if (res)
        return;
    if (!f->known)
        t->known = false;
    else if (n == t->size && !capturing(stream))
        t->known = true;
}

static void copy(void) {
    int to, from, stream = one_in(3) ? LEGACY : pick_stream();
    if (!pair(&to, &from, stream))
        return;
    struct block *t = &world.blocks[to], *f = &world.blocks[from];
    size_t n = t->size < f->size ? t->size : f->size, at = 0, of = 0;
    if (one_in(2)) {
        n = 1 + (size_t)(any() >> 16) % n;
        at = (size_t)(any() >> 16) % (t->size - n + 1);
        of = (size_t)(any() >> 16) % (f->size - n + 1);
    }
    /* The forms that name the kind take memory of the devices alone. */
    bool named = (t->kind != HOST && t->kind != REGISTERED && f->kind != HOST && f->kind != REGISTERED);
    unsigned form = below(6);
    say(" b%d+%zu < b%d+%zu %zu", to, at, from, of, n);
    int res = copy_row(t->at + at, f->at + of, n, stream, stream == LEGACY && one_in(2), named || form ? form : 5);
    copied(to, from, n, stream, res);
}

static void copy_area(void) {
    int to, from, stream = pick_stream();
    if (!pair(&to, &from, stream))
        return;
    struct block *t = &world.blocks[to], *f = &world.blocks[from];
    size_t least = t->size < f->size ? t->size : f->size;
    CUDA_MEMCPY2D area = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .srcDevice = f->at,
                          .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .dstDevice = t->at};
    area.srcPitch = area.dstPitch = 1 + below(least > 65536 ? 65536 : (unsigned)least);
    area.Height = least / area.srcPitch;
    area.WidthInBytes = 1 + below((unsigned)area.srcPitch);
    say(" b%d < b%d %zux%zu/%zu", to, from, area.WidthInBytes, area.Height, area.srcPitch);
    int res = CALLS(cuMemcpy2DAsync_v2, &area, handle_of(stream));
    copied(to, from, 0, stream, res);
}

/* From and to the program's own memory. The copy is over before the step is, so that this may be its stack. */
static void copy_host(void) {
    int i = pick_block(), stream = one_in(2) ? LEGACY : pick_stream();
    struct block *b = &world.blocks[i < 0 ? 0 : i];
    if (i < 0 || !may_copy(context_of(stream), b) || capturing(stream) || !begin_use(b, stream))
        return;
    bool sync = stream == LEGACY && one_in(2), down = one_in(2);
    size_t n = b->size, offset = 0;
    if (one_in(2))
        n = part(b, &offset, 1);
    unsigned char *host = malloc(b->size);
    memset(host, (int)below(256), b->size);
    CUdeviceptr at = b->at + offset;
    say(" b%d+%zu %zu", i, offset, n);
    int res = sync   ? (down ? CALL(cuMemcpyDtoH, host, at, n) : CALL(cuMemcpyHtoD, at, host, n))
              : down ? CALLS(cuMemcpyDtoHAsync_v2, host, at, n, handle_of(stream))
                     : CALLS(cuMemcpyHtoDAsync_v2, at, host, n, handle_of(stream));
    if (res == 0) {
        used(b, stream);
        bool done = sync || CALLS(cuStreamSynchronize, handle_of(stream)) == 0;
        if (down && done && b->known)
            say(" %llx", (unsigned long long)hash(host, n));
        if (!down && n == b->size)
            b->known = true;
        if (!done)
            return; /* leaks */
    }
    free(host);
}

static void copy_peer(void) {
    int to, from, stream = one_in(2) ? LEGACY : pick_stream();
    if (!pair(&to, &from, stream))
        return;
    struct block *t = &world.blocks[to], *f = &world.blocks[from];
    size_t n = t->size < f->size ? t->size : f->size;
    CUcontext tc = world.contexts[t->device].handle, fc = world.contexts[f->device].handle;
    CUDA_MEMCPY3D_PEER space = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = f->at,
                                .srcContext = fc,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = t->at,
                                .dstContext = tc,
                                .WidthInBytes = n,
                                .Height = 1,
                                .Depth = 1};
    /* It would end a capture. */
    if (!may_copy(t->device, t) || !may_copy(f->device, f) || t->kind >= HOST || f->kind >= HOST || capturing(stream))
        return;
    say(" b%d < b%d", to, from);
    int res = stream == LEGACY && one_in(2)
                  ? one_in(2) ? CALL(cuMemcpyPeer, t->at, tc, f->at, fc, n) : CALL(cuMemcpy3DPeer, &space)
                  : CALLS(cuMemcpyPeerAsync, t->at, tc, f->at, fc, n, handle_of(stream));
    copied(to, from, n, stream, res);
}

static void copy_batch(void) {
    int to, from, stream = pick_stream();
    if (!pair(&to, &from, stream))
        return;
    struct block *t = &world.blocks[to], *f = &world.blocks[from];
    size_t n = t->size < f->size ? t->size : f->size, sizes[2] = {n / 2, n - n / 2}, index = 0;
    CUdeviceptr dsts[2] = {t->at, t->at + n / 2}, srcs[2] = {f->at, f->at + n / 2};
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    if (n < 2)
        return;
    say(" b%d < b%d", to, from);
    int res = CALL(cuMemcpyBatchAsync, dsts, srcs, sizes, 2, &attributes, &index, 1, handle_of(stream));
    copied(to, from, n, stream, res);
}

static void copy_slices(void) {
    int to, from, stream = pick_stream();
    if (!pair(&to, &from, stream))
        return;
    struct block *t = &world.blocks[to], *f = &world.blocks[from];
    size_t least = t->size < f->size ? t->size : f->size, width = 1 + below(300);
    CUDA_MEMCPY3D_BATCH_OP op = {.src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = f->at},
                                 .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = t->at},
                                 .extent = {width, least / width, 1},
                                 .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    if (least < width)
        return;
    say(" b%d < b%d %zu", to, from, width);
    copied(to, from, 0, stream, CALL(cuMemcpy3DBatchAsync, 1, &op, 0, handle_of(stream)));
}

/* By the host itself, where it may. */
static void write_host(void) {
    int i = pick_block_of(1u << MANAGED | 1u << HOST | 1u << REGISTERED);
    struct block *b = &world.blocks[i < 0 ? 0 : i];
    if (i < 0 || world.captures || !drained(b))
        return;
    say(" b%d", i);
    memset((void *)(uintptr_t)b->at, (int)below(256), b->size);
    b->known = true;
}

static void copy_wrong(void) {
    int i = pick_block_of(1u << DEVICE | 1u << ASYNC), stream = pick_stream();
    struct block *b = &world.blocks[i < 0 ? 0 : i];
    char host[16] = {0};
    if (i < 0 || capturing(stream) || world.captures || !begin_use(b, stream))
        return;
    say(" b%d", i);
    switch (below(6)) {
    case 0: CALL(cuMemcpyDtoH, NULL, b->at, 4); break;
    case 1: CALL(cuMemcpyHtoD, b->at, NULL, 4); break;
    case 2: CALL(cuMemcpyDtoD, b->at, 0, 4); break;
    case 3: CALL(cuMemcpyDtoH, host, b->at, 0); break;
    case 4: CALLS(cuMemcpyAsync, b->at, b->at, 0, handle_of(stream)); break;
    default: CALL(cuMemcpy2D, NULL);
    }
    used(b, stream);
}

/* Arrays stay CUDA's; what is copied to and from them may be ours. */
static void copy_array(void) {
    CUDA_ARRAY_DESCRIPTOR desc = {.Width = 256, .Height = 1, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    CUarray array = NULL;
    int i = pick_block_of(1u << DEVICE | 1u << ASYNC);
    struct block *b = &world.blocks[i < 0 ? 0 : i];
    if (i < 0 || b->size < 256 || !b->known || world.captures || current_device() != b->device || !begin_use(b, LEGACY))
        return;
    say(" b%d", i);
    if (CALL(cuArrayCreate, &array, &desc))
        return;
    CALL(cuMemcpyDtoA, array, 0, b->at, 256);
    CALL(cuMemcpyAtoD, b->at, array, 0, 128);
    CALL(cuArrayDestroy, array);
    used(b, LEGACY);
}

const struct step copy_steps[] = {
    {"fill", 14, fill},
    {"fill_area", 3, fill_area},
    {"fill_wrong", 1, fill_wrong},
    {"copy", 14, copy},
    {"copy_area", 4, copy_area},
    {"copy_host", 8, copy_host},
    {"copy_peer", 5, copy_peer},
    {"copy_batch", 3, copy_batch},
    {"copy_wrong", 1, copy_wrong},
    {"copy_array", 1, copy_array},
    {"copy_slices", 2, copy_slices},
    {"write_host", 1, write_host},
    {0},
};
