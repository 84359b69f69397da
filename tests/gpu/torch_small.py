"""A little of all that PyTorch does with its memory: for tools that make a program slow (compute-sanitizer).

Tensors of many sizes come and go on two streams, are read late with record_stream(), and are trained on; a graph is launched
among them. Prints a JSON object.
"""
# SPDX-License-Identifier: Apache-2.0
import json
import random

import torch

KIB, MIB = 1 << 10, 1 << 20
TENSORS, HELD, STEPS = 160, 12, 3


def come_and_go(numbers):
    """How many elements are not what their tensor was filled with."""
    side, held = torch.cuda.Stream(), []
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for number in range(1, TENSORS + 1):
        size = numbers.choice((KIB, 40 * KIB, 600 * KIB, 3 * MIB, 11 * MIB, 24 * MIB)) + 4 * numbers.randrange(200)
        held.append((number, torch.full((size // 4,), number, dtype=torch.int32, device="cuda")))
        if len(held) <= HELD:
            continue
        own, tensor = held.pop(numbers.randrange(HELD))
        if own % 3:
            wrong += (tensor != own).sum()
        else:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                tensor.add_(1)
                late = (tensor != own + 1).sum()
            tensor.record_stream(side)
            torch.cuda.current_stream().wait_stream(side)
            wrong += late
            late.record_stream(torch.cuda.current_stream())
        del tensor
    for own, tensor in held:
        wrong += (tensor != own).sum()
    return int(wrong)


def train():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        loss = model(torch.ones(64 + 32 * step, 256, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return float(loss)


def launch():
    static = torch.zeros(MIB, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = (static + 1) * 2
    for number in range(3):
        static.fill_(number)
        graph.replay()
        if not bool((out == 2 * (number + 1)).all()):
            return 1
    return 0


def main():
    wrong = come_and_go(random.Random(1))
    loss = train()
    torch.cuda.empty_cache()
    wrong += launch() + come_and_go(random.Random(2))
    torch.cuda.synchronize()
    print(json.dumps({"ok": not wrong, "wrong": wrong, "final_loss": loss}))
    raise SystemExit(wrong != 0)


if __name__ == "__main__":
    main()
