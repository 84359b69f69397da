/* What the files of the guest `ipc` share: a peer that does what it is told, and how a case tells it. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "guest.h"

#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

enum { GRANULE = 64 << 10, MIB = 1 << 20 };

enum op {
    ALLOC,
    ALLOC_ASYNC,
    FREE,
    GET,
    OPEN,
    CLOSE,
    FILL,
    READ,
    RANGE,
    CAPABLE,
    SOCKETS,
    RUNTIME_OPEN,
    RUNTIME_CLOSE,
    FEW_FILES,
    LEFT
};

struct ask {
    enum op op;
    unsigned flags;
    CUipcMemHandle handle;
    CUdeviceptr ptr;
    size_t size;
    unsigned char value;
};

struct told {
    int result;
    CUipcMemHandle handle;
    CUdeviceptr ptr;
    size_t size;
    int value;
};

struct remote {
    pid_t pid;
    int to, from;
};

#define TELL(remote, ...) tell(remote, (struct ask){__VA_ARGS__})
#define FLAG CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

struct told tell(const struct remote *remote, struct ask ask);
void begin(void);
int sockets(void);
int read_value(CUdeviceptr ptr, size_t size);
rlim_t limit_files(rlim_t to);
rlim_t no_more_files(void);
void peer(void);
struct remote start_with(const char *variable, const char *value);
struct remote start(void);
CUdeviceptr opened(const struct remote *remote, CUipcMemHandle handle);
int value_at(const struct remote *remote, CUdeviceptr ptr, size_t size);
void end(struct remote *remote);
void kill_peer(struct remote *remote);
CUdeviceptr allocate(size_t size, unsigned char value);
CUipcMemHandle exported(CUdeviceptr ptr);
void check_refused(CUdeviceptr ptr);
bool same(const CUipcMemHandle *a, const CUipcMemHandle *b);

/* ---- ipc_apart.c ---- */

void stands_alone(void);
void takes_out_of_use_what_is_free_beside(void);
void keeps_all_apart_when_told(void);
void shows_what_lies_beside(void);
void keeps_large_blocks_apart_once_coupled(void);
void keeps_apart_what_is_shown_at_once(void);
void says_where_no_peer_reaches(void);
void follows_peers_while_it_opens(void);
void captures_may_begin_while_it_is_closed(void);
void a_close_waits_for_graphs(void);
void shares_whatever_is_sent_in_a_rank(void);
void lies_in_one_handle(void);
void keeps_large_blocks_apart_after_one_was_shown(void);

/* ---- ipc_lines.c ---- */

void closes_nothing_of_the_programs(void);
void leaves_nobody_who_is_answered_to_children(void);
void rests_while_nobody_may_be_accepted(void);
void finds_its_way_among_many(void);
