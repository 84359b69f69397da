"""What the parts of scripts/bench share: where things are, how a program is run, and what a probe is."""
# SPDX-License-Identifier: Apache-2.0
import os
import statistics
import subprocess
from dataclasses import dataclass
from typing import Callable

from .rows import contexts_of, empty_contexts
from .runner import FORGOTTEN, run_rows

NEEDS_GPU = "not measured here: needs a GPU"


@dataclass
class Probe:
    """Something measured, which answers one or more goals."""
    name: str
    gpu: bool
    goals: list        # of (what, wanted): what is shown where it cannot be measured
    measure: Callable  # (bench) -> list of Goal


class Bench:
    def __init__(self, folder, library, simulated, device, runtime, started):
        self.folder = folder        # the build's
        self.library = library      # libvpool.so
        self.simulated = simulated  # Runner of programs that use no GPU
        self.device = device        # Runner of those that do; None where there is no GPU
        self.runtime = runtime      # environment by which programs find libcudart.so
        self.started = started      # by time.monotonic()
        self.notes = []             # lines to print below the table
        self._known = {}

    def program(self, name):
        return os.path.join(self.folder, "tests/bench", name)

    def simulate(self, name, *arguments, env=None):
        """Runs a benchmark on the simulated driver, whichever the loader would find otherwise."""
        path = ":".join(filter(None, [os.path.join(self.folder, "sim"), os.environ.get("LD_LIBRARY_PATH")]))
        return self.simulated.run([self.program(name), *arguments], env={"LD_LIBRARY_PATH": path} | (env or {}))

    def once(self, key, measure):
        """What measure() returns; measured the first time, remembered after."""
        if key not in self._known:
            self._known[key] = measure()
        return self._known[key]

    def empty_contexts(self):
        """Bytes of the device that an empty context takes, of plain CUDA and of PyTorch."""
        def measure():
            rows = empty_contexts(os.path.join(self.folder, "gpu"))
            run_rows(self.device, rows, {}, self.started)
            return contexts_of(rows)
        return self.once("empty contexts", measure)


class Failed(Exception):
    """A program that was to be measured did not work; the text says which and why."""


def worked(run):
    if not run.worked:
        raise Failed(f"{run.command}: exit {run.code}\n{run.errors}")
    return run


def output_of(argv, env=None, limit=None):
    """Standard output of a program that needs no GPU, without what the caller's environment may say to the library. It is
    given `limit` seconds."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(FORGOTTEN)}
    try:
        done = subprocess.run(argv, env=clean | (env or {}), text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=limit)
    except subprocess.TimeoutExpired as problem:
        raise Failed(f"{' '.join(argv)}: not done after {limit} s") from problem
    if done.returncode:
        raise Failed(f"{' '.join(argv)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def one_of(results, choose):
    """One figure for each name that all of the results have."""
    names = [name for name, value in results[0].items()
             if isinstance(value, (int, float)) and not isinstance(value, bool)]
    return {name: choose(result[name] for result in results) for name in names}


def medians(results):
    return one_of(results, statistics.median)
