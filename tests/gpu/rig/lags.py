"""A GPU that lags behind: what bounded waits of the host hold, and cost, beside streams that wait early. Modelled."""
# SPDX-License-Identifier: Apache-2.0
import os
import sys
import tempfile

from .build import ROOT
from .probe import Probe, output_of
from .replays import objects, traces, waste_of
from .table import Goal

sys.path.insert(0, os.path.join(ROOT, "tests/traces"))
import synthetic

LAGS_MS = (1, 20, 200)
MADE_UP, SEED, EVENTS = ("video", "mix16", "streams_many"), 1, 60_000
MORE, LOST = 1.15, 1.0  # times what early waits hold; percent of the modelled time


def names():
    return [os.path.basename(path).removesuffix(".csv.gz") for path in traces()] + list(MADE_UP)


def questions(name):
    return [(f"{name}, a GPU that lags: held / with early waits", f"<= {MORE}"), (f"{name}, a GPU that lags: time lost", f"<= {LOST:g} %")]


def replay(folder, path, lag_ms, wait):
    argv = [os.path.join(folder, "vpool"), "replay", "--json", "--lag", str(lag_ms * 1000), path]
    return next(objects(output_of(argv, {"VPOOL_WAIT": wait})))


def lost_percent(result):
    return 100 * result["lost_us"] / max(1, result["modelled_us"] - result["lost_us"])


def goals_of(bench, name, path):
    runs = [{wait: replay(bench.folder, path, lag, wait) for wait in ("early", "auto")} for lag in LAGS_MS]
    more = [waste_of(run["auto"]) / waste_of(run["early"]) for run in runs]
    lost = [lost_percent(run["auto"]) for run in runs]
    waits = [f"{run['auto']['waits_host']} waits, {run['auto']['waits_fruitless']} in vain" for run in runs]
    at = ", ".join(map(str, LAGS_MS))
    (held, most), (time, least) = questions(name)
    return [Goal(held, f"{', '.join(f'{one:.3f}' for one in more)} at {at} ms", most, max(more) <= MORE),
            Goal(time, f"{', '.join(f'{one:.2f}' for one in lost)} % at {at} ms ({'; '.join(waits)})", least, max(lost) <= LOST)]


def measure(bench):
    with tempfile.TemporaryDirectory(prefix="vpool-lags-") as folder:
        paths = traces()
        for kind in MADE_UP:
            paths.append(os.path.join(folder, f"{kind}.csv.gz"))
            synthetic.write(kind, SEED, EVENTS, paths[-1])
        return [goal for name, path in zip(names(), paths) for goal in goals_of(bench, name, path)]


def probes():
    return [Probe("replay: a GPU that lags", False, [question for name in names() for question in questions(name)], measure)]
