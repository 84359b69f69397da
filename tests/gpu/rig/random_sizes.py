"""PyTorch programs whose sizes never repeat, beside PyTorch's expandable segments: steps a second, and what is held."""
# SPDX-License-Identifier: Apache-2.0
from .probe import Probe, worked
from .rows import Row, python_example
from .side_by_side import run_side_by_side
from .table import MIB, Goal

SPEED, TURNS = 0.95, 1
KINDS = ("alike", "churn")


def words(kind):
    name = f"PyTorch of random sizes, {kind}"
    return f"{name}: speed / expandable segments'", f"{name}: most held", f"{name}: wrong tensors"


def measure(kind):
    def run(bench):
        argv = python_example("random_sizes.py", "--kind", kind)
        rows = [Row(f"random sizes, {kind}, expandable", argv, context="torch",
                    env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
                Row(f"random sizes, {kind}, vpool", argv, context="torch", preload=True)]
        for _ in range(TURNS):
            run_side_by_side(bench.device, rows, bench.started)
        theirs, ours = rows
        for row in rows:
            worked(row.runs[-1])
        seconds = [sum(row.step_ms()) / 1e3 for row in rows]
        late = [sum(row.step_ms()[len(row.step_ms()) // 2:]) / 1e3 for row in rows]
        held = theirs.figure("peak_reserved_bytes"), ours.stat("peak_held_bytes")
        wrong = sum(run.result["wrong"] for row in rows for run in row.runs)
        ratio = seconds[0] / seconds[1]
        what = words(kind)
        return [Goal(what[0], f"{ratio:.4f} ({seconds[1]:.2f} s for {seconds[0]:.2f}; the later half {late[0] / late[1]:.4f})",
                     f">= {SPEED}", ratio >= SPEED),
                Goal(what[1], f"{held[1] / held[0]:.4f} of expandable segments' ({held[1] / MIB:.0f} / {held[0] / MIB:.0f} MiB; alive "
                     f"{(ours.stat('peak_live_bytes') or 0) / MIB:.0f})", "< 1", held[1] < held[0]),
                Goal(what[2], f"{wrong}", "0", wrong == 0)]
    return run


def probes():
    return [Probe(f"PyTorch of random sizes, {kind}", True, list(zip(words(kind), (f">= {SPEED}", "< 1", "0"))), measure(kind))
            for kind in KINDS]
