#!/usr/bin/env python3
"""examples/train.py with less memory than it has alive, by VPOOL_SPILL and by cudaMallocManaged.

The most that it has alive is measured first. Then it runs with 95 and 90 % of that: under libvpool.so (each tensor an
allocation of its own, VPOOL_ADOPT=async), and by a PyTorch allocator on managed memory (managed_alloc.cu), beside which
the device is made as small. Prints one JSON object with the seconds of the late steps of each; "ok" if every run ended
with the first one's loss and checksum, and none by vpool is slower than its managed twin.

usage: spilled_training.py LIBVPOOL MANAGED [STEPS]
"""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TRAIN = os.path.join(ROOT, "examples", "train.py")
LIMIT = 75  # seconds for one run

# Runs the example with another allocator, which has to be there before PyTorch allocates.
MANAGED = """
import runpy, sys, torch
allocator = torch.cuda.memory.CUDAPluggableAllocator(sys.argv[1], "managed_malloc", "managed_free")
torch.cuda.memory.change_current_allocator(allocator)
sys.path.insert(0, sys.argv[2].rpartition("/")[0])
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(argv, env):
    """The last line's figures; None if it failed or took too long."""
    try:
        done = subprocess.run(argv, env=os.environ | env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=LIMIT)
    except subprocess.TimeoutExpired:
        sys.stderr.write(f"{argv[-1]}: more than {LIMIT} s\n")
        return None
    if done.returncode:
        sys.stderr.write(done.stderr[-2000:])
        return None
    return json.loads(done.stdout.splitlines()[-1])


def train(steps, env):
    return run([sys.executable, TRAIN, "--json", "--steps", steps], env)


def under_vpool(library, steps, **more):
    """The figures, and the library's statistics of the device."""
    with tempfile.TemporaryDirectory() as folder:
        stats = os.path.join(folder, "stats")
        figures = train(steps, {"LD_PRELOAD": library, "VPOOL_ADOPT": "async", "VPOOL_STATS": stats} | more)
        if figures is None:
            return None, None
        with open(stats) as file:
            return figures, json.load(file)["devices"][0]


def seconds(figures):
    return None if figures is None else figures["late_ms"] / 1e3


def same(figures, base):
    return figures is not None and all(abs(figures[name] - base[name]) <= 1e-2 * abs(base[name])
                                       for name in ("final_loss", "checksum"))


def main():
    library, managed, steps = sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "8"
    base, device = under_vpool(library, steps)
    if base is None:
        return 1
    live = device["peak_live_bytes"]
    result = {"live_bytes": live, "whole_s": seconds(base), "final_loss": base["final_loss"]}
    right = True
    for percent in 95, 90:
        room = live * percent // 100
        spilled, device = under_vpool(library, steps, VPOOL_LIMIT=str(room), VPOOL_SPILL="50%")
        other = run([sys.executable, "-c", MANAGED, managed, TRAIN, "--json", "--steps", steps],
                    {"MANAGED_ROOM": str(room)})
        result |= {f"spilled_{percent}_s": seconds(spilled), f"managed_{percent}_s": seconds(other),
                   f"peak_spilled_{percent}_bytes": device and device["peak_spilled_bytes"]}
        right &= same(spilled, base) and device["peak_held_bytes"] <= room
        right &= other is None or (spilled is not None and seconds(spilled) <= seconds(other))
    print(json.dumps({"ok": bool(right)} | result))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
