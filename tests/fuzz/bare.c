/* The same program, with a cache of its own on bare segments: half of its operations are the cache's. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cache.h"

/* clang-format off */
static void (*const operations[])(void) = {
    cache_alloc,    cache_alloc,   cache_alloc,   cache_alloc,   cache_alloc,     cache_alloc,     cache_alloc,
    cache_free,     cache_free,    cache_free,    cache_free,    cache_free,      cache_free_last, cache_free_last,
    cache_again,    cache_again,   cache_use,     cache_use,     cache_record,    cache_record,    cache_record,
    cache_empty,    cache_empty,   cache_set_back, cache_set_back, cache_pin,     cache_capture,   cache_capture,
    cache_capture,  cache_launch,  cache_launch,  cache_forget,  cache_process,   cache_others,    cache_others,
    cache_fill,     cache_fill,    sleep_and_wake, sleep_and_wake,

    alloc_async,    alloc_async,   alloc_async,   alloc_sync,    alloc_sync,      free_async,      free_sync,
    free_last,      free_last,     use,           move,          synchronize,     synchronize,     repeat,
    repeat,         repeat,        renew_stream,  capture,       begin_capture,   context,         memory_pool,
    trim,           trim,          ask,           fault,         fault,           peers,           couple,
    misuse,         fleeting,      hold,          hold,          let_go,          copy,            context_ends,
    thread_ends,    reset,         during_waits,  during_waits,
};
/* clang-format on */

enum { KINDS = sizeof operations / sizeof *operations, CHECK_EVERY = 64 };

const struct target target = {
    .operations = operations,
    .kinds = KINDS,
    .older_kinds = KINDS,
    .check_every = CHECK_EVERY,
    .bare = true,
};
