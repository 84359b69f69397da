#include "base/process.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Fields of /proc/PID/stat, counted as proc(5) does. The state is the first behind the program's name, which
 * may hold anything. */
enum { STATE = 3, START = 22, STACK = 28 };

bool vp_process_read(int pid, struct vp_process *out) {
    char name[32] = "/proc/self/stat", text[1024];
    if (pid)
        snprintf(name, sizeof name, "/proc/%d/stat", pid);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return false;
    text[n] = 0;
    const char *at = strrchr(text, ')');
    struct vp_process found = { 0 };
    for (int field = STATE - 1; at && field <= STACK; field++, at = strchr(at + 1, ' ')) {
        if (field == STATE && (at[1] == 'Z' || at[1] == 'X'))
            return false;
        if (field == START)
            found.start = strtoull(at, NULL, 10);
        if (field == STACK)
            found.stack = strtoull(at, NULL, 10);
    }
    *out = found;
    return at != NULL;
}

bool vp_process_same(const struct vp_process *a, const struct vp_process *b) {
    return a->start == b->start && (a->stack == b->stack || !a->stack || !b->stack);
}

uint64_t vp_process_namespace(void) {
    struct stat st;
    return stat("/proc/self/ns/pid", &st) ? 0 : (uint64_t)st.st_ino;
}
