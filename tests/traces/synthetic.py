#!/usr/bin/env python3
"""Makes traces of programs that hardly repeat themselves, realistic ones and adversarial ones, each from a seed.

    synthetic.py --list                   names and one line each
    synthetic.py NAME [--seed N] [--ops N] [--scale F] [-o FILE.csv.gz]
    synthetic.py --all DIR [--seed N] [--ops N] [--scale F]

A trace is `op,id,size,stream,us`, as `vpool replay` reads it. --ops is about how many events it gets; what is live at the
end stays so. --scale makes all sizes so many times as large. Nothing but Python's standard library is needed, and the
same seed gives the same trace.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import gzip
import math
import os
import random
import sys

KB, MB, GB = 1 << 10, 1 << 20, 1 << 30


class Trace:
    """Collects events; `full` once there are enough. What it counts as live is what the program asked for, before scaling."""

    def __init__(self, rng, ops, scale=1.0):
        self.rng, self.ops, self.scale = rng, ops, scale
        self.rows, self.ids = [], 0
        self.live = self.peak = 0
        self.drained = 0  # how often nothing was live any more
        self.sizes = {}
        self.us = None  # of programs that have times; of others each event comes a moment later

    @property
    def full(self):
        return len(self.rows) >= self.ops

    @property
    def now(self):
        return len(self.rows) if self.us is None else self.us

    def kernel(self, us):
        """Work on the stream of the last event."""
        self.us += us

    def wait(self, stream, other):
        self.rows.append(f"w,{other},0,{stream},{self.now}")

    def alloc(self, size, stream=0):
        size = max(1, int(size))
        block, self.ids = self.ids, self.ids + 1
        self.sizes[block] = (size, stream)
        self.live += size
        self.peak = max(self.peak, self.live)
        self.rows.append(f"a,{block},{max(1, int(size * self.scale))},{stream},{self.now}")
        return block

    def free(self, block, stream=None):
        size, own = self.sizes.pop(block)
        self.live -= size
        self.drained += not self.live
        self.rows.append(f"f,{block},0,{own if stream is None else stream},{self.now}")

    def free_all(self, blocks, stream=None):
        for block in blocks:
            self.free(block, stream)

    def temp(self, size, stream=0):
        self.free(self.alloc(size, stream))

    def log_uniform(self, low, high):
        return math.exp(self.rng.uniform(math.log(low), math.log(high)))


def serving_kv_cat(t):
    """decoding with caches that grow by concatenation, 24 requests of random prompt and length coming and going"""
    heads = 8 * 128 * 2
    requests = []
    weights = [t.alloc(180 * MB) for _ in range(24)]
    while not t.full:
        if len(requests) < 24 and t.rng.random() < 0.2:
            prompt = t.rng.randint(32, 4000)
            requests.append([prompt, prompt + t.rng.randint(8, 1500), [t.alloc(prompt * heads) for _ in range(8)]])
        for r in list(requests):
            r[0] += 1
            for i, old in enumerate(r[2]):
                new = t.alloc(r[0] * heads)
                t.free(old)
                r[2][i] = new
            t.temp(r[0] * 32 * 4)
            if r[0] >= r[1]:
                t.free_all(r[2])
                requests.remove(r)
    del weights


def video(t):
    """eight video decoders, a stream each, frames handed on to an inference stream and freed there; resolutions change at times"""
    def clip():
        w, h = t.rng.choice(((1280, 720), (1920, 1080), (3840, 2160), (854, 480), (2704, 1520)))
        return w * h
    clips, queue = [clip() for _ in range(8)], []
    while not t.full:
        for s, pixels in enumerate(clips):
            t.temp(t.log_uniform(20 * KB, 2 * MB), 1 + s)
            nv12 = t.alloc(pixels * 3 // 2, 1 + s)
            rgb = t.alloc(pixels * 3, 1 + s)
            t.free(nv12)
            queue.append(rgb)
            if t.rng.random() < 0.005:
                clips[s] = clip()
        while len(queue) > 20:
            batch = [queue.pop(0) for _ in range(t.rng.randint(1, 16))]
            x = t.alloc(len(batch) * 640 * 640 * 12, 0)
            t.free_all(batch, 0)
            t.temp(len(batch) * 64 * 320 * 320 * 2, 0)
            t.free(x)


def hash_tables(t):
    """forty hash tables that double when full and halve when empty, with small nodes that live long in between"""
    tables = [[t.alloc(4 * MB), 4 * MB] for _ in range(40)]
    nodes = []
    while not t.full:
        table = t.rng.choice(tables)
        grow = t.rng.random() < (0.8 if table[1] < 64 * MB else 0.35)
        size = min(max(table[1] * 2 if grow else table[1] // 2, MB), 2 * GB)
        new = t.alloc(size + 16 * t.rng.randint(0, 1000))
        t.free(table[0])
        table[:] = [new, size]
        for _ in range(3):
            nodes.append(t.alloc(t.rng.randint(1, 8) * 256 * KB))
            if len(nodes) > 400:
                t.free(nodes.pop(t.rng.randrange(len(nodes))))


def mix16(t):
    """sixteen streams of sixteen kinds: steady, growing, random, tiny, huge; one free in five on another stream"""
    live = [[] for _ in range(16)]
    kinds = [(lambda k=k: [256 * KB * k, t.log_uniform(512, 4 * MB), t.rng.randint(1, 64) * MB,
                           t.log_uniform(MB, 512 * MB)][k % 4]) for k in range(16)]
    while not t.full:
        s = t.rng.randrange(16)
        for _ in range(t.rng.randint(1, 6)):
            live[s].append(t.alloc(max(512, kinds[s]()), s))
        while len(live[s]) > 6 + s:
            block = live[s].pop(t.rng.randrange(len(live[s])))
            t.free(block, t.rng.randrange(16) if t.rng.random() < 0.2 else s)


def drift(t):
    """a training step whose sizes all drift up by a ten-thousandth from step to step, and back after a doubling"""
    scale, up = 1.0, True
    base = [t.log_uniform(2 * MB, 256 * MB) for _ in range(40)]
    while not t.full:
        saved = []
        for b in base:
            saved.append(t.alloc(b * scale))
            t.temp(b * scale * 0.7)
        while saved:
            t.temp(base[len(saved) - 1] * scale * 1.1)
            t.free(saved.pop())
        scale *= 1.0001 if up else 1 / 1.0001
        up = scale < 2.0 if up else scale <= 1.0


def alike(t):
    """300 blocks of 48 to 52 MiB live, one at random replaced by another of a random size at a time"""
    live = [t.alloc(t.rng.uniform(48 * MB, 52 * MB)) for _ in range(300)]
    while not t.full:
        i = t.rng.randrange(len(live))
        t.free(live[i])
        live[i] = t.alloc(t.rng.uniform(48 * MB, 52 * MB))


def churn(t):
    """log-uniform sizes of 1 MiB to 1 GiB that live for random times, about 30 GiB together"""
    live = []
    while not t.full:
        while t.live > 30 * GB:
            i = t.rng.randrange(len(live))
            live[i], live[-1] = live[-1], live[i]
            t.free(live.pop())
        live.append(t.alloc(t.log_uniform(MB, GB)))


def pins(t):
    """temporaries of 1 to 16 GiB, and after each a block of 1 to 2 MiB that lives for two thousand rounds"""
    keep = []
    while not t.full:
        big = t.alloc(t.rng.randint(1, 16) * GB)
        half = t.alloc(t.rng.randint(1, 8) * GB)
        t.free(big)
        keep.append(t.alloc(t.rng.uniform(MB, 2 * MB)))
        t.free(half)
        if len(keep) > 2000:
            t.free(keep.pop(t.rng.randrange(len(keep))))


def robson(t):
    """Robson's adversary: fill with small blocks, free all but one in two neighbours, ask for twice the size; again and again"""
    while not t.full:
        size, total, live = MB, 4 * GB, []
        while size <= 512 * MB:
            while t.live + size <= total:
                live.append((t.alloc(size), size))
            kept = []
            for i, (block, s) in enumerate(live):
                if i % 2:
                    t.free(block)
                else:
                    kept.append((block, s))
            live, size = kept, size * 2
        t.rng.shuffle(live)
        t.free_all([block for block, _ in live])


def streams_many(t):
    """two thousand streams in rounds, each with blocks of its own that it frees in the next round"""
    live = {}
    while not t.full:
        s = t.rng.randrange(2000)
        for block in live.pop(s, []):
            t.free(block)
        live[s] = [t.alloc(t.log_uniform(4 * KB, 8 * MB), s) for _ in range(3)]


def phases(t):
    """phases of a thousand events with sizes of their own, one in four a return to an earlier one"""
    seen = []
    while not t.full:
        if seen and t.rng.random() < 0.25:
            sizes = t.rng.choice(seen)
        else:
            sizes = [t.log_uniform(64 * KB, 400 * MB) for _ in range(50)]
            seen.append(sizes)
        for _ in range(5):
            live = [t.alloc(size) for size in sizes]
            while live:
                t.free(live.pop(-1 if len(live) % 3 else 0))
                if len(live) % 4 == 0:
                    t.temp(sizes[len(live) - 1] * 2)


def moe_routing(t):
    """mixture of experts: each of 64 experts gets a random share of the tokens at each layer, forward and backward"""
    hidden = 2048
    weights = [t.alloc(32 * MB) for _ in range(128)]
    while not t.full:
        saved = []
        for _ in range(8):
            shares = [t.rng.expovariate(1) for _ in range(64)]
            total = sum(shares)
            for share in shares:
                n = int(16384 * share / total) + 1
                saved += [t.alloc(n * hidden * 2), t.alloc(n * hidden * 4)]
            t.temp(16384 * hidden * 4)
        while saved:
            block = saved.pop()
            t.temp(t.sizes[block][0])
            t.free(block)
    del weights


def two_ways(t):
    """a small program on twelve streams, some 100 MiB alive: blocks up to 4 MiB, long-lived on six streams, short-lived on the others"""
    live = []
    while not t.full:
        s = t.rng.randrange(12)
        if s < 6:
            live.append(t.alloc(t.log_uniform(512, 4 * MB), s))
        else:
            t.temp(t.log_uniform(512, 4 * MB), s)
        while t.live > 100 * MB:
            t.free(live.pop(t.rng.randrange(len(live))))


class Gathering:
    """examples/gather.py: sizes and waits of its streams are its own, times those of one H200."""
    main, side, behind, layers = 0, 1, 2, 24
    part, whole, hidden, row = 9 * MB, 72 * MB, 96 * MB, 24 * MB

    def __init__(self, t):
        self.t = t
        t.us = 0

    def made(self, size, us, stream=main):
        block = self.t.alloc(size, stream)
        self.t.kernel(us)
        return block

    def free_used(self, *blocks):
        """What both streams used: behind both, on a third."""
        for block in blocks:
            for stream in (self.main, self.side):
                self.t.wait(self.behind, stream)
            self.t.free(block, self.behind)
            self.t.kernel(1)

    def gathered(self):
        self.t.wait(self.side, self.main)
        return [self.made(self.whole, 40, self.side) for _ in range(2)]

    def each(self):
        """The halves of each layer are gathered while this says so, one layer ahead."""
        coming, used = self.gathered(), []
        for i in range(self.layers):
            there, coming = coming, self.gathered() if i + 1 < self.layers else []
            self.t.wait(self.main, self.side)
            yield
            self.free_used(*used)
            used = there
        self.free_used(*used)

    def activation(self):
        product = self.made(self.hidden, 520)
        active = self.made(self.hidden, 60)
        self.t.free(product)
        return active

    def sum(self, *freed):
        product = self.made(self.row, 520)
        self.t.free_all(freed)
        out = self.made(self.row, 20)
        self.t.free(product)
        return out

    def backward(self, x, dy):
        h = self.activation()
        product, mask, dh = self.made(self.hidden, 520), self.made(self.hidden // 2, 40), self.made(self.hidden, 80)
        self.t.free_all([product, mask])
        out = self.sum()
        gradients = self.made(self.whole, 520), self.made(self.whole, 520)
        self.t.free_all([x, h, dh, dy])
        self.t.wait(self.side, self.main)
        for _ in gradients:
            self.t.free_all([self.made(self.part, 30, self.side), self.made(self.part, 10, self.side)])
        self.free_used(*gradients)
        return out

    def step(self):
        x, target, inputs = self.made(self.row, 50), self.made(self.row, 20), []
        for _ in self.each():
            inputs.append(x)
            x = self.sum(self.activation())
        difference = self.made(self.row, 20)
        self.t.free_all([self.made(2 * self.row, 40), self.made(2 * self.row, 40)])
        dy = self.made(self.row, 20)
        for _ in self.each():
            dy = self.backward(inputs.pop(), dy)
        self.t.free_all([dy, target, difference, x])


def gather(t):
    """layers gathered on a second stream, one ahead, and freed behind both; the only one with times, and waits of its streams"""
    program = Gathering(t)
    for _ in range(2 * program.layers):
        noise = program.made(program.part, 10)
        t.alloc(program.part)
        t.free(noise)
    while not t.full:
        program.step()


GENERATORS = [serving_kv_cat, video, hash_tables, mix16, drift, alike, churn, pins, robson, streams_many, phases, moe_routing,
              two_ways, gather]


def make(name, seed, ops, scale=1.0):
    trace = Trace(random.Random(f"{name}:{seed}"), ops, scale)
    next(g for g in GENERATORS if g.__name__ == name)(trace)
    return trace


def save(rows, path, header="op,id,size,stream,us"):
    """Into a file, compressed if it is called so; None: to stdout."""
    text = "\n".join((header, *rows)) + "\n"
    if path is None:
        sys.stdout.write(text)
    elif path.endswith(".gz"):
        with open(path, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="", compresslevel=1) as out:
            out.write(text.encode())
    else:
        with open(path, "w") as out:
            out.write(text)


def write(name, seed, ops, path, scale=1.0):
    trace = make(name, seed, ops, scale)
    save(trace.rows, path)
    return trace


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", nargs="?", choices=[g.__name__ for g in GENERATORS])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--all", metavar="DIR")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ops", type=int, default=100000)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    if args.list:
        for g in GENERATORS:
            print(f"{g.__name__:18} {g.__doc__}")
    elif args.all:
        for g in GENERATORS:
            t = write(g.__name__, args.seed, args.ops, os.path.join(args.all, g.__name__ + ".csv.gz"), args.scale)
            print(f"{g.__name__:18} {len(t.rows):8} events, {t.peak * t.scale / MB:10.0f} MiB live at the peak")
    elif args.name:
        write(args.name, args.seed, args.ops, args.output, args.scale)
    else:
        parser.error("a NAME, --all or --list")


if __name__ == "__main__":
    main()
