"""What allocations cost that nothing cached can serve, and what costs more where there is more of everything."""
# SPDX-License-Identifier: Apache-2.0
from .probe import Probe, one_of, worked
from .table import Goal

TURNS = 5  # the least of them: what else a machine has to do only ever adds to a time

MEAN, WORST = "slow path, 100 GiB alive in 2,000 blocks: mean", "slow path, 100 GiB alive in 2,000 blocks: worst"
MEAN_US, WORST_US = 10, 1000
FULL = "the same, device full: driver time that goes by in a call of another thread that is held up"
FULL_FAST, FAST_MOST = "the same, device full: a pair on the fast path of another thread / before", 2
LARGE, LARGE_MS = "50 GiB with 100 GiB free in handles of 8 MiB, of 192: driver time by its model", 5


def alive(bench):
    """Host time beside the driver's calls."""
    results = {kind: one_of([worked(bench.simulate("bench_slow", kind)).result for _ in range(TURNS)], min)
               for kind in ("alike", "varied")}

    def goal(what, name, most):
        values = {kind: result[name] / 1e3 for kind, result in results.items()}
        figure = ", ".join(f"{kind} {value:.1f} us" for kind, value in values.items())
        return Goal(what, figure, f"<= {most} us", max(values.values()) <= most)
    return [goal(MEAN, "mean", MEAN_US), goal(WORST, "worst", WORST_US)]


def large(bench):
    ms = worked(bench.simulate("bench_slow", "large")).result["modelled"] / 1e6
    return [Goal(LARGE, f"{ms:.1f} ms", f"<= {LARGE_MS} ms", ms <= LARGE_MS)]


def full(bench):
    """A device without memory to spare: as long as it takes, but others go on."""
    result = worked(bench.simulate("bench_slow", "full", env={"VPOOL_HANDLE": "8M"})).result
    median, ratio = result["median"] / 1e6, result["meanwhile"] / result["before"]
    figure = f"{median:.1f} ms of {result['modelled'] / 1e6:.0f}; {result['calls']} were, at most {result['most'] / 1e6:.1f} ms"
    return [Goal(FULL, figure, f"<= {LARGE_MS} ms", median <= LARGE_MS),
            Goal(FULL_FAST, f"{ratio:.2f} ({result['meanwhile']:.0f} / {result['before']:.0f} ns)", f"<= {FAST_MOST}",
                 ratio <= FAST_MOST)]


# ---- with 16 times as many

GROWING = {"regions": {}, "chunks": {}, "streams": {}, "spaces": {"VPOOL_VA": "1G"}, "threads": {}, "holes": {}}
GROWTH_MOST = 2


def growth_name(kind):
    return f"16 times as many {'ended threads' if kind == 'threads' else kind}: time of a pair / before"


def growth(bench):
    goals = []
    for kind, env in GROWING.items():
        result = one_of([worked(bench.simulate("bench_grow", kind, env=env)).result for _ in range(3)], min)
        ratios = {pair: result[f"{pair} after"] / result[f"{pair} before"] for pair in ("fit", "build", "fresh")}
        figure = ", ".join(f"{pair} {ratio:.2f} ({result[f'{pair} after'] / 1e3:.2f} / {result[f'{pair} before'] / 1e3:.2f} us)"
                           for pair, ratio in ratios.items())
        goals.append(Goal(growth_name(kind), figure, f"<= {GROWTH_MOST}", max(ratios.values()) <= GROWTH_MOST))
    return goals


def probes():
    return [
        Probe("slow path, in process", False, [(MEAN, f"<= {MEAN_US} us"), (WORST, f"<= {WORST_US} us")], alive),
        Probe("one large request", False, [(LARGE, f"<= {LARGE_MS} ms")], large),
        Probe("one large request, device full", False, [(FULL, f"<= {LARGE_MS} ms"), (FULL_FAST, f"<= {FAST_MOST}")], full),
        Probe("16 times as many", False, [(growth_name(kind), f"<= {GROWTH_MOST}") for kind in GROWING], growth),
    ]
