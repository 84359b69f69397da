/* A program's calls, made of an input's bytes: those of program.h, of which the tables say how often each comes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "program.h"

/* Inputs that are older than the last rows know nothing of them: OLDER_KINDS stays as it is. */
static void (*const operations[])(void) = {
    alloc_async,  alloc_async,  alloc_async, alloc_async,   alloc_async, alloc_sync,   alloc_sync,   free_async,
    free_async,   free_async,   free_sync,   free_sync,     free_last,   free_last,    free_last,    use,
    use,          move,         move,        synchronize,   synchronize, repeat,       repeat,       repeat,
    renew_stream, capture,      capture,     begin_capture, context,     memory_pool,  trim,         ask,
    fault,        fault,        peers,       couple,        misuse,      fleeting,     fleeting,

    hold,         hold,         hold,        let_go,        let_go,      copy,         copy,         copy,
    context_ends, context_ends, thread_ends, thread_ends,   reset,       during_waits, during_waits, during_waits,
};

enum { OLDER_KINDS = 39, CHECK_EVERY = 4096 };

const struct target target = {
    .operations = operations,
    .kinds = sizeof operations / sizeof *operations,
    .older_kinds = OLDER_KINDS,
    .check_every = CHECK_EVERY,
};
