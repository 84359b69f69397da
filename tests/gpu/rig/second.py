"""A second run that starts where the first ended (VPOOL_PLAN): recorded programs by the plan of the same run, of another
seed and of another program; and PyTorch programs, whose first steps are timed beside those under PyTorch's own cache."""
# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import statistics
import sys
import tempfile

from .build import ROOT
from .probe import Failed, Probe, output_of, worked
from .replays import objects, traces, waste_of
from .rows import Row, workloads
from .runner import run_rows
from .side_by_side import run_side_by_side
from .table import MIB, Goal

sys.path.insert(0, os.path.join(ROOT, "tests/traces"))
import pairs

SAME_TIME, SAME_WASTE = 0.10, 1.005
SEED_TIME, SEED_WASTE = 0.60, 1.0075
WRONG_TIME, WRONG_HELD = 1.05, 1.005
DRIVER_MS, FIRST_STEPS, STEPS_SPEED, START = 20, 3, 1.0, 1.02

SYNTHETIC = ("moe_routing",)
SEED = ", another seed"


def name_of(path):
    return os.path.basename(path).removesuffix(".csv.gz")


# Who serves the recorded program, and what that is called in the rows: vpool itself, or PyTorch's cache over bare segments.
OURS, BARE = ("vpool", ""), ("bare", " over bare segments")


def replay(bench, by, trace, plan=None):
    command = [os.path.join(bench.folder, "vpool"), "replay", "--policy", by[0], "--json", trace]
    return next(objects(output_of(command, env={"VPOOL_PLAN": plan} if plan else None)))


def pair(bench, by, first, second, folder):
    """The second trace by itself, and as the second run after the first."""
    plan = os.path.join(folder, "plan")
    if os.path.exists(plan):
        os.unlink(plan)
    replay(bench, by, first, plan)
    return replay(bench, by, second), replay(bench, by, second, plan)


def time_goal(what, without, with_plan, most):
    share = with_plan["driver_us"] / max(1, without["driver_us"])
    every = (with_plan["driver_us"] + with_plan["learnt"]["background_us"]) / max(1, without["driver_us"])
    return Goal(what, f"{share:.3f} of {without['driver_us'] / 1e3:.1f} ms ({every:.3f} with the background's)", f"<= {most}", share <= most)


def same_names(name):
    return [(f"second run, {name}: driver time of the program's thread", f"<= {SAME_TIME}"),
            (f"second run, {name}: held / live", f"<= {SAME_WASTE}"), (f"second run, {name}: late calls", "0")]


def held_goal(what, without, with_plan):
    share = with_plan["peak_held_bytes"] / without["peak_held_bytes"]
    return Goal(what, f"{share:.4f} of {waste_of(without):.4f}", f"<= {SAME_WASTE}", share <= SAME_WASTE)


def bare_names(name, other=""):
    what = f"second run over bare segments, {name}{other}"
    return [(f"{what}: driver time of the program's thread", f"<= {SEED_TIME if other else SAME_TIME}"),
            (f"{what}: held / live, of that without", f"<= {SAME_WASTE}")]


def bare(bench):
    """The cache chooses the addresses: what is held beside what is alive is its own."""
    goals = []
    with tempfile.TemporaryDirectory() as folder:
        for path in traces():
            for other, paths, most in ("", (path, path), SAME_TIME), (SEED, pairs.write(name_of(path), folder), SEED_TIME):
                without, again = pair(bench, BARE, *paths, folder)
                what = [text for text, _ in bare_names(name_of(path), other)]
                goals += [time_goal(what[0], without, again, most), held_goal(what[1], without, again)]
    return goals


def same(bench):
    goals = []
    with tempfile.TemporaryDirectory() as folder:
        for path in traces():
            without, again = pair(bench, OURS, path, path, folder)
            what = [text for text, _ in same_names(name_of(path))]
            waste, late = waste_of(again), again["late_driver_calls"]
            goals += [time_goal(what[0], without, again, SAME_TIME),
                      Goal(what[1], f"{waste:.4f} ({waste_of(without):.4f} without)", f"<= {SAME_WASTE}", waste <= SAME_WASTE),
                      Goal(what[2], str(late), "0", late == 0)]
    return goals


def seed_names(name):
    return [(f"second run, {name}{SEED}: driver time of the program's thread", f"<= {SEED_TIME}"),
            (f"second run, {name}{SEED}: held / live", f"<= {SEED_WASTE}")]


def seeds(bench):
    goals = []
    with tempfile.TemporaryDirectory() as folder:
        for source in [*traces(), *SYNTHETIC]:
            without, second = pair(bench, OURS, *pairs.write(name_of(source), folder), folder)
            what = [text for text, _ in seed_names(name_of(source))]
            waste = waste_of(second)
            goals += [time_goal(what[0], without, second, SEED_TIME),
                      Goal(what[1], f"{waste:.4f} ({waste_of(without):.4f} without)", f"<= {SEED_WASTE}", waste <= SEED_WASTE)]
    return goals


def wrong_names(by):
    return [(f"second run{by[1]}, another program's plan: driver time at most", f"<= {WRONG_TIME}"),
            (f"second run{by[1]}, another program's plan: held, of that without, at most", f"<= {WRONG_HELD}")]


def wrong(bench, by):
    times, helds = [], []
    with tempfile.TemporaryDirectory() as folder:
        alone = {path: replay(bench, by, path) for path in traces()}
        plan, used = os.path.join(folder, "plan"), os.path.join(folder, "used")
        for source in traces():
            if os.path.exists(plan):
                os.unlink(plan)
            replay(bench, by, source, plan)
            for path in traces():
                if path == source:
                    continue
                shutil.copy(plan, used)
                os.chmod(used, 0o600)
                other, pairing = replay(bench, by, path, used), f"{name_of(path)} by {name_of(source)}"
                times.append((other["driver_us"] / alone[path]["driver_us"], pairing))
                helds.append((other["peak_held_bytes"] / alone[path]["peak_held_bytes"], pairing))
    return [Goal(what, f"{value:.3f} ({pairing})", wanted, value <= most)
            for (what, wanted), (value, pairing), most in zip(wrong_names(by), (max(times), max(helds)), (WRONG_TIME, WRONG_HELD))]


# ---- on a GPU ----

def gpu_names(name):
    what = f"PyTorch {name}, second run by its plan"
    return [(f"{what}: driver calls of its threads", f"<= {DRIVER_MS} ms"),
            (f"{what}: first {FIRST_STEPS} steps' speed / its cache's", f">= {STEPS_SPEED}"),
            (f"{what}: held / without a plan", "<= 1.005"), (f"{what}: start / without a plan", f"<= {START}")]


def first_steps(row):
    """Of each turn, in milliseconds."""
    return [sum(sum(lap) for lap in laps[:FIRST_STEPS]) for laps in row.timed()]


def told(run):
    """What one run held, and how many of its requests had their places."""
    plan = run.stats.get("plan", {})
    return f"{run.stats.get('peak_held_bytes', 0) / MIB:.0f} MiB, {plan.get('placed')} of {plan.get('requests')} placed"


def on_gpu(name, argv, turns):
    def run(bench):
        with tempfile.TemporaryDirectory() as folder:
            plan = {"VPOOL_PLAN": os.path.join(folder, "plan")}
            few = [*argv, "--steps", str(2 * FIRST_STEPS)]
            first = Row(f"{name}, first run", few, preload=True, context="torch", env=plan)
            without = Row(f"{name}, no plan", few, preload=True, context="torch")
            cache = Row(f"{name}, its cache", few, context="torch")
            second = Row(f"{name}, second run", few, preload=True, context="torch", env=plan)
            run_rows(bench.device, [first], {}, bench.started)
            for _ in range(max(3, turns)):
                run_side_by_side(bench.device, [cache, second], bench.started)
            starts = {True: [], False: []}
            for _ in range(3):
                for row, planned in ((without, False), (second, True)):
                    run_rows(bench.device, [row], {}, bench.started)
                    if row.skipped:
                        raise Failed(f"{row.name}: {row.skipped}")
                    starts[planned].append(row.runs[-1].seconds - sum(sum(lap) for lap in row.timed()[-1]) / 1e3)
            for row in first, without, cache, second:
                for result in row.runs:
                    worked(result)
        what = [text for text, _ in gpu_names(name)]
        spent = second.best(lambda one: one.stats.get("driver_us")) / 1e3
        speed = statistics.median(theirs / ours for theirs, ours in zip(first_steps(cache), first_steps(second)))
        held = second.stat("peak_held_bytes") / without.stat("peak_held_bytes")
        start = statistics.median(starts[True]) / statistics.median(starts[False])
        return [Goal(what[0], f"{spent:.1f} ms ({without.stat('driver_us') / 1e3:.0f} without a plan)", f"<= {DRIVER_MS} ms", spent <= DRIVER_MS),
                Goal(what[1], f"{speed:.3f}", f">= {STEPS_SPEED}", speed >= STEPS_SPEED),
                Goal(what[2], f"{held:.4f} (by run: {', '.join(map(told, second.runs))})", "<= 1.005", held <= 1.005),
                Goal(what[3], f"{start:.3f}", f"<= {START}", start <= START)]
    return run


def probes(turns):
    names = [name_of(path) for path in traces()]
    return [
        Probe("second run by its plan: recorded programs", False, [goal for name in names for goal in same_names(name)], same),
        Probe("second run by a plan of another seed", False, [goal for name in [*names, *SYNTHETIC] for goal in seed_names(name)], seeds),
        Probe("second run over bare segments", False,
              [goal for name in names for other in ("", SEED) for goal in bare_names(name, other)], bare),
        *(Probe(f"second run{by[1]} by another program's plan", False, wrong_names(by), lambda bench, by=by: wrong(bench, by))
          for by in (OURS, BARE)),
        *(Probe(f"PyTorch {name}, second run by its plan", True, gpu_names(name), on_gpu(name, argv, turns))
          for name, argv in workloads().items()),
    ]
