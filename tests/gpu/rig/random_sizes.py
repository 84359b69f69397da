"""PyTorch programs whose sizes never repeat, beside PyTorch's expandable segments: steps a second, and what is held."""
# SPDX-License-Identifier: Apache-2.0
from .probe import Probe, worked
from .rows import Row, python_example
from .side_by_side import run_side_by_side
from .table import MIB, Goal

SPEED, TURNS = 0.95, 1
KINDS = ("alike", "churn")
# What is set, and whether the goals are judged. With little slack a cache's blocks lie where no memory is.
ADOPTIONS = {"cudaMallocAsync": ({"VPOOL_ADOPT": "async"}, True), "bare segments": ({"VPOOL_ADOPT": "bare"}, True),
             "bare segments, VPOOL_SLACK=0": ({"VPOOL_ADOPT": "bare", "VPOOL_SLACK": "0"}, False)}


def words(kind, how):
    name = f"PyTorch of random sizes, {kind}, {how}"
    return f"{name}: speed / expandable segments'", f"{name}: most held", f"{name}: wrong tensors"


def rows_of(kind):
    return [(text, wanted) for how, (_, judged) in ADOPTIONS.items()
            for text, wanted in zip(words(kind, how), (f">= {SPEED}" if judged else "-", "< 1", "0"))]


def goals_of(kind, how, theirs, ours):
    seconds = [sum(row.step_ms()) / 1e3 for row in (theirs, ours)]
    late = [sum(row.step_ms()[len(row.step_ms()) // 2:]) / 1e3 for row in (theirs, ours)]
    held = theirs.figure("peak_reserved_bytes"), ours.stat("peak_held_bytes")
    wrong = sum(run.result["wrong"] for row in (theirs, ours) for run in row.runs)
    ratio, what, judged = seconds[0] / seconds[1], words(kind, how), ADOPTIONS[how][1]
    return [Goal(what[0], f"{ratio:.4f} ({seconds[1]:.2f} s for {seconds[0]:.2f}; the later half {late[0] / late[1]:.4f})",
                 f">= {SPEED}" if judged else "-", ratio >= SPEED if judged else None),
            Goal(what[1], f"{held[1] / held[0]:.4f} of expandable segments' ({held[1] / MIB:.0f} / {held[0] / MIB:.0f} MiB; alive "
                 f"{(ours.stat('peak_live_bytes') or 0) / MIB:.0f})", "< 1", held[1] < held[0]),
            Goal(what[2], f"{wrong}", "0", wrong == 0)]


def measure(kind):
    def run(bench):
        argv, goals = python_example("random_sizes.py", "--kind", kind), []
        for how, (env, _) in ADOPTIONS.items():  # two at once: more may be more than the device has
            theirs = Row(f"random sizes, {kind}, expandable, beside {how}", argv, context="torch",
                         env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
            ours = Row(f"random sizes, {kind}, {how}", argv, context="torch", preload=True, env=env)
            for _ in range(TURNS):
                run_side_by_side(bench.device, [theirs, ours], bench.started)
            for row in theirs, ours:
                worked(row.runs[-1])
            goals += goals_of(kind, how, theirs, ours)
        return goals
    return run


def probes():
    return [Probe(f"PyTorch of random sizes, {kind}", True, rows_of(kind), measure(kind))
            for kind in KINDS]
