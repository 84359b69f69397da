/* The program's threads have stacks of so many KiB unless told otherwise; those of the library are its own. It ends by
 * a signal, of which one of them writes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

int main(int argc, char **argv) {
    pthread_attr_t attr;
    CUdeviceptr p;

    pthread_attr_init(&attr);
    NEED(pthread_attr_setstacksize(&attr, (size_t)atoi(argv[1]) << 10));
    NEED(pthread_setattr_default_np(&attr));
    start();
    OK(cuMemAlloc(&p, 3 << 20));
    OK(cuMemFree(p));
    raise(SIGTERM);
    puts("still here");
}
