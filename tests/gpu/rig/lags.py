"""A GPU that lags behind: what bounded waits of the host hold, and cost, beside streams that wait early. Modelled."""
# SPDX-License-Identifier: Apache-2.0
import os
import sys
import tempfile

from .build import ROOT
from .probe import Probe, output_of
from .replays import objects, traces, waste_of
from .table import MIB, Goal

sys.path.insert(0, os.path.join(ROOT, "tests/traces"))
import synthetic

LAGS_MS = (1, 20, 200)
MADE_UP, SEED = {"video": 60_000, "mix16": 60_000, "streams_many": 60_000, "gather": 16_000}, 1
SAVES, AT_MS, SAVED = "gather", 20, 0.9  # at least so much of what early waits save
MORE, LOST = 1.15, 1.0  # times what early waits hold; percent of the modelled time


def names():
    return [os.path.basename(path).removesuffix(".csv.gz") for path in traces()] + list(MADE_UP)


def questions(name):
    saved = [(f"{name}, a GPU that lags: memory saved", f">= {SAVED}")] if name == SAVES else []
    return saved + [(f"{name}, a GPU that lags: held / with early waits", f"<= {MORE}"), (f"{name}, a GPU that lags: time lost", f"<= {LOST:g} %")]


def replay(folder, path, lag_ms, wait):
    argv = [os.path.join(folder, "vpool"), "replay", "--json", "--lag", str(lag_ms * 1000), path]
    return next(objects(output_of(argv, {"VPOOL_WAIT": wait})))


def lost_percent(result):
    return 100 * result["lost_us"] / max(1, result["modelled_us"] - result["lost_us"])


def saved_goal(folder, path, name, wanted):
    """Of the memory that waits of the streams save, how much waits of the host do."""
    held = {wait: replay(folder, path, AT_MS, wait)["peak_held_bytes"] for wait in ("early", "auto", "late")}
    share = (held["late"] - held["auto"]) / (held["late"] - held["early"])
    figures = ", ".join(f"{wait} {size / MIB:.0f}" for wait, size in held.items())
    return Goal(name, f"{share:.3f} of what early waits save at {AT_MS} ms (held {figures} MiB)", wanted, share >= SAVED)


def goals_of(bench, name, path):
    runs = [{wait: replay(bench.folder, path, lag, wait) for wait in ("early", "auto")} for lag in LAGS_MS]
    more = [waste_of(run["auto"]) / waste_of(run["early"]) for run in runs]
    lost = [lost_percent(run["auto"]) for run in runs]
    waits = [f"{run['auto']['waits_host']} waits, {run['auto']['waits_fruitless']} in vain" for run in runs]
    at = ", ".join(map(str, LAGS_MS))
    *saved, (held, most), (time, least) = questions(name)
    return [saved_goal(bench.folder, path, *question) for question in saved] + \
           [Goal(held, f"{', '.join(f'{one:.3f}' for one in more)} at {at} ms", most, max(more) <= MORE),
            Goal(time, f"{', '.join(f'{one:.2f}' for one in lost)} % at {at} ms ({'; '.join(waits)})", least, max(lost) <= LOST)]


def measure(bench):
    with tempfile.TemporaryDirectory(prefix="vpool-lags-") as folder:
        paths = traces()
        for kind, events in MADE_UP.items():
            paths.append(os.path.join(folder, f"{kind}.csv.gz"))
            synthetic.write(kind, SEED, events, paths[-1])
        return [goal for name, path in zip(names(), paths) for goal in goals_of(bench, name, path)]


def probes():
    return [Probe("replay: a GPU that lags", False, [question for name in names() for question in questions(name)], measure)]
