"""Measures what vpool promises, and prints each promise as a row: the figure, what is wanted, and whether it holds.

Replays of recorded programs, calls in process and metadata are measured anywhere, on the simulated driver. Where there
is an NVIDIA GPU with nvcc and a python3 that has PyTorch, the calls are timed on it too, beside CUDA's own allocator,
and PyTorch programs are run under its own allocators and under libvpool.so. Exits with 0 if all that was measured
holds.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import os
import re
import signal
import sys
import time
import traceback

from . import (against, bare, build, calls, covered, given, lags, own_cache, plans, programs, random_sizes, replays, second, sleeping, slow,
               stacks, waits, workloads)
from .probe import NEEDS_GPU, Bench, Failed
from .device import Device
from .runner import Runner, say
from .table import Goal, print_goals

# What is measured, in this order; then the PyTorch programs, which run in turns.
PARTS = (replays, lags, bare, programs, plans, slow, calls, stacks, covered, waits, sleeping, given, random_sizes)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="PATTERN", help="measure what has a row or a name that matches this regular "
                        "expression")
    parser.add_argument("--list", action="store_true", help="name what can be measured, and measure nothing")
    parser.add_argument("--sim", action="store_true", help="measure only what needs no GPU")
    parser.add_argument("--turns", metavar="N", type=int, default=2, help="how often each PyTorch program runs under "
                        "the three allocators side by side (default 2): more is calmer")
    parser.add_argument("--json", metavar="FILE", help="write the rows there too")
    parser.add_argument("--against", metavar="PATH", help="measure calls and PyTorch programs beside another libvpool.so "
                        "instead, in turns; of a source tree, it is built here first, by the same compiler")
    parser.add_argument("--frontier", action="store_true", help="print waste against driver time over handle sizes "
                        "instead")
    parser.add_argument("--build", metavar="DIR", default=os.path.join(build.ROOT, "build-bench"),
                        help="the build folder (default: build-bench)")
    parser.add_argument("--budget", metavar="S", type=float, default=1200,
                        help="start no program later than this many seconds after the start (default 1200)")
    options = parser.parse_args()
    options.build = os.path.abspath(options.build)
    options.against = options.against and os.path.abspath(options.against)
    if options.against and not os.path.exists(options.against):
        parser.error(f"there is no {options.against}")
    return options


def select(probes, pattern):
    if not pattern:
        return probes
    chosen = [probe for probe in probes
              if any(re.search(pattern, name) for name in [probe.name, *(what for what, _ in probe.goals)])]
    if not chosen:
        sys.exit(f"bench: nothing matches {pattern!r}; --list names what there is")
    return chosen


def gpu():
    """The GPU, or None where nothing can be measured on one."""
    try:
        device = Device()
        build.nvcc()
        return device
    except (OSError, AttributeError, build.BuildError) as problem:
        say(f"nothing will be measured on a GPU: {problem}")
        return None


def prepare(options, device, probes, started):
    """Builds what the probes need."""
    library = build.library(options.build)
    folders = {kind: os.path.join(options.build, "bench", kind) for kind in ("sim", "gpu")}
    for folder in folders.values():
        os.makedirs(folder, exist_ok=True)
    deadline = started + options.budget
    simulated = Runner(library, folders["sim"], folders["sim"], None, deadline)
    on_device, runtime = None, {}
    if device and any(probe.gpu for probe in probes):
        work = os.path.join(options.build, "gpu")
        problems = build.programs(work, device.architecture(), ("context", "pairs", "gather"))
        if problems:
            raise build.BuildError("\n".join(problems.values()))
        on_device = Runner(library, folders["gpu"], folders["gpu"], device, deadline)
        folders = [folder for folder in (build.runtime_folder(), os.environ.get("LD_LIBRARY_PATH")) if folder]
        runtime = {"LD_LIBRARY_PATH": ":".join(folders)} if folders else {}
    say(f"[{time.monotonic() - started:6.1f} s] built {library}")
    return Bench(options.build, library, simulated, on_device, runtime, started)


def measure(bench, probe):
    if probe.gpu and not bench.device:
        return [Goal(what, NEEDS_GPU, wanted, None) for what, wanted in probe.goals]
    if (bench.device or bench.simulated).time_left() < 5:
        return [Goal(what, "not measured: no time left", wanted, None) for what, wanted in probe.goals]
    begin, expected = time.monotonic(), probe.goals or [(probe.name, "works")]
    try:
        goals = probe.measure(bench)
    except Exception as problem:  # whatever went wrong here, the other figures are not lost
        say(f"{probe.name}: {problem}" if isinstance(problem, Failed) else traceback.format_exc())
        goals = [Goal(what, "FAILED", wanted, False) for what, wanted in expected]
        if (bench.device or bench.simulated).time_left() <= 0:  # its programs were stopped
            goals = [Goal(what, "not measured: no time left", wanted, None) for what, wanted in expected]
    say(f"[{time.monotonic() - bench.started:6.1f} s] {probe.name:34} {time.monotonic() - begin:6.1f} s")
    for goal in goals:
        say(f"{'':11}{goal.name.removeprefix(f'{probe.name}: ')}: {goal.figure} (wanted {goal.goal})")
    return goals


def write(options, device, goals, notes):
    """After each probe: what was measured is not lost if the rest is stopped."""
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"right": all(goal.holds is not False for goal in goals), "device": device and device.name(),
                       "driver": device and device.driver(), "goals": [vars(goal) for goal in goals], "notes": notes}, file, indent=1)


def main():
    options = parse()
    started = time.monotonic()
    other = os.path.join(options.build, "against")
    library = os.path.join(other, "libvpool.so") if options.against and os.path.isdir(options.against) else options.against
    known = against.probes(library, options.turns) if options.against else \
        [probe for part in PARTS for probe in part.probes()] + own_cache.probes(options.turns) + second.probes(options.turns) + \
        workloads.probes(options.turns)
    probes = select(known, options.only)
    if options.list:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # the reader may have seen enough
        for probe in probes:
            print(f"{probe.name}{'  (GPU)' if probe.gpu else ''}")
            for what, wanted in probe.goals:
                print(f"    {what}  {wanted}")
        return 0
    device = None if options.sim else gpu()
    if options.sim:
        probes = [probe for probe in probes if not probe.gpu]
    try:
        if options.against and os.path.isdir(options.against):
            build.other_library(options.against, other)
        bench = prepare(options, device, probes, started)
        if options.frontier:
            replays.frontier(options.build)
            return 0
    except build.BuildError as problem:
        print(f"bench: the build failed\n{problem}")
        return 1
    except Failed as problem:
        print(f"bench: {problem}")
        return 1

    goals = []
    try:
        for probe in sorted(probes, key=lambda probe: probe.gpu):
            goals += measure(bench, probe)
            write(options, device, goals, bench.notes)
    except KeyboardInterrupt:
        say("stopped")
    right = all(goal.holds is not False for goal in goals)

    print(f"\n{device.name()}, driver {device.driver()}" if device else "\nno GPU")
    print_goals(goals)
    print()
    for note in bench.notes:
        print(note)
    judged = [goal for goal in goals if goal.holds is not None]
    missing = sum(goal.figure.startswith("not measured") for goal in goals)
    print(f"{sum(goal.holds for goal in judged)} of {len(judged)} goals that were measured hold; "
          f"{missing} were not measured here")
    return 0 if right else 1
