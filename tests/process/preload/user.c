/* libuser12.so and libuser13.so: the same code, linked to two versions of libcudart. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

int cudaMalloc(void **ptr, size_t size);
int cudaFree(void *ptr);
int cudaGetLastError(void);

int user_fails(void);
int user_last_error(void);
int user_uses(void);

int user_fails(void) {
    void *ptr;
    int err = cudaMalloc(&ptr, (size_t)1 << 50);

    return err;
}

int user_last_error(void) {
    int err = cudaGetLastError();

    return err;
}

int user_uses(void) {
    void *ptr = NULL;
    int err = cudaMalloc(&ptr, 3 << 20);

    return err ? err : cudaFree(ptr);
}
