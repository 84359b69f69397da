"""PyTorch's CUDA graphs: a training step captured and launched again, beside work that allocates all the time.

    graphs.py step      captures in each mode, by torch.cuda.graph; compared with the same steps without a graph
    graphs.py compiled  torch.compile(mode="reduce-overhead"), compared with the same model as it is

Prints one JSON object; "checksum" is the same whatever the allocator, but for the last digits.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import threading

import torch
from torch import nn

WIDTH, BATCH, STEPS = 512, 256, 30
MODES = ("global", "thread_local", "relaxed")


def is_wrong(what):
    print(json.dumps({"ok": False, "wrong": what}), flush=True)
    raise SystemExit(what)


def must_be_close(one, other, **limits):
    try:
        torch.testing.assert_close(one, other, **limits)
    except AssertionError as problem:
        is_wrong(str(problem).splitlines()[0])


def model_of(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)).cuda()


def batch(step):
    numbers = torch.Generator().manual_seed(step)
    x = torch.randn(BATCH, WIDTH, generator=numbers)
    return x.cuda(), x.roll(1, dims=1).cuda()


class Churn:
    """Tensors of all sizes that come and go, each full of a number of its own."""

    def __init__(self):
        self.held = []
        self.count = 0

    def turn(self):
        for _ in range(8):
            self.count += 1
            size = 1000 + self.count * 7919 % 3_000_000
            self.held.append((self.count, torch.full((size,), float(self.count), device="cuda")))
        while len(self.held) > 24:
            number, tensor = self.held.pop(self.count % 7)
            if not bool((tensor == number).all()):
                is_wrong("a tensor was overwritten")


def train_step(model, optimizer, x, y):
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


def beside(stop):
    """Another thread that allocates during a capture which allows it."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        while not stop.is_set():
            torch.full((300_000,), 1.0, device="cuda").add_(1)


def captured(mode):
    """Trains by launches of a graph; the end of it as plain steps would have it?"""
    model, twin = model_of(1), model_of(1)
    sgd, twins = torch.optim.SGD(model.parameters(), lr=1e-2), torch.optim.SGD(twin.parameters(), lr=1e-2)
    x, y = batch(0)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for step in range(3):
            train_step(model, sgd, *batch(step))
    torch.cuda.current_stream().wait_stream(side)
    for step in range(3):
        train_step(twin, twins, *batch(step))

    graph, stop = torch.cuda.CUDAGraph(), threading.Event()
    thread = threading.Thread(target=beside, args=(stop,))
    if mode != "global":
        thread.start()
    try:
        with torch.cuda.graph(graph, capture_error_mode=mode):
            loss = train_step(model, sgd, x, y)
    finally:
        stop.set()
        if mode != "global":
            thread.join()

    churn = Churn()
    for step in range(3, STEPS):
        inputs, targets = batch(step)
        x.copy_(inputs)
        y.copy_(targets)
        graph.replay()
        churn.turn()
        if step % 10 == 5:
            torch.cuda.empty_cache()
        expected = train_step(twin, twins, inputs, targets)
        must_be_close(loss, expected, rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(model.parameters(), twin.parameters()):
        must_be_close(ours, theirs, rtol=1e-4, atol=1e-5)
    return sum(parameter.detach().double().abs().sum().item() for parameter in model.parameters())


def compiled():
    model, twin = model_of(2), model_of(2)
    fast = torch.compile(model, mode="reduce-overhead", dynamic=False)
    sgd, twins = torch.optim.SGD(model.parameters(), lr=1e-2), torch.optim.SGD(twin.parameters(), lr=1e-2)
    churn = Churn()
    for step in range(STEPS):
        torch.compiler.cudagraph_mark_step_begin()
        inputs, targets = batch(step)
        rows = BATCH if step % 2 else BATCH // 2
        loss = train_step(fast, sgd, inputs[:rows], targets[:rows])
        expected = train_step(twin, twins, inputs[:rows], targets[:rows])
        must_be_close(loss, expected, rtol=1e-3, atol=1e-4)
        churn.turn()
    return sum(parameter.detach().double().abs().sum().item() for parameter in model.parameters())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("step", "compiled"))
    what = parser.parse_args().what
    torch.backends.cuda.matmul.allow_tf32 = False
    if what == "step":
        checksum = sum(captured(mode) for mode in MODES)
    else:
        checksum = compiled()
    torch.cuda.synchronize()
    print(json.dumps({"ok": True, "checksum": checksum, "backend": torch.cuda.get_allocator_backend()}))


if __name__ == "__main__":
    main()
