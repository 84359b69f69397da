"""PyTorch's own cache over bare segments: recorded programs, replayed, and what each block costs while nothing moves."""
# SPDX-License-Identifier: Apache-2.0
import os

from .probe import Probe, one_of, worked
from .replays import replay, traces, waste_of
from .table import Goal

WASTE = 1.010
# Passes over a trace, one after the other in one pool: modelled driver time of the last one.
PASSES = {1: 300, 2: 95, 4: 45}
TURNS, COST_NS = 3, 60
COST = "a block told of, nothing moves: ns an allocation and a free, the worst of sizes and places"


def held_name(trace):
    return f"{trace}: held / live in {max(PASSES)} passes"


def time_name(trace, number):
    return f"{trace}: driver time in pass {number}"


def frontier(bench):
    """Each trace by itself."""
    runs = {number: replay(bench.folder, "--policy", "bare", "--repeat", str(number), "--late", str(100 // number))
            for number in PASSES}
    goals = []
    for result in runs[max(PASSES)]:
        waste = waste_of(result)
        goals.append(Goal(held_name(result["trace"]), f"{waste:.4f}", f"<= {WASTE:.3f}", waste <= WASTE))
    for number, most in PASSES.items():
        for result in runs[number]:
            ms = result["late_driver_us"] / 1e3
            goals.append(Goal(time_name(result["trace"], number), f"{ms:.1f} ms", f"<= {most} ms", ms <= most))
    return goals


def cost(bench):
    result = one_of([worked(bench.simulate("bench_bare")).result for _ in range(TURNS)], min)
    figures = {size: ns for size, ns in result.items() if size != "ok"}
    figure = ", ".join(f"{size} {ns:.0f}" for size, ns in figures.items())
    return [Goal(COST, figure, f"<= {COST_NS}", max(figures.values()) <= COST_NS)]


def probes():
    names = [os.path.basename(path).removesuffix(".csv.gz") for path in traces()]
    return [
        Probe("bare segments: replay", False,
              [(held_name(name), f"<= {WASTE:.3f}") for name in names] +
              [(time_name(name, number), f"<= {most} ms") for number, most in PASSES.items() for name in names],
              frontier),
        Probe("bare segments: cost of a block", False, [(COST, f"<= {COST_NS}")], cost),
    ]
