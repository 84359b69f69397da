"""What the PyTorch examples share: their common options, the timed loop over steps, and the report.

Import it before torch: it sets what cuBLAS reads when it starts.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import math
import os
import statistics
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.realpath(__file__)), "../python"))  # a clone has the package there
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic results need it

import torch
import torch.utils.deterministic
import vpool


def options(description, steps, add):
    """The command line; `add` puts the example's own options into the parser."""
    parser = argparse.ArgumentParser(description=description)
    add(parser)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--paced", action="store_true", help="before each lap say \"ready\" and wait for a line on "
                        "standard input, so that programs can run side by side and take turns")
    return parser.parse_args()


def deterministic(seed):
    """The same seed gives the same numbers, whatever the allocator."""
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # it would hide memory with two owners


class Laps:
    """The times of one step's laps, in seconds: of a step that never says lap(), there is one."""

    def __init__(self):
        self.paced = False  # wait for one's turn before each
        self.times = []
        self.start = 0

    def begin(self):
        if self.paced:
            print("ready", flush=True)
            sys.stdin.readline()
        self.start = time.perf_counter()

    def end(self):
        torch.cuda.synchronize()
        self.times.append(time.perf_counter() - self.start)


laps = Laps()


def lap():
    """Called within a step: so far it is done, on the device too."""
    laps.end()
    laps.begin()


def run(step, options):
    """Calls step(number), which answers how many tokens it dealt with and what to print of them. Returns the figures."""
    tokens_of, laps_of, spent = [], [], [driver_ms()]
    torch.cuda.synchronize()
    laps.paced = options.paced
    for number in range(options.steps):
        laps.times = []
        laps.begin()
        tokens, text = step(number)
        laps.end()
        laps_of.append(laps.times)
        spent.append(driver_ms())
        tokens_of.append(tokens)
        print(f"step {number:3}  {text}  {1e3 * sum(laps.times):8.1f} ms", flush=True)
    seconds_of = [sum(times) for times in laps_of]
    late = options.steps // 2
    return {
        "backend": ask(torch.cuda.get_allocator_backend),
        "first_ms": 1e3 * seconds_of[0],
        "late_ms": 1e3 * statistics.median(seconds_of[late:]),
        "tokens_per_s": sum(tokens_of[late:]) / sum(seconds_of[late:]),
        "peak_live_bytes": ask(torch.cuda.max_memory_allocated),
        "peak_reserved_bytes": ask(torch.cuda.max_memory_reserved),
        "lap_ms": [[round(1e3 * seconds, 3) for seconds in times] for times in laps_of],  # of each step
        "driver_ms": [round(after - before, 3) for before, after in zip(spent, spent[1:])],  # the same
    }


def driver_ms():
    """What libvpool.so has spent in the driver so far; 0 without it."""
    stats = vpool.stats() if vpool.preloaded() else None
    return stats.driver_ns / 1e6 if stats else 0


def ask(question):
    """PyTorch's own figures: not every allocator backend has all of them, and without its cache they read 0."""
    try:
        return question() or None
    except Exception:
        return None


def checksum(parameters):
    with torch.no_grad():
        return sum(parameter.double().abs().sum().item() for parameter in parameters)


def gib(size):
    return "unknown" if size is None else f"{size / 2**30:.2f} GiB"


def show(figures, as_json):
    if not math.isfinite(figures.get("final_loss", 0)):
        sys.exit(f"the loss is {figures['final_loss']}: these results tell nothing")
    print(f"first step {figures['first_ms']:.1f} ms, late step {figures['late_ms']:.1f} ms, "
          f"{figures['tokens_per_s']:.0f} tokens/s; alive at most {gib(figures['peak_live_bytes'])}, "
          f"reserved by PyTorch {gib(figures['peak_reserved_bytes'])}")
    if as_json:
        print(json.dumps(figures))
