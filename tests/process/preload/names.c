/* libnames.so: functions whose names begin as the driver's do, or are the driver's. Whoever looks them up in
 * this library's handle means these. */
/* SPDX-License-Identifier: Apache-2.0 */
int cudnnCreate(void);
int cuMemAllocFoo(void);
int cuMemAlloc(void);
int cuMemAlloc_v2(void);
int cudaMalloc(void);
int ncclCommInitRankOther(void);

int cudnnCreate(void) {
    return 101;
}

int cuMemAllocFoo(void) {
    return 102;
}

int cuMemAlloc(void) {
    return 103;
}

int cuMemAlloc_v2(void) {
    return 104;
}

int cudaMalloc(void) {
    return 105;
}

int ncclCommInitRankOther(void) {
    return 106;
}
