/* Throws PyTorch's OutOfMemoryError from C: PyTorch's own constructor makes it, and its C++ runtime throws it.
 *
 * Throw it only where nothing has changed yet; the caller unwinds as if its own function had thrown. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "torch.h"

#include <stdio.h>
#include "early.h"
#include "process/process.h"

/* c10::SourceLocation. */
struct source {
    const char *function, *file;
    uint32_t line;
};

/* The functions by their C++ names; strings are the old ones, or those of C++11. */
static struct {
    void *(*allocate)(size_t);
    void (*hurl)(void *, void *, void (*)(void *)) __attribute__((noreturn));
    void (*text)(void *, const char *, const void *);
    void (*text_end)(void *);
    void (*make)(void *, struct source, void *);
    void **table; /* of virtual functions: `make` may be that of the class above */
    void (*end)(void *);
    void *type;
} cxx;

#define FIND(field, name) (cxx.field = (__typeof__(cxx.field))vp_real_dlsym(library, name))
#define NEW_STRING "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
#define OUT_OF_MEMORY "N3c1016OutOfMemoryErrorE"

static bool find_strings(void *library) {
    if (FIND(make, "_ZN3c1016OutOfMemoryErrorC1ENS_14SourceLocationE" NEW_STRING) ||
        FIND(make, "_ZN3c105ErrorC1ENS_14SourceLocationE" NEW_STRING)) {
        FIND(text, "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEC1EPKcRKS3_");
        FIND(text_end, "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEED1Ev");
    } else if (FIND(make, "_ZN3c105ErrorC1ENS_14SourceLocationESs")) {
        FIND(text, "_ZNSsC1EPKcRKSaIcE");
        FIND(text_end, "_ZNSsD1Ev");
    }
    return cxx.make && cxx.text && cxx.text_end;
}

bool vp_torch_can_refuse(void *library) {
    enum { FIRST = 2 /* behind the offset and the type */ };
    if (!find_strings(library) || !FIND(table, "_ZTV" OUT_OF_MEMORY) || !FIND(type, "_ZTI" OUT_OF_MEMORY) ||
        !FIND(allocate, "__cxa_allocate_exception") || !FIND(hurl, "__cxa_throw"))
        return false;
    cxx.table += FIRST;
    cxx.end = (void (*)(void *))cxx.table[0];
    return true;
}

/* As PyTorch writes sizes. */
static const char *size_text(char *text, size_t room, uint64_t bytes) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB"};
    unsigned unit = 0;
    double size = (double)bytes;
    while (size >= 1024 && unit < 3) {
        size /= 1024;
        unit++;
    }
    snprintf(text, room, unit ? "%.2f %s" : "%.0f %s", size, units[unit]);
    return text;
}

static void message(char *text, size_t room, CUdevice device, size_t size, uint64_t allocated, uint64_t reserved) {
    enum { SIZE = 32 };
    char asked[SIZE], total[SIZE], unused[SIZE], live[SIZE], cached[SIZE];
    size_t free_bytes = 0, all = 0;
    vp_api_mem_info(&free_bytes, &all);
    snprintf(
        text, room,
        "CUDA out of memory. Tried to allocate %s. GPU %d has a total capacity of %s of which %s is free. %s is "
        "allocated by PyTorch, in addresses for %s, which libvpool.so backs where they are in use; what else there "
        "is of the device's memory others have.",
        size_text(asked, SIZE, size), device, size_text(total, SIZE, all), size_text(unused, SIZE, free_bytes),
        size_text(live, SIZE, allocated), size_text(cached, SIZE, reserved));
}

/* Room for an object of any version: 96 bytes are the most so far. */
enum { OBJECT = 512, STRING = 64, MESSAGE = 512 };

_Noreturn void vp_torch_refuse(CUdevice device, size_t size, uint64_t allocated, uint64_t reserved) {
    static const struct source here = {"malloc", "libvpool.so", 0};
    _Alignas(16) char string[STRING];
    char text[MESSAGE];
    message(text, sizeof(text), device, size, allocated, reserved);
    void *object = cxx.allocate(OBJECT);
    cxx.text(string, text, string);
    cxx.make(object, here, string);
    cxx.text_end(string);
    *(void ***)object = cxx.table;
    cxx.hurl(object, cxx.type, cxx.end);
}
