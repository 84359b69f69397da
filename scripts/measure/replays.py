"""Recorded programs, replayed on the simulated driver: waste, driver time by its model, calls that never end."""
import glob
import json
import os

from bench import Probe, output_of
from build import ROOT
from table import MIB, Goal, print_table

HANDLES = ["2M", "4M", "8M", "16M", "32M", "64M", "256M"]
REPEAT = 3  # a program that repeats itself; its last repetition is what counts as late

WASTE, DRIVER, STRETCH = 1.005, 1 / 3, 1 / 8


def traces():
    return sorted(glob.glob(os.path.join(ROOT, "tests/traces/*.csv.gz")))


def objects(text):
    """JSON objects that follow each other."""
    decoder, at = json.JSONDecoder(), 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        one, at = decoder.raw_decode(text, at)
        yield one


def replay(folder, *arguments):
    """The replay's figures, one object for each trace and policy."""
    return list(objects(output_of([os.path.join(folder, "vpool"), "replay", "--json", *arguments, *traces()])))


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
        Probe("replay: late driver calls", False,
              [(f"{name}: driver calls in repetition {REPEAT}", "0") for name in names], late_calls),
    ]
