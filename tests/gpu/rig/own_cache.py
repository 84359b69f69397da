"""PyTorch programs that keep PyTorch's own cache, over bare segments: speed beside the cache's and beside PyTorch's async
backend over the pool, memory, and when the driver is left alone."""
# SPDX-License-Identifier: Apache-2.0
from .probe import Failed, Probe, worked
from .rows import Row, python_example, workloads
from .runner import run_rows
from .side_by_side import run_side_by_side
from .table import MIB, Goal

SPEED, LATER, HELD, PEAK, DRIVER = 0.98, 0.99, 1.015, 1.03, 0.5
SETTLED = 10  # steps after which the driver is to be left alone
BARE = dict(preload=True, env={"VPOOL_ADOPT": "bare"}, context="torch")
ASYNC = dict(preload=True, env={"VPOOL_ADOPT": "async"}, context="torch")
REPEATING = "training in one length"


def programs():
    """Those of all rows, whose lengths hardly come twice, and one that repeats itself."""
    return workloads() | {REPEATING: python_example("train.py", "--side-stream", "--seq-min", "1024")}


def wanted(name):
    what = f"PyTorch {name} over bare segments"
    settled = [(f"{what}: driver time after {SETTLED} steps", f"<= {DRIVER} % of a step")] if name == REPEATING else []
    return [(f"{what}: speed / its cache's", f">= {SPEED}"), (f"{what}: the later half", f">= {LATER}"),
            (f"{what}: held / live", f"<= {HELD}"), (f"{what}: peak / (live + context)", f"<= {PEAK}"),
            (f"{what}: same result", "yes"), (f"{what}: speed / the async backend's; the later half", f">= {SPEED}"), *settled]


def ratio(theirs, ours, begin=0, end=None):
    return sum(theirs.step_ms()[begin:end]) / sum(ours.step_ms()[begin:end])


def driver_share(row):
    """Percent of a step that are driver calls of the pool's once it has settled, each step at its least of all turns; and their
    milliseconds, in so many steps."""
    spent = [min(times) for times in zip(*(run.result["driver_ms"] for run in row.runs))][SETTLED:]
    steps = row.step_ms()[SETTLED:]
    return 100 * sum(spent) / sum(steps) if steps else 0, sum(spent), len(steps)


def measure(name, argv, turns):
    def run(bench):
        context = bench.empty_contexts()["torch"]
        cache = Row(f"{name}, its cache", argv, context="torch")
        bare = Row(f"{name}, bare segments", argv, **BARE)
        pooled = Row(f"{name}, async backend", argv, **ASYNC)
        short = Row(f"{name}, bare segments, {SETTLED} steps", [*argv, "--steps", str(SETTLED)], **BARE)
        for _ in range(turns):
            run_side_by_side(bench.device, [cache, bare, pooled], bench.started)
        run_rows(bench.device, [short], {}, bench.started)
        for row in cache, bare, pooled, short:
            if row.skipped:
                raise Failed(f"{row.name}: {row.skipped}")
            for result in row.runs:
                worked(result)
        what = [text for text, _ in wanted(name)]
        live, held = bare.figure("peak_live_bytes"), bare.stat("peak_held_bytes")
        half = len(bare.step_ms()) // 2
        all_steps, later = ratio(cache, bare), ratio(cache, bare, half)
        beside, beside_later = ratio(pooled, bare), ratio(pooled, bare, half)
        peak = short.peak / (short.figure("peak_live_bytes") + context)
        share, spent, steps = driver_share(bare)
        same = abs(bare.figure("checksum") - cache.figure("checksum")) <= 1e-2 * abs(cache.figure("checksum"))
        settled = [Goal(text, f"{share:.2f} % ({spent:.1f} ms in {steps} steps)", f"<= {DRIVER} % of a step", share <= DRIVER)
                   for text in what[6:]]
        return [Goal(what[0], f"{all_steps:.4f} ({sum(bare.step_ms()) / 1e3:.2f} s for {sum(cache.step_ms()) / 1e3:.2f} in {len(bare.step_ms())} steps, "
                     f"the first three {ratio(cache, bare, 0, 3):.4f})", f">= {SPEED}", all_steps >= SPEED),
                Goal(what[1], f"{later:.4f} ({share:.2f} % of a step in the driver after {SETTLED} steps)", f">= {LATER}", later >= LATER),
                Goal(what[2], f"{held / live:.4f} ({held / MIB:.0f} / {live / MIB:.0f} MiB; alive by our count "
                     f"{bare.stat('peak_live_bytes') / MIB:.0f}; its cache reserves {cache.figure('peak_reserved_bytes') / MIB:.0f})",
                     f"<= {HELD}", held / live <= HELD),
                Goal(what[3], f"{peak:.4f}", f"<= {PEAK}", peak <= PEAK),
                Goal(what[4], "yes" if same else f"{bare.figure('checksum')}, not {cache.figure('checksum')}", "yes", same),
                Goal(what[5], f"{beside:.4f}, {beside_later:.4f} (it beside its cache: {ratio(cache, pooled):.4f}, {ratio(cache, pooled, half):.4f}; "
                     f"it holds {pooled.stat('peak_held_bytes') / MIB:.0f} MiB)", f">= {SPEED}", min(beside, beside_later) >= SPEED), *settled]
    return run


def probes(turns):
    return [Probe(f"PyTorch {name} over bare segments", True, wanted(name), measure(name, argv, turns))
            for name, argv in programs().items()]
