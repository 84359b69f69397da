"""Mixed programs in one process for minutes: does what the pool holds drift?

Each round trains, generates and fine-tunes a little model of changing size, builds and drops tensors on side streams,
and starts another program now and then; at its end everything is dropped and idle memory given back. What is held
after a round must not grow from round to round. Prints one JSON object.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import ctypes
import gc
import json
import random
import signal
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

MIB = 1 << 20


class Stats(ctypes.Structure):
    """struct vpool_stats of include/vpool.h, up to what is used here."""
    _fields_ = [("size", ctypes.c_size_t)] + [(name, ctypes.c_uint64) for name in (
        "allocs", "frees", "live_bytes", "peak_live_bytes", "held_bytes", "peak_held_bytes", "ooms", "waits_gpu",
        "waits_host", "driver_ns")]


def vpool():
    """The library's statistics, or None where it is not preloaded."""
    try:
        call = ctypes.CDLL(None).vpool_stats
    except AttributeError:
        return None
    stats = Stats(size=ctypes.sizeof(Stats))
    return stats if call(0, ctypes.byref(stats)) == 0 else None


def train(dice):
    width, batch = 64 * dice.randint(2, 16), dice.randint(4, 64)
    model = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(dice.randint(5, 30)):
        x = torch.randn(batch, dice.randint(16, 512), width, device="cuda")
        loss = F.mse_loss(model(x), x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return bool(torch.isfinite(loss))


def generate(dice):
    """A cache of keys that grows by concatenation, as in decoding."""
    heads, width = dice.randint(4, 16), 64
    cache = torch.zeros(8, heads, 0, width, device="cuda", dtype=torch.float16)
    for step in range(dice.randint(50, 300)):
        cache = torch.cat([cache, torch.full((8, heads, 1, width), float(step % 64), device="cuda", dtype=torch.float16)], 2)
    return cache[0, 0, :, 0].tolist() == [float(step % 64) for step in range(cache.shape[2])]


def side_streams(dice):
    streams = [torch.cuda.Stream() for _ in range(dice.randint(2, 6))]
    wanted, sums = 0, []
    for i in range(dice.randint(50, 200)):
        source = torch.full((dice.randint(1 << 10, 4 << 20),), i % 7, device="cuda", dtype=torch.int32)
        stream = dice.choice(streams)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            sums.append((source * 3).sum())
            source.record_stream(stream)
        wanted += 3 * (i % 7) * source.numel()
    torch.cuda.synchronize()
    return sum(int(one) for one in sums) == wanted


def fragments(dice):
    blocks = [torch.full((dice.randint(1, 32 * MIB),), i % 251, device="cuda", dtype=torch.uint8) for i in range(200)]
    for i in dice.sample(range(200), 120):
        blocks[i] = None
    large = torch.zeros(dice.randint(256 * MIB, 2048 * MIB), device="cuda", dtype=torch.uint8)
    right = all(block is None or bool((block[[0, -1]] == i % 251).all()) for i, block in enumerate(blocks))
    return right and not bool(large[:: MIB].any())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("programs", nargs="*", help="started one after the other meanwhile")
    options = parser.parse_args()

    dice, wrong, held, rounds, started = random.Random(options.seed), [], [], 0, []
    begin, child, told = time.monotonic(), None, []
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))    # says after this round what was seen so far
    while time.monotonic() - begin < options.seconds and not told:
        if options.programs and (child is None or child.poll() is not None):
            if child and child.returncode:
                wrong.append(f"{child.args}: exit {child.returncode}")
            program = options.programs[len(started) % len(options.programs)]
            child = subprocess.Popen(program, shell=True, stdout=subprocess.DEVNULL)
            started.append(program)
        works = [train, generate, side_streams, fragments]
        dice.shuffle(works)
        for work in works:
            if not work(dice):
                wrong.append(f"{work.__name__} in round {rounds}")
        rounds += 1
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        stats = vpool()
        held.append(stats.held_bytes if stats else torch.cuda.memory_reserved())
    if child and child.poll():
        wrong.append(f"{child.args}: exit {child.returncode}")
    elif child:
        child.kill()
        child.wait()
    # What libraries keep for good (workspaces) is there after the first rounds.
    early, late = max(held[: max(3, len(held) // 4)]), max(held[-max(3, len(held) // 4):])
    if late > early + 64 * MIB:
        wrong.append(f"held grew from {early / MIB:.0f} to {late / MIB:.0f} MiB")
    stats = vpool()
    print(json.dumps({"ok": not wrong, "wrong": wrong[:5], "seconds": time.monotonic() - begin, "rounds": rounds, "programs": len(started),
                      "ops": stats.allocs + stats.frees if stats else 0, "held_early": early, "held_late": late,
                      "held_samples": held[:: max(1, len(held) // 40)]}))
    return bool(wrong)


sys.exit(main())
