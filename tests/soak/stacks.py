#!/usr/bin/env python3
"""Threads of Python that allocate for minutes under VPOOL_STACKS, while dumps tell what they hold: from any depth, from
generators, from code made a moment ago, from destructors, and from threads that come and go. On the simulated driver.

usage: stacks.py SECONDS [THREADS]      8 threads; prints what they did. `scripts/soak --stacks SECONDS` runs it
"""
# SPDX-License-Identifier: Apache-2.0
import ctypes
import gc
import os
import random
import sys
import threading
import time

SECONDS, THREADS = float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 8
KIB, MOST_ALIVE = 1 << 10, 16
cuda = ctypes.CDLL("libcuda.so.1")
context, device = ctypes.c_void_p(), ctypes.c_int()


class Block:
    def __init__(self, size):
        self.pointer = ctypes.c_uint64()
        assert cuda.cuCtxSetCurrent(context) == 0
        assert cuda.cuMemAlloc_v2(ctypes.byref(self.pointer), ctypes.c_size_t(size)) == 0

    def __del__(self):
        assert cuda.cuMemFree_v2(self.pointer) == 0


class Worker:
    def __init__(self, seed, end):
        self.random, self.end, self.alive, self.count = random.Random(seed), end, [], 0

    def alloc(self):
        self.count += 1
        return Block(self.random.choice((1, 3, 17, 300, 1500)) * KIB)

    def deep(self, depth):
        return self.deep(depth - 1) if depth else self.alloc()

    def generated(self):
        def blocks():
            while True:
                yield self.alloc()
        return [block for block, _ in zip(blocks(), range(3))]

    def made(self):
        """By code that is gone right afterwards: its address may be another's next time."""
        name = f"made_{self.random.randrange(1000)}"
        scope = {}
        exec(compile("\n" * self.random.randrange(50) + f"def {name}(alloc): return alloc()", name, "exec"), scope)
        return scope[name](self.alloc)

    def caught(self):
        try:
            raise KeyError(self.alloc())
        except KeyError as error:
            return error.args[0]

    def beside(self):
        """In a thread that ends with it."""
        got = []
        thread = threading.Thread(target=lambda: got.append(self.deep(5)))
        thread.start()
        thread.join()
        return got

    def cycle(self):
        class Holder:
            pass
        holder = Holder()
        holder.itself, holder.block = holder, self.alloc()

    def work(self):
        kinds = [lambda: self.deep(self.random.randrange(60)), self.generated, self.made, self.caught, self.cycle]
        while time.monotonic() < self.end:
            kind = self.random.choice(kinds) if self.random.randrange(50) else self.beside
            self.alive.append(kind())
            if len(self.alive) > MOST_ALIVE:
                del self.alive[self.random.randrange(len(self.alive))]
            if not self.random.randrange(2000):
                gc.collect()
        self.alive.clear()


def main():
    assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    workers = [Worker(seed, time.monotonic() + SECONDS) for seed in range(THREADS)]
    threads = [threading.Thread(target=worker.work) for worker in workers]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        pid = os.fork()
        if not pid:
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        time.sleep(0.5)
    for thread in threads:
        thread.join()
    gc.collect()
    print(f"soak: {sum(worker.count for worker in workers)} allocations with stacks by {THREADS} threads in {SECONDS:.0f} s")


main()
