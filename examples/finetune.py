#!/usr/bin/env python3
"""Fine-tunes a Llama-like model of 0.9 billion random weights by LoRA: plain PyTorch, nothing downloaded.

The weights stay as they are; beside the projections of each attention small matrices are trained. Each step has another
sequence length, and each layer is computed again in the backward pass.

    python3 examples/finetune.py
    LD_PRELOAD=build/libvpool.so python3 examples/finetune.py

The same --seed gives the same numbers, whatever the allocator.
"""
# SPDX-License-Identifier: Apache-2.0
import random

import report

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import llama
import marks


class LoRA(nn.Module):
    """A frozen linear layer, and beside it the product of two thin ones that are trained."""

    def __init__(self, frozen, rank):
        super().__init__()
        self.frozen = frozen
        self.down = nn.Parameter(torch.randn(rank, frozen.in_features, device="cuda") / rank)
        self.up = nn.Parameter(torch.zeros(frozen.out_features, rank, device="cuda"))

    def forward(self, x):
        return self.frozen(x) + F.linear(F.linear(x, self.down.to(x.dtype)), self.up.to(x.dtype))


def adapt(model, rank):
    """Puts LoRA beside the model's projections; returns what is to be trained."""
    model.requires_grad_(False)
    adapters = []
    for layer in model.layers:
        for name in ("q", "k", "v", "out"):
            adapters.append(LoRA(getattr(layer.attention, name), rank))
            setattr(layer.attention, name, adapters[-1])
    return [parameter for adapter in adapters for parameter in (adapter.down, adapter.up)]


def loss_of(model, tokens):
    x = model.token(tokens[:, :-1])
    for i, layer in enumerate(model.layers):
        x = checkpoint(marks.module(f"layers.{i}", lambda x, layer=layer: layer(x)[0]), x, use_reentrant=False, preserve_rng_state=False)
    logits = model.head(model.norm(x))
    return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


def finetune(options):
    model = llama.make(options.layers, options.width, options.heads)
    trained = adapt(model, options.rank)
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
    numbers = random.Random(options.seed)
    losses = []

    def step(number):
        marks.begin(f"step:{number}")
        marks.begin("microbatch:0")  # the whole batch is one
        marks.begin("phase:forward")
        length = numbers.randrange(options.seq_min, options.seq_max + 1, 8)
        tokens = torch.randint(llama.VOCABULARY, (options.batch, length + 1), device="cuda")
        loss = loss_of(model, tokens)
        marks.begin("phase:backward")
        loss.backward()
        marks.begin("phase:optimizer")
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        return options.batch * length, f"length {length:5}  loss {losses[-1]:8.4f}"

    figures = report.run(step, options)
    return figures | {"final_loss": losses[-1], "checksum": report.checksum(trained)}


def add_options(parser):
    llama.add_options(parser)
    parser.add_argument("--batch", type=int, default=8, help="sequences in a step")
    parser.add_argument("--seq-min", type=int, default=256, help="shortest sequence")
    parser.add_argument("--seq-max", type=int, default=2048, help="longest sequence")
    parser.add_argument("--rank", type=int, default=16, help="width of the trained matrices")


if __name__ == "__main__":
    chosen = report.options("Fine-tunes a model with random weights by LoRA, and reports time and memory.", 20,
                            add_options)
    report.deterministic(chosen.seed)
    report.show(finetune(chosen), chosen.json)
