"""PyTorch programs under its own two allocators and under libvpool.so: speed, and memory as NVML sees it."""
# SPDX-License-Identifier: Apache-2.0
from .probe import Probe
from .rows import Row, verdict, workload_rows, workloads
from .runner import run_rows
from .side_by_side import run_side_by_side
from .table import MIB, Goal

SPEED, MEMORY = 0.995, 1.01
BACKEND_STEPS = 4  # enough for its kernels to be loaded


def speed_goal(what, ours, bases):
    """The whole run counts, its first steps included: each lap at its best of equally many turns."""
    turns = min(len(row.timed()) for row in [ours, *bases])
    if not turns:
        return Goal(what, "not measured", f">= {SPEED}", None)
    steps = {row.name.split(", ")[-1]: row.step_ms(turns) for row in [ours, *bases]}
    mine = steps.pop("vpool")

    def against(begin, end):
        return min(sum(theirs[begin:end]) for theirs in steps.values()) / sum(mine[begin:end])

    def turn(k):
        totals = [sum(sum(laps) for laps in row.timed()[k]) for row in [*bases, ours]]
        return min(totals[:-1]) / totals[-1]

    ratio = against(0, None)
    others = ", ".join(f"{name} {sum(theirs) / 1e3:.2f}" for name, theirs in steps.items())
    by_turn = ", ".join(f"{turn(k):.3f}" for k in range(turns))
    return Goal(what, f"{ratio:.4f} (s in all: {others}, vpool {sum(mine) / 1e3:.2f}; first three steps {against(0, 3):.4f}, "
                f"the later half {against(len(mine) // 2, None):.4f}; by turn {by_turn})", f">= {SPEED}", ratio >= SPEED)


def outside(row):
    """Bytes of the device that a bare program has at its peak besides what its allocator has reserved."""
    reserved = row.figure("peak_reserved_bytes")
    return row.peak - reserved if None not in (row.peak, reserved) else None


def memory_goal(what, ours, base, backend, context):
    """A program's context is what the device holds for it besides its allocator's memory: an empty one, the kernels that it loads, and what
    PyTorch itself takes, which depends on the backend: that for cudaMallocAsync makes all of PyTorch's pool of streams when it starts."""
    cached, streamed = outside(base), outside(backend)
    live = min((count for count in (ours.live, base.live) if count), default=None)
    if None in (ours.peak, live, cached, streamed, context):
        return Goal(what, "not measured", f"<= {MEMORY}", None)
    loaded = max(cached, streamed)
    ratio = ours.peak / (live + loaded)
    return Goal(what, f"{ratio:.4f} ({ours.peak / MIB:.0f} / ({live / MIB:.0f} + {loaded / MIB:.0f}) MiB; beside its cache's context of "
                f"{cached / MIB:.0f}: {ours.peak / (live + cached):.4f}, an empty one of {context / MIB:.0f}: "
                f"{ours.peak / (live + context):.4f}; held {(ours.stat('peak_held_bytes') or 0) / MIB:.0f})",
                f"<= {MEMORY}", ratio <= MEMORY)


def words(name):
    what = f"PyTorch {name} by cudaMallocAsync"
    return f"{what}: speed / the better of its own", f"{what}: peak / (live + context)"


def measure(name, argv, turns):
    def run(bench):
        context = bench.empty_contexts()["torch"]
        beside = workload_rows(name, argv)
        for _ in range(turns):
            run_side_by_side(bench.device, beside, bench.started)
        alone = [row for row in workload_rows(name, argv) if "expandable" not in row.name]
        backend = Row(f"{name}, cudaMallocAsync", [*argv, "--steps", str(BACKEND_STEPS)],
                      env={"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"})
        run_rows(bench.device, [*alone, backend], {}, bench.started)
        goals = [speed_goal(words(name)[0], beside[-1], beside[:-1]),
                 memory_goal(words(name)[1], alone[-1], alone[0], backend, context)]
        for rows in beside, alone:
            right, word = verdict(rows[-1], rows)
            if right is False:  # None, where it was not run, is no result either
                goals.append(Goal(f"PyTorch {name}: same result", word, "yes", False))
        return goals
    return run


def probes(turns):
    wanted = (f">= {SPEED}", f"<= {MEMORY}")
    return [Probe(f"PyTorch {name}", True, list(zip(words(name), wanted)), measure(name, argv, turns))
            for name, argv in workloads().items()]
