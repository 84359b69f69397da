"""usage: stacks.py DEPTH    what a pair of an allocation and its free takes that many calls deep in Python, as one JSON object:
in nanoseconds, the least of some batches. `again`: in frames that stay; `anew`: in frames made for each pair.
"""
# SPDX-License-Identifier: Apache-2.0
import ctypes
import json
import sys
import time

BATCHES, AGAIN, ANEW = 20, 5000, 1000
cuda = ctypes.PyDLL("libcuda.so.1")
context, device, stream, pointer = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0 and cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
take, give, where, size = cuda.cuMemAllocAsync, cuda.cuMemFreeAsync, ctypes.byref(pointer), ctypes.c_size_t(1 << 20)


def again(depth, count):
    if depth > 1:
        again(depth - 1, count)
        return
    for _ in range(count):
        take(where, size, stream)
        give(pointer, stream)


def anew(depth):
    if depth > 1:
        anew(depth - 1)
        return
    take(where, size, stream)
    give(pointer, stream)


def least(batch, count):
    batch()
    times = []
    for _ in range(BATCHES):
        begin = time.perf_counter_ns()
        batch()
        times.append((time.perf_counter_ns() - begin) / count)
    return min(times)


def anew_often():
    for _ in range(ANEW):
        anew(DEPTH - 3)


# The module, least() and what it calls are frames, too.
DEPTH = int(sys.argv[1])
print(json.dumps({"ok": True, "again": least(lambda: again(DEPTH - 3, AGAIN), AGAIN), "anew": least(anew_often, ANEW)}))
