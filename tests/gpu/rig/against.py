"""This library beside another build of it: the same calls and programs in turns, so that neither has the better moment."""
# SPDX-License-Identifier: Apache-2.0
import os
import statistics

from .probe import Probe, one_of, worked
from .calls import require_hand_overs, settings
from .rows import Row, workloads
from .side_by_side import run_side_by_side
from .table import MIB, Goal

TURNS = 6
WORSE = 1.05
SAME = 1.005  # of laps that did the same work in the same second
GROUPS = ("pair", "sync", "streams", "inturn", "live64k", "handover", "threads")
# A device of any size, which has every chunk at once: as the benchmarks in process have it.
LEDGER = {"VPOOL_SIM": "backing=ledger,capacity=1T,lazy=0"}


def both(bench, other, run):
    """The results of run(environment) with this library and with the other one, in turns."""
    results = ([], [])
    for turn in range(TURNS):
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            results[which].append(worked(run({"LD_PRELOAD": (bench.library, other)[which]})).result)
    return results


def ratio_goal(what, ratio, text):
    return Goal(f"{what}, against the other build", f"{ratio:.3f} ({text})", f"<= {WORSE}", ratio <= WORSE)


def calls(other, program, api, group, simulated=False):
    def measure(bench):
        def run(env):
            if simulated:
                return bench.simulate(program, group, env=LEDGER | settings(group) | env)
            return bench.device.run([bench.program(program), group], env=bench.runtime | settings(group) | env)
        ours, theirs = both(bench, other, run)
        if group == "threads":  # rates
            ours, theirs = one_of(ours, statistics.median), one_of(theirs, statistics.median)
            ratios = {name: theirs[name] / ours[name] for name in ours}
        else:
            ours, theirs = one_of(ours, min), one_of(theirs, min)
            for figures in (ours, theirs):
                require_hand_overs(figures)
            ratios = {name: ours[name] / theirs[name] for name in ours}
        worst = max(ratios, key=ratios.get)
        return [ratio_goal(f"{group}, {api}", ratios[worst],
                           f"worst {worst}: {ours[worst]:.0f} beside {theirs[worst]:.0f}")]
    return measure


def with_kernel(other):
    def measure(bench):
        path, case = os.path.join(bench.folder, "gpu/pairs"), "sync_64m_kernel"
        ours, theirs = (one_of(results, min)[case] for results in
                        both(bench, other, lambda env: bench.device.run([path, case], env=env)))
        return [ratio_goal("cudaMalloc + kernel + cudaFree", ours / theirs, f"{ours:.0f} beside {theirs:.0f} ns")]
    return measure


def by_lap(ours, theirs):
    """The median of each lap's time by that of the lap beside it, which met the same host: (ratio, number of laps)."""
    pairs = [mine / other for turn, beside in zip(ours.timed(), theirs.timed())
             for laps, others in zip(turn, beside) for mine, other in zip(laps, others)]
    return statistics.median(pairs), len(pairs)


def training(other, name, argv, turns):
    def measure(bench):
        rows = [Row(f"{name}, this build", argv, preload=True, context="torch"),
                Row(f"{name}, the other", argv, preload=True, env={"LD_PRELOAD": other}, context="torch")]
        for _ in range(turns):
            run_side_by_side(bench.device, rows, bench.started)
        for row in rows:
            for run in row.runs:
                worked(run)
        done = min(len(row.timed()) for row in rows)
        if not done:
            return [Goal(f"PyTorch {name}, against the other build", "not measured", f"<= {WORSE}", None)]
        ours, theirs = (sum(row.step_ms(done)) / 1e3 for row in rows)
        goals = [ratio_goal(f"PyTorch {name}, time", ours / theirs, f"{ours:.2f} beside {theirs:.2f} s")]
        ratio, laps = by_lap(*rows)
        goals.append(Goal(f"PyTorch {name}, lap by lap, against the other build", f"{ratio:.4f} (median of {laps})", f"<= {SAME}",
                          ratio <= SAME))
        for what, scale, unit in (("peak_held_bytes", MIB, "MiB held"), ("driver_us", 1e3, "ms of driver calls")):
            ours, theirs = (row.best(lambda run: run.stats.get(what), min) for row in rows)
            goals.append(ratio_goal(f"PyTorch {name}, {what}", ours / theirs,
                                    f"{ours / scale:.0f} beside {theirs / scale:.0f} {unit}"))
        return goals
    return measure


def probes(other, turns):
    """`other`: a libvpool.so; `turns`: how often each PyTorch program runs with both."""
    wanted = f"<= {WORSE}"
    found = [Probe(f"{group}, {api}, against the other build", not simulated,
                   [(f"{group}, {api}, against the other build", wanted)], calls(other, program, api, group, simulated))
             for api, program, simulated in (("cuMemAllocAsync on the simulated driver", "bench_driver", True),
                                             ("cudaMallocAsync", "bench_runtime", False),
                                             ("cuMemAllocAsync", "bench_driver", False))
             for group in GROUPS if group != "threads" or program == "bench_runtime"]
    found.append(Probe("cudaMalloc with a kernel, against the other build", True, [], with_kernel(other)))
    return found + [Probe(f"PyTorch {name}, against the other build", True, [], training(other, name, argv, turns))
                    for name, argv in workloads().items()]
