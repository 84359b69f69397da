/* libnvidia-ml.so.1, as much of it as is asked for: another process has a GiB of each device. */
/* SPDX-License-Identifier: Apache-2.0 */
struct process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *out);

int nvmlInit_v2(void) {
    return 0;
}

int nvmlShutdown(void) {
    return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device) {
    *device = (void *)bus;
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *out) {
    *out = (struct process){.pid = 4242, .used = 1 << 30};
    *count = device != 0;
    return 0;
}
