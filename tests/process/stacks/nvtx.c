/* A library that has NVTX's headers, as far as tools see it: loads what NVTX_INJECTION64_PATH names, and calls what
 * that attaches. On the simulated driver. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "../../common/check.h"

#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <wchar.h>

typedef void function(void);

struct attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const void *message;
};

static function *core[16], *core2[16];
static function **core_table[16], **core2_table[16];

static int get_table(int module, function ****table, unsigned *size) {
    *size = 16;
    *table = module == 1 ? core_table : module == 5 ? core2_table : NULL;
    return *table != NULL;
}

static struct {
    size_t size;
    int (*get_table)(int, function ****, unsigned *);
} callbacks = {sizeof callbacks, get_table};

static const void *export_table(uint32_t id) {
    return id == 1 ? &callbacks : NULL;
}

static int attach(void) {
    const char *path = getenv("NVTX_INJECTION64_PATH"), *before = getenv("TF_GPU_ALLOCATOR");
    void *library = path ? dlopen(path, RTLD_LAZY) : NULL;
    int (*init)(const void *(*)(uint32_t)) =
        library ? (int (*)(const void *(*)(uint32_t)))dlsym(library, "InitializeInjectionNvtx2") : NULL;
    CHECK(getenv("TF_GPU_ALLOCATOR") == before); /* the program has begun, perhaps in several threads */
    for (int i = 1; i < 16; i++) {
        core_table[i] = &core[i];
        core2_table[i] = &core2[i];
    }
    return init ? init(export_table) : -1;
}

static int push(const char *name) {
    return ((int (*)(const char *))core[9])(name);
}

static int pop(void) {
    return ((int (*)(void))core[11])();
}

static void *ends(void *id) {
    ((void (*)(uint64_t))core[7])(*(uint64_t *)id);
    return NULL;
}

static void *dies(void *unused) {
    CHECK(push("dies") == 0 && push("dies within") == 1);
    return unused;
}

static void in_thread(void *(*f)(void *), void *argument) {
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, f, argument) && !pthread_join(thread, NULL));
}

/* Ranges of the process: they lie across one another, and another thread ends what this one starts. */
static void across_threads(void) {
    struct attributes a = {.version = 3, .size = sizeof a, .message_type = 1, .message = "of a domain"};
    uint64_t first = ((uint64_t (*)(const char *))core[5])("request"), second, third;
    CHECK(first && push("on the stack") == 1);
    second = ((uint64_t (*)(void *, const struct attributes *))core2[2])(NULL, &a);
    CHECK(second && second != first);
    in_thread(ends, &first);
    third = ((uint64_t (*)(const wchar_t *))core[6])(L"größer");
    CHECK(third && third != first && third != second && pop() == 1);
    ends(&first); /* over already, and its place another's */
    ((void (*)(void *, uint64_t))core2[3])(NULL, third);
    ends(&second);
}

/* Each domain has a stack of its own: its pop ends its own innermost range, whatever others lie in that. */
static void across_domains(void) {
    void *one = ((void *(*)(const char *))core2[12])("one"), *two = ((void *(*)(const wchar_t *))core2[13])(L"two");
    struct attributes a = {.version = 3, .size = sizeof a, .message_type = 1, .message = "of one"}, b = a, c = a;
    b.message = "of two";
    c.message = "of one again";
    int (*push_in)(void *, const struct attributes *) = (int (*)(void *, const struct attributes *))core2[4];
    int (*pop_in)(void *) = (int (*)(void *))core2[5];
    CHECK(one && two && one != two && push_in(one, &a) == 1 && push_in(two, &b) == 2);
    CHECK(pop_in(one) == 1 && pop_in(one) < 0 && push_in(one, &c) == 3 && pop_in(two) == 2 && pop_in(one) == 3);
}

static void in_domains(void) {
    void *name = ((void *(*)(void *, const char *))core2[10])(NULL, "registered");
    struct attributes a = {.version = 3, .size = sizeof a, .message_type = 3, .message = name};
    CHECK(name && ((void *(*)(void *, const char *))core2[10])(NULL, "registered") == name);
    CHECK(((int (*)(void *, const struct attributes *))core2[4])(NULL, &a) == 1);
    CHECK(((int (*)(void *))core2[5])(NULL) == 1);
    a = (struct attributes){.version = 3, .size = sizeof a, .message_type = 2, .message = L"größe"};
    CHECK(((int (*)(const struct attributes *))core[8])(&a) == 1 && pop() == 1);
    a.message = L"there";
    ((void (*)(void *, const struct attributes *))core2[1])(NULL, &a);
    a.size = 8; /* older than any name */
    ((void (*)(const struct attributes *))core[1])(&a);
}

int main(void) {
    CUdevice device;
    CUcontext context;
    CUdeviceptr p;
    int attached = attach();
    printf("attached: %d\n", attached);
    if (attached != 1)
        return 0;
    ((void (*)(const char *))core[2])("early");
    CHECK(push("outer") == 0);
    CHECK(!cuInit(0) && !cuDeviceGet(&device, 0) && !cuDevicePrimaryCtxRetain(&context, device));
    CHECK(!cuCtxSetCurrent(context) && !cuMemAlloc(&p, 5 << 20));
    in_domains();
    across_threads();
    across_domains();
    in_thread(dies, NULL);
    CHECK(pop() == 0 && pop() < 0);
    return 0;
}
