#!/usr/bin/env python3
"""Allocates and frees tensors of sizes that never repeat, and checks their bytes on the device: plain PyTorch.

Each tensor is filled with ascending numbers from one of its own on when it is made, and compared with them right before
it is dropped, so that a page of somebody else's shows, and one in the wrong place. Two kinds of programs:

    alike   300 tensors of 48 to 52 MiB, of which one at random is replaced by one of another size at a time
    churn   sizes of 1 MiB to 1 GiB, evenly spread by magnitude, that live for random times, about 30 GiB together

    python3 examples/random_sizes.py --kind churn
    LD_PRELOAD=build/libvpool.so python3 examples/random_sizes.py --kind churn

The same --seed gives the same sizes and lifetimes, whatever the allocator.
"""
# SPDX-License-Identifier: Apache-2.0
import math
import random

import report

import torch

MIB, GIB = 1 << 20, 1 << 30
ALIKE_BLOCKS, CHURN_LIVE = 300, 30 * GIB
LARGEST, FIRSTS = GIB, 1 << 20


class Blocks:
    """The tensors that are alive, each with the first of the numbers that it is filled with."""

    def __init__(self, device):
        self.alive, self.bytes, self.made = [], 0, 0
        self.numbers = torch.arange(LARGEST // 8 + FIRSTS, device=device)
        self.differs = torch.empty(LARGEST // 8, dtype=torch.bool, device=device)
        self.wrong = torch.zeros((), dtype=torch.int64, device=device)

    def make(self, size):
        first, words = self.made % FIRSTS, int(size) // 8
        self.made += 1
        tensor = self.numbers[first:first + words].clone()
        self.bytes += tensor.nbytes
        self.alive.append((tensor, first))

    def drop(self, index):
        self.alive[index], self.alive[-1] = self.alive[-1], self.alive[index]
        tensor, first = self.alive.pop()
        words = tensor.numel()
        torch.ne(tensor, self.numbers[first:first + words], out=self.differs[:words])
        self.wrong += self.differs[:words].any()
        self.bytes -= tensor.nbytes


def alike(blocks, rng):
    if len(blocks.alive) == ALIKE_BLOCKS:
        blocks.drop(rng.randrange(ALIKE_BLOCKS))
    blocks.make(rng.uniform(48, 52) * MIB)


def churn(blocks, rng):
    while blocks.bytes > CHURN_LIVE:
        blocks.drop(rng.randrange(len(blocks.alive)))
    blocks.make(math.exp(rng.uniform(math.log(MIB), math.log(GIB))))


KINDS = {"alike": alike, "churn": churn}


def allocate(options):
    rng, blocks = random.Random(options.seed), Blocks(torch.device("cuda"))

    @torch.no_grad()
    def step(number):
        for _ in range(options.blocks):
            KINDS[options.kind](blocks, rng)
        return options.blocks, f"{len(blocks.alive)} alive, {blocks.bytes / GIB:.2f} GiB"

    figures = report.run(step, options)
    while blocks.alive:
        blocks.drop(0)
    return figures | {"wrong": blocks.wrong.item(), "checksum": blocks.made}


def add_options(parser):
    parser.add_argument("--kind", choices=KINDS, default="alike")
    parser.add_argument("--blocks", type=int, default=500, help="tensors made in a step")


if __name__ == "__main__":
    chosen = report.options("Allocates tensors of random sizes, and reports time and memory.", 30, add_options)
    report.show(allocate(chosen), chosen.json)
