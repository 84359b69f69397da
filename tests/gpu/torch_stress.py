"""Random tensors through PyTorch's allocator, each full of a number of its own, for some seconds.

Several threads, each on a stream of its own: tensors come and go, are read late on other streams with record_stream(), handed
from thread to thread, and written by graphs that are launched all the while. Every byte is compared on the GPU. Prints a JSON
object; "mismatches" must be 0, and "checksum" says so.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import collections
import json
import random
import threading
import time

import torch

MIB = 1 << 20
THREADS, HELD = 4, 24


class Wrong:
    """Counts on the device what differs, so that no check makes the host wait."""

    def __init__(self):
        self.count = torch.zeros((), dtype=torch.int64, device="cuda")
        self.checks = 0

    def check(self, tensor, number):
        self.count += (tensor != number).sum()
        self.checks += 1


class Graph:
    """A captured chain of tensors, whose blocks are long free to the cache."""

    def __init__(self, seed):
        self.static = torch.full((3 * MIB // 4 + 1024 * seed,), seed, dtype=torch.int32, device="cuda")
        self.graph, self.seed = torch.cuda.CUDAGraph(), seed
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph):
            middle = self.static + 1
            for _ in range(4):
                middle = middle + 1
            self.out = middle * 2
            del middle
        self.graph.replay()  # by cudaMallocAsync's graphs what it allocates has no memory before
        torch.cuda.synchronize()

    def launch(self, wrong):
        self.out.zero_()
        self.graph.replay()
        wrong.check(self.out, 2 * (self.seed + 5))


def size_of(numbers):
    kind = numbers.random()
    most = 64 * 1024 if kind < 0.5 else 3 * MIB if kind < 0.85 else 40 * MIB
    return numbers.randrange(1, most // 4)


def read_late(numbers, side, tensor, number, wrong):
    """Another stream reads the tensor after it was freed here."""
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(numbers.randrange(1000, 300_000))
        wrong.check(tensor, number)
    tensor.record_stream(side)


def take(parcels, wrong):
    """Takes what another thread has handed over, if anything."""
    try:
        number, tensor, event = parcels.popleft()
    except IndexError:
        return
    event.wait()
    wrong.check(tensor, number)
    tensor.record_stream(torch.cuda.current_stream())


def work(index, until, parcels, graphs, results, problems):
    try:
        numbers, held, count = random.Random(index), [], 0
        with torch.cuda.stream(torch.cuda.Stream()):
            side, here, there = torch.cuda.Stream(), Wrong(), Wrong()
            side.wait_stream(torch.cuda.current_stream())
            while time.monotonic() < until:
                count += 1
                number = index * 100_000_000 + count
                held.append((number, torch.full((size_of(numbers),), number, dtype=torch.int32, device="cuda")))
                if len(held) <= HELD:
                    continue
                number, tensor = held.pop(numbers.randrange(HELD))
                chance = numbers.random()
                if chance < 0.3:
                    read_late(numbers, side, tensor, number, there)
                elif chance < 0.4:  # to whoever takes it, with its event
                    event = torch.cuda.Event()
                    event.record()
                    parcels.append((number, tensor, event))
                else:
                    here.check(tensor, number)
                if chance > 0.9:
                    take(parcels, here)
                if index == 0 and count % 16 == 0:
                    numbers.choice(graphs).launch(here)
                if count % 500 == 0:
                    torch.cuda.current_stream().synchronize()
                if index == 1 and count % 3000 == 0:
                    torch.cuda.empty_cache()
                del tensor
            for number, tensor in held:
                here.check(tensor, number)
            torch.cuda.current_stream().synchronize()
            side.synchronize()
            results.append((int(here.count) + int(there.count), here.checks + there.checks))
    except Exception as problem:
        problems.append(f"thread {index}: {problem!r}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    seconds = parser.parse_args().seconds
    torch.zeros(1, device="cuda")
    graphs = [Graph(seed) for seed in range(1, 5)]
    parcels, results, problems = collections.deque(), [], []
    until = time.monotonic() + seconds
    threads = [threading.Thread(target=work, args=(index, until, parcels, graphs, results, problems))
               for index in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    mismatches = sum(wrong for wrong, _ in results)
    print(json.dumps({"ok": not problems and not mismatches, "checksum": mismatches, "mismatches": mismatches,
                      "ops": sum(checks for _, checks in results), "problems": problems[:3]}))


if __name__ == "__main__":
    main()
