/* Loads the guest as Python loads PyTorch: late, and with symbols of its own; before it, and for all, what LOADER_FIRST
 * names, and with a variable that LOADER_SETS has, as NAME=VALUE. usage: loader LIBRARY CASE */
/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    const char *first = getenv("LOADER_FIRST");
    if (first && !dlopen(first, RTLD_NOW | RTLD_GLOBAL))
        return 2;
    if (getenv("LOADER_SETS"))
        putenv(getenv("LOADER_SETS"));
    void *library = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*run)(const char *) = library ? (int (*)(const char *))dlsym(library, "standin_run") : NULL;

    if (!run) {
        fprintf(stderr, "loader: %s\n", argc == 3 ? dlerror() : "usage: loader LIBRARY CASE");
        return 2;
    }
    return run(argv[2]);
}
