"""What recording stacks costs, and what it costs where it is off: on the simulated driver."""
# SPDX-License-Identifier: Apache-2.0
import os
import sys

from .probe import Probe, worked
from .table import Goal

TURNS = 6
DEPTH = 20
MOST = 1500
PYTHON = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))), "bench", "stacks.py")
NATIVE_WHAT = f"an event with a stack of {DEPTH} native frames (VPOOL_STACKS=1)"
PYTHON_WHAT = f"an event with a stack of {DEPTH} frames of Python (VPOOL_STACKS=1)"


def goal(what, plain, recorded):
    """A pair is an event with a stack, and one that forgets it."""
    cost = recorded - plain
    return Goal(what, f"{cost:.0f} ns with its free (a pair {plain:.0f}, recorded {recorded:.0f})", f"<= {MOST} ns", cost <= MOST)


def native(bench):
    plain, recorded = [], []
    for turn in range(TURNS):
        for into, env in ((plain, {}), (recorded, {"VPOOL_STACKS": "1"})):
            run = bench.simulated.run([bench.program("bench_driver"), "deep"], preload=True,
                                      env={"LD_LIBRARY_PATH": os.path.join(bench.folder, "sim")} | env)
            into.append(worked(run).result["deep_64k"])
    return [goal(NATIVE_WHAT, min(plain), min(recorded))]


def python(bench):
    sim = os.path.join(bench.folder, "sim")
    times = {}
    for turn in range(TURNS):
        for name, env in (("plain", {}), ("recorded", {"VPOOL_STACKS": "1"})):
            run = bench.simulated.run([sys.executable, PYTHON, str(DEPTH)], preload=True,
                                      env={"LD_LIBRARY_PATH": sim, "VPOOL_SIM": "backing=ledger"} | env)
            for case in ("again", "anew"):
                times.setdefault((case, name), []).append(worked(run).result[case])
    return [goal(f"{PYTHON_WHAT}, {how}", min(times[case, "plain"]), min(times[case, "recorded"]))
            for case, how in (("again", "the same frames"), ("anew", "new frames"))]


def probes():
    return [Probe("stacks, native", False, [(NATIVE_WHAT, f"<= {MOST} ns")], native),
            Probe("stacks, Python", False, [(f"{PYTHON_WHAT}, {how}", f"<= {MOST} ns") for how in ("the same frames", "new frames")],
                  python)]
