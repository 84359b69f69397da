"""Memory that goes where it is needed: what the device has again after PyTorch's cache was emptied, and what one process lends
another."""
# SPDX-License-Identifier: Apache-2.0
import os

from .probe import Probe, worked
from .rows import script
from .table import MIB, Goal

MOST, SPARE = 1.02, 32 * MIB
HAND_OVER_MS = 150
LENT = "two processes in turns, each with 60 % of the device"
LENT_GOALS = [(f"{LENT}: allocations that fail", "0"), (f"{LENT}: a hand-over of 10 GiB", f"<= {HAND_OVER_MS} ms"),
              (f"{LENT}: every byte is right", "True"), (f"{LENT}: fail with VPOOL_LEND=0", "> 0")]


def emptied_name(adopt):
    return f"PyTorch empties its cache (VPOOL_ADOPT={adopt})"


def emptied_goals(adopt):
    most = f"<= {MOST} x (alive + context) + {SPARE // MIB} MiB"
    return [(f"{emptied_name(adopt)}: in use a second later", most), (f"{emptied_name(adopt)}: all is freed", most)]


def emptied(adopt):
    def run(bench):
        result = worked(bench.device.run(script("emptied.py"), preload=True, env={"VPOOL_ADOPT": adopt})).result
        first, goals = result["first_bytes"], []
        for (what, wanted), use, alive in zip(emptied_goals(adopt), ("emptied_bytes", "all_freed_bytes"), (result["alive_bytes"], 0)):
            most = MOST * (first + alive) + SPARE
            goals.append(Goal(what, f"{result[use] / MIB:.0f} MiB ({alive / MIB:.0f} alive, {first / MIB:.0f} at first, "
                              f"{result['peak_bytes'] / MIB:.0f} before)", wanted, result[use] <= most))
        return goals
    return run


def lent(bench):
    program = [os.path.join(bench.folder, "tests/gpu/lent")]
    worked_run = worked(bench.device.run(program, preload=True))
    result = worked_run.result
    alone = bench.device.run([*program, "60", "1", "0"], preload=True, env={"VPOOL_LEND": "0"}).result
    what = [name for name, _ in LENT_GOALS]
    ms = result["worst_ms_10gib"]
    bench.notes.append(f"{LENT}: {', '.join(worked_run.errors.strip().splitlines())}")
    return [Goal(what[0], str(result["failed"]), "0", not result["failed"]),
            Goal(what[1], f"{ms:.1f} ms at worst ({result['lent_bytes'] / MIB:.0f} MiB in all)", f"<= {HAND_OVER_MS} ms",
                 bool(result["lent_bytes"]) and ms <= HAND_OVER_MS),
            Goal(what[2], str(result["ok"]), "True", result["ok"]),
            Goal(what[3], str(alone.get("failed", "?")), "> 0", alone.get("failed", 0) > 0)]


def probes():
    return [Probe(emptied_name(adopt), True, emptied_goals(adopt), emptied(adopt)) for adopt in ("async", "bare")] + \
        [Probe(LENT, True, LENT_GOALS, lent)]
