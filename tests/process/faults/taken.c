/* The program closes its standard descriptors, and has a file of its own as number 2 then; argv[1]: opened to be
 * written to alone, as a shell would for its stderr; or with no name, as pytest has its stderr, or by that number
 * alone; or it is the end of a pipe of its own. What is out of memory is told of elsewhere. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

#include <fcntl.h>

/* Both ends get the least numbers that are free: 0 is the one to be read from. */
static int pipe_as_stderr(void) {
    int ends[2];

    close(STDIN_FILENO);
    close(STDERR_FILENO);
    if (pipe(ends) || ends[1] != STDERR_FILENO)
        exit(1);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return ends[0];
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    const int flags = strcmp(how, "written") ? O_RDWR : O_WRONLY;
    char name[] = "taken.XXXXXX", text[4096] = "";
    int out = dup(STDOUT_FILENO), file = mkstemp(name), look = open(name, O_RDONLY);
    CUdeviceptr p;

    start();
    OK(cuMemAlloc(&p, 1 << 20));
    if (argc > 2) {
        if (dup2(file, atoi(argv[2])) < 0 || rename(name, "taken.given") || write(file, "data\n", 5) != 5)
            return 1;
        return cuMemAlloc(&p, (size_t)1 << 50) != CUDA_ERROR_OUT_OF_MEMORY;
    }
    close(file);
    if (!strcmp(how, "alone"))
        close(look);
    if (!strcmp(how, "pipe"))
        look = pipe_as_stderr();
    else
        close(STDERR_FILENO);
    if (strcmp(how, "pipe") && open(name, flags) != STDERR_FILENO)
        return 1;
    unlink(strcmp(how, "nameless") && strcmp(how, "alone") ? "" : name);
    if (write(STDERR_FILENO, "data\n", 5) != 5)
        return 2;
    if (cuMemAlloc(&p, (size_t)1 << 50) != CUDA_ERROR_OUT_OF_MEMORY)
        return 3;
    if (!strcmp(how, "alone") && lseek(look = STDERR_FILENO, 0, SEEK_SET))
        return 4;
    if (read(look, text, sizeof(text) - 1) < 0)
        return 5;
    dprintf(out, "%s\n", strcmp(text, "data\n") ? "told of there" : "as it was");
    unlink(name);
}
