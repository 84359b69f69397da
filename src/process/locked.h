/* Tells clang's lock analysis which functions of the layers below are called with the library's lock held.
 *
 * Those layers know no lock: the command and the tests drive a pool from one thread, without one. Inside the library,
 * process/ and watch/ take care of it, and clang refuses calls of these without the lock. Functions that are not listed
 * are also called without it, or read nothing that changes. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/lock.h"
#include "memory/chunk.h"
#include "memory/fit.h"
#include "memory/memory.h"
#include "memory/sleep.h"
#include "memory/spill.h"
#include "order/context.h"
#include "order/fence.h"
#include "order/timeline.h"
#include "pool/learnt/ahead.h"
#include "pool/bare/bare.h"
#include "pool/bound.h"
#include "pool/giving.h"
#include "pool/learnt/learn.h"
#include "pool/parking.h"
#include "pool/pool.h"
#include "pool/spill.h"
#include "pool/throttle.h"

#if defined(__clang__)
#define LOCKED(function) __typeof__(function) function VP_LOCKED

/* order/ */
LOCKED(vp_captures_forbid);
LOCKED(vp_context_check);
LOCKED(vp_context_current);
LOCKED(vp_context_dead);
LOCKED(vp_context_drop);
LOCKED(vp_context_end);
LOCKED(vp_context_ending);
LOCKED(vp_context_failed);
LOCKED(vp_context_get);
LOCKED(vp_context_lost);
LOCKED(vp_context_on);
LOCKED(vp_context_revive);
LOCKED(vp_context_tidy);
LOCKED(vp_event_put);
LOCKED(vp_fence_add_barrier);
LOCKED(vp_fence_clear);
LOCKED(vp_timeline_capture);
LOCKED(vp_timeline_captures);
LOCKED(vp_timeline_destroying);
LOCKED(vp_timeline_get);
LOCKED(vp_timeline_host_func);
LOCKED(vp_timeline_named);
LOCKED(vp_timelines_cover);
LOCKED(vp_timelines_linger);
LOCKED(vp_timelines_poll);
LOCKED(vp_timelines_thread_ended);
LOCKED(vp_timelines_waiting);

/* memory/ */
LOCKED(vp_fit_refresh);
LOCKED(vp_mapping_at);
LOCKED(vp_memory_add_copier);
LOCKED(vp_memory_ask_device);
LOCKED(vp_memory_device_free);
LOCKED(vp_memory_possible);
LOCKED(vp_memory_refile);
LOCKED(vp_memory_set_peers);
LOCKED(vp_sleep_begin);
LOCKED(vp_sleep_end);
LOCKED(vp_sleep_release);
LOCKED(vp_sleep_unmap);
LOCKED(vp_sleep_wake);
LOCKED(vp_spill_holds);

/* pool/ */
LOCKED(vp_ahead_fitted);
LOCKED(vp_ahead_go_on);
LOCKED(vp_ahead_hold_back);
LOCKED(vp_ahead_start);
LOCKED(vp_bare_add);
LOCKED(vp_bare_back_waiting);
LOCKED(vp_bare_crowded);
LOCKED(vp_bare_forget_stream);
LOCKED(vp_bare_make_room);
LOCKED(vp_bare_others_use);
LOCKED(vp_bare_pin_range);
LOCKED(vp_bare_pin_segment);
LOCKED(vp_bare_unasked_left);
LOCKED(vp_bare_unuse_locked);
LOCKED(vp_bound_wait);
LOCKED(vp_giving_lend);
LOCKED(vp_giving_settle);
LOCKED(vp_giving_tick);
LOCKED(vp_giving_trim);
LOCKED(vp_learn_create);
LOCKED(vp_parking_free_event);
LOCKED(vp_pool_chunk_at);
LOCKED(vp_pool_close_timeline);
LOCKED(vp_pool_drop_context);
LOCKED(vp_pool_error);
LOCKED(vp_pool_error_forget);
LOCKED(vp_pool_expect_free);
LOCKED(vp_pool_export);
LOCKED(vp_pool_export_check);
LOCKED(vp_pool_find);
LOCKED(vp_pool_find_inside);
LOCKED(vp_pool_free);
LOCKED(vp_pool_free_async);
LOCKED(vp_pool_init);
LOCKED(vp_pool_lies_alone);
LOCKED(vp_pool_idle);
LOCKED(vp_pool_metadata);
LOCKED(vp_pool_note_peak);
LOCKED(vp_pool_shrinkable);
LOCKED(vp_pool_stats);
LOCKED(vp_pool_synchronized);
LOCKED(vp_pool_trim);
LOCKED(vp_spill_alloc);
LOCKED(vp_spill_settle);
LOCKED(vp_throttle_alloc);

#undef LOCKED
#endif
