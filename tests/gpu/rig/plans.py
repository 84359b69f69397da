"""Plans: how many addresses the planner needs for recorded programs and for MiniMalloc's problems, and STAlloc by plans."""
# SPDX-License-Identifier: Apache-2.0
import os
import sys
import tempfile

from .build import ROOT
from .probe import Probe, output_of
from .replays import objects, replay, traces, waste_of
from .table import MIB, Goal

sys.path.insert(0, os.path.join(ROOT, "tests/traces"))
import minimalloc
import pairs

RECORDED, RECORDED_SECONDS = 1.01, 20
PROBLEMS = "MiniMalloc's problems A to K, placed within 1 MiB in a minute each"
SOLVED, PROBLEM_SECONDS, ROOM = 8, 58, MIB

def name_of(path):
    return os.path.basename(path).removesuffix(".csv.gz")


def goal_name(name):
    return f"plan, {name}: peak / lower bound"


def plan(folder, *arguments):
    return list(objects(output_of([os.path.join(folder, "vpool"), "plan", "--json", *map(str, arguments)])))


def recorded(bench):
    """Our planner, beside the published one."""
    ours = plan(bench.folder, "--seconds", RECORDED_SECONDS, *traces())
    published = plan(bench.folder, "--published", *traces())
    return [Goal(goal_name(one["trace"]), f"{one['ratio']:.4f} in {one['seconds']:.1f} s (STAlloc's planner {two['ratio']:.4f})",
                 f"<= {RECORDED}, and STAlloc's", one["ratio"] <= RECORDED and one["ratio"] <= two["ratio"] + 1e-4)
            for one, two in zip(ours, published)]


def problems(bench):
    with tempfile.TemporaryDirectory() as folder:
        paths = minimalloc.write(folder)
        results = plan(bench.folder, "--seconds", PROBLEM_SECONDS, "--capacity", ROOM, *paths.values())
    solved = [result for result in results if result["peak"] <= ROOM and result["seconds"] < 60]
    missing = ", ".join(f"{result['trace']} {result['peak'] / ROOM:.2f} MiB" for result in results if result not in solved)
    longest = max((result["seconds"] for result in solved), default=0)
    return [Goal(PROBLEMS, f"{len(solved)} of {len(results)}, in {longest:.1f} s at most" + (f" ({missing})" if missing else ""),
                 f">= {SOLVED}", len(solved) >= SOLVED)]


def row_of(name):
    return f"STAlloc, {name}: held / live by the plan of the same run; of another seed"


def published_row(bench):
    """STAlloc, by the plan of the same run and by that of another seed: held / live, and the requests that got their places.
    What its cache serves is held, too."""
    def figure(result):
        placed = result["placed"] / max(1, result["placed"] + result["missed"])
        return f"{waste_of(result):.4f}, {placed:.0%} placed"
    goals = []
    with tempfile.TemporaryDirectory() as folder:
        for name in pairs.NAMES:
            first, second = pairs.write(name, folder)
            written = os.path.join(folder, name)
            planned = plan(bench.folder, "--published", "-o", written, first)[0]
            same, other = (replay(bench.folder, "--policy", "stalloc", "--plan", written, of=[path])[0] for path in (first, second))
            cache = replay(bench.folder, "--policy", "bfc", of=[second])[0]
            part = ", static part" if planned["static_part"] else ""
            goals.append(Goal(row_of(name), f"{figure(same)}{part}; {figure(other)} (PyTorch's cache {waste_of(cache):.4f})", "-", None))
    return goals


def probes():
    names = [name_of(path) for path in traces()]
    return [
        Probe("plans: recorded programs", False, [(goal_name(name), f"<= {RECORDED}, and STAlloc's") for name in names], recorded),
        Probe("plans: MiniMalloc's problems", False, [(PROBLEMS, f">= {SOLVED}")], problems),
        Probe("plans: STAlloc, same run and another seed", False,
              [(row_of(name), "-") for name in pairs.NAMES], published_row),
    ]
