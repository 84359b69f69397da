"""What the bounded wait of the host saves, and costs: programs that gather and release layers on a second stream."""
# SPDX-License-Identifier: Apache-2.0
import os

from .probe import Probe, worked
from .rows import Row, python_example
from .runner import run_rows
from .side_by_side import run_side_by_side
from .table import MIB, Goal

MODES = ("early", "auto", "late")
SAVED, SPEED, HELD_UP_US = 0.9, 0.99, 1000
NOTHING = 0.125  # of what is held: as much may always be held for a GPU that lags
TURNS = 3
STEPS, FIRST = 40, 12  # of the training; its first ones are told apart

PROGRAM = "gather and release on a second stream"
TRAINING = "PyTorch gathers and releases layers"  # by cudaMallocAsync: its cache waits for other streams by itself


def saved_goal(what, held):
    """Of the memory that waits of the stream save, how much waits of the host do."""
    most = held["late"] - held["early"]
    figures = ", ".join(f"{mode} {held[mode] / MIB:.0f}" for mode in MODES)
    if most < NOTHING * held["early"]:  # the host was no further ahead than that
        return Goal(f"{what}: memory saved", f"there was nothing to save (held {figures} MiB)", f">= {SAVED}", None)
    share = (held["late"] - held["auto"]) / most
    return Goal(f"{what}: memory saved", f"{share:.3f} of what early waits save (held {figures} MiB)", f">= {SAVED}",
                share >= SAVED)


def speed_goal(what, seconds, more=""):
    ratio = seconds["early"] / seconds["auto"]
    figures = ", ".join(f"{mode} {seconds[mode]:.3f}" for mode in MODES) + " s" + more
    return Goal(f"{what}: speed", f"{ratio:.4f} of early waits' ({figures})", f">= {SPEED}", ratio >= SPEED)


def program(bench):
    runs = {mode: [] for mode in MODES}
    for turn in range(TURNS):
        for mode in MODES if turn % 2 == 0 else MODES[::-1]:
            run = bench.device.run([os.path.join(bench.folder, "gpu/gather")], preload=True, env={"VPOOL_WAIT": mode})
            runs[mode].append(worked(run))
    held = {mode: max(run.stats["peak_held_bytes"] for run in runs[mode]) for mode in MODES}
    seconds = {mode: min(run.result["seconds"] for run in runs[mode]) for mode in MODES}
    worst = {mode: min(run.result["worst_us"] for run in runs[mode]) for mode in MODES}
    waits = runs["auto"][-1].stats
    bench.notes.append(f"{PROGRAM}: {waits.get('waits_host')} waits of the host, {waits.get('waits_host_us', 0) / 1e3:.1f} ms in "
                       f"all, {waits.get('waits_fruitless')} in vain")
    return [saved_goal(PROGRAM, held), speed_goal(PROGRAM, seconds),
            Goal(f"{PROGRAM}: another thread's longest call", f"{worst['auto']:.0f} us (early {worst['early']:.0f})",
                 f"<= early's + {HELD_UP_US}", worst["auto"] <= worst["early"] + HELD_UP_US)]


def training(bench):
    rows = [Row(f"gather, {mode}", python_example("gather.py", "--steps", str(STEPS)), preload=True,
                env={"VPOOL_WAIT": mode, "VPOOL_ADOPT": "async"}, context="torch")
            for mode in MODES]
    for _ in range(2):
        run_side_by_side(bench.device, rows, bench.started)
    alone = [Row(row.name, row.argv, preload=True, env=row.env, context="torch") for row in rows]
    run_rows(bench.device, alone, {}, bench.started)
    if any(not row.runs or not worked(row.runs[-1]) for row in [*rows, *alone]):
        return [Goal(f"{TRAINING}: {what}", "not measured", wanted, None) for what, wanted in
                (("memory saved", f">= {SAVED}"), ("speed", f">= {SPEED}"))]
    held = {mode: row.stat("peak_held_bytes") for mode, row in zip(MODES, alone)}
    turns = min(len(row.timed()) for row in rows)
    steps = {mode: row.step_ms(turns) for mode, row in zip(MODES, rows)}
    seconds = {mode: sum(ms) / 1e3 for mode, ms in steps.items()}
    first, later = (sum(steps["early"][part]) / sum(steps["auto"][part]) for part in (slice(FIRST), slice(FIRST, None)))
    apart = f"; the first {FIRST} of {STEPS} steps {first:.4f}, the others {later:.4f}"
    results = {(run.result["final_loss"], run.result["checksum"]) for row in [*rows, *alone] for run in row.runs}
    return [saved_goal(TRAINING, held), speed_goal(TRAINING, seconds, apart),
            Goal(f"{TRAINING}: same result", f"{len(results)} different", "1", len(results) == 1)]


def probes():
    return [
        Probe(PROGRAM, True, [(f"{PROGRAM}: memory saved", f">= {SAVED}"), (f"{PROGRAM}: speed", f">= {SPEED}"),
                              (f"{PROGRAM}: another thread's longest call", f"<= early's + {HELD_UP_US}")], program),
        Probe(TRAINING, True, [(f"{TRAINING}: memory saved", f">= {SAVED}"), (f"{TRAINING}: speed", f">= {SPEED}"),
                               (f"{TRAINING}: same result", "1")], training),
    ]
