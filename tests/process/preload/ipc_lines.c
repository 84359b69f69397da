/* Guests that share memory by legacy IPC: the descriptors of those who are answered, and what many have opened. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <sys/wait.h>

enum { CLOSED = 1024 };

static atomic_bool forbidden;
static atomic_uint tried;

/* A filter of system calls may forbid it. */
__attribute__((visibility("default"))) int accept4(int fd, struct sockaddr *address, socklen_t *size, int flags) {
    if (atomic_load(&forbidden)) {
        atomic_fetch_add(&tried, 1);
        errno = EPERM;
        return -1;
    }
    return (int)syscall(SYS_accept4, fd, address, size, flags);
}

/* Somebody who is accepted, and says nothing. The descriptor is none of those below CLOSED. */
static int connect_to(const CUipcMemHandle *handle) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    unsigned long long id[2];

    memcpy(id, handle->reserved + 8, sizeof(id));
    int n = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "vpool-%016llx%016llx", id[0], id[1]);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0), line = fcntl(fd, F_DUPFD, CLOSED);
    CHECK(line >= CLOSED && close(fd) == 0);
    CHECK(connect(line, (struct sockaddr *)&address,
                  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0);
    usleep(100000);
    return line;
}

static CUipcMemHandle shown(void) {
    limit_files(2 * CLOSED);
    begin();
    return exported(allocate(2 * MIB, 1));
}

/* As daemons do; and it has files of its own under these numbers since. */
void closes_nothing_of_the_programs(void) {
    const CUipcMemHandle handle = shown();
    const int line = connect_to(&handle);
    struct stat about;
    int mine[64];

    for (int fd = 3; fd < CLOSED; fd++)
        close(fd);
    for (int i = 0; i < 64; i++)
        CHECK((mine[i] = open("/dev/null", O_RDONLY)) >= 0);
    close(line);
    usleep(100000);
    for (int i = 0; i < 64; i++)
        CHECK(fstat(mine[i], &about) == 0 && S_ISCHR(about.st_mode));
}

void leaves_nobody_who_is_answered_to_children(void) {
    const CUipcMemHandle handle = shown();
    const int line = connect_to(&handle);
    int status;

    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(close(line) ? 99 : sockets());
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

void rests_while_nobody_may_be_accepted(void) {
    const CUipcMemHandle handle = shown();
    struct remote remote = start();

    atomic_store(&forbidden, true);
    close(connect_to(&handle));
    usleep(200000);
    CHECK(atomic_load(&tried) > 0 && atomic_load(&tried) < 200);
    atomic_store(&forbidden, false);
    opened(&remote, handle);
    end(&remote);
}

/* The least of many tries, in nanoseconds, that a question about memory of the host takes. */
static double asked_in(void) {
    enum { TRIES = 50, CALLS = 200 };
    struct timespec begin, end;
    double least = 1e18;
    unsigned type;

    for (int i = 0; i < TRIES; i++) {
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (int k = 0; k < CALLS; k++)
            cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)&least);
        clock_gettime(CLOCK_MONOTONIC, &end);
        const double took = (double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec);
        least = took / CALLS < least ? took / CALLS : least;
    }
    return least;
}

/* UCX and MPI keep what they have opened, and ask about each buffer, the host's too. */
void finds_its_way_among_many(void) {
    enum { MANY = 600, SIZE = 65536 };
    static CUdeviceptr theirs[MANY], ours[MANY];
    struct remote remote = start();
    CUdeviceptr base;
    size_t size;

    begin();
    for (int i = 0; i < MANY; i++) {
        theirs[i] = TELL(&remote, ALLOC, .size = SIZE).ptr;
        CHECK_OK(TELL(&remote, FILL, .ptr = theirs[i], .size = SIZE, .value = (unsigned char)i).result);
    }
    CHECK_OK(cuIpcOpenMemHandle(&ours[0], TELL(&remote, GET, .ptr = theirs[0]).handle, FLAG));
    const double among_one = asked_in();
    for (int i = 1; i < MANY; i++)
        CHECK_OK(cuIpcOpenMemHandle(&ours[i], TELL(&remote, GET, .ptr = theirs[i]).handle, FLAG));
    const double among_many = asked_in();

    if (among_many > 5 * among_one) {
        fprintf(stderr, "%.0f ns among many, %.0f ns beside one\n", among_many, among_one);
        exit(1);
    }
    for (int i = 0; i < MANY; i += 7)
        CHECK_OK(cuIpcCloseMemHandle(ours[i]));
    for (int i = 0; i < MANY; i++) {
        CHECK(read_value(ours[i], 1) == (i % 7 ? (unsigned char)i : -2));
        CHECK(cuMemGetAddressRange(&base, &size, ours[i] + SIZE - 1) == (i % 7 ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND));
        CHECK(i % 7 == 0 || (base == ours[i] && size == SIZE));
    }
    end(&remote);
}
