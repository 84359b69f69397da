/* The program closes its standard descriptors, and has a file of its own as number 2 then; argv[1]: opened to be
 * written to alone, as a shell would for its stderr, or with no name. What is out of memory is told of elsewhere. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

#include <fcntl.h>

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    const int flags = strcmp(how, "written") ? O_RDWR : O_WRONLY;
    char name[] = "taken.XXXXXX", text[4096] = "";
    int out = dup(STDOUT_FILENO), file = mkstemp(name), look = open(name, O_RDONLY);
    CUdeviceptr p;

    start();
    OK(cuMemAlloc(&p, 1 << 20));
    close(file);
    close(STDERR_FILENO);
    if (open(name, flags) != STDERR_FILENO)
        return 1;
    unlink(strcmp(how, "nameless") ? "" : name);
    if (write(STDERR_FILENO, "data\n", 5) != 5)
        return 2;
    if (cuMemAlloc(&p, (size_t)1 << 50) != CUDA_ERROR_OUT_OF_MEMORY)
        return 3;
    if (read(look, text, sizeof(text) - 1) < 0)
        return 4;
    dprintf(out, "%s\n", strcmp(text, "data\n") ? "told of there" : "as it was");
    unlink(name);
}
