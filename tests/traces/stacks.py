#!/usr/bin/env python3
"""Makes traces of a made-up training program with stacks, marks, ranges, what was held, and failures, from a seed.

    stacks.py [--events N] [--stacks N] [--depth N] [--devices N] [--threads N] [--seed N] [-o FILE.csv[.gz]]

The program has layers, each of which allocates in a forward pass, keeps some of it for the backward pass and frees it there.
Every tenth stack is of native code, every hundredth of a thread without Python. What docs say of the format is used: text
that is encoded, text that goes on in another line. The same arguments give the same trace.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import gzip
import random
import sys

MB = 1 << 20
LINE_MOST = 240


def encoded(text):
    """Percent-encoded, where a byte would end a field or a line."""
    return "".join(chr(b) if 0x20 <= b != 0x7f and chr(b) not in ",\"%" else f"%{b:02x}" for b in text.encode())


class Writer:
    def __init__(self, out):
        self.out, self.us, self.events = out, 0, 0
        out.write("op,id,size,stream,us\n")

    def line(self, *fields):
        self.out.write(",".join(map(str, fields)) + "\n")

    def text(self, op, first, second, text, last=False):
        """A record whose text may be too long for a line. `last`: the text is the first field, and not the third."""
        text = encoded(text)
        piece, rest = text[:LINE_MOST - 60], text[LINE_MOST - 60:]
        while piece.endswith("%") or piece[-2:-1] == "%":
            piece, rest = piece[:-1], piece[-1] + rest
        self.line(op, *((piece, first, second) if last else (first, second, piece)), self.us)
        while rest:
            piece, rest = rest[:LINE_MOST - 40], rest[LINE_MOST - 40:]
            self.line("+", "", "", piece, self.us)


class Program:
    """What the program's source looks like: frames and stacks by number, and what each stack allocates."""

    def __init__(self, writer, rng, stacks, depth):
        self.writer, self.rng = writer, rng
        self.frames, self.stacks, self.leaves = {}, {}, []
        writer.text("l", 1, "", "/usr/lib/x86_64-linux-gnu/libmodel.so.1")
        writer.text("l", 2, "0123456789abcdef0123456789abcdef01234567", "/opt/with, comma/libkernels.so")
        for leaf in range(stacks):
            self.leaves.append(self.leaf(leaf, depth))

    def frame(self, kind, text):
        number = self.frames.get((kind, text))
        if not number:
            number = self.frames[kind, text] = len(self.frames) + 1
            self.writer.text("n", number, kind, text)
        return number

    def stack(self, parent, frame):
        number = self.stacks.get((parent, frame))
        if not number:
            number = self.stacks[parent, frame] = len(self.stacks) + 1
            self.writer.line("s", number, parent, frame, self.writer.us)
        return number

    def leaf(self, leaf, depth):
        """A stack of its own: the digits of its number are the calls that lead to it."""
        if leaf % 100 == 99:
            return self.stack(self.stack(0, self.frame("t", f"thread pt_autograd_{leaf // 100 % 4}")),
                              self.frame("c", f"1:{0x1000 + 16 * leaf:x}"))
        at = self.stack(0, self.frame("p", "12:<module>:/home/me/train.py"))
        at = self.stack(at, self.frame("p", "88:main:/home/me/train.py"))
        rest = leaf
        for level in range(max(0, depth - 4)):
            rest, digit = divmod(rest, 6)
            layer = f"{100 + 10 * level + digit}:forward:/home/me/model/block_{level}.py"
            if level % 2:
                layer = f"{1500 + level}:_call_impl:/usr/lib/python3.11/site-packages/torch/nn/modules/module.py"
            at = self.stack(at, self.frame("p", layer))
        if leaf % 10 == 9:
            at = self.stack(at, self.frame("c", f"{1 + leaf % 2}:{0x40000 + 64 * leaf:x}"))
        name = "attention" if leaf % 3 else "a very long name of a function, \"quoted\", 100 % of it, " + "longer " * 40
        return self.stack(at, self.frame("p", f"{20 + leaf}:{name}:/home/me/model/ops.py"))


def size_of(leaf):
    return 512 + (leaf * 2654435761 % 4096) * (1024 if leaf % 7 else 16384)


class Run:
    """One device's share of the program: forward, backward, and what stays."""

    def __init__(self, program, device, rng):
        self.writer, self.program, self.device, self.rng = program.writer, program, device, rng
        self.serial = self.live = self.held = self.calls = 0
        self.kept = []

    def alloc(self, leaf, stream):
        writer, size = self.writer, size_of(leaf)
        self.live += size
        if self.live > self.held:
            self.held = (self.live + 2 * MB - 1) // (2 * MB) * (2 * MB)
            self.calls += 3
            writer.line("h", self.device, self.held, self.calls, writer.us)
        number = self.device << 48 | self.serial
        self.serial += 1
        writer.line("a", number, size, stream, writer.us, self.program.leaves[leaf])
        writer.us += 3
        writer.events += 1
        return number, size, stream

    def free(self, block):
        number, size, stream = block
        self.live -= size
        self.writer.line("f", number, 0, stream, self.writer.us)
        self.writer.us += 2
        self.writer.events += 1

    def step(self, number, events, thread):
        """A training step of about so many events."""
        writer, saved = self.writer, []
        writer.text("b", thread, 0, f"step {number}", last=True)
        writer.text("b", thread, 1, "forward", last=True)
        leaves = len(self.program.leaves)
        # Ten kinds of steps, which come again and again.
        for i in range(events // 3):
            leaf = (number % 10 * (leaves // 10) + i * 7 + self.device * 5) % leaves
            saved.append(self.alloc(leaf, i % 3))
            if i % 2:
                self.free(self.alloc((leaf + 1) % leaves, i % 3))
        writer.line("e", "", thread, 1, writer.us)
        writer.text("b", thread, 1, "backward", last=True)
        if number % 10 == 0 and saved:
            self.kept.append(saved.pop(self.rng.randrange(len(saved))))  # a leak
        while saved:
            self.free(saved.pop())
        writer.line("e", "", thread, 1, writer.us)
        writer.line("e", "", thread, 0, writer.us)


def make(out, events, stacks, depth, devices, threads, seed):
    rng, writer = random.Random(seed), Writer(out)
    writer.text("m", 1000, 0, "before CUDA, 100 %", last=True)
    program = Program(writer, rng, stacks, depth)
    runs = [Run(program, device, rng) for device in range(devices)]
    step, each = 0, min(6000, max(30, events // 20))
    while writer.events < events:
        if step % 8 == 0:
            writer.text("m", 1000, 0, f"epoch {step // 8}", last=True)
        run = runs[step % devices]
        run.step(step, min(each, events - writer.events + 30), 1000 + step % threads)
        if step % 25 == 24:
            writer.line("x", run.device, 80 << 30, 1, writer.us)
        step += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--events", type=int, default=2000)
    parser.add_argument("--stacks", type=int, default=200)
    parser.add_argument("--depth", type=int, default=20)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    numbers = args.events, args.stacks, args.depth, args.devices, args.threads, args.seed
    if not args.output:
        make(sys.stdout, *numbers)
    elif args.output.endswith(".gz"):
        with gzip.open(args.output, "wt", compresslevel=1) as out:
            make(out, *numbers)
    else:
        with open(args.output, "w") as out:
            make(out, *numbers)


if __name__ == "__main__":
    main()
