"""How much of a PyTorch training's memory its stacks name, and what they cost of its steps, under each way to PyTorch's memory."""
# SPDX-License-Identifier: Apache-2.0
import glob
import os
import statistics
import urllib.parse
from collections import Counter

from .probe import Failed, Probe, worked
from .rows import Row, python_example
from .runner import run_rows
from .side_by_side import run_side_by_side
from .table import MIB, Goal

AT_PEAK, OF_PYTHON, COST = 99.0, 99.9, 1.5
STACKS = "1M"  # as vpool run --stacks
EVERY = 1 << 20
STEPS, TRACED_STEPS, TURNS = 30, 8, 3
# By name, what chooses it.
ADOPTIONS = {"cudaMallocAsync": {"VPOOL_ADOPT": "async"}, "bare segments": {"VPOOL_ADOPT": "bare"}}
# PyTorch's own threads, which run no Python: what they allocate is told by the operator.
BACKWARD = "pt_autograd"
LINE, OPERATOR, NOTHING = "a Python line", "the operator", "neither"


class Coverage:
    """What a trace's stacks name: of all that was allocated, and of what was alive at the peak, in bytes by LINE, OPERATOR or NOTHING.
    Blocks between samples, which have no stack, are NONE of these: what stands for them tells of them."""

    def __init__(self, path):
        self.modules, self.frames, self.stacks, self.texts = {}, {}, {0: (0, 0)}, None
        self.kinds, self.nameless = {}, Counter()
        self.allocated, self.at_peak, self.peak = Counter(), Counter(), 0
        alive, live, events = {}, 0, []
        with open(path, encoding="utf-8", errors="replace") as file:
            next(file)
            for line in file:
                op, *fields = line.rstrip("\0\n").split(",")
                if op in "lns+" and op:
                    self.define(op, fields)
                elif op == "a":
                    size, stack = int(fields[1]), int(fields[4]) if len(fields) > 4 else 0
                    alive[fields[0]] = size, stack
                    events.append((fields[0], size, stack))
                    live += size
                    if live > self.peak:
                        self.peak, until = live, len(events)
                elif op == "f" and fields[0] in alive:
                    live -= alive[fields[0]][0]
                    events.append((fields[0], -alive.pop(fields[0])[0], 0))
        self.count(events, until if events else 0)

    def define(self, op, fields):
        if op == "s":
            self.stacks[int(fields[0])] = int(fields[1]), int(fields[2])
        elif op == "+":
            table, key = self.texts
            table[key] = (table[key][0], table[key][1] + fields[2])
        else:
            table = self.modules if op == "l" else self.frames
            table[int(fields[0])] = (fields[1], fields[2])
            self.texts = table, int(fields[0])

    def kind(self, stack):
        if stack not in self.kinds:
            self.kinds[stack] = self.look(stack)
        return self.kinds[stack]

    def look(self, stack):
        """What the stack tells, and the name of the thread where that has no frame of Python."""
        thread, torch = None, False
        while stack:
            stack, frame = self.stacks[stack]
            kind, text = self.frames[frame]
            text = urllib.parse.unquote(text)
            if kind == "p":
                return LINE, None
            if kind == "t" and text.startswith("thread "):
                thread = text.removeprefix("thread ").partition(": ")[0]
            torch |= kind == "c" and "libtorch" in self.modules[int(text.partition(":")[0])][1]
        return (OPERATOR if torch and thread and thread.startswith(BACKWARD) else NOTHING), thread

    def count(self, events, until):
        alive = {}
        for at, (block, size, stack) in enumerate(events):
            if at < until:
                alive[block] = size, stack
                if size < 0:
                    del alive[block]
            if size >= 0 and stack:
                kind, thread = self.kind(stack)
                self.allocated[kind] += size
                if kind == NOTHING:
                    self.nameless[thread or "(no thread)"] += size
        for size, stack in alive.values():
            self.at_peak[("small" if size < EVERY else NOTHING) if not stack else self.kind(stack)[0]] += size

    def named_at_peak(self):
        """Percent of what was alive: what lies between samples is told by these, whose kinds stand for it."""
        named, told = self.at_peak[LINE] + self.at_peak[OPERATOR], sum(self.at_peak.values()) - self.at_peak["small"]
        return 100 * named / told if told else 0

    def of_python(self):
        """Percent of what threads allocated that run Python."""
        python = self.allocated[LINE] + self.allocated[NOTHING]
        return 100 * self.allocated[LINE] / python if python else 0


def peak_goal(what, found):
    parts = ", ".join(f"{kind} {found.at_peak[kind] / MIB:.0f}" for kind in (LINE, OPERATOR, NOTHING))
    return Goal(what, f"{found.named_at_peak():.3f} % of {found.peak / MIB:.0f} MiB ({parts}, told by samples "
                f"{found.at_peak['small'] / MIB:.1f} MiB)", f">= {AT_PEAK} %", found.named_at_peak() >= AT_PEAK)


def python_goal(what, found):
    others = ", ".join(f"{name} {size / MIB:.1f} MiB" for name, size in found.nameless.most_common(3))
    return Goal(what, f"{found.of_python():.4f} %{'; without: ' * bool(others)}{others}", f">= {OF_PYTHON} %",
                found.of_python() >= OF_PYTHON)


def cost_goal(what, off, on):
    """Each step at its least of all turns; beside it the median of the pairs, which were run one after the other."""
    turns = min(len(off.timed()), len(on.timed()))
    if not turns:
        return Goal(what, "not measured", f"<= {COST} %", None)
    cost = 100 * (sum(on.step_ms(turns)) / sum(off.step_ms(turns)) - 1)
    pairs = [sum(a) / sum(b) for ours, theirs in zip(on.timed()[:turns], off.timed()[:turns]) for a, b in zip(ours, theirs)]
    return Goal(what, f"{cost:.2f} % ({sum(on.step_ms(turns)) / 1e3:.2f} s for {sum(off.step_ms(turns)) / 1e3:.2f}; median of "
                f"{len(pairs)} pairs of steps {100 * (statistics.median(pairs) - 1):.2f} %)", f"<= {COST} %", cost <= COST)


def wanted(adoption):
    name = f"stacks of PyTorch training, {adoption}"
    return [(f"{name}: named of what is alive at the peak", f">= {AT_PEAK} %"),
            (f"{name}: lines for what Python's threads allocate", f">= {OF_PYTHON} %"),
            (f"{name}: cost of a step", f"<= {COST} %")]


def training(steps):
    return python_example("train.py", "--side-stream", "--steps", str(steps))


def measure(adoption, env):
    def run(bench):
        what = [text for text, _ in wanted(adoption)]
        trace = os.path.join(bench.folder, "bench", "gpu", "stacks-%p.csv")
        for old in glob.glob(trace.replace("%p", "*")):
            os.remove(old)
        traced = Row(f"stacks, {adoption}, traced", training(TRACED_STEPS), preload=True, context="torch",
                     env=env | {"VPOOL_STACKS": STACKS, "VPOOL_TRACE": trace})
        run_rows(bench.device, [traced], {}, bench.started)
        for result in traced.runs:
            worked(result)
        found = [Coverage(path) for path in glob.glob(trace.replace("%p", "*"))]
        if traced.runs and not found:
            raise Failed("nothing was recorded")
        most = max(found, key=lambda coverage: coverage.peak, default=None)
        goals = [peak_goal(what[0], most), python_goal(what[1], most)] if most else [
            Goal(text, "not measured: no trace", goal, None) for text, goal in wanted(adoption)[:2]]
        off, on = (Row(f"stacks, {adoption}, {word}", training(STEPS), preload=True, context="torch", env=env | more)
                   for word, more in (("off", {}), ("on", {"VPOOL_STACKS": STACKS})))
        for _ in range(TURNS):
            run_side_by_side(bench.device, [off, on], bench.started)
        for row in off, on:
            for result in row.runs:
                worked(result)
        return [*goals, cost_goal(what[2], off, on)]
    return run


def probes():
    return [Probe(f"stacks of PyTorch training, {adoption}", True, wanted(adoption), measure(adoption, env))
            for adoption, env in ADOPTIONS.items()]
