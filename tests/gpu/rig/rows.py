"""The programs that are run, in order, and what is expected of them."""
# SPDX-License-Identifier: Apache-2.0
import os
import sys
from dataclasses import dataclass, field
from statistics import median

from .build import PROGRAM_SOURCES, ROOT
from .copying import copy_goals, copy_rows
from .poisoning import poison_rows, written
from .spilling import spill_rows
from .table import REFUSED_MS, Goal
from .torch_modes import torch_rows

WARM_UP = 6  # training steps at the start that say nothing about speed


@dataclass
class Row:
    name: str
    argv: list
    preload: bool = False
    env: dict = field(default_factory=dict)
    like: str | None = None   # the row whose results must come out again
    tolerance: float = 0      # relative, for the numbers among them
    context: str = "cuda"     # whose empty context stands in its ratio: cuda or torch
    repeat: int = 1           # rows that follow each other with the same number above 1 take turns
    table: bool = True
    section: str = "core"
    limit: float = 120        # seconds that it may take
    accuses: bool = False     # under VPOOL_POISON, and nothing is to be found
    may_fail: bool = False    # it is told what it does, and no fault if it does not work, but for wrong data and hangs
    beside: str = ""          # neighbours that say the same run at the same time; what the device's memory peaks at is not told
    runs: list = field(default_factory=list)
    skipped: str = ""         # why it has no runs

    # ---- what its runs say, None where they do not

    def best(self, pick, choose=median):
        """One figure of all runs."""
        values = [value for value in (pick(run) for run in self.runs) if isinstance(value, (int, float))]
        return choose(values) if values else None

    def figure(self, name):
        return self.best(lambda run: run.result.get(name))

    def stat(self, name):
        return self.best(lambda run: run.stats.get(name), max)

    def timed(self):
        """The laps of each step, in milliseconds, of every turn."""
        return [run.result["lap_ms"] for run in self.runs if run.worked and run.result.get("lap_ms")]

    def step_ms(self, turns=None):
        """Each step's time, as the sum of its laps, each at its least of all turns, or of so many: a host that others
        share only ever adds to it."""
        return [sum(min(times) for times in zip(*laps)) for laps in zip(*self.timed()[:turns])]

    @property
    def peak(self):
        return self.best(lambda run: run.peak, max)

    @property
    def live(self):
        return self.best(lambda run: run.live, max)


def script(name, *arguments):
    return [sys.executable, os.path.join(PROGRAM_SOURCES, name), *arguments]


def python_example(name, *arguments):
    return [sys.executable, os.path.join(ROOT, "examples", name), "--json", *arguments]


def empty_contexts(work):
    """What a context takes before a program has done anything: see contexts_of()."""
    return [Row("empty context", [os.path.join(work, "context")], table=False),
            Row("empty torch context", script("torch_context.py"), table=False)]


def workloads():
    """PyTorch programs like those that people run, by name."""
    return {
        "training": python_example("train.py", "--side-stream"),
        "fine-tuning": python_example("finetune.py"),
        "generation": python_example("generate.py"),
    }


def workload_rows(name, argv):
    """One of them under PyTorch's own allocators, then under ours, to which PyTorch leaves each tensor."""
    base = f"{name}, its cache"
    more = dict(context="torch", tolerance=1e-2)
    return [Row(base, argv, **more),
            Row(f"{name}, expandable", argv, like=base,
                env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, **more),
            Row(f"{name}, vpool", argv, like=base, preload=True, env={"VPOOL_ADOPT": "async"}, **more)]


SECTIONS = {
    "core": "examples and test programs by each way to CUDA, PyTorch, JAX, CuPy, numba, stress, cost of a call",
    "software": "CUDA's libraries, all of PyTorch's operators, compute-sanitizer",
    "memory": "memory pools to the letter, CUDA graphs of PyTorch, command buffers of JAX",
    "spill": "all of it in the host's memory, and training in too little memory beside cudaMallocManaged (only if asked for)",
    "peers": "copies and kernels between two GPUs, NCCL, DistributedDataParallel, FSDP (skipped on one GPU)",
    "ipc": "memory shared between processes: torch.multiprocessing, cuIpc* on pooled memory",
    "torch": "each feature of PyTorch's allocator, bare and with each VPOOL_ADOPT (only if asked for)",
    "soak": "mixed programs for eight minutes (only if asked for)",
}
LONG = ("soak", "spill", "torch")


def software_rows(work, quick):
    """Programs of others, each bare and under libvpool.so, with the same results."""
    build = os.path.dirname(work)
    rows = []

    def both(name, argv, **more):
        rows.append(Row(name + ", bare", argv, section="software", **more))
        rows.append(Row(name + ", vpool", argv, section="software", preload=True, like=name + ", bare", **more))

    def sanitized(*argv):
        return script("sanitize.py", os.path.join(work, "planted"), *argv)

    both("CUDA's libraries", [os.path.join(work, "libraries"), "8" if quick else "40"], tolerance=1e-9)
    both("PyTorch's operators", script("torch_ops.py", "--every", "8" if quick else "1"), context="torch", limit=240)
    for name in "train_driver", "train_runtime":
        both(f"{name}, sanitized", sanitized(os.path.join(build, "examples", name), "--scale", "4"))
    both("test program, sanitized", sanitized(os.path.join(work, "churn-static"), "500"))
    return rows


def made_up_row(work, runtime_folder, quick):
    """Random programs of CUDA calls: each must be answered the same bare and under the library."""
    build = os.path.dirname(work)
    return Row("made-up programs as bare", [sys.executable, os.path.join(ROOT, "tests/process/doors/compare"),
               os.path.join(build, "tests/process/doors/doors"), "--device", "--jobs", "12", "--seconds", "25" if quick else "90"],
               section="memory", env={"LD_LIBRARY_PATH": runtime_folder or ""}, limit=240)


def memory_rows(work):
    """What the calls on memory mean, each answer as it is without us; and memory whose addresses a graph knows."""
    build = os.path.dirname(work)
    rows = []

    def both(name, argv, env=None, bare_env=None, **more):
        rows.append(Row(name + ", bare", argv, section="memory", env=(env or {}) | (bare_env or {}), **more))
        rows.append(Row(name + ", vpool", argv, section="memory", preload=True, env=env or {}, like=name + ", bare",
                        **more))

    rows.append(Row("pause and resume", [os.path.join(build, "tests", "gpu", "pausing"), "4096", "2"], section="memory",
                    preload=True))
    rows.append(Row("planted faults are found", [os.path.join(build, "tests", "gpu", "poisoned")], section="memory",
                    preload=True, env={"VPOOL_POISON": "1"}))
    rows.append(Row("two processes asleep in turns", [os.path.join(build, "examples", "alternate")], section="memory",
                    preload=True))
    both("memory pools to the letter", [os.path.join(build, "tests", "gpu", "pool_answers")])
    both("answers after a kernel has failed", [os.path.join(work, "failed")])
    # Another version of the driver may answer otherwise.
    rows.append(Row("the driver answers as recorded", script("driver_answers.py"), section="memory", may_fail=True))
    torch = dict(context="torch", tolerance=1e-4)
    both("PyTorch's graphs", script("graphs.py", "step"), **torch)
    rows.append(Row("PyTorch's graphs, cudaMallocAsync", script("graphs.py", "step"), section="memory",
                    like="PyTorch's graphs, bare", env={"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}, **torch))
    rows.append(Row("PyTorch's graphs, vpool under its cache", script("graphs.py", "step"), section="memory",
                    preload=True, like="PyTorch's graphs, bare", env={"VPOOL_ADOPT": "0"}, **torch))
    # Graph trees need PyTorch's own cache.
    both("graph trees", script("graphs.py", "compiled"), limit=240, env={"VPOOL_ADOPT": "0"},
         context="torch", tolerance=1e-3)
    both("JAX's command buffers", script("jax_mlp.py"), tolerance=1e-4,
         env={"XLA_FLAGS": "--xla_gpu_autotune_level=0 --xla_gpu_graph_min_graph_size=1"},
         bare_env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"})
    return rows


def peer_rows(work, turns, before):
    """Programs on two GPUs, of which the environment may name others than the first two."""
    env = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0,1")}
    rows = [Row("nodes between devices, CUDA's answers", [os.path.join(os.path.dirname(work), "tests", "gpu", "node_answers")],
                env=env, section="peers", limit=60)]
    for name, argv, more in (
            ("peers", [os.path.join(work, "peers")], dict(repeat=turns)),
            ("NCCL", script("ranks.py", "collectives"), dict(repeat=max(turns, 3), context="torch")),
            ("a pause of ranks", script("ranks.py", "asleep"), dict(context="torch")),
            ("data-parallel training", script("ranks.py", "training"), dict(context="torch", tolerance=1e-3)),
            ("sharded training", script("ranks.py", "sharded"), dict(context="torch", tolerance=1e-3))):
        for preload in (False, True):
            rows.append(Row(f"{name}, {'vpool' if preload else 'bare'}", argv, preload=preload, env=env,
                            like=f"{name}, bare" if preload else None, section="peers", limit=180, **more))
    return rows + copy_rows(Row, script, python_example("train.py", "--steps", "8"), work, env, turns, before)


def peer_goals(rows):
    """Bandwidth between GPUs, each at its best of all turns."""
    row = {row.name: row for row in rows}
    result = []
    for name, figure in (("peers", "copy_gb_s"), ("peers", "kernel_gb_s"),
                         ("copies", "plain_gb_s"), ("copies", "peer_gb_s"), ("copies", "again_gb_s"),
                         ("NCCL", "all_reduce_gb_s"), ("NCCL", "send_recv_gb_s")):
        ours, bare = (row[f"{name}, {how}"].best(lambda run: run.result.get(figure), max) for how in ("vpool", "bare"))
        if ours and bare:
            result.append(Goal(f"{name}: {figure[:-5].replace('_', '-')} against bare",
                               f"{ours / bare:.4f} ({ours:.1f} / {bare:.1f} GB/s)", ">= 0.98", ours / bare >= 0.98))
    refused = row["a pause of ranks, vpool"].best(lambda run: run.result.get("refused_ms"), max)
    if refused is not None:
        result.append(Goal("vpool_pause() of one of several NCCL ranks: refused within", f"{refused:.2f} ms", f"<= {REFUSED_MS} ms",
                           refused <= REFUSED_MS))
    return result + copy_goals(rows)


def ipc_rows(work):
    """Memory shared between two processes."""
    def shared(word, **more):
        return Row(f"shared tensors, {word}", script("torch_share.py"), context="torch", section="ipc", table=False, **more)

    def plain(word, **more):
        return Row(f"shared memory, {word}", [os.path.join(os.path.dirname(work), "examples", "ipc"), "--json"],
                   section="ipc", table=False, **more)

    return [shared("bare"),
            shared("vpool", preload=True, env={"VPOOL_ADOPT": "0"}, like="shared tensors, bare"),
            plain("bare"),
            plain("vpool", preload=True, like="shared memory, bare"),
            plain("all apart, vpool", preload=True, env={"VPOOL_IPC": "alone"}, like="shared memory, bare")]


def soak_rows(work, seconds):
    others = [os.path.join(work, "churn-static") + " 20000", os.path.join(work, "stress") + " --seconds 10",
              " ".join(script("cupy_arrays.py")),
              " ".join(script("numba_vectors.py"))]
    return [Row("soak, vpool", script("soak.py", "--seconds", str(seconds), *others), preload=True, context="torch",
                section="soak", limit=seconds + 90)]


def both(name, argv, env=None, bare_env=None, **more):
    """A row bare, and one under libvpool.so that must do the same."""
    return [Row(name + ", bare", argv, env=(env or {}) | (bare_env or {}), **more),
            Row(name + ", vpool", argv, preload=True, env=env or {}, like=name + ", bare", **more)]


def cuda_rows(work, runtime_folder, quick):
    """Programs of CUDA C, by each way to the runtime."""
    def example(name, *arguments):
        return [os.path.join(os.path.dirname(work), "examples", name), *arguments, "--json"]

    folders = [folder for folder in (runtime_folder, os.environ.get("LD_LIBRARY_PATH")) if folder]
    found = {"LD_LIBRARY_PATH": ":".join(folders)} if folders else {}
    steps = "4000" if quick else "20000"
    scale = ["--scale", "8" if quick else "32"]
    return [*both("static nvcc binary", [os.path.join(work, "churn-static"), steps]),
            *both("shared-cudart binary", [os.path.join(work, "churn-shared"), steps]),
            *both("runtime-API example", example("train_runtime", *scale), env=found),
            *both("driver-API example", example("train_driver", *scale), env=found)]


def pytorch_rows(quick):
    """Its own allocator and ours take turns, so that neither has the better moment."""
    train = python_example("train.py", "--side-stream", "--steps", "12" if quick else "30")
    turns = 1 if quick else 6
    torch = dict(context="torch", tolerance=1e-2)
    base = "PyTorch, its cache"
    rows = [Row(base, train, repeat=turns, **torch)]
    rows.append(Row("PyTorch, vpool", train, preload=True, like=base, repeat=turns, **torch))
    rows.append(Row("PyTorch, expandable", train, like=base,
                    env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, **torch))
    rows.append(Row("PyTorch, cudaMallocAsync", train, like=base,
                    env={"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}, **torch))
    rows.append(Row("PyTorch, vpool, uncached", train, preload=True, like=base,
                    env={"VPOOL_ADOPT": "0", "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, **torch))
    rows.append(Row("PyTorch, vpool under its cache", train, preload=True, like=base,
                    env={"VPOOL_ADOPT": "0"}, **torch))
    return rows


def framework_rows():
    return [*both("JAX", script("jax_mlp.py"), tolerance=1e-4, env={"XLA_FLAGS": "--xla_gpu_autotune_level=0"},
                  bare_env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}),
            *both("CuPy", script("cupy_arrays.py"), tolerance=1e-9),
            *both("CuPy, no pool", script("cupy_arrays.py", "--no-pool"), tolerance=1e-9),
            *both("numba", script("numba_vectors.py"))]


def stress_rows(work, quick):
    """Every byte checked on the device."""
    def stress(*arguments):
        return [os.path.join(work, "stress"), *arguments]

    many = {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}
    seconds = 4 if quick else 15
    little = stress("--seed", "2", "--seconds", str(seconds), "--leave", "4096", "--live", "2600")
    third = stress("--seed", "3", "--seconds", str(seconds / 2))
    return [Row("stress, bare", stress("--seconds", str(seconds / 3)), env=many),
            Row("stress, vpool", stress("--seconds", str(seconds)), preload=True, env=many),
            Row("stress, little memory, vpool", little, preload=True, env=many),
            Row("stress, vpmm, vpool", third, preload=True, env=many | {"VPOOL_POLICY": "vpmm"})]


def call_rows(work):
    """What a call costs."""
    pairs = os.path.join(work, "pairs")
    return [Row("call pairs, bare", [pairs]), Row("call pairs, vpool", [pairs], preload=True),
            Row("64 MiB pairs, vpool", [pairs, "sync_64m"], preload=True)]


def all_rows(work, runtime_folder, quick, before=None, seconds=None):
    """In the order in which they run. `work` holds the compiled programs, `runtime_folder` libcudart.so; `before` is another libvpool.so;
    PyTorch is under stress for so many seconds."""
    return [*empty_contexts(work), *cuda_rows(work, runtime_folder, quick), *pytorch_rows(quick), *framework_rows(),
            *stress_rows(work, quick), *call_rows(work), *software_rows(work, quick), *memory_rows(work),
            made_up_row(work, runtime_folder, quick),
            *poison_rows(Row, script, python_example), *ipc_rows(work),
            *peer_rows(work, 1 if quick else 3, before), *torch_rows(Row, script, work, quick, seconds),
            *spill_rows(Row, script, work, quick), *soak_rows(work, 60 if quick else 480)]


# ---- is a row right?

COMPARED = ("checksum", "final_loss", "alloc_calls", "answers")


def difference(one, other):
    """The largest relative difference of two results; infinite where they are not alike at all."""
    most = 0.0
    for name in COMPARED:
        a, b = one.get(name), other.get(name)
        if a == b:
            continue
        if not isinstance(a, (int, float)) or not isinstance(b, (int, float)):
            return float("inf")
        relative = abs(a - b) / max(abs(a), abs(b), 1e-300)
        most = max(most, relative if relative == relative else float("inf"))
    return most


def verdict(row, rows):
    """Whether the row is right (None: it was not run), and that in a word or two."""
    if not row.runs:
        return None, row.skipped or "not run"
    for run in row.runs:
        if run.skipped:
            return None, run.skipped
        if row.may_fail and run.code is not None and not run.worked:
            wrong = run.result.get("wrong") or run.result.get("mismatches")
            return (False, "WRONG DATA") if wrong else (True, "does not work")
        if run.code is None:
            return False, "TIMED OUT"
        if run.code != 0:
            return False, f"FAILED ({run.code})"
        if not run.result:
            return False, "NO RESULT"
        if not run.worked:
            return False, "WRONG DATA"
        if row.preload and not run.stats:
            return False, "NO STATISTICS"
        if row.accuses and written(run) != 0:
            return False, f"ACCUSED ({written(run)})"
    if row.like is None:
        return True, "right"
    reference = next(other for other in rows if other.name == row.like)
    worked = [run for run in reference.runs if run.worked]
    if not worked:
        return True, "right, not compared"
    most = max(difference(run.result, worked[0].result) for run in row.runs)
    answers, theirs = (run.result.get("answers") or {} for run in (row.runs[0], worked[0]))
    if answers != theirs:
        others = [f"{question} ({answers.get(question)}, not {theirs.get(question)})"
                  for question in answers | theirs if answers.get(question) != theirs.get(question)]
        return False, f"{len(others)} DIFFER: " + "; ".join(others[:4])
    if most > row.tolerance:
        return False, f"DIFFERS ({most:.1g})"
    if most > 0:
        return True, f"within {most:.0e}"
    return True, "same" if any(name in worked[0].result for name in COMPARED) else "right"


# ---- what the project promises

def contexts_of(rows):
    """Bytes of the device that an empty context takes, of plain CUDA and of PyTorch."""
    row = {row.name: row for row in rows}
    cuda, empty = row["empty context"].peak, row["empty torch context"]
    torch = empty.peak
    if torch is not None:
        torch -= int(empty.figure("peak_reserved_bytes") or 0)
    return {"cuda": cuda, "torch": cuda if torch is None else torch}


def speed(row, base):
    """How fast the row trains beside `base`, and by how many steps that is judged. A step is as long in one run as in
    any other, so each is compared with itself; the median over them leaves out what befell a few."""
    turns = min(len(row.timed()), len(base.timed()))
    ratios = [theirs / ours for ours, theirs in zip(row.step_ms(turns), base.step_ms(turns))][WARM_UP:]
    return (median(ratios), len(ratios)) if ratios else (None, 0)


def goals(rows, contexts):
    row = {row.name: row for row in rows}
    mib = 1 << 20
    result = []

    vpool, base = row["PyTorch, vpool"], row["PyTorch, its cache"]
    peak, context = vpool.peak, contexts.get("torch")
    live = min((count for count in (vpool.live, base.live) if count), default=None)
    if None in (peak, live, context):
        result.append(Goal("PyTorch's peak / (live + context)", "not measured", "<= 1.03", None))
    else:
        ratio = peak / (live + context)
        figure = f"{ratio:.4f} ({peak / mib:.0f} MiB / ({live / mib:.0f} + {context / mib:.0f}))"
        reserved = base.figure("peak_reserved_bytes")
        if base.peak and reserved:  # the same with the kernels that this very program loads
            loaded = base.peak - reserved
            figure += f"; with loaded kernels {peak / (live + loaded):.4f} (context {loaded / mib:.0f})"
        result.append(Goal("PyTorch's peak / (live + context)", figure, "<= 1.03", ratio <= 1.03))

    ratio, steps = speed(vpool, base)
    ours, theirs = vpool.figure("tokens_per_s"), base.figure("tokens_per_s")
    if ratio is None or not ours or not theirs:
        result.append(Goal("PyTorch's tokens/s against its cache", "not measured", ">= 0.97", None))
    else:
        turns = min(len(vpool.runs), len(base.runs))
        figure = (f"{ratio:.4f} (median of {steps} steps, each at its best of {turns}); "
                  f"medians of whole runs {ours / theirs:.4f} ({ours:.0f} / {theirs:.0f})")
        result.append(Goal("PyTorch's tokens/s against its cache", figure, ">= 0.97", ratio >= 0.97))

    pairs, native = row["64 MiB pairs, vpool"], row["call pairs, bare"]
    ns, native_ns, held = pairs.figure("sync_64m"), native.figure("sync_64m"), pairs.stat("peak_held_bytes")
    figure = f"{ns:.0f} ns (native {native_ns or 0:.0f} ns)" if ns else "not measured"
    result.append(Goal("cudaMalloc + cudaFree of 64 MiB, idle", figure, "< 3000 ns", ns < 3000 if ns else None))
    measured = held is not None
    figure = f"{held / mib:.0f} MiB" if measured else "not measured"
    result.append(Goal("  and held meanwhile", figure, "<= 128 MiB", held <= 128 * mib if measured else None))

    stress = [one for one in rows if one.name.startswith("stress") and one.preload and one.runs]
    wrong = sum(one.figure("mismatches") or 0 for one in stress)
    checked = sum(one.figure("ops") or 0 for one in stress)
    figure = f"{wrong:.0f} mismatches in {checked:.0f} operations" if stress else "not measured"
    right = wrong == 0 and all(run.worked for one in stress for run in one.runs)
    result.append(Goal("stress on the device", figure, "0", right if stress else None))
    return result
