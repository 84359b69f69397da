/* A library writes a jump to code of its own into functions of the driver, wherever dlsym says that they lie, to be
 * told of all memory, as UCX does: calls of the runtime are then to come by, too. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <sys/mman.h>

enum { JUMP = 12 }; /* mov $address, %rax; jmp *%rax */

struct patch {
    const char *name;
    void *hook;
    unsigned char *code, was[JUMP], jump[JUMP];
    int told;
};

static CUresult alloc(CUdeviceptr *found, size_t size);
static CUresult alloc_pitch(CUdeviceptr *found, size_t *pitch, size_t width, size_t height, unsigned int element);
static CUresult alloc_async(CUdeviceptr *found, size_t size, CUstream stream);
static CUresult alloc_from_pool(CUdeviceptr *found, size_t size, CUmemoryPool pool, CUstream stream);
static CUresult free_now(CUdeviceptr block);
static CUresult free_async(CUdeviceptr block, CUstream stream);

static struct patch patches[] = {
    {"cuMemAlloc_v2", alloc},         {"cuMemAllocPitch_v2", alloc_pitch},
    {"cuMemAllocAsync", alloc_async}, {"cuMemAllocFromPoolAsync", alloc_from_pool},
    {"cuMemFree_v2", free_now},       {"cuMemFreeAsync", free_async},
};
enum { PATCHES = sizeof(patches) / sizeof(*patches) };

static void patch(struct patch *p) {
    const uintptr_t page = 4096, begin = (uintptr_t)sym(p->name);
    p->code = (unsigned char *)begin;
    memcpy(p->was, p->code, JUMP);
    memcpy(p->jump, (unsigned char[JUMP]){0x48, 0xb8, [10] = 0xff, 0xe0}, JUMP);
    memcpy(p->jump + 2, &p->hook, sizeof(p->hook));
    NEED(mprotect((void *)(begin & -page), ((begin + JUMP - 1) & -page) - (begin & -page) + page,
                  PROT_READ | PROT_WRITE | PROT_EXEC));
    memcpy(p->code, p->jump, JUMP);
}

/* The function as it was, for the time of a call. */
#define TOLD(p, hook, ...)                                                                                             \
    CUresult res;                                                                                                      \
    patches[p].told++;                                                                                                 \
    memcpy(patches[p].code, patches[p].was, JUMP);                                                                     \
    res = ((__typeof__(&hook))patches[p].code)(__VA_ARGS__);                                                           \
    memcpy(patches[p].code, patches[p].jump, JUMP);                                                                    \
    return res

static CUresult alloc(CUdeviceptr *found, size_t size) {
    TOLD(0, alloc, found, size);
}
static CUresult alloc_pitch(CUdeviceptr *found, size_t *pitch, size_t width, size_t height, unsigned int element) {
    TOLD(1, alloc_pitch, found, pitch, width, height, element);
}
static CUresult alloc_async(CUdeviceptr *found, size_t size, CUstream stream) {
    TOLD(2, alloc_async, found, size, stream);
}
static CUresult alloc_from_pool(CUdeviceptr *found, size_t size, CUmemoryPool pool, CUstream stream) {
    TOLD(3, alloc_from_pool, found, size, pool, stream);
}
static CUresult free_now(CUdeviceptr block) {
    TOLD(4, free_now, block);
}
static CUresult free_async(CUdeviceptr block, CUstream stream) {
    TOLD(5, free_async, block, stream);
}

static void memory_comes_and_goes(void) {
    cudaMemPool_t pool;
    void *block = NULL;
    size_t pitch;
    OK(cudaMalloc(&block, 1 << 20));
    OK(cudaFree(block));
    OK(cudaMallocPitch(&block, &pitch, 1000, 1000));
    OK(cudaFree(block));
    OK(cudaMallocAsync(&block, 1 << 20, NULL));
    OK(cudaFreeAsync(block, NULL));
    OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    OK(cudaMallocFromPoolAsync(&block, 1 << 20, pool, NULL));
    OK(cudaFree(block));
    for (int i = 0; i < PATCHES; i++)
        printf("%s: told %d\n", patches[i].name, patches[i].told);
    SHOW(cudaMalloc(&block, (size_t)1 << 50));
}

/* Are the first bytes, as many as a jump has, of the instructions that UCX can move? */
static bool can_move(const unsigned char *code) {
    static const unsigned char shrinks[] = {0x48, 0x83, 0xec}, keeps_frame[] = {0x48, 0x89, 0xe5};
    for (int n = 0; n < JUMP;) {
        if (!memcmp(code + n, shrinks, sizeof(shrinks)))
            n += 4;
        else if (!memcmp(code + n, keeps_frame, sizeof(keeps_frame)))
            n += 3;
        else if ((code[n + (code[n] == 0x41)] & 0xf0) == 0x50)
            n += 1 + (code[n] == 0x41);
        else
            return false;
    }
    return true;
}

static void heads(void) {
    static const char *const names[] = {
        "cuMemAlloc_v2",        "cuMemAllocManaged", "cuMemAllocPitch_v2",      "cuMemMap",
        "cuModuleGetGlobal_v2", "cuMemAllocAsync",   "cuMemAllocFromPoolAsync", "cuLibraryGetGlobal",
        "cuMemFree_v2",         "cuMemUnmap",        "cuMemFreeAsync",
    };
    int can = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const void *code = sym(names[i]);
        if (code && can_move(code))
            can++;
        else if (code)
            printf("%s cannot be moved\n", names[i]);
    }
    printf("can be moved: %d\n", can);
}

int main(int argc, char **argv) {
    if (argc > 1)
        return heads(), 0;
    OK(cudaFree(NULL));
    memory_comes_and_goes();
    for (int i = 0; i < PATCHES; i++)
        patch(&patches[i]);
    memory_comes_and_goes();
    printf("%s: told %d\n", patches[0].name, patches[0].told);
    return 0;
}
