#!/usr/bin/env python3
"""Makes traces of made-up training programs that mark their steps, micro-batches, phases and modules, each from a seed.

    marked.py --list                                  names and one line each
    marked.py NAME [--seed N] [--steps N] [--bare] [-o FILE.csv.gz]

They stand for programs like examples/train.py and examples/experts.py, which mark the same, at a smaller size: experts by
marks, as those do, the others by ranges. --bare leaves the
marks out, and nothing else. The same seed gives the same trace.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import contextlib
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from synthetic import KB, MB, Trace, save

THREAD, BACKWARD = 1, 2  # PyTorch runs the backward pass on a thread of its own


class Marked(Trace):
    def __init__(self, rng, bare):
        super().__init__(rng, sys.maxsize)
        self.bare, self.depth = bare, {}

    def mark(self, name):
        if not self.bare:
            self.rows.append(f"m,{name},{THREAD},0,{len(self.rows)}")

    @contextlib.contextmanager
    def range(self, name, thread=THREAD):
        depth = self.depth.get(thread, 0)
        self.depth[thread] = depth + 1
        if not self.bare:
            self.rows.append(f"b,{name},{thread},{depth},{len(self.rows)}")
        yield
        self.depth[thread] = depth
        if not self.bare:
            self.rows.append(f"e,,{thread},{depth},{len(self.rows)}")


def phases_of(t, microbatches):
    """A step of a program: its micro-batches one after the other, and then the optimizer."""
    for i in range(microbatches):
        with t.range(f"microbatch:{i}"):
            yield i
    with t.range("phase:optimizer"):
        t.temp(64 * MB)


def train(t, steps):
    """a dense model in two micro-batches; all steps alike, the same with every seed"""
    layers, width = 8, 4 * MB
    weights = [t.alloc(8 * width) for _ in range(layers)]
    moments = []
    for step in range(steps):
        with t.range(f"step:{step}"):
            gradients = []
            for i in phases_of(t, 2):
                saved = []
                with t.range("phase:forward"):
                    for layer in range(layers):
                        with t.range(f"module:layers.{layer}"):
                            x = t.alloc(3 * width)
                            t.temp(2 * width + 64 * KB)
                            saved += [x, t.alloc(width)]
                with t.range("phase:backward"):
                    for layer in reversed(range(layers)):
                        with t.range(f"module:layers.{layer}", BACKWARD):
                            t.temp(3 * width)
                            if i == 0:
                                gradients.append(t.alloc(8 * width))
                            t.free(saved.pop())
                            t.free(saved.pop())
            if not moments:
                moments = [t.alloc(16 * width) for _ in weights]
            t.free_all(gradients)


def lengths(t, steps):
    """a dense model whose sequence length changes from step to step"""
    layers = 8
    weights = [t.alloc(32 * MB) for _ in range(layers)]
    for step in range(steps):
        length = 8 * t.rng.randrange(32, 129)
        with t.range(f"step:{step}"):
            for _ in phases_of(t, 1):
                saved = []
                with t.range("phase:forward"):
                    for layer in range(layers):
                        with t.range(f"module:layers.{layer}"):
                            t.temp(length * 48 * KB)
                            saved.append(t.alloc(length * 16 * KB))
                with t.range("phase:backward"):
                    for layer in reversed(range(layers)):
                        with t.range(f"module:layers.{layer}", BACKWARD):
                            t.temp(length * 32 * KB)
                            t.free(saved.pop())
    del weights


def experts(t, steps):
    """a mixture of experts: 16 a layer, each with a random share of the tokens; all else alike in each step"""
    layers, count, tokens, hidden = 6, 16, 16384, 2 * KB
    weights = [[t.alloc(24 * MB)] + [t.alloc(4 * MB) for _ in range(count)] for _ in range(layers)]

    def shares():
        drawn = [t.rng.expovariate(1) for _ in range(count)]
        return [int(tokens * share / sum(drawn)) + 1 for share in drawn]
    for step in range(steps):
        t.mark(f"step:{step}")
        for i in range(2):
            t.mark(f"microbatch:{i}")
            t.mark("phase:forward")
            saved, routed = [], []
            for layer in range(layers):
                with t.range(f"module:layers.{layer}.attention"):
                    t.temp(3 * tokens * hidden)
                    saved.append([t.alloc(tokens * hidden), t.alloc(2 * tokens * hidden)])
                with t.range(f"module:layers.{layer}.experts"):
                    sizes = shares()
                    routed.append((sizes, [t.alloc(n * hidden * 2) for n in sizes if n > 64]))
                    for n in sizes:
                        t.temp(n * hidden)
            t.mark("phase:backward")
            for layer in reversed(range(layers)):
                with t.range(f"module:layers.{layer}.experts", BACKWARD):
                    sizes, blocks = routed.pop()
                    for n in sizes:
                        t.temp(n * hidden * 2)
                    t.free_all(blocks)
                with t.range(f"module:layers.{layer}.attention", BACKWARD):
                    t.temp(2 * tokens * hidden)
                    t.free_all(saved.pop())
        t.mark("phase:optimizer")
        t.temp(64 * MB)
    del weights


GENERATORS = [train, lengths, experts]


def write(name, seed, path, steps=4, bare=False):
    trace = Marked(random.Random(f"{name}:{seed}"), bare)
    next(g for g in GENERATORS if g.__name__ == name)(trace, steps)
    save(trace.rows, path)
    return trace


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", nargs="?", choices=[g.__name__ for g in GENERATORS])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    if args.list:
        for g in GENERATORS:
            print(f"{g.__name__:18} {g.__doc__}")
    elif args.name:
        write(args.name, args.seed, args.output, args.steps, args.bare)
    else:
        parser.error("a NAME, or --list")


if __name__ == "__main__":
    main()
