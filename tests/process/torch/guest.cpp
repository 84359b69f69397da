/* Guests of the stand-in for PyTorch: what they share. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "guest.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

static void *symbol(const char *name) {
    void *found = dlsym(RTLD_DEFAULT, name);
    CHECK(found);
    return found;
}

size_t told_count() {
    return ((vpool_told_count_fn *)symbol("vpool_told_count"))();
}

vpool_told told_at(size_t at) {
    return ((vpool_told_at_fn *)symbol("vpool_told_at"))(at);
}

void told_refuse(int refusals) {
    ((vpool_told_refuse_fn *)symbol("vpool_told_refuse"))(refusals);
}

vpool_told told_last(size_t since, char what) {
    for (size_t at = told_count(); at > since; at--)
        if (told_at(at - 1).what == what)
            return told_at(at - 1);
    fprintf(stderr, "nothing of the kind %c was told\n", what);
    _exit(1);
}

unsigned told_number(size_t since, char what) {
    unsigned number = 0;
    for (size_t at = told_count(); at > since; at--)
        number += told_at(at - 1).what == what;
    return number;
}

void arm() {
    void *first = cache::allocate(KIB), *second = cache::allocate(3 * MIB);
    cache::raw_delete(first);
    cache::raw_delete(second);
}

extern "C" API int standin_run(const char *name) {
    for (const Case *list : {data_cases, order_cases, room_cases})
        for (; list->name; list++)
            if (!strcmp(list->name, name)) {
                list->run();
                return 0;
            }
    fprintf(stderr, "no case %s\n", name);
    return 2;
}
