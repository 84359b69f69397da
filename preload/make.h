/* How a door is generated from its line in doors_list.h: the kinds that a line may name, for VP_DOORS_...(VP_MAKE).
 *
 * A per-thread door (_ptsz) calls its plain twin with the explicit name of the per-thread stream, which means the same.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "doors.h"

/* Make a parameter list of these types, and the list of its names. */
#define VP_BY_COUNT(a, b, c, d, e, f, g, h, i, j, k, made, ...) made
#define VP_PARAMS(...)                                                                                                 \
    VP_BY_COUNT(__VA_ARGS__, VP_PARAMS11, VP_PARAMS10, VP_PARAMS9, VP_PARAMS8, VP_PARAMS7, VP_PARAMS6, VP_PARAMS5,     \
                VP_PARAMS4, VP_PARAMS3, VP_PARAMS2, VP_PARAMS1)(__VA_ARGS__)
#define VP_PARAMS1(A) A a
#define VP_PARAMS2(A, B) A a, B b
#define VP_PARAMS3(A, B, C) A a, B b, C c
#define VP_PARAMS4(A, B, C, D) A a, B b, C c, D d
#define VP_PARAMS5(A, B, C, D, E) A a, B b, C c, D d, E e
#define VP_PARAMS6(A, B, C, D, E, F) A a, B b, C c, D d, E e, F f
#define VP_PARAMS7(A, B, C, D, E, F, G) A a, B b, C c, D d, E e, F f, G g
#define VP_PARAMS8(A, B, C, D, E, F, G, H) A a, B b, C c, D d, E e, F f, G g, H h
#define VP_PARAMS9(A, B, C, D, E, F, G, H, I) A a, B b, C c, D d, E e, F f, G g, H h, I i
#define VP_PARAMS10(A, B, C, D, E, F, G, H, I, J) A a, B b, C c, D d, E e, F f, G g, H h, I i, J j
#define VP_PARAMS11(A, B, C, D, E, F, G, H, I, J, K) A a, B b, C c, D d, E e, F f, G g, H h, I i, J j, K k
#define VP_NAMES(...)                                                                                                  \
    VP_BY_COUNT(__VA_ARGS__, VP_NAMES11, VP_NAMES10, VP_NAMES9, VP_NAMES8, VP_NAMES7, VP_NAMES6, VP_NAMES5, VP_NAMES4, \
                VP_NAMES3, VP_NAMES2, a)
#define VP_NAMES2 a, b
#define VP_NAMES3 a, b, c
#define VP_NAMES4 a, b, c, d
#define VP_NAMES5 a, b, c, d, e
#define VP_NAMES6 a, b, c, d, e, f
#define VP_NAMES7 a, b, c, d, e, f, g
#define VP_NAMES8 a, b, c, d, e, f, g, h
#define VP_NAMES9 a, b, c, d, e, f, g, h, i
#define VP_NAMES10 a, b, c, d, e, f, g, h, i, j
#define VP_NAMES11 a, b, c, d, e, f, g, h, i, j, k

#define VP_MAKE(symbol, like, kind, ...) VP_MAKE_##kind(symbol, like, ##__VA_ARGS__)
#define VP_MAKE_BY_HAND(symbol, like)

/* Does `first`, makes the call, and does `last` if `if_so`. */
#define VP_MAKE_WITH(symbol, first, call, if_so, last, ...)                                                            \
    CUresult symbol(VP_PARAMS(__VA_ARGS__)) {                                                                          \
        bool ours = vp_door_enter();                                                                                   \
        if (ours)                                                                                                      \
            first;                                                                                                     \
        CUresult res = call;                                                                                           \
        if (ours && (if_so))                                                                                           \
            last;                                                                                                      \
        vp_door_leave();                                                                                               \
        return res;                                                                                                    \
    }
/* Does `first`, calls CUDA (if `tries`, again while that may help: it needs `wanted` bytes), and after success `then`.
 */
#define VP_MAKE_DOOR(symbol, first, tries, wanted, then, ...)                                                          \
    VP_MAKE_WITH(symbol, first, VP_TRIED(ours && (tries), wanted, VP_REAL(symbol)(VP_NAMES(__VA_ARGS__))),             \
                 res == CUDA_SUCCESS, then, __VA_ARGS__)
#define VP_MAKE_FIRST(symbol, like, first, ...) VP_MAKE_DOOR(symbol, first, true, 0, (void)0, __VA_ARGS__)
#define VP_MAKE_THEN(symbol, like, then, ...) VP_MAKE_DOOR(symbol, (void)0, false, 0, then, __VA_ARGS__)
/* A call in which the host waits for the device. */
#define VP_MAKE_WAITED(symbol, like, what, which, ...)                                                                 \
    VP_MAKE_BRACKETED(symbol, like, (void)0,                                                                           \
                      res == CUDA_SUCCESS ? vp_api_synchronized(what, which) : vp_api_failed(what, which, res),        \
                      __VA_ARGS__)
#define VP_MAKE_AROUND(symbol, like, first, then, ...) VP_MAKE_DOOR(symbol, first, false, 0, then, __VA_ARGS__)
#define VP_MAKE_TRIED(symbol, like, ...) VP_MAKE_DOOR(symbol, (void)0, true, 0, (void)0, __VA_ARGS__)
/* Notes queued work when the door is left. */
static inline void vp_note_work(const CUstream *stream) {
    vp_api_worked(*stream);
}
#define VP_WORKS(stream) __attribute__((cleanup(vp_note_work), unused)) const CUstream works_ = (stream)

/* Launches are frequent: nothing else is done for one that does not lack memory. */
#define VP_MAKE_LAUNCHED(symbol, like, sync, stream, ...)                                                              \
    CUresult symbol(VP_PARAMS(__VA_ARGS__)) {                                                                          \
        VP_WORKS(stream);                                                                                              \
        if (__builtin_expect(vp_api_ready(), true)) {                                                                  \
            CUresult res = VP_REAL(symbol)(VP_NAMES(__VA_ARGS__));                                                     \
            if (__builtin_expect(res != CUDA_ERROR_OUT_OF_MEMORY, true))                                               \
                return res;                                                                                            \
        }                                                                                                              \
        CUresult again = VP_TRIED(vp_door_enter(), 0, VP_REAL(symbol)(VP_NAMES(__VA_ARGS__)));                         \
        vp_door_leave();                                                                                               \
        return again;                                                                                                  \
    }
#define VP_MAKE_TRIED_THEN(symbol, like, then, ...) VP_MAKE_DOOR(symbol, (void)0, true, 0, then, __VA_ARGS__)
#define VP_MAKE_SIZED(symbol, like, wanted, then, ...) VP_MAKE_DOOR(symbol, (void)0, true, wanted, then, __VA_ARGS__)

/* Does `first`, calls CUDA, and does `last` whatever the result (`res`). */
#define VP_MAKE_BRACKETED(symbol, like, first, last, ...)                                                              \
    VP_MAKE_WITH(symbol, first, VP_REAL(symbol)(VP_NAMES(__VA_ARGS__)), true, last, __VA_ARGS__)

/* Serve an allocation of `size` bytes, or a free; else pass it on and count it as passed on; CUDA may have `queued` the
 * free. A free of our memory is served even within another door, as from a signal handler, because CUDA cannot free it.
 */
#define VP_MAKE_ALLOCATED(symbol, like, call, size, serves, ...)                                                       \
    CUresult symbol(VP_PARAMS(__VA_ARGS__)) {                                                                          \
        bool ours = vp_door_enter();                                                                                   \
        CUresult res = ours ? vp_door_take_told(size) : VP_NOT_OURS;                                                   \
        if (ours && res == VP_NOT_OURS && (res = serves) == VP_NOT_OURS)                                               \
            vp_api_passed(call);                                                                                       \
        if (res == VP_NOT_OURS)                                                                                        \
            res = VP_TRIED(ours, size, VP_REAL(symbol)(VP_NAMES(__VA_ARGS__)));                                        \
        vp_door_leave();                                                                                               \
        if (ours && a && (res == CUDA_ERROR_OUT_OF_MEMORY || res == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED))            \
            *a = 0; /* so does the driver */                                                                           \
        return res;                                                                                                    \
    }
#define VP_MAKE_FREED(symbol, like, call, serves, queued, ...)                                                         \
    VP_MAKE_ASKED(symbol, ours || vp_api_ready(), serves, (ours ? vp_api_passed(call) : (void)0, queued), __VA_ARGS__)

/* If `may`, calls `serves`. If that returns VP_NOT_OURS, calls CUDA and does `noted`. */
#define VP_MAKE_SERVED(symbol, like, serves, ...) VP_MAKE_ASKED(symbol, ours, serves, (void)0, __VA_ARGS__)
#define VP_MAKE_ASKED(symbol, may, serves, noted, ...)                                                                 \
    CUresult symbol(VP_PARAMS(__VA_ARGS__)) {                                                                          \
        bool ours = vp_door_enter();                                                                                   \
        CUresult res = (may) ? serves : VP_NOT_OURS;                                                                   \
        if (res == VP_NOT_OURS) {                                                                                      \
            res = VP_REAL(symbol)(VP_NAMES(__VA_ARGS__));                                                              \
            noted;                                                                                                     \
        }                                                                                                              \
        vp_door_leave();                                                                                               \
        return res;                                                                                                    \
    }

/* The same as `like`; VP_MAKE_OWN replaces a parameter `stream` of 0 by the per-thread stream. */
#define VP_MAKE_SAME(symbol, like, ...)                                                                                \
    CUresult symbol(VP_PARAMS(__VA_ARGS__)) {                                                                          \
        return like(VP_NAMES(__VA_ARGS__));                                                                            \
    }
#define VP_MAKE_OWN(symbol, like, stream, ...)                                                                         \
    CUresult symbol(VP_PARAMS(__VA_ARGS__)) {                                                                          \
        stream = vp_own(stream);                                                                                       \
        return like(VP_NAMES(__VA_ARGS__));                                                                            \
    }

/* For `then`: something of another process was imported. `why` is a string constant for the log. */
static inline void imported(const char *why) {
    vp_api_coupled(why);
    vp_api_tied(VP_TIE_IMPORT);
}

#define VP_PRAGMA(words) _Pragma(#words)
#define VP_BODY(symbol) VP_PRAGMA(redefine_extname symbol vp_body_##symbol)
VP_DOORS_WITH_HEAD(VP_BODY)
