"""Runs numba kernels on vectors of many sizes and compares with numpy.

Prints one JSON object; "checksum" is the same whatever the allocator.
"""
# SPDX-License-Identifier: Apache-2.0
import json
import statistics
import time
import warnings

import numpy as np

# numba-cuda 0.23 and older still name a function that NumPy 2.5 dropped.
if not hasattr(np, "row_stack"):
    np.row_stack = np.vstack

from numba import cuda  # noqa: E402

warnings.simplefilter("ignore")  # small grids are meant here

ROUNDS = 40


@cuda.jit
def scale_and_add(factor, x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = factor * x[i] + y[i]


@cuda.jit
def reverse(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[x.size - 1 - i]


def one_round(index, stream, wrong):
    numbers = np.random.default_rng(index)
    length = int(numbers.integers(1, 1 << int(numbers.integers(4, 22))))
    x, y = numbers.integers(0, 1000, (2, length)).astype(np.float64)  # whole numbers: exact on both sides
    grid = (length + 255) // 256

    gpu_x, gpu_y = cuda.to_device(x, stream=stream), cuda.to_device(y, stream=stream)
    scaled, turned = (cuda.device_array(length, dtype=np.float64, stream=stream) for _ in range(2))
    scale_and_add[grid, 256, stream](3.0, gpu_x, gpu_y, scaled)
    reverse[grid, 256, stream](scaled, turned)
    got = turned.copy_to_host(stream=stream)
    stream.synchronize()
    if not np.array_equal(got, (3 * x + y)[::-1]):
        wrong.append(f"round {index}, {length} numbers")
    return float(got.sum())


def main():
    streams = [cuda.stream(), cuda.stream()]
    times, wrong, checksum = [], [], 0.0
    for index in range(ROUNDS):
        start = time.perf_counter()
        checksum += one_round(index, streams[index % 2], wrong)
        times.append(1e3 * (time.perf_counter() - start))
    print(json.dumps({
        "ok": not wrong,
        "wrong": wrong[:5],
        "checksum": checksum,
        "first_ms": times[0],
        "late_ms": statistics.median(times[ROUNDS // 2:]),
    }))


main()
