/* Questions about virtual memory: reservations, handles, mappings and access. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "driver_answers.h"

/* The questions name them as they stand here. */
static size_t g;
static CUmemAllocationProp prop, wrong;
static CUmemGenericAllocationHandle h, h2, h3;
static CUdeviceptr va, other, base;
static CUmemAccessDesc access, none;
static size_t size;
static unsigned long long flags;

static void reservations(void) {
    puts("# reservations");
    SAY(cuMemAddressReserve(&va, 0, 0, 0, 0));
    SAY(cuMemAddressReserve(&va, g / 2, 0, 0, 0));
    SAY(cuMemAddressReserve(&va, g + 4096, 0, 0, 0));
    SAY(cuMemAddressReserve(&va, g, 3, 0, 0));
    SAY(cuMemAddressReserve(&va, g, 4096, 0, 1));
    SAY(cuMemAddressReserve(NULL, g, 0, 0, 0));
    SAY(cuMemAddressReserve(&va, 1ull << 47, 0, 0, 0));
    NEED(cuMemAddressReserve(&va, 16 * g, 0, 0, 0));
    printf("aligned to the granularity: %d\n", va % g == 0);
    SAY(cuMemAddressReserve(&other, 4 * g, 8 * g, 0, 0));
    printf("aligned as asked: %d\n", other % (8 * g) == 0);
    SAY(cuMemAddressFree(other, 2 * g));
    SAY(cuMemAddressFree(other + g, 3 * g));
    SAY(cuMemAddressFree(other, 4 * g));
    SAY(cuMemAddressFree(other, 4 * g));
}

static void handles(void) {
    puts("# handles");
    SAY(cuMemCreate(&h, 0, &prop, 0));
    SAY(cuMemCreate(&h, g / 2, &prop, 0));
    SAY(cuMemCreate(&h, g + 4096, &prop, 0));
    SAY(cuMemCreate(&h, g, NULL, 0));
    SAY(cuMemCreate(NULL, g, &prop, 0));
    SAY(cuMemCreate(&h, g, &prop, 1));
    wrong = prop, wrong.location.id = 99;
    SAY(cuMemCreate(&h, g, &wrong, 0));
    wrong = prop, wrong.type = CU_MEM_ALLOCATION_TYPE_INVALID;
    SAY(cuMemCreate(&h, g, &wrong, 0));
    wrong = prop, wrong.location.type = CU_MEM_LOCATION_TYPE_INVALID;
    SAY(cuMemCreate(&h, g, &wrong, 0));
    SAY(cuMemCreate(&h, (size_t)1 << 44, &prop, 0));
    NEED(cuMemCreate(&h, 2 * g, &prop, 0));
    NEED(cuMemCreate(&h2, g, &prop, 0));
}

static void maps(void) {
    puts("# maps");
    SAY(cuMemMap(va, g, 0, h, 0));
    SAY(cuMemMap(va, g, g, h, 0));
    SAY(cuMemMap(va, 4 * g, 0, h, 0));
    SAY(cuMemMap(va, 0, 0, h, 0));
    SAY(cuMemMap(va + 4096, 2 * g, 0, h, 0));
    SAY(cuMemMap(va - 16 * g, 2 * g, 0, h, 0) != 0);
    SAY(cuMemMap(va, 2 * g, 0, h, 1));
    SAY(cuMemMap(va, 2 * g, 0, h, 0));
    SAY(cuMemMap(va, 2 * g, 0, h, 0));
    SAY(cuMemMap(va + g, g, 0, h2, 0));
    SAY(cuMemMap(va + 2 * g, g, 0, h2, 0));
    SAY(cuMemMap(va + 8 * g, g, 0, h2, 0));
    SAY(cuMemAddressFree(va, 16 * g));
}

static void access_rights(void) {
    puts("# access");
    SAY(cuMemSetAccess(va, g, &access, 1));
    SAY(cuMemSetAccess(va + g, g, &access, 1));
    SAY(cuMemSetAccess(va + g, 2 * g, &access, 1));
    SAY(cuMemSetAccess(va, 4 * g, &access, 1));
    SAY(cuMemSetAccess(va + 4 * g, g, &access, 1));
    SAY(cuMemSetAccess(va, 4096, &access, 1));
    SAY(cuMemSetAccess(va, 0, &access, 1));
    SAY(cuMemSetAccess(va, 2 * g, &access, 0));
    SAY(cuMemSetAccess(va, 2 * g, NULL, 1));
    SAY(cuMemGetAccess(&flags, &access.location, va));
    SAY(cuMemSetAccess(va, 3 * g, &access, 1));
    SAY(cuMemSetAccess(va, 3 * g, &access, 1));
    SAY(cuMemGetAccess(&flags, &access.location, va));
    printf("access flags: %llu\n", flags);
    SAY(cuMemGetAccess(&flags, &access.location, va + 5 * g));
    SAY(cuMemsetD8(va, 1, 3 * g));
    none.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    SAY(cuMemSetAccess(va + 2 * g, g, &none, 1));
    SAY(cuMemSetAccess(va + 2 * g, g, &access, 1));
}

static void questions(void) {
    puts("# questions about mapped memory");
    SAY(cuMemGetAddressRange(&base, &size, va + g + 5));
    printf("one mapping: %d %d\n", base == va, size == 2 * g);
    SAY(cuMemGetAddressRange(NULL, NULL, va));
    SAY(cuMemGetAddressRange(&base, &size, va + 5 * g));
    SAY(cuMemFree(va));
    SAY(cuMemFreeAsync(va, NULL));
    CUipcMemHandle ipc;
    SAY(cuIpcGetMemHandle(&ipc, va));
    SAY(cuMemRetainAllocationHandle(&h3, (void *)(va + g)));
    printf("the same handle: %d\n", h3 == h);
    SAY(cuMemRelease(h3));
    SAY(cuMemRetainAllocationHandle(&h3, (void *)(va + 5 * g)));
}

static void unmaps(void) {
    puts("# unmaps");
    SAY(cuMemUnmap(va, g));
    SAY(cuMemUnmap(va + g, g));
    SAY(cuMemUnmap(va, 0));
    SAY(cuMemUnmap(va, 3 * g));
    SAY(cuMemMap(va, 2 * g, 0, h, 0));
    SAY(cuMemRelease(h));
    SAY(cuMemUnmap(va, 2 * g));
    SAY(cuMemUnmap(va + 8 * g, g));
    SAY(cuMemRelease(h2));
    SAY(cuMemAddressFree(va, 16 * g));
}

void vmm(void) {
    g = granularity;
    prop = prop_of();
    access = (CUmemAccessDesc){.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                               .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    none = access;
    reservations();
    handles();
    maps();
    access_rights();
    questions();
    unmaps();
}
