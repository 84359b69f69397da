#!/usr/bin/env python3
"""Trains a small mixture of experts on made-up tokens: plain PyTorch, nothing downloaded.

Each layer sends every token to two of its experts, so that what an expert asks for differs from step to step, while all
else is alike in each. The program marks its steps, micro-batches, phases and modules (marks.py), for `vpool plan`.

    python3 examples/experts.py
    LD_PRELOAD=build/libvpool.so python3 examples/experts.py

The same --seed gives the same numbers, whatever the allocator.
"""
# SPDX-License-Identifier: Apache-2.0
import report

import torch
import torch.nn.functional as F
from torch import nn

import marks

VOCABULARY = 32000


class Experts(nn.Module):
    """Every token goes to the two experts that the router likes best."""

    def __init__(self, width, count):
        super().__init__()
        self.up = nn.ModuleList(nn.Linear(width, 2 * width, bias=False) for _ in range(count))
        self.down = nn.ModuleList(nn.Linear(2 * width, width, bias=False) for _ in range(count))

    def forward(self, x, shares, chosen):
        out = torch.zeros_like(x)
        for i, (up, down) in enumerate(zip(self.up, self.down)):
            token, place = torch.where(chosen == i)
            done = down(F.silu(up(x[token]))) * shares[token, place, None]
            out = out.index_add(0, token, done.to(out.dtype))
        return out


class Layer(nn.Module):
    def __init__(self, width, heads, count):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.router = nn.Linear(width, count, bias=False)
        self.experts = Experts(width, count)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, length, width))
        tokens = self.norm2(x).flatten(0, 1)
        shares, chosen = self.router(tokens).softmax(dim=-1).topk(2, dim=-1)
        return x + self.experts(tokens, shares, chosen).view_as(x)


class Mixture(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, options.width)
        self.layers = nn.ModuleList(Layer(options.width, options.heads, options.experts) for _ in range(options.layers))
        self.norm = nn.LayerNorm(options.width)
        for i, layer in enumerate(self.layers):
            marks.follow(f"layers.{i}.experts", layer.experts)

    def forward(self, tokens):
        x = self.token(tokens[:, :-1])
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.norm(x), self.token.weight)
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def train(options):
    with torch.device("cuda"):
        model = Mixture(options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    numbers = torch.Generator().manual_seed(options.seed)
    losses = []

    def step(number):
        marks.begin(f"step:{number}")
        total = 0.0
        for i in range(options.microbatches):
            marks.begin(f"microbatch:{i}")
            marks.begin("phase:forward")
            tokens = torch.randint(VOCABULARY, (options.batch, options.length + 1), generator=numbers).cuda()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(tokens) / options.microbatches
            marks.begin("phase:backward")
            loss.backward()
            total += loss.item()
        marks.begin("phase:optimizer")
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(total)
        return options.microbatches * options.batch * options.length, f"loss {total:8.4f}"

    figures = report.run(step, options)
    return figures | {"final_loss": losses[-1], "checksum": report.checksum(model.parameters())}


def add_options(parser):
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--experts", type=int, default=16, help="in each layer")
    parser.add_argument("--batch", type=int, default=8, help="sequences in a micro-batch")
    parser.add_argument("--microbatches", type=int, default=2, help="in a step")
    parser.add_argument("--length", type=int, default=1024, help="of a sequence")


if __name__ == "__main__":
    chosen = report.options("Trains a small mixture of experts on made-up tokens, and reports time and memory.", 20, add_options)
    report.deterministic(chosen.seed)
    report.show(train(chosen), chosen.json)
