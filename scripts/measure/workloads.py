"""PyTorch programs under its own two allocators and under libvpool.so: speed, and memory as NVML sees it."""
from bench import Probe
from rows import Row, verdict, workload_rows, workloads
from runner import run_rows
from table import MIB, Goal

SPEED, MEMORY = 0.995, 1.01
BACKEND_STEPS = 4  # enough for its kernels to be loaded


def seconds_of(row):
    """The whole run, its first steps included: each step at its best of all turns, as what others on the machine do
    only ever adds to it."""
    return sum(row.step_ms()) / 1e3


def speed_goal(what, ours, bases):
    times = {row.name.split(", ")[-1]: seconds_of(row) for row in bases if row.step_ms()}
    if not ours.step_ms() or not times:
        return Goal(what, "not measured", f">= {SPEED}", None)
    best = min(times, key=times.get)
    ratio = times[best] / seconds_of(ours)
    others = ", ".join(f"{name} {time:.2f}" for name, time in times.items())
    steps = f"first three steps {sum(ours.step_ms()[:3]):.0f} ms, best of theirs " \
            f"{min(sum(row.step_ms()[:3]) for row in bases if row.step_ms()):.0f}"
    return Goal(what, f"{ratio:.4f} (s in all: {others}, vpool {seconds_of(ours):.2f}; {steps})", f">= {SPEED}",
                ratio >= SPEED)


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
    return f"PyTorch {name}: speed / the better of its own", f"PyTorch {name}: peak / (live + context)"


def measure(name, argv, turns):
    def run(bench):
        context = bench.empty_contexts()["torch"]
        rows = workload_rows(name, argv, turns)
        backend = Row(f"{name}, cudaMallocAsync", [*argv, "--steps", str(BACKEND_STEPS)],
                      env={"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"})
        run_rows(bench.device, [*rows, backend], {}, bench.started)
        bases, ours = rows[:-1], rows[-1]
        goals = [speed_goal(words(name)[0], ours, bases),
                 memory_goal(words(name)[1], ours, rows[0], backend, context)]
        right, word = verdict(ours, rows)
        if not right:  # None, where it was not run, is no result either
            goals.append(Goal(f"PyTorch {name}: same result", word, "yes", right))
        return goals
    return run


def probes(turns):
    wanted = (f">= {SPEED}", f"<= {MEMORY}")
    return [Probe(f"PyTorch {name}", True, list(zip(words(name), wanted)), measure(name, argv, turns))
            for name, argv in workloads().items()]
