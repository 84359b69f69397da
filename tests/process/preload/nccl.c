/* libnccl.so.2: tells what it was called with. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

struct unique_id {
    char internal[128];
};

static struct unique_id last;

int ncclCommInitRank(void **comm, int ranks, struct unique_id id, int rank);
int ncclCommInitAll(void **comms, int devices, const int *list);
int ncclCommGrow(void *comm, int ranks, const struct unique_id *id, int rank, void **grown, void *config);

int ncclCommInitRank(void **comm, int ranks, struct unique_id id, int rank) {
    last = id;
    *comm = last.internal;
    return ranks * 10 + rank;
}

int ncclCommGrow(void *comm, int ranks, const struct unique_id *id, int rank, void **grown, void *config) {
    last = *id;
    *grown = config ? comm : last.internal;
    return ranks * 10 + rank;
}

int ncclCommInitAll(void **comms, int devices, const int *list) {
    return devices * 100 + list[0] * 10 + list[1];
}
