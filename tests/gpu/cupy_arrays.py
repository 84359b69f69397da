"""Works on CuPy arrays of many sizes, with CuPy's own pool or without (--no-pool), and compares with numpy.

Prints one JSON object; "checksum" is the same whatever the allocator, but for the last digits.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import statistics
import time

import cupy
import numpy as np

ROUNDS = 24


def compare(wrong, name, got, expected, tolerance):
    got = cupy.asnumpy(got)
    error = np.linalg.norm((got - expected).ravel()) / max(np.linalg.norm(np.ravel(expected)), 1e-30)
    if not error <= tolerance:  # a NaN is wrong too
        wrong.append(f"{name}: relative error {error}")


def one_round(index, wrong):
    numbers = np.random.default_rng(index)
    length = int(numbers.integers(1 << 12, 1 << 19))
    side = int(numbers.integers(64, 768))
    line = numbers.standard_normal(length)
    square = numbers.standard_normal((side, side))

    gpu_line, gpu_square = cupy.asarray(line), cupy.asarray(square)
    sums = gpu_line.sum() + (gpu_line * 2 + 1).sum()
    compare(wrong, "sum", sums, 3 * line.sum() + length, 1e-9)
    compare(wrong, "fft", cupy.fft.fft(gpu_line), np.fft.fft(line), 1e-9)
    compare(wrong, "matmul", gpu_square @ gpu_square.T, square @ square.T, 1e-9)
    compare(wrong, "sort", cupy.sort(gpu_line), np.sort(line), 0)

    side_stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    with side_stream:
        gathered = cupy.concatenate([gpu_line[::2], gpu_line[1::2]]) + 1
    side_stream.synchronize()
    compare(wrong, "gather", gathered, np.concatenate([line[::2], line[1::2]]) + 1, 1e-12)
    return float(gathered.sum())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-pool", action="store_true", help="each array by a cudaMalloc of its own")
    if parser.parse_args().no_pool:
        cupy.cuda.set_allocator(None)

    times, wrong, checksum = [], [], 0.0
    for index in range(ROUNDS):
        start = time.perf_counter()
        checksum += one_round(index, wrong)
        cupy.cuda.Device().synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    pool = cupy.get_default_memory_pool()
    print(json.dumps({
        "ok": not wrong,
        "wrong": wrong[:5],
        "checksum": checksum,
        "first_ms": times[0],
        "late_ms": statistics.median(times[ROUNDS // 2:]),
        "pool_bytes": pool.total_bytes(),
    }))


main()
