/* Forks while another thread waits for an exporter that is stopped. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

static CUipcMemHandle h;
static CUcontext c;

static void *opener(void *x) {
    CUdeviceptr p;
    cuCtxSetCurrent(c);
    double t = now();
    int r = cuIpcOpenMemHandle(&p, h, 1);
    printf("open -> %d after %.2f s\n", r, now() - t);
    return 0;
}

int main(int argc, char **argv) {
    CUdevice d;
    CUdeviceptr p;
    OK(cuInit(0));
    OK(cuDeviceGet(&d, 0));
    OK(cuDevicePrimaryCtxRetain(&c, d));
    OK(cuCtxSetCurrent(c));
    if (argc == 1) {
        int pi[2];
        if (pipe(pi))
            return 1;
        OK(cuMemAlloc(&p, 4 << 20));
        int r = cuIpcGetMemHandle(&h, p);
        printf("get %d\n", r);
        fflush(stdout);
        pid_t k = vfork();
        if (!k) {
            dup2(pi[0], 0);
            execl("/proc/self/exe", "x", "1", NULL);
            _exit(1);
        }
        if (write(pi[1], &h, sizeof h) != sizeof h)
            return 1;
        usleep(200000);
        raise(SIGSTOP);
        int st;
        waitpid(k, &st, 0);
        return 0;
    }
    if (read(0, &h, sizeof h) != sizeof h)
        return 1;
    usleep(500000);
    pthread_t th;
    pthread_create(&th, 0, opener, 0);
    usleep(300000);
    double t = spent();
    pid_t k = fork();
    if (!k)
        _exit(0);
    printf("fork took %.2f s\n", spent() - t);
    pthread_join(th, 0);
    kill(getppid(), SIGCONT);
    return 0;
}
