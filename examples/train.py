#!/usr/bin/env python3
"""Trains a small GPT on made-up text: plain PyTorch, nothing downloaded.

Each step has another sequence length and each layer is computed again in the backward pass, so the sizes asked for
change all the time: the case where a caching allocator holds much more memory than the program has alive.

    python3 examples/train.py
    LD_PRELOAD=build/libvpool.so python3 examples/train.py

The same --seed gives the same numbers, whatever the allocator.
"""
# SPDX-License-Identifier: Apache-2.0
import random

import report

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import marks

VOCABULARY = 50304


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, layers, width, heads, longest):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.position = nn.Embedding(longest, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens):
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        x = self.token(inputs) + self.position.weight[: inputs.shape[1]]
        for i, layer in enumerate(self.layers):
            x = checkpoint(marks.module(f"layers.{i}", layer), x, use_reentrant=False, preserve_rng_state=False)  # nothing random inside
        logits = F.linear(self.norm(x), self.token.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Batches:
    """Made-up text of varying length: each token follows from the one before, but for some noise."""

    def __init__(self, options, device):
        self.options = options
        self.device = device
        self.lengths = random.Random(options.seed)
        self.noise = torch.Generator().manual_seed(options.seed)
        self.side = torch.cuda.Stream() if options.side_stream else None
        self.ahead = self.load() if self.side else None

    def load(self):
        length = self.lengths.randrange(self.options.seq_min, self.options.seq_max + 1, 8)
        start = torch.randint(VOCABULARY, (self.options.batch, 1), generator=self.noise)
        noise = torch.randint(3, (self.options.batch, length + 1), generator=self.noise)
        host = ((start + 7 * torch.arange(length + 1) + noise) % VOCABULARY).pin_memory()
        with torch.cuda.stream(self.side):  # no stream: the current one
            return host.to(self.device, non_blocking=True)

    def next(self):
        if self.side is None:
            return self.load()
        tokens = self.ahead
        torch.cuda.current_stream().wait_stream(self.side)
        tokens.record_stream(torch.cuda.current_stream())  # allocated on one stream, used and dropped on another
        self.ahead = self.load()
        return tokens


def train(options):
    device = torch.device("cuda")
    with device:
        model = GPT(options.layers, options.width, options.heads, options.seq_max)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    batches = Batches(options, device)
    losses = []

    def step(number):
        marks.begin(f"step:{number}")
        marks.begin("microbatch:0")  # the whole batch is one
        marks.begin("phase:forward")
        tokens = batches.next()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(tokens)
        marks.begin("phase:backward")
        loss.backward()
        marks.begin("phase:optimizer")
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        length = tokens.shape[1] - 1
        return tokens.shape[0] * length, f"length {length:5}  loss {losses[-1]:8.4f}"

    figures = report.run(step, options)
    return figures | {"final_loss": losses[-1], "checksum": report.checksum(model.parameters())}


def add_options(parser):
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--batch", type=int, default=32, help="sequences in a step")
    parser.add_argument("--seq-min", type=int, default=256, help="shortest sequence")
    parser.add_argument("--seq-max", type=int, default=1024, help="longest sequence")
    parser.add_argument("--side-stream", action="store_true", help="fetch the next inputs on a second stream")


if __name__ == "__main__":
    chosen = report.options("Trains a small GPT on made-up text, and reports time and memory.", 30, add_options)
    report.deterministic(chosen.seed)
    report.show(train(chosen), chosen.json)
