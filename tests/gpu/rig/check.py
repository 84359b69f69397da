"""Checks libvpool.so on a machine with an NVIDIA GPU.

Builds the library and the test programs, runs each program bare and under LD_PRELOAD=libvpool.so, compares the
results, measures time and memory, and prints a table last. Needs meson, ninja, a C compiler, nvcc, and python3 with
PyTorch, JAX, CuPy and numba; nothing is fetched. Exits with 0 only if all rows are right and all goals are met.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import ctypes
import json
import os
import re
import signal
import sys
import time

from . import build
from .device import Device
from .rows import LONG, SECTIONS, all_rows, contexts_of, goals, peer_goals, verdict
from .runner import Runner, run_rows, say
from .spilling import spill_goals
from .table import MIB, cell, print_goals, print_table
from .torch_modes import print_features, torch_goals


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="PATTERN", help="run the rows whose name matches this regular expression, "
                        "and those that they are compared with")
    parser.add_argument("--section", metavar="NAME[,NAME]", help="run these alone: " + "; ".join(
                        f"{name} ({what})" for name, what in SECTIONS.items()))
    parser.add_argument("--list", action="store_true", help="name the rows and their commands, and run nothing")
    parser.add_argument("--quick", action="store_true", help="fewer steps, one turn, shorter stress")
    parser.add_argument("--seconds", metavar="S", type=float, help="how long PyTorch's tensors are under stress, in all modes "
                        "at once, and so much later programs may start (section torch; default 30, with --quick 10)")
    parser.add_argument("--out", metavar="DIR", help="where log.txt and figures.json go (default: build-gpu/check)")
    parser.add_argument("--build", metavar="DIR", default=os.path.join(build.ROOT, "build-gpu"),
                        help="the build folder (default: build-gpu)")
    parser.add_argument("--library", metavar="FILE", help="check this libvpool.so instead of the one that is built")
    parser.add_argument("--before", metavar="FILE", help="an older libvpool.so, against whose time in the driver the section "
                        "peers holds that of a training on one device")
    parser.add_argument("--budget", metavar="S", type=float, default=510,
                        help="start no program later than this many seconds after the start (default 510)")
    options = parser.parse_args()
    options.sections = options.section.split(",") if options.section else [s for s in SECTIONS if s not in LONG]
    unknown = [name for name in options.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"no section {unknown[0]}; there are {', '.join(SECTIONS)}")
    options.build = os.path.abspath(options.build)
    options.out = os.path.abspath(options.out or os.path.join(options.build, "check"))
    return options


def select(rows, sections, pattern):
    chosen = [row for row in rows if row.section in sections and re.search(pattern or "", row.name)]
    if not chosen:
        sys.exit(f"gpu-check: no row matches {pattern!r}; --list names them")
    wanted = {row.name for row in chosen} | {row.like for row in chosen} | {"empty context"}
    if any(row.context == "torch" for row in chosen):
        wanted.add("empty torch context")
    return [row for row in rows if row.name in wanted]


# ---- the table

def line_of(row, word, contexts):
    context = contexts.get(row.context)
    ratio = row.peak / (row.live + context) if None not in (row.peak, row.live, context) else None
    return [row.name, word, cell(row.peak, MIB), cell(row.live, MIB), cell(context, MIB), cell(ratio, 1, 3),
            cell(row.stat("peak_held_bytes"), MIB), cell(row.stat("driver_us"), 1e3),
            cell(row.figure("tokens_per_s")), cell(row.figure("first_ms")), cell(row.figure("late_ms"), 1, 1),
            cell(row.best(lambda run: run.seconds), 1, 1)]


HEAD = ["row", "result", "peak", "live", "context", "ratio", "held", "driver", "tokens/s", "first", "late", "all"]
UNITS = ["", "", "MiB", "MiB", "MiB", "", "MiB", "ms", "", "ms", "ms", "s"]


def print_pairs(rows):
    """Nanoseconds for an allocation and its free."""
    row = {row.name: row for row in rows}
    bare, vpool = row["call pairs, bare"], row["call pairs, vpool"]
    names = [name for run in (vpool.runs or bare.runs)[:1] for name in run.result if name != "ok"]
    if names:
        print()
        print_table([["ns a pair"] + names] + [[word] + [cell(one.figure(name)) for name in names]
                                               for word, one in (("bare", bare), ("vpool", vpool))], 1)


def report(rows, chosen, contexts, device, options):
    """Prints the tables, writes the figures; true if all is right."""
    words = {row.name: verdict(row, rows) for row in chosen}
    shown = [row for row in chosen if row.table or words[row.name][0] is not True]
    all_goals = goals(rows, contexts) if "core" in options.sections else []
    all_goals += peer_goals(rows) + torch_goals(rows) + spill_goals(rows)

    for row in shown:  # those that failed by themselves have been told already
        if words[row.name][0] is False and all(run.worked for run in row.runs):
            print(f"{row.name}: {words[row.name][1]}\n    {row.runs[0].command}\n    gave {row.runs[0].result}")
    print(f"\n{device.name()}, driver {device.driver()}" if device else "\nno NVML: no peaks")
    print_table([HEAD, UNITS] + [line_of(row, words[row.name][1], contexts) for row in shown], 2)
    print("peak: the device's memory in use, by NVML, less what was in use before; live: alive at once, as asked for;")
    print("ratio: peak / (live + context); held: physical memory of the pool; driver: time in the pool's driver calls")
    print_pairs(rows)
    print_features(rows)

    print()
    print_goals(all_goals)

    needed = [words[row.name][0] for row in chosen if not any(run.skipped for run in row.runs)]
    # Of rows that were left out on purpose goals say nothing, and that is no failure.
    needed += [goal.holds for goal in all_goals if goal.holds is not None or not options.only]
    right = bool(needed) and all(needed)
    with open(os.path.join(options.out, "figures.json"), "w") as file:
        json.dump({"right": right, "contexts": contexts,
                   "goals": [vars(goal) for goal in all_goals],
                   "rows": {row.name: {"verdict": words[row.name][1], "runs": [run.figures() for run in row.runs]}
                            for row in chosen}}, file, indent=1)
    print(f"\n{'all right' if right else 'NOT ALL RIGHT'}; log and figures are in {options.out}")
    return right


def stop(number, _):
    raise KeyboardInterrupt(f"signal {number}")


def has_driver():
    """Where NVML is not to be had, there may be a GPU all the same."""
    try:
        return bool(ctypes.CDLL("libcuda.so.1"))
    except OSError:
        return os.path.exists("/dev/nvidiactl")


def main():
    options = parse()
    work = os.path.join(options.build, "gpu")
    started = time.monotonic()
    signal.signal(signal.SIGTERM, stop)

    try:
        folder = build.runtime_folder()
    except build.BuildError:
        folder = None
    rows = all_rows(work, folder, options.quick, options.before, options.seconds)
    chosen = select(rows, options.sections, options.only)
    if options.list:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # the reader may have seen enough
        for row in chosen:
            run = " ".join([f"{name}={value}" for name, value in row.env.items()] + row.argv)
            print(f"{row.name:32} {'LD_PRELOAD=libvpool.so ' if row.preload else ''}{run}")
        return 0

    try:
        device = Device()
        say(f"{device.name()}, driver {device.driver()}")
    except (OSError, AttributeError) as problem:
        device = None
        if not has_driver():
            sys.exit("gpu-check: there is no NVIDIA GPU here: neither libcuda.so.1 nor /dev/nvidiactl is to be found")
        say(f"no peaks will be measured: {problem}")

    os.makedirs(work, exist_ok=True)
    os.makedirs(options.out, exist_ok=True)
    try:
        library = os.path.abspath(options.library) if options.library else build.library(options.build)
        problems = build.programs(work, device.architecture() if device else None)
    except build.BuildError as problem:
        print(f"gpu-check: the build failed\n{problem}")
        return 1
    for name, problem in problems.items():
        say(f"{name} was not built:\n{problem}")
    say(f"[{time.monotonic() - started:6.1f} s] built {library}")

    runner = Runner(library, work, options.out, device, started + options.budget + (options.seconds or 0))
    try:
        run_rows(runner, chosen, problems, started)
    except KeyboardInterrupt as reason:
        say(f"stopped: {reason or 'interrupted'}")
    return 0 if report(rows, chosen, contexts_of(rows), device, options) else 1
