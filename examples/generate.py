#!/usr/bin/env python3
"""Generates text with a Llama-like model of 0.9 billion random weights: plain PyTorch, nothing downloaded.

Each step serves a batch of requests: prompts of another length and number each time, and then token by token, while
the keys and values of each layer grow by one token a time, in memory that is a little larger each time.

    python3 examples/generate.py
    LD_PRELOAD=build/libvpool.so python3 examples/generate.py

The same --seed gives the same tokens, whatever the allocator.
"""
# SPDX-License-Identifier: Apache-2.0
import random

import report

import torch

import llama


@torch.inference_mode()
def generate(model, prompts, count):
    """The `count` likeliest tokens after each prompt, one after the other."""
    tokens, caches, made = prompts, [None] * len(model.layers), []
    for _ in range(count):
        x = model.token(tokens)
        for i, layer in enumerate(model.layers):
            x, caches[i] = layer(x, caches[i])
        tokens = model.head(model.norm(x[:, -1:])).argmax(dim=-1)
        made.append(tokens)
        report.lap()
    return torch.cat(made, dim=1)


def serve(options):
    model = llama.make(options.layers, options.width, options.heads)
    numbers = random.Random(options.seed)
    checksum = 0

    def step(_):
        nonlocal checksum
        batch = numbers.randrange(options.batch // 8, options.batch + 1)
        length = numbers.randrange(options.prompt // 8, options.prompt + 1)
        made = generate(model, torch.randint(llama.VOCABULARY, (batch, length), device="cuda"), options.tokens)
        checksum += made.sum().item()
        return made.numel(), f"{batch:3} prompts of {length:5}"

    figures = report.run(step, options)
    return figures | {"checksum": checksum}


def add_options(parser):
    llama.add_options(parser)
    parser.add_argument("--batch", type=int, default=32, help="most prompts in a step")
    parser.add_argument("--prompt", type=int, default=1024, help="longest prompt")
    parser.add_argument("--tokens", type=int, default=64, help="tokens generated after each prompt")


if __name__ == "__main__":
    chosen = report.options("Generates text with random weights, and reports time and memory.", 10, add_options)
    report.deterministic(chosen.seed)
    report.show(serve(chosen), chosen.json)
