"""Programs that never repeat, made from seeds and replayed on the simulated driver beside the published allocators."""
# SPDX-License-Identifier: Apache-2.0
import concurrent.futures
import json
import math
import os
import sys
import tempfile
import threading
import time

from .build import ROOT
from .probe import Failed, Probe, output_of
from .replays import FACTORS, objects, scale, traces, waste_of
from .runner import say
from .table import MIB, Goal

sys.path.insert(0, os.path.join(ROOT, "tests/traces"))
import synthetic

SEEDS, EVENTS, LATE = (1, 2, 3), 60_000, 40
WORKERS = 2

# Two of the published allocators need minutes for some. A replay of theirs may take so many seconds, and none begins later
# than so many after the first replay of all.
SLOW_PEERS, SLOW_KINDS = ("vpmm", "gmlake"), ("mix16", "alike", "churn", "pins")
LIMIT, PEERS_TIME = 80, 300

# Driver milliseconds for a thousand of the late events, and peak held / peak live.
GOALS = {
    "alike": (1, 1.055), "churn": (60, 1.055), "mix16": (12, 1.055), "serving_kv_cat": (1, 1.055),
    "hash_tables": (3, 1.055), "video": (1, 1.15), "drift": (0.5, 1.055), "pins": (5, 1.055), "robson": (10, 1.505),
    "streams_many": (1, 1.055), "phases": (0.2, 1.055), "moe_routing": (0.1, 1.055),
}
LONGEST_MS = 5

# What needs little memory: the same kinds with small sizes, and one that is small by itself.
SMALL = {"two_ways": 1, "alike": 1 / 64, "churn": 1 / 140, "mix16": 1 / 64, "robson": 1 / 32, "moe_routing": 1 / 32,
         "hash_tables": 1 / 96, "phases": 1 / 20, "drift": 1 / 24, "serving_kv_cat": 1 / 32}
SMALL_MOST, SMALL_SHARE, SMALL_PLUS = 256 * MIB, 1.10, 8 * MIB

# Robson (J. ACM 18, 1971): with M bytes alive, in blocks whose sizes are powers of two from 1 to n, a program can make any
# allocator that cannot move a block need M (log2(n) / 2 + 1). `robson` is that program. What cannot move is a granule of which
# a byte is alive: n is a granule in its smallest blocks, 64, and no allocator is sure of less than 4 M. At full size n is 2.
GRANULE, SMALLEST = 2 * MIB, MIB
ROBSON = math.log2(GRANULE / (SMALLEST * SMALL["robson"])) / 2 + 1
SMALL_SHARES = {"robson": ROBSON}

# On a device of so many times the live peak: kind, scale, that many times, failures a round, held / live (None: no goal).
EDGES = [("robson", 2, 1.25, 0, 1.01), ("robson", 1, 1.25, 512, 1.505), ("churn", 1, 1.03, 0, None), ("pins", 1, 1.03, 0, None)]

BEFORE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "recorded_before.json")
COUNTED = ("create", "map", "set_access", "unmap", "release")
WORSE = 1.01
RECORDED_WASTE = 1.0075


# ---- replays

class Replays:
    """Replays, two at a time, each made once, and the traces that they need."""

    def __init__(self, bench):
        self.bench, self.folder = bench, tempfile.TemporaryDirectory(prefix="vpool-programs-")
        self.lock, self.traces = threading.Lock(), {}
        self.begun = time.monotonic()

    def trace(self, kind, seed, scale_by=1):
        """The path of a made-up trace, and how often nothing is live in it."""
        with self.lock:
            key = (kind, seed, scale_by)
            if key not in self.traces:
                path = os.path.join(self.folder.name, f"{kind} {seed} x {scale_by:.4g}.csv.gz")
                self.traces[key] = path, synthetic.write(kind, seed, EVENTS, path, scale_by).drained
            return self.traces[key]

    def replay(self, *arguments, limit=None, env=None):
        tool = os.path.join(self.bench.folder, "vpool")
        return next(objects(output_of([tool, "replay", "--json", "--late", str(LATE), *arguments], limit=limit, env=env)))

    def all_of(self, what, jobs):
        """The results by key of jobs, which are functions by key. None: it took too long."""
        results, told = {}, time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            futures = {pool.submit(job): key for key, job in jobs.items()}
            for future in concurrent.futures.as_completed(futures):
                results[futures[future]] = future.result()
                if time.monotonic() - told > 5:
                    told = time.monotonic()
                    say(f"[{told - self.bench.started:6.1f} s] {what}: {len(results)} of {len(jobs)} replays")
        return {key: results[key] for key in jobs}


def replays_of(bench):
    return bench.once("replays of made-up programs", lambda: Replays(bench))


def by_policy(bench, policy):
    """Results by kind and seed."""
    def measure():
        replays = replays_of(bench)
        return replays.all_of(policy, {
            (kind, seed): lambda kind=kind, seed=seed: replays.replay("--policy", policy, replays.trace(kind, seed)[0])
            for kind in GOALS for seed in SEEDS})
    return bench.once(("made-up programs", policy), measure)


def late_ms(result):
    """Milliseconds in the driver for a thousand of the late events."""
    return result["late_driver_us"] / max(1, result["late_events"])


def each_seed(values, digits):
    return f"{max(values):.{digits}f} (seeds {', '.join(f'{value:.{digits}f}' for value in values)})"


# ---- driver time and memory

def time_name(kind):
    return f"never repeat, {kind}: driver ms / 1,000 events"


def held_name(kind):
    return f"never repeat, {kind}: held / live"


LONGEST = "never repeat, all of them: longest driver time of one call"


def driver_time(bench):
    ours, goals = by_policy(bench, "vpool"), []
    for kind, (most, _) in GOALS.items():
        values = [late_ms(ours[kind, seed]) for seed in SEEDS]
        goals.append(Goal(time_name(kind), each_seed(values, 2), f"<= {most}", max(values) <= most))
    longest = max((result["longest_us"] / 1e3, kind, seed) for (kind, seed), result in ours.items())
    goals.append(Goal(LONGEST, f"{longest[0]:.1f} ms ({longest[1]}, seed {longest[2]})", f"<= {LONGEST_MS} ms",
                      longest[0] <= LONGEST_MS))
    return goals


def memory(bench):
    ours, goals = by_policy(bench, "vpool"), []
    for kind, (_, most) in GOALS.items():
        values = [waste_of(ours[kind, seed]) for seed in SEEDS]
        goals.append(Goal(held_name(kind), each_seed(values, 4), f"<= {most}", max(values) <= most))
    return goals


# ---- over bare segments, whose cache says where blocks lie

BARE_KINDS, SLACKS = ("alike", "mix16", "churn", "hash_tables", "video", "drift", "serving_kv_cat"), (0, 5)
BARE_SHARE, BARE_HELD = 0.25, 1.6


def bare_names(kind):
    name = f"never repeat, over bare segments, {kind}"
    return f"{name}: driver time / with no slack", f"{name}: held / live"


def bare_wanted(kind):
    return "-" if kind in ("hash_tables", "video") else f"<= {BARE_SHARE}", f"<= {BARE_HELD}"


def over_bare_segments(bench):
    replays, goals = replays_of(bench), []
    results = replays.all_of("bare segments", {
        (kind, slack): lambda kind=kind, slack=slack: replays.replay(
            "--policy", "bare", replays.trace(kind, SEEDS[0])[0], env={"VPOOL_SLACK": str(slack)})
        for kind in BARE_KINDS for slack in SLACKS})
    for kind in BARE_KINDS:
        none, some = (results[kind, slack] for slack in SLACKS)
        share, waste, name, wanted = late_ms(some) / late_ms(none), waste_of(some), bare_names(kind), bare_wanted(kind)
        goals.append(Goal(name[0], f"{share:.4f} ({late_ms(some):.2f} ms / 1,000 events for {late_ms(none):.2f})", wanted[0],
                          None if wanted[0] == "-" else share <= BARE_SHARE))
        goals.append(Goal(name[1], f"{waste:.4f} (with no slack {waste_of(none):.4f})", wanted[1], waste <= BARE_HELD))
    return goals


# ---- the published allocators

BEHIND = "never repeat, and recorded: behind es in both memory and driver time"


def recorded_by(bench, policy):
    replays = replays_of(bench)
    return bench.once(("recorded programs", policy), lambda: replays.all_of(policy + ", recorded", {
        os.path.basename(path): lambda path=path: replays.replay("--policy", policy, path) for path in traces()}))


def slow_peers(bench):
    """Of one seed only; some take too long to be waited for, and come last."""
    replays = replays_of(bench)

    def job(policy, kind):
        if time.monotonic() - replays.begun > PEERS_TIME:
            return None
        try:
            return replays.replay("--policy", policy, replays.trace(kind, SEEDS[0])[0], limit=LIMIT)
        except Failed:
            return None
    return replays.all_of(", ".join(SLOW_PEERS), {
        (policy, kind, SEEDS[0]): lambda policy=policy, kind=kind: job(policy, kind)
        for kind in sorted(GOALS, key=lambda kind: kind in SLOW_KINDS) for policy in SLOW_PEERS})


def peers(bench):
    ours, theirs = (by_policy(bench, policy) | recorded_by(bench, policy) for policy in ("vpool", "es"))
    behind = {}  # seeds by kind; of recorded programs nothing
    for key in ours:
        # Who has refused allocations that the other served holds less for it.
        served = theirs[key]["ooms"] <= ours[key]["ooms"]
        if served and ours[key]["peak_held_bytes"] > theirs[key]["peak_held_bytes"] and late_ms(ours[key]) > late_ms(theirs[key]):
            kind, *seed = [key] if isinstance(key, str) else key
            behind.setdefault(kind, []).extend(seed)
    known = {"vpool": ours, "es": theirs, "bfc": by_policy(bench, "bfc")}
    for (policy, *key), result in slow_peers(bench).items():
        known.setdefault(policy, {})[tuple(key)] = result
    bench.notes.append(f"never repeat, seed {SEEDS[0]}: held / live, driver ms / 1,000 of the last {LATE} % of {EVENTS} events")
    bench.notes.append(f"{'':16}" + "".join(f"{policy:>18}" for policy in known))
    for kind in GOALS:
        results = [known[policy][kind, SEEDS[0]] for policy in known]
        bench.notes.append(f"{kind:16}" + "".join(
            f"{waste_of(result):9.4f} {late_ms(result):8.2f}" if result else f"{'too slow':>18}" for result in results))
    bench.notes.append("")
    figure = ", ".join(f"{kind} {'+'.join(map(str, seeds))}".strip() for kind, seeds in behind.items())
    return [Goal(BEHIND, figure or "none", "none", not behind)]


# ---- little memory

def edge_names(kind, by, times):
    name = f"never repeat, {kind}{f' x {by}' if by != 1 else ''} on {times} of its live peak: "
    return name + "failures a round" if kind == "robson" else name + "failures", name + "held / live"


def edge_rows():
    return [row for kind, by, times, most, waste in EDGES
            for row in zip(edge_names(kind, by, times), (f"<= {most}" if most else "0", waste and f"<= {waste}")) if row[1]]


def edges(bench):
    replays = replays_of(bench)

    def job(kind, by, times, seed):
        path, rounds = replays.trace(kind, seed, by)
        peak = replays.replay("--policy", "vpool", path)["peak_live_bytes"]
        result = replays.replay("--capacity", f"{int(times * peak) >> 10}K", path)
        return result["ooms"] / (max(1, rounds) if kind == "robson" else 1), result["peak_held_bytes"] / peak

    results = replays.all_of("little memory", {
        (*edge[:3], seed): lambda edge=edge, seed=seed: job(*edge[:3], seed) for edge in EDGES for seed in SEEDS})
    goals = []
    for kind, by, times, most, waste in EDGES:
        failures, wastes = zip(*(results[kind, by, times, seed] for seed in SEEDS))
        names = edge_names(kind, by, times)
        goals.append(Goal(names[0], each_seed(failures, 1), f"<= {most}" if most else "0", max(failures) <= most))
        if waste:
            goals.append(Goal(names[1], each_seed(wastes, 4), f"<= {waste}", max(wastes) <= waste))
    return goals


def small_name(kind):
    return f"small programs, {kind}: held"


def small(bench):
    replays = replays_of(bench)
    results = replays.all_of("small programs", {
        (kind, seed): lambda kind=kind, seed=seed: replays.replay(replays.trace(kind, seed, SMALL[kind])[0])
        for kind in SMALL for seed in SEEDS})
    goals = []
    for kind in SMALL:
        share = SMALL_SHARES.get(kind, SMALL_SHARE)
        over, result = max(((one["peak_held_bytes"] - share * one["peak_live_bytes"] - SMALL_PLUS, seed)
                            for (name, seed), one in results.items() if name == kind))
        worst = results[kind, result]
        held, live = worst["peak_held_bytes"], worst["peak_live_bytes"]
        if live >= SMALL_MOST:
            raise Failed(f"{kind} has {live / MIB:.0f} MiB alive: that is no small program")
        goals.append(Goal(small_name(kind), f"{held / MIB:.0f} MiB ({live / MIB:.0f} alive: {held / live:.3f} times)",
                          small_wanted(kind), over <= 0))
    return goals


def small_wanted(kind):
    bound = " (Robson's bound)" if kind in SMALL_SHARES else ""
    return f"<= {SMALL_SHARES.get(kind, SMALL_SHARE):.2f} x alive + {SMALL_PLUS // MIB} MiB{bound}"


# ---- recorded programs, beside what they took before

RECORDED = {name: "recorded, sizes x 1, " + ", ".join(map(str, FACTORS)) + f": {name} / at d4de421"
            for name in ("held", "driver calls", "late calls")}
RECORDED_WANTED = f"<= 1 on the average, <= {WORSE} each"
RECORDED_WORST = "recorded: worst held / live"


def figures_now(bench):
    """As recorded_before.json has them, by trace, and what they held for each byte alive."""
    replays = replays_of(bench)

    def job(source, factor):
        name = os.path.basename(source).removesuffix(".csv.gz")
        path = source
        if factor != 1:
            name = f"{name} x {factor}"
            path = os.path.join(replays.folder.name, name + ".csv.gz")
            scale(source, factor, path)
        result = next(objects(output_of([os.path.join(bench.folder, "vpool"), "replay", "--json", "--capacity", "1T", path])))
        calls = sum(result["driver_calls"][call] for call in COUNTED)
        return name, factor, [result["peak_held_bytes"], calls, result["late_driver_calls"]], waste_of(result)

    return list(replays.all_of("recorded programs", {
        (source, factor): lambda source=source, factor=factor: job(source, factor)
        for source in traces() for factor in [1, *FACTORS]}).values())


def recorded(bench):
    with open(BEFORE) as file:
        before = json.load(file)
    now, goals = figures_now(bench), []
    for column, (what, name) in enumerate(RECORDED.items()):
        ratios = [((figures[column] + 1) / (before[trace][column] + 1), trace) for trace, _, figures, _ in now]
        mean, worst = sum(ratio for ratio, _ in ratios) / len(ratios), max(ratios)
        worse = sum(ratio > WORSE for ratio, _ in ratios)
        # As printed: chunks end otherwise where sizes are rounded otherwise, by a millionth.
        goals.append(Goal(name, f"{mean:.4f} (at worst {worst[0]:.4f}, {worst[1]}; {worse} of {len(ratios)} > {WORSE})",
                          RECORDED_WANTED, round(mean, 4) <= 1 and not worse))
    waste, trace = max((waste, trace) for trace, factor, _, waste in now if factor == 1)
    goals.append(Goal(RECORDED_WORST, f"{waste:.4f} ({trace})", f"<= {RECORDED_WASTE}", waste <= RECORDED_WASTE))
    return goals


def probes():
    return [
        Probe("never repeat: driver time", False, [(time_name(kind), f"<= {goal[0]}") for kind, goal in GOALS.items()] +
              [(LONGEST, f"<= {LONGEST_MS} ms")], driver_time),
        Probe("never repeat: memory", False, [(held_name(kind), f"<= {goal[1]}") for kind, goal in GOALS.items()], memory),
        Probe("never repeat: little memory", False, edge_rows(), edges),
        Probe("never repeat: over bare segments", False,
              [row for kind in BARE_KINDS for row in zip(bare_names(kind), bare_wanted(kind))], over_bare_segments),
        Probe("small programs", False, [(small_name(kind), small_wanted(kind)) for kind in SMALL], small),
        Probe("recorded: beside d4de421", False,
              [(name, RECORDED_WANTED) for name in RECORDED.values()] + [(RECORDED_WORST, f"<= {RECORDED_WASTE}")], recorded),
        Probe("never repeat: beside the published allocators", False, [(BEHIND, "none")], peers),
    ]
