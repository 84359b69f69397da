/* Memory lacks twice, and a child exits. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

int main(void) {
    CUdeviceptr p;

    start();
    for (int i = 0; i < 2; i++)
        SHOW(cuMemAlloc(&p, (size_t)1 << 40));
    fflush(stdout);
    const pid_t child = fork();
    if (!child)
        exit(0);
    waitpid(child, NULL, 0);
    return 0;
}
