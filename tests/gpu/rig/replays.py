"""Recorded programs, replayed on the simulated driver: waste, driver time by its model, calls that never end."""
# SPDX-License-Identifier: Apache-2.0
import glob
import gzip
import json
import os
import tempfile

from .probe import Probe, output_of
from .build import ROOT
from .table import MIB, Goal, print_table

HANDLES = ["2M", "4M", "8M", "16M", "32M", "64M", "256M"]
REPEAT = 3  # a program that repeats itself; its last repetition is what counts as late

# Models of other widths: what is tuned to the sizes of the traces themselves shows here.
FACTORS = [0.61, 0.83, 1.27, 1.71]
SCALED_FROM = 64 << 10  # smaller blocks are counters and flags, whatever the width

WASTE, DRIVER, STRETCH = 1.005, 1 / 3, 1 / 8


def traces():
    return sorted(glob.glob(os.path.join(ROOT, "tests/traces/*.csv.gz")))


def objects(text):
    """JSON objects, alone or in a list."""
    decoder, at = json.JSONDecoder(), 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        one, at = decoder.raw_decode(text, at)
        yield from one if isinstance(one, list) else [one]


def replay(folder, *arguments, of=None):
    """The replay's figures, one object for each trace and policy."""
    return list(objects(output_of([os.path.join(folder, "vpool"), "replay", "--json", *arguments, *(of or traces())])))


def scale(source, factor, target):
    """The same program with its large blocks so many times as large."""
    with gzip.open(source, "rt") as old, gzip.open(target, "wt", compresslevel=1) as new:
        new.write(old.readline())
        for line in old:
            op, block, size, rest = line.split(",", 3)
            if op == "a" and int(size) >= SCALED_FROM:
                size = int(int(size) * factor) // 512 * 512
            new.write(f"{op},{block},{size},{rest}")


def waste_of(result):
    return result["peak_held_bytes"] / max(1, result["peak_live_bytes"])


def memory_and_time(bench):
    """Both from the same replay: less waste for more time is no gain, nor the reverse."""
    ours = replay(bench.folder)
    small = {result["trace"]: result for result in replay(bench.folder, "--handle", "2M")}
    goals = []
    for result in ours:
        waste = waste_of(result)
        goals.append(Goal(f"{result['trace']}: held / live", f"{waste:.4f} ({result['peak_held_bytes'] / MIB:.0f} / "
                          f"{result['peak_live_bytes'] / MIB:.0f} MiB)", f"<= {WASTE}", waste <= WASTE))
    for result in ours:
        time, whole = result["driver_us"], small[result["trace"]]["driver_us"]
        figure = f"{time / whole:.3f} ({time / 1e3:.0f} / {whole / 1e3:.0f} ms)"
        if time <= STRETCH * whole:
            figure += ", 1/8 reached"
        goals.append(Goal(f"{result['trace']}: driver time / with 2 MiB handles", figure, "<= 1/3 (stretch 1/8)",
                          time <= DRIVER * whole))
    return goals


def other_widths(bench):
    """The traces with other sizes: their means, and the worst of them."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for source in traces():
            for factor in FACTORS:
                name = os.path.basename(source).removesuffix(".csv.gz")
                paths.append(os.path.join(folder, f"{name} x {factor}.csv.gz"))
                scale(source, factor, paths[-1])
        ours = replay(bench.folder, "--capacity", "1T", of=paths)
        small = replay(bench.folder, "--capacity", "1T", "--handle", "2M", of=paths)
    wastes = [(waste_of(result), result["trace"]) for result in ours]
    shares = [(one["driver_us"] / two["driver_us"], one["trace"]) for one, two in zip(ours, small)]

    def goal(name, figures, most, wanted):
        figure = (f"{sum(figure for figure, _ in figures) / len(figures):.4f} (at worst {max(figures)[0]:.4f}, "
                  f"{max(figures)[1]}; {sum(figure <= most for figure, _ in figures)} of {len(figures)} {wanted})")
        return Goal(name, figure, wanted, max(figures)[0] <= most)
    return [goal(OTHERS[0], wastes, WASTE, f"<= {WASTE}"), goal(OTHERS[1], shares, DRIVER, "<= 1/3")]


OTHERS = ["sizes x " + ", ".join(map(str, FACTORS)) + ": " + what
          for what in ("held / live", "driver time / with 2 MiB handles")]


def late_calls(bench):
    return [Goal(f"{result['trace']}: driver calls in repetition {REPEAT}", str(result["late_driver_calls"]), "0",
                 result["late_driver_calls"] == 0)
            for result in replay(bench.folder, "--repeat", str(REPEAT))]


def frontier(folder):
    """Prints waste against driver time for each largest handle, and for the default."""
    runs = [(handle, replay(folder, "--handle", handle)) for handle in HANDLES] + [("default", replay(folder))]
    names = [result["trace"] for result in runs[0][1]]
    lines = [["handle", *names, "all"], ["", *["held/live ms"] * len(names), "held/live ms"]]
    for handle, results in runs:
        held = sum(result["peak_held_bytes"] for result in results)
        live = sum(result["peak_live_bytes"] for result in results)
        cells = [f"{waste_of(result):.4f} {result['driver_us'] / 1e3:5.0f}" for result in results]
        lines.append([handle, *cells, f"{held / live:.4f} {sum(result['driver_us'] for result in results) / 1e3:6.0f}"])
    print("Peak held / peak live, and modelled driver milliseconds, by the largest handle")
    print_table(lines, 1)


def probes():
    names = [os.path.basename(path).removesuffix(".csv.gz") for path in traces()]
    return [
        Probe("replay: waste and driver time", False,
              [(f"{name}: held / live", f"<= {WASTE}") for name in names] +
              [(f"{name}: driver time / with 2 MiB handles", "<= 1/3 (stretch 1/8)") for name in names],
              memory_and_time),
        Probe("replay: other widths", False, [(OTHERS[0], f"<= {WASTE}"), (OTHERS[1], "<= 1/3")], other_widths),
        Probe("replay: late driver calls", False,
              [(f"{name}: driver calls in repetition {REPEAT}", "0") for name in names], late_calls),
    ]
