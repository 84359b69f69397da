#!/usr/bin/env python3
"""Trains layers that are whole only while they are used, as sharded training does (FSDP, ZeRO-3): plain PyTorch.

Of each layer one part in --ranks lies on the device, standing for what a rank owns. Before the layer is used, the whole of
it is gathered on a second stream, one layer ahead of the computation; afterwards it is dropped. Its gradients are
reduced on the second stream, too. What one stream allocated and the other used is told by record_stream(). The host runs
ahead of the device, so that a layer is dropped long before the device is through with it: the case where an
allocator that waits for nothing holds every layer at once.

    python3 examples/gather.py
    LD_PRELOAD=build/libvpool.so python3 examples/gather.py

The same --seed gives the same numbers, whatever the allocator.
"""
# SPDX-License-Identifier: Apache-2.0
import report

import torch

class Layer:
    """x + relu(x W) V, of which a shard is kept. All layers together add about as much to x as it began with."""

    def __init__(self, options, device):
        self.ranks, self.width = options.ranks, options.width
        self.rate = 0.25 / (options.width * options.layers)  # what all tokens have in common learns the fastest
        self.shards = [torch.randn(options.width * 4 * options.width // options.ranks, device=device,
                                   dtype=torch.bfloat16) * scale
                       for scale in (options.width ** -0.5, (2 * 4 * options.width * options.layers) ** -0.5)]
        self.whole = None   # W and V, while they are gathered
        self.there = None   # the event behind that

    def shapes(self):
        return (self.width, 4 * self.width), (4 * self.width, self.width)

    def gather(self, side):
        side.wait_stream(torch.cuda.current_stream())  # the shards are up to date
        with torch.cuda.stream(side):
            # Every rank would send its own part; here all are like ours.
            self.whole = [shard.expand(self.ranks, -1).reshape(shape)
                          for shard, shape in zip(self.shards, self.shapes())]
            self.there = side.record_event()

    def use(self):
        """The gathered tensors, for the current stream; the layer lets go of them."""
        main = torch.cuda.current_stream()
        main.wait_event(self.there)
        for tensor in self.whole:
            tensor.record_stream(main)
        whole, self.whole = self.whole, None
        return whole

    def reduce(self, gradients, side):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for shard, gradient in zip(self.shards, gradients):
                gradient.record_stream(side)
                shard -= self.rate * gradient.view(self.ranks, -1).mean(0)


def forward(x, w, v):
    return x + torch.relu(x @ w) @ v


def backward(x, dy, w, v):
    h = torch.relu(x @ w)
    dh = (dy @ v.t()) * (h > 0)
    return dy + dh @ w.t(), (x.t() @ dh, h.t() @ dy)


def train(options):
    device = torch.device("cuda")
    layers = [Layer(options, device) for _ in range(options.layers)]
    side = torch.cuda.Stream()
    losses = []

    def each_gathered(order):
        order[0].gather(side)
        for layer, following in zip(order, [*order[1:], None]):
            if following:
                following.gather(side)
            yield layer, layer.use()

    @torch.no_grad()
    def step(number):
        torch.manual_seed(options.seed * 1000 + number)
        x = torch.randn(options.tokens, options.width, device=device, dtype=torch.bfloat16)
        target, inputs = x.roll(1, 0), []
        for layer, (w, v) in each_gathered(layers):
            inputs.append(x)
            x = forward(x, w, v)
        difference = x - target
        losses.append(difference.float().square().mean())
        dy = difference / options.tokens
        for layer, (w, v) in each_gathered(layers[::-1]):
            dy, gradients = backward(inputs.pop(), dy, w, v)
            layer.reduce(gradients, side)
            del gradients
        loss = losses[-1].item()
        return options.tokens, f"loss {loss:8.4f}"

    figures = report.run(step, options)
    shards = [shard for layer in layers for shard in layer.shards]
    return figures | {"final_loss": losses[-1].item(), "checksum": report.checksum(shards)}


def add_options(parser):
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=3072)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--ranks", type=int, default=8, help="parts that a layer lies in")


if __name__ == "__main__":
    chosen = report.options("Trains layers that are gathered before each use, and reports time and memory.", 12, add_options)
    report.deterministic(chosen.seed)
    report.show(train(chosen), chosen.json)
