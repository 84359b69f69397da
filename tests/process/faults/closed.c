/* Standard output and error are closed when it begins; it writes to them all the same. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

int main(void) {
    CUdeviceptr p;

    start();
    OK(cuMemAlloc(&p, 1 << 20));
    for (int fd = 0; fd < 3; fd++)
        if (write(fd, "not a trace\n", 12) < 0)
            continue;
    OK(cuMemFree(p));
}
