#!/usr/bin/env python3
"""Training and generation take turns on one GPU, in two PyTorch processes, each asleep while the other works.

What reinforcement learning does between its phases: the trainer makes some steps, sleeps, and hands its weights over; the
generator wakes, takes them, writes some tokens, and sleeps. Each may need more than half of the GPU. Whoever wakes compares
its weights with what they were.

    PYTHONPATH=python LD_PRELOAD=build/libvpool.so python3 examples/alternate.py
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import time

import report

import torch
import torch.multiprocessing as processes

import llama
import vpool
from finetune import loss_of
from generate import generate


class Sleeper:
    """A model whose process sleeps unless it is its turn."""

    def __init__(self, options):
        report.deterministic(options.seed)
        self.model = llama.make(options.layers, options.width, options.heads)
        self.sum = None

    def sleep(self):
        self.sum = report.checksum(self.model.parameters())
        begin = time.perf_counter()
        if not vpool.pause():
            raise SystemExit("alternate.py: run this under libvpool.so")
        return time.perf_counter() - begin

    def wake(self):
        begin = time.perf_counter()
        vpool.resume()
        seconds = time.perf_counter() - begin
        assert report.checksum(self.model.parameters()) == self.sum, "it has woken as another"
        return seconds


def train(pipe, options):
    me = Sleeper(options)
    optimizer = torch.optim.AdamW(me.model.parameters(), lr=1e-4, fused=True)
    seconds = 0.0
    while True:
        for _ in range(options.steps):
            loss = loss_of(me.model, torch.randint(llama.VOCABULARY, (options.batch, options.length + 1), device="cuda"))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        weights = [parameter.detach().cpu() for parameter in me.model.parameters()]
        text = f"loss {loss.item():.4f}, woke in {seconds:.2f} s"
        del loss
        pipe.send((text, me.sleep(), weights))
        del weights
        if pipe.recv() is None:
            return
        seconds = me.wake()


def write(pipe, options):
    me = Sleeper(options)
    me.sleep()
    pipe.send(None)
    while (weights := pipe.recv()) is not None:
        seconds = me.wake()
        with torch.no_grad():
            for parameter, new in zip(me.model.parameters(), weights):
                parameter.copy_(new)
        tokens = generate(me.model, torch.randint(llama.VOCABULARY, (options.batch, 32), device="cuda"), options.length // 4)
        text = f"{tokens.numel()} tokens, woke in {seconds:.2f} s"
        del tokens, weights
        pipe.send((text, me.sleep(), None))


def start(role, options):
    ours, theirs = processes.Pipe()
    processes.get_context("spawn").Process(target=role, args=(theirs, options), daemon=True).start()
    theirs.close()
    return ours


def main():
    parser = argparse.ArgumentParser(description="Training and generation take turns on one GPU.")
    llama.add_options(parser)
    for name, value in (("turns", 4), ("steps", 5), ("batch", 8), ("length", 512), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    writer = start(write, options)
    writer.recv()  # it sleeps: the trainer finds the device empty
    trainer = start(train, options)
    for turn in range(options.turns):
        text, seconds, weights = trainer.recv()
        print(f"turn {turn}: trained, {text}, fell asleep in {seconds:.2f} s", flush=True)
        writer.send(weights)
        text, seconds, _ = writer.recv()
        print(f"turn {turn}: wrote {text}, fell asleep in {seconds:.2f} s", flush=True)
        if turn + 1 < options.turns:
            trainer.send(True)
    trainer.send(None)
    writer.send(None)


if __name__ == "__main__":
    main()
